"""The time that the app adds to the start of Django."""

from __future__ import annotations

from ..bench import Bench
from ..contenders.base import DJANGO_REDIS, IMPORTED
from ..measure import middle
from ..results import Row
from ..start import starts

NAME = "imports"
TITLE = "Import"
CASE = "a start of Django"


def run(bench: Bench) -> list[Row]:
    bench.progress.begin(TITLE, bench.size.starts)
    pairs = []
    for pair in starts(bench.size.starts):
        pairs.append(pair)
        bench.progress.step()
    return [
        _row(DJANGO_REDIS, [theirs for theirs, _ in pairs], [1.0 for _ in pairs]),
        _row(IMPORTED, [ours for _, ours in pairs], [ours / theirs for theirs, ours in pairs]),
    ]


def _row(name: str, seconds: list[float], ratios: list[float]) -> Row:
    ratio, low, high = middle(ratios)
    values = {"ratio": ratio, "ratio_low": low, "ratio_high": high}
    return Row(NAME, CASE, name, {**values, "ms": middle(seconds)[0] * 1_000})
