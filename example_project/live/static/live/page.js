// The live page: fires requests, and shows what the server says of them.

import { Lane } from "./lane.js";
import { fixedWindow, steps, summary, trailing } from "./model.js";

const find = (selector) => document.querySelector(selector);
const form = find("#controls");
const sliding = new Lane(find("#sliding"), { edges: false });
const fixed = new Lane(find("#fixed"), { edges: true });
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const FIELDS = ["RateLimit-Policy", "RateLimit", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset", "Retry-After"];
const SOURCES = {
  redis: "decided by Redis, in one script call",
  shield: "answered from this process’s memory: Redis was not asked again",
  local: "Redis is away: decided by windows of this process’s own",
};
// A burst across an edge: so long before and after it, in milliseconds.
const BEFORE = 900;
const AFTER = 300;

let requests = [];
let limit = 10;
let window_ = 10000;
let retryAt = null;
let running = 0;

// The server's clock, as the quickest answer so far tells it.
const clock = { offset: 0, error: Infinity };
const here = () => performance.timeOrigin + performance.now();
const now = () => here() + clock.offset;

function choices() {
  return Object.fromEntries(new FormData(form));
}

function post(url, fields = {}) {
  const token = form.elements.csrfmiddlewaretoken.value;
  return fetch(url, { method: "POST", body: new URLSearchParams(fields), headers: { "X-CSRFToken": token } });
}

async function hit() {
  const { algorithm, limit, cost, in_flight } = choices();
  const query = new URLSearchParams({ algorithm, limit, cost });
  if (in_flight) query.set("in_flight", in_flight);
  const sent = here();
  const response = await fetch(`${form.dataset.hit}?${query}`, { cache: "no-store" });
  const answered = here();
  const at = Number(response.headers.get("X-Demo-Time"));
  if (answered - sent < clock.error) {
    clock.error = answered - sent;
    clock.offset = at - (sent + answered) / 2;
  }
  const request = { at, cost: Number(cost), admitted: response.ok, source: response.headers.get("X-Demo-Source") };
  requests.push(request);
  requests.sort((a, b) => a.at - b.at);
  tell(response, request);
  draw();
  return request;
}

async function fire(count) {
  const round = running;
  try {
    const made = await Promise.all(Array.from({ length: count }, hit));
    if (round === running) announce(made);
    return made;
  } catch {
    say("The server does not answer. Is ./scripts/demo still running?");
    return [];
  }
}

async function burst() {
  const round = (running += 1);
  const count = Math.max(1, Math.floor(limit / Number(choices().cost)));
  let edge = Math.ceil(now() / window_) * window_;
  if (edge - now() < BEFORE + 500) edge += window_;
  const made = [];
  say("Waiting for the next edge of a fixed window:");
  for (const moment of [edge - BEFORE, edge + AFTER]) {
    while (now() < moment) {
      if (round !== running) return;
      find("#countdown").textContent = made.length ? "" : `${((moment - now()) / 1000).toFixed(1)} s`;
      await new Promise((done) => setTimeout(done, Math.min(100, moment - now())));
    }
    made.push(...(await fire(count)));
  }
  announce(made, "Around the edge: ");
}

function announce(made, before = "") {
  if (!made.length) return;
  const passed = made.filter((request) => request.admitted).length;
  const refused = made.length - passed;
  const wait = refused && retryAt ? `, come back in ${Math.max(0, Math.ceil((retryAt - now()) / 1000))} s` : "";
  say(`${before}${made.length} sent, ${passed} admitted, ${refused} refused${wait}.`);
}

function say(text) {
  find("#countdown").textContent = "";
  find("#said").textContent = text;
}

// The last response, as its headers report it.
function tell(response, request) {
  const field = (name) => response.headers.get(name);
  const status = find("#status");
  status.textContent = `${response.status} ${response.statusText || (response.ok ? "OK" : "Too Many Requests")}`;
  status.className = response.ok ? "good" : "bad";
  find("#remaining").textContent = field("RateLimit-Remaining");
  find("#of").textContent = `of ${field("RateLimit-Limit")} left`;
  find("#meter").value = Number(field("RateLimit-Remaining")) / Number(field("RateLimit-Limit"));
  const retry = field("Retry-After");
  retryAt = retry === null ? null : request.at + Number(retry) * 1000;
  find("#headers").replaceChildren(
    ...FIELDS.filter((name) => field(name) !== null).flatMap((name) => {
      const [key, value] = [document.createElement("dt"), document.createElement("dd")];
      [key.textContent, value.textContent] = [name, field(name)];
      key.dataset.name = name;
      return [key, value];
    }),
  );
  find("#source").textContent = request.source;
  find("#source").className = `chip ${request.source}`;
  find("#source-means").textContent = SOURCES[request.source] ?? "";
  const open = field("X-Demo-Breaker") !== "closed";
  find("#breaker").textContent = open ? "open: Redis is not asked, but for a probe now and then" : "closed: Redis is asked";
  record(response, request, retry);
}

function record(response, request, retry) {
  const row = document.createElement("tr");
  const time = new Date(request.at).toISOString().slice(14, 23);
  const cells = [time, response.status, request.cost, response.headers.get("RateLimit-Remaining"), retry === null ? "–" : `${retry} s`, request.source];
  for (const text of cells) row.insertCell().textContent = text;
  row.className = response.ok ? "admitted" : "refused";
  const body = find("#log tbody");
  body.prepend(row);
  while (body.rows.length > 40) body.deleteRow(-1);
}

function draw() {
  const real = requests.map((request) => request.admitted);
  const would = fixedWindow(requests, limit, window_);
  for (const [lane, admitted, name] of [[sliding, real, "sliding"], [fixed, would, "fixed"]]) {
    const counts = trailing(requests, admitted, window_);
    lane.draw(requests, admitted, counts, steps(requests, admitted, window_));
    const { passed, refused, most } = summary(requests, admitted, window_);
    find(`#${name}-passed`).textContent = passed;
    find(`#${name}-refused`).textContent = refused;
    find(`#${name}-most`).textContent = most;
    find(`#${name}-most`).parentElement.classList.toggle("over", most > limit);
  }
}

async function startOver() {
  running += 1;
  const choice = form.querySelector("[name=limit]:checked").dataset;
  limit = Number(choice.limit);
  window_ = Number(choice.window) * 1000;
  requests = [];
  retryAt = null;
  await post(form.dataset.reset).catch(() => {});
  for (const lane of [sliding, fixed]) lane.scale({ limit, window: window_, zero: now() });
  for (const text of document.querySelectorAll(".window-seconds")) text.textContent = window_ / 1000;
  find("#log tbody").replaceChildren();
  find("#algorithm-means").textContent = form.querySelector("[name=algorithm]:checked").title;
  find("#remaining").textContent = limit;
  find("#of").textContent = `of ${limit} left`;
  find("#meter").value = 1;
  find("#status").className = "";
  find("#status").textContent = "No request yet";
  find("#headers").replaceChildren();
  draw();
  say("Ready. Fire a request.");
}

async function pull(button) {
  button.disabled = true;
  try {
    const on = button.dataset.running !== "true";
    const response = await post(button.dataset.url, { on });
    if (!response.ok) throw new Error(response.statusText);
    plugged((await response.json()).running);
    say(on ? "Redis runs again, and is empty. The next requests find out." : "The plug is pulled. Fire: no request fails.");
  } catch {
    say("The plug could not be moved. Try again.");
  } finally {
    button.disabled = false;
    button.focus();
  }
}

function plugged(on) {
  const button = find("#plug");
  button.dataset.running = on;
  button.textContent = on ? "Pull Redis’s plug" : "Put the plug back";
  find("#server").textContent = on ? "running" : "stopped";
  find("#redis").classList.toggle("away", !on);
}

function frame() {
  const moment = now();
  sliding.show(moment);
  fixed.show(moment);
  const left = retryAt === null ? 0 : retryAt - moment;
  find("#retry").textContent = left > 0 ? `Retry-After: come back in ${Math.ceil(left / 1000)} s` : "";
  if (calm.matches) setTimeout(frame, 500);
  else requestAnimationFrame(frame);
}

find("#one").addEventListener("click", () => fire(1));
find("#ten").addEventListener("click", () => fire(10));
find("#burst").addEventListener("click", burst);
find("#again").addEventListener("click", startOver);
const plug = find("#plug");
if (plug) {
  plugged(plug.dataset.running === "true");
  plug.addEventListener("click", () => pull(plug));
}
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("change", ({ target }) => target.name !== "cost" && startOver());
startOver().then(frame);
