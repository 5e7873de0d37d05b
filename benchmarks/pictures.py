"""Bars and lines as SVG, which the docs show beside the tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-size: 15px; font-weight: 600 }
.quiet { fill: #6e7781 }
.bar { fill: #afb8c1 } rect.ours { fill: #0969da } .floor { fill: #d4a72c }
.axis { stroke: #d0d7de } .mark { stroke: #57606a; stroke-width: 1.5 }
.line { fill: none; stroke-width: 1.8 } .line.ours { stroke-width: 3.2 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .quiet { fill: #9198a1 }
  .bar { fill: #57606a } rect.ours { fill: #58a6ff } .axis { stroke: #3d444d }
  .mark { stroke: #c9d1d9 }
}
"""
COLORS = (
    *("#bf8700", "#8250df", "#cf222e", "#1a7f37", "#6e7781", "#bc4c00", "#bf3989"),
    *("#1b7c83", "#4d2d00", "#953800", "#57606a", "#a475f9", "#2da44e", "#0969da"),
)
WIDTH = 760


def bars(title: str, unit: str, rows: Sequence[tuple[str, float, float, float]]) -> str:
    """Draw horizontal bars. A row has a label, a value, and the bounds of its middle half."""
    left, right, height = 290, 80, 26
    most = max((max(value, high) for _, value, _, high in rows), default=1.0) or 1.0
    scale = (WIDTH - left - right) / most
    parts = [_text(0, 16, title, "title"), _text(WIDTH, 16, unit, "quiet", "end")]
    for number, (label, value, low, high) in enumerate(rows):
        top = 34 + number * height
        name = label.replace("*", "").replace("`", "")
        kind = "floor" if label.startswith("floor") else "bar"
        if "ours" in label or "django_slidingwindow" in label:
            kind = "ours"
        length = max(value, 0) * scale
        parts.append(_text(left - 8, top + 15, name, anchor="end"))
        parts.append(
            f'<rect class="{kind}" x="{left}" y="{top}" width="{length:.1f}" height="20" rx="2"/>'
        )
        if high > low:
            first, last = left + max(low, 0) * scale, left + high * scale
            parts.append(f'<path class="mark" d="M{first:.1f} {top + 10}H{last:.1f}"/>')
        end = left + max(length, max(high, 0) * scale)
        parts.append(_text(end + 6, top + 15, _short(value)))
    return _svg(34 + len(rows) * height + 4, parts)


def lines(title: str, across: str, up: str, series: dict[str, list[tuple[float, float]]]) -> str:
    """Draw lines over two logarithmic axes."""
    left, right, top, bottom = 64, 230, 40, 44
    height = 360
    points = [point for line in series.values() for point in line]
    if not points:
        return _svg(40, [_text(0, 16, title, "title")])
    xs, ys = _span([x for x, _ in points]), _span([y for _, y in points])

    def place(x: float, y: float) -> tuple[float, float]:
        wide, tall = WIDTH - left - right, height - top - bottom
        return (
            left + wide * _share(x, xs),
            height - bottom - tall * _share(y, ys),
        )

    parts = [_text(0, 16, title, "title"), _text(left - 8, top - 10, up, "quiet", "end")]
    parts.append(_text(WIDTH - right, height - 6, across, "quiet", "end"))
    last = -WIDTH
    for x in sorted({x for x, _ in points}):
        at, base = place(x, ys[0])
        parts.append(f'<path class="axis" d="M{at:.1f} {top}V{base:.1f}"/>')
        if at - last >= 28:
            parts.append(_text(at, base + 18, _short(x), "quiet", "middle"))
            last = at
    for y in _ticks(*ys):
        start, at = place(xs[0], y)
        parts.append(f'<path class="axis" d="M{start:.1f} {at:.1f}H{WIDTH - right}"/>')
        parts.append(_text(start - 8, at + 4, _short(y), "quiet", "end"))
    ends = _apart({name: place(*line[-1])[1] for name, line in series.items()}, height - bottom)
    for (name, line), color in zip(series.items(), COLORS * 4, strict=False):
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in (place(*point) for point in line))
        kind = "line ours" if "ours" in name else "line"
        parts.append(f'<path class="{kind}" stroke="{color}" d="M{path}"/>')
        parts.append(
            f'<text x="{WIDTH - right + 8}" y="{ends[name] + 4:.1f}" style="fill:{color}">'
            f"{escape(name.replace('*', ''))}</text>"
        )
    return _svg(height, parts)


def _apart(ends: dict[str, float], lowest: float, gap: float = 16) -> dict[str, float]:
    """Move the labels at the ends of lines, so that none covers another and all are inside."""
    placed: dict[str, float] = {}
    last = -gap
    for name, at in sorted(ends.items(), key=lambda item: item[1]):
        last = placed[name] = max(at, last + gap)
    last = lowest + gap
    for name, at in sorted(placed.items(), key=lambda item: -item[1]):
        last = placed[name] = min(at, last - gap)
    return placed


def _span(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low / 2, high * 2)


def _share(value: float, span: tuple[float, float]) -> float:
    low, high = (math.log(bound) for bound in span)
    return (math.log(value) - low) / (high - low)


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers in between: powers of ten over a wide span, more over a small one."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1,), (1, 2, 5), (1, 2, 3, 4, 5, 6, 7, 8, 9)):
        found = [step * 10.0**power for power in powers for step in steps]
        inside = [tick for tick in found if low <= tick <= high]
        if len(inside) >= 3:
            break
    return inside


def _short(value: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.2f}" if abs(value) < 10 and value != int(value) else f"{value:.3g}"


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text{name} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(height: float, parts: list[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-4 0 {WIDTH + 8} {height:.0f}" '
        f'width="{WIDTH + 8}" height="{height:.0f}" role="img">\n'
        f"<style>{STYLE}</style>\n{body}\n</svg>\n"
    )
