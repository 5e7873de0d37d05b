"""The pictures of the docs."""

from __future__ import annotations

import math

from django_slidingwindow.policies import ALGORITHMS

from . import traffic
from .svg import ACCENT, ADMITTED, INK, PALETTE, QUIET, REFUSED, Picture
from .traffic import FIXED, LIMIT, Answer

_LEFT, _WIDTH, _ROW = 120, 760, 62


def edge() -> Picture:
    """Draw requests around a full minute, and how many of them each algorithm admits."""
    title = "Ten requests before a full minute and ten after it, at 10 in 60 seconds"
    return _timeline(title, traffic.edge(), (FIXED, "compact", "buckets"), (58.5, 62.0))


def attack() -> Picture:
    """Draw what an attacker gets from the algorithm `counter`."""
    title = "Ten requests at the end of one minute and ten at the end of the next"
    return _timeline(title, traffic.attack(), ("compact", "counter"), (55.0, 125.0))


def _timeline(
    title: str, times: list[float], rows: tuple[str, ...], span: tuple[float, float]
) -> Picture:
    picture = Picture(_WIDTH, 76 + _ROW * len(rows), title)
    picture.write(16, 24, title, bold=True, size=14)
    first, last = span

    def x(at: float) -> float:
        return round(_LEFT + (at - first) / (last - first) * (_WIDTH - _LEFT - 170), 1)

    bottom = 40 + _ROW * len(rows)
    for minute in range(math.ceil(first / 60), math.floor(last / 60) + 1):
        picture.line(x(60 * minute), 40, x(60 * minute), bottom, dash="4 4")
        picture.write(x(60 * minute), bottom + 20, f"{minute}:00", anchor="middle", color=QUIET)
    for number, name in enumerate(rows):
        found = traffic.answers(name, times)
        y = 40 + _ROW * number + _ROW / 2
        picture.write(16, y + 5, name, bold=True)
        picture.line(_LEFT, y, _WIDTH - 150, y)
        _dots(picture, found, x, y)
        most = traffic.most_in_a_window(found)
        color = REFUSED if most > LIMIT else ADMITTED
        picture.write(_WIDTH - 140, y + 5, f"{most} in 60 seconds", color=color, bold=True)
    legend = _WIDTH - 134
    picture.dot(legend, bottom + 16, color=ADMITTED)
    picture.write(legend + 10, bottom + 20, "let in", color=QUIET)
    picture.dot(legend + 60, bottom + 16, color=REFUSED, hollow=True)
    picture.write(legend + 70, bottom + 20, "refused", color=QUIET)
    return picture


def _dots(picture: Picture, found: list[Answer], x: object, y: float) -> None:
    """Draw the requests of a row. Dots that would cover one another are stacked."""
    assert callable(x)
    places: dict[float, int] = {}
    for answer in found:
        place = x(answer.at)
        near = next((known for known in places if abs(known - place) < 6), place)
        places[near] = height = places.get(near, 0) + 1
        # Stack alternately above and below the line.
        offset = (height // 2) * (5 if height % 2 else -5)
        color = ADMITTED if answer.allowed else REFUSED
        picture.dot(near, y + offset, color=color, hollow=not answer.allowed)


def memory(measured: dict[str, dict[int, int]]) -> Picture:
    """Draw the bytes of one window by the hits in it, on logarithmic scales."""
    picture = Picture(_WIDTH, 360, "Memory of one window in Redis")
    picture.write(16, 24, "Memory of one window in Redis, by the hits in it", bold=True, size=14)
    hits = sorted(measured[ALGORITHMS[0]])

    def x(count: int) -> float:
        return _LEFT + (math.log10(count) - 1) / 3 * (_WIDTH - _LEFT - 160)

    def y(size: float) -> float:
        return 310 - (math.log10(size) - 2) / 4.2 * 260

    for size, name in (
        (100, "100 B"),
        (1e3, "1 kB"),
        (1e4, "10 kB"),
        (1e5, "100 kB"),
        (1e6, "1 MB"),
    ):
        picture.line(_LEFT, y(size), _WIDTH - 150, y(size), dash="2 4")
        picture.write(_LEFT - 10, y(size) + 5, name, anchor="end", color=QUIET)
    for count in hits:
        picture.write(x(count), 335, f"{count:,}", anchor="middle", color=QUIET)
    for name, color in zip(ALGORITHMS, PALETTE, strict=True):
        points = [(x(count), y(measured[name][count])) for count in hits]
        picture.path(points, color=color)
        picture.write(points[-1][0] + 12, points[-1][1] + 5, name, color=color, bold=True)
    return picture


_LAYERS = (
    ("values", "exceptions · durations · rates · policies · decisions"),
    ("algorithms/", "Lua scripts, the same arithmetic in memory, and how values are read"),
    ("stores/", "Redis, Cluster, memory; net/ has connections, Sentinel, routing"),
    ("core/", "a check without settings or HTTP: windows, limiter, breaker, shield, fallback"),
    ("settings", "conf · profiles · registry · signals"),
    ("guard/", "turns a request and the settings into a decision; limits for other code"),
    ("http/", "what the client sees: fields and refusals"),
    ("edges", "decorators · middleware · views · contrib/ (DRF, ninja, Prometheus, OpenTelemetry)"),
    ("log, overrides", "models · rejections/ · overrides/"),
    ("checks/", "system checks"),
    ("inspection/", "live windows for people, doctor, explain and usage"),
    ("operators", "admin · admin_views/ · replay/ · drill/ · load/ · management/ · apps"),
)
_STEPS = (
    "request",
    "edge asks",
    "guard: identity",
    "limiter: shield?",
    "one EVALSHA",
    "decision",
    "fields, 429",
)


def architecture() -> Picture:
    """Draw the layers, and the way of a request through them."""
    picture = Picture(860, 590, "Layers of django_slidingwindow and the life of a request")
    picture.write(16, 26, "Imports point upward only", bold=True, size=14)
    for number, (name, modules) in enumerate(_LAYERS):
        y = 42 + 38 * number
        picture.box(16, y, 828, 30, color=ACCENT, fill=ACCENT)
        picture.write(30, y + 20, name, bold=True)
        picture.write(170, y + 20, modules)
    top = 526
    picture.write(16, top - 16, "The life of a request", bold=True, size=14)
    for number, step in enumerate(_STEPS):
        x = 16 + 119 * number
        picture.box(x, top, 105, 36, color=INK, fill=INK)
        picture.write(x + 52.5, top + 22, step, anchor="middle", size=12)
        if number:
            picture.line(x - 14, top + 18, x - 3, top + 18, color=INK)
            picture.write(x - 9, top + 22, ">", color=INK)
    picture.write(
        16,
        top + 62,
        "Redis away: breaker, then the fallback decides · refused: signal, metrics, rejection log",
        color=QUIET,
    )
    return picture
