// A time line: requests as they come, and how many hits lie in the last window.

const SVG = "http://www.w3.org/2000/svg";
// What is seen of the past and of the future, in windows.
const PAST = 1.45;
const FUTURE = 0.75;

export class Lane {
  constructor(svg, { edges }) {
    this.svg = svg;
    this.edges = edges;
    this.marks = new Map();
    this.ticks = new Map();
    const id = svg.id;
    svg.innerHTML = `
      <defs>
        <clipPath id="${id}-past"><rect y="0" x="0"/></clipPath>
        <clipPath id="${id}-future"><rect y="0"/></clipPath>
        <clipPath id="${id}-above"><rect y="0" x="0"/></clipPath>
        <clipPath id="${id}-below"><rect x="0"/></clipPath>
      </defs>
      <rect class="band" y="0"/>
      <text class="band-label" y="14"></text>
      <g clip-path="url(#${id}-future)"><path class="area expected flow"/></g>
      <g clip-path="url(#${id}-past)">
        <g clip-path="url(#${id}-below)"><path class="area flow"/></g>
        <g clip-path="url(#${id}-above)"><path class="area excess flow"/></g>
      </g>
      <line class="limit"/>
      <text class="limit-label" text-anchor="end"></text>
      <g class="flow ticks"></g>
      <line class="base"/>
      <line class="now" y1="0"/>
      <rect class="behind" width="36" height="15"/>
      <text class="now-label" text-anchor="middle">now</text>
      <g class="flow marks"></g>`;
    this.flows = [...svg.querySelectorAll(".flow")];
    this.find = (selector) => svg.querySelector(selector);
    new ResizeObserver(() => this.measure()).observe(svg);
  }

  // A new scale; `zero` is the time that all positions count from.
  scale({ limit, window, zero }) {
    Object.assign(this, { limit, window, zero });
    this.clear();
    this.measure();
  }

  clear() {
    for (const mark of this.marks.values()) mark.remove();
    this.marks.clear();
    this.data = null;
    for (const path of this.svg.querySelectorAll(".area")) path.setAttribute("d", "");
  }

  measure() {
    const { width, height } = this.svg.getBoundingClientRect();
    if (!width || !this.limit) return;
    this.width = width;
    for (const tick of this.ticks.values()) tick.remove();
    this.ticks.clear();
    this.perMs = width / ((PAST + FUTURE) * this.window);
    this.nowX = PAST * this.window * this.perMs;
    this.base = height - 22;
    this.unit = (this.base - 8) / (2 * this.limit + 2);
    const top = this.y(this.limit);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    set(this.find("clipPath[id$=past] rect"), { width: this.nowX, height: this.base });
    set(this.find("clipPath[id$=future] rect"), { x: this.nowX, width, height: this.base });
    set(this.find("clipPath[id$=above] rect"), { width, height: top });
    set(this.find("clipPath[id$=below] rect"), { y: top, width, height: this.base - top });
    set(this.find(".limit"), { x1: 0, x2: width, y1: top, y2: top });
    set(this.find(".limit-label"), { x: width - 6, y: top - 5 });
    this.find(".limit-label").textContent = `limit ${this.limit}`;
    const name = this.edges ? "this window" : `the last ${this.window / 1000} s`;
    this.find(".band-label").textContent = name;
    set(this.find(".base"), { x1: 0, x2: width, y1: this.base, y2: this.base });
    set(this.find(".now"), { x1: this.nowX, x2: this.nowX, y2: this.base });
    set(this.find(".behind"), { x: this.nowX - 18, y: this.base + 6 });
    set(this.find(".now-label"), { x: this.nowX, y: this.base + 15 });
    set(this.find(".band"), { height: this.base });
    if (this.data) this.draw(...this.data);
  }

  x(at) {
    return (at - this.zero) * this.perMs;
  }

  y(count) {
    return this.base - count * this.unit;
  }

  // `counts`: hits in the window after each request; `curve`: the same over time.
  draw(requests, admitted, counts, curve) {
    this.data = [requests, admitted, counts, curve];
    let d = `M${this.x(curve[0]?.[0] ?? 0)},${this.base}`;
    for (const [at, count] of curve) d += `H${this.x(at)}V${this.y(count)}`;
    for (const path of this.svg.querySelectorAll(".area")) path.setAttribute("d", d);
    let pile = { at: -Infinity, top: 0 };
    requests.forEach((request, i) => {
      const mark = this.mark(request);
      mark.setAttribute("class", `mark ${admitted[i] ? "admitted" : "refused"} ${request.source}`);
      let top = counts[i];
      if (!admitted[i]) {
        // Refusals pile up on the limit; what does not fit is left to the numbers.
        const floor = Math.max(this.limit, counts[i]) + 0.5;
        const near = (request.at - pile.at) * this.perMs < 9;
        top = near ? pile.top + 1 : floor + 1;
        pile = { at: near ? pile.at : request.at, top };
      }
      this.place(mark, request, admitted[i], Math.min(top, 2 * this.limit + 1.5));
    });
  }

  mark(request) {
    let mark = this.marks.get(request);
    if (!mark) {
      mark = document.createElementNS(SVG, "g");
      mark.append(document.createElementNS(SVG, "path"));
      this.find(".marks").append(mark);
      this.marks.set(request, mark);
    }
    return mark;
  }

  place(mark, request, admitted, top) {
    const radius = Math.min(5, Math.max(2, this.unit * 0.44));
    const height = Math.max(0, (request.cost - 1) * this.unit);
    mark.setAttribute("transform", `translate(${this.x(request.at)},${this.y(top) + this.unit / 2})`);
    const r = radius * 0.8;
    const pill = `M${-radius},0a${radius},${radius} 0 0 1 ${2 * radius},0v${height}a${radius},${radius} 0 0 1 ${-2 * radius},0z`;
    const cross = `M${-r},${-r}L${r},${r}M${r},${-r}L${-r},${r}`;
    mark.firstChild.setAttribute("d", admitted ? pill : cross);
  }

  // The picture of this moment.
  show(now) {
    if (!this.width) return;
    const shift = `translate(${this.nowX - this.x(now)},0)`;
    for (const flow of this.flows) flow.setAttribute("transform", shift);
    const start = this.edges ? Math.floor(now / this.window) * this.window : now - this.window;
    const end = this.edges ? start + this.window : now;
    const left = this.nowX - (now - start) * this.perMs;
    set(this.find(".band"), { x: left, width: (end - start) * this.perMs });
    set(this.find(".band-label"), { x: Math.max(0, left) + 6 });
    this.tick(now);
    const oldest = now - PAST * this.window;
    for (const [request, mark] of this.marks) {
      mark.classList.toggle("left", request.at <= now - this.window);
      if (request.at < oldest - 1000) {
        mark.remove();
        this.marks.delete(request);
      }
    }
  }

  // Seconds on the axis, and the edges of fixed windows.
  tick(now) {
    const from = Math.ceil((now - PAST * this.window) / 1000);
    const to = Math.floor((now + FUTURE * this.window) / 1000);
    const labelled = this.window > 5000 ? 5 : 2;
    for (let second = from; second <= to; second += 1) {
      if (this.ticks.has(second)) continue;
      const tick = document.createElementNS(SVG, "g");
      const edge = this.edges && (second * 1000) % this.window === 0;
      const label = second % labelled === 0;
      tick.setAttribute("transform", `translate(${this.x(second * 1000)},0)`);
      tick.setAttribute("class", edge ? "edge" : "tick");
      tick.innerHTML = `<line y1="${edge ? 0 : this.base}" y2="${this.base + (label ? 6 : 3)}"/>`;
      if (label) {
        const text = new Date(second * 1000).toLocaleTimeString([], { minute: "2-digit", second: "2-digit" });
        tick.innerHTML += `<text y="${this.base + 17}" text-anchor="middle">${text}</text>`;
      }
      this.find(".ticks").append(tick);
      this.ticks.set(second, tick);
    }
    for (const [second, tick] of this.ticks) {
      if (second < from - 2 || second > to + 2) {
        tick.remove();
        this.ticks.delete(second);
      }
    }
  }
}

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
}
