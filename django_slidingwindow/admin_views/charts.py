"""Charts as inline SVG, without scripts or inline styles. A table has the same numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from .formatting import number

WIDTH, HEIGHT = 720, 150
LEFT, RIGHT, TOP, BOTTOM = 40, 6, 8, 20
COLORS = 8
"""The number of colours: the classes sw-0 to sw-7 of the style sheet."""
_MAX_LABELS = 12
_HIDDEN_WHEN_NARROW = " sw-second"
"""The class of labels that a narrow screen hides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The values of one colour of a chart, one for each column."""

    name: str
    values: Sequence[int]

    @property
    def total(self) -> int:
        return sum(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Stacked columns over time. `svg` and the table show the same numbers."""

    id: str
    title: str
    description: str
    labels: Sequence[str]
    """The label of each column."""
    series: Sequence[Series]
    end: str = ""
    """The label at the right end, where the last column ends."""
    limit: int | None = None
    """The value of the line across the chart; None for no line."""
    limit_text: str = ""
    """The limit as the legend shows it."""

    @property
    def top(self) -> int:
        """Return the value at the top of the scale: at least the highest column and the limit."""
        return round_up(max((*(sum(column) for column in self.columns), self.limit or 0)))

    @property
    def columns(self) -> list[tuple[int, ...]]:
        return list(zip(*(series.values for series in self.series), strict=True))

    @property
    def rows(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Return label and values of each column that is not empty, for the table."""
        return (
            (label, values)
            for label, values in zip(self.labels, self.columns, strict=False)
            if any(values)
        )

    @property
    def legend(self) -> list[tuple[str, str, str]]:
        """Return class, name and total of each series."""
        return [
            (color(i), series.name, number(series.total)) for i, series in enumerate(self.series)
        ]

    @property
    def svg(self) -> SafeString:
        return format_html(
            '<svg class="sw-chart" viewBox="0 0 {} {}" role="img" '
            'aria-labelledby="{}-title" aria-describedby="{}-desc">'
            '<title id="{}-title">{}</title><desc id="{}-desc">{}</desc>{}{}{}{}</svg>',
            WIDTH,
            HEIGHT,
            self.id,
            self.id,
            self.id,
            self.title,
            self.id,
            self.description,
            self._grid(),
            self._bars(),
            self._limit_line(),
            self._time_labels(),
        )

    def _grid(self) -> SafeString:
        """Return horizontal lines with their values at the bottom, the middle and the top."""
        return format_html_join(
            "",
            '<line class="sw-grid" x1="{}" x2="{}" y1="{}" y2="{}"/>'
            '<text class="sw-text sw-end{}" x="{}" y="{}">{}</text>',
            (
                (
                    LEFT,
                    WIDTH - RIGHT,
                    _coordinate(self._y(value)),
                    _coordinate(self._y(value)),
                    "" if value else " sw-zero",
                    LEFT - 6,
                    _coordinate(self._y(value) + 4),
                    short_number(value),
                )
                for value in (0, self.top // 2, self.top)
            ),
        )

    def _bars(self) -> SafeString:
        return format_html_join(
            "",
            '<rect class="{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>',
            self._rectangles(),
        )

    def _rectangles(self) -> Iterator[tuple[str, str, str, str, str, str]]:
        """Yield class, position, size and tooltip of each part of each column."""
        width = self._column_width
        gap = min(2.0, width / 5)
        for i, (label, values) in enumerate(zip(self.labels, self.columns, strict=False)):
            below = 0
            for j, value in enumerate(values):
                if not value:
                    continue
                top, bottom = self._y(below + value), self._y(below)
                below += value
                yield (
                    color(j),
                    _coordinate(LEFT + i * width + gap / 2),
                    _coordinate(top),
                    _coordinate(width - gap),
                    _coordinate(max(bottom - top, 0.5)),
                    f"{label} · {self.series[j].name}: {number(value)}",
                )

    def _limit_line(self) -> SafeString:
        if self.limit is None:
            return SafeString()
        y = _coordinate(self._y(self.limit))
        return format_html(
            '<line class="sw-limit" x1="{}" x2="{}" y1="{}" y2="{}"><title>{}</title></line>',
            LEFT,
            WIDTH - RIGHT,
            y,
            y,
            self.limit_text,
        )

    def _time_labels(self) -> SafeString:
        """Return every label, or every n-th one if there are too many."""
        every = -(-len(self.labels) // _MAX_LABELS) or 1
        shown = [(i, label) for i, label in enumerate(self.labels) if i % every == 0]
        texts = format_html_join(
            "",
            '<text class="sw-text sw-middle{}" x="{}" y="{}">{}</text>',
            (
                (
                    _HIDDEN_WHEN_NARROW if position % 2 else "",
                    _coordinate(LEFT + (i + 0.5) * self._column_width),
                    HEIGHT - 6,
                    label,
                )
                for position, (i, label) in enumerate(shown)
            ),
        )
        if not self.end:
            return texts
        return texts + format_html(
            '<text class="sw-text sw-end" x="{}" y="{}">{}</text>', WIDTH, HEIGHT - 6, self.end
        )

    @property
    def _column_width(self) -> float:
        return (WIDTH - LEFT - RIGHT) / max(1, len(self.labels))

    def _y(self, value: int) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self.top


def meter(use: float | None, *, blocked: bool) -> SafeString:
    """Return a bar that shows how much of a limit is used, and the percentage as text."""
    if use is None:
        return format_html('<span class="sw-quiet">{}</span>', _("no limit"))
    # Round down, so that 100% means full. `round` is needed because 0.29 * 100 is less than 29.
    percent = f"{int(round(100 * use, 6))}%"
    level = "sw-full" if blocked else "sw-near" if use >= 0.8 else "sw-calm"
    return format_html(
        '<svg class="sw-meter" viewBox="0 0 100 10" preserveAspectRatio="none" '
        'aria-hidden="true"><rect class="sw-track" width="100" height="10"/>'
        '<rect class="{}" width="{}" height="10"/></svg> <span class="sw-share">{}</span>',
        level,
        _coordinate(100 * use),
        percent,
    )


def share(part: int, most: int) -> SafeString:
    """Return a bar that shows a number relative to the largest number."""
    return format_html(
        '<svg class="sw-meter" viewBox="0 0 100 10" preserveAspectRatio="none" '
        'aria-hidden="true"><rect class="sw-0" width="{}" height="10"/></svg>',
        _coordinate(100 * part / most if most else 0),
    )


def color(index: int) -> str:
    """Return the class of a series. Series beyond the last colour share it."""
    return f"sw-{min(index, COLORS - 1)}"


def round_up(value: int) -> int:
    """Return the next of 2, 4, 6, 8, 10, 12, 16, 20, 40, …, whose halves are whole numbers."""
    power = 1
    while value > 10 * power:
        power *= 10
    tenths = (12, 16, 20, 40, 60, 80, 100) if power > 1 else (20, 40, 60, 80, 100)
    return next(step * power // 10 for step in tenths if 10 * value <= step * power)


def short_number(value: int) -> str:
    """Return a short form of a number, such as 1.2M for 1200000."""
    for size, letter in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if value >= size:
            return f"{value / size:.1f}".removesuffix(".0") + letter
    return str(value)


def _coordinate(value: float) -> str:
    """Return a number for SVG, without trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
