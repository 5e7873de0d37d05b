"""A report as one HTML file that needs nothing else: no network, no script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from operator import sub
from pathlib import Path
from typing import Any

from django.template import Context, Engine

from ..admin_views.charts import Chart, Series, share
from ..durations import SECONDS, duration_exact
from ..rejections.text import printable
from .texts import name_of, refused_text, share_text, suggestion_text, wait_text
from .timeline import Timeline
from .times import SECOND

_TEMPLATES = Path(__file__).parent.parent / "templates" / "django_slidingwindow"


def page(
    records: Sequence[Mapping[str, Any]], timeline: Timeline, *, logs: Sequence[str], suggest: str
) -> str:
    """Return the page. `suggest` is the share as it was given, or an empty text."""
    # An engine of its own: a project may have no template engine, or another one.
    engine = Engine(dirs=[str(_TEMPLATES)], autoescape=True)
    candidates = [_candidate(i, record, timeline) for i, record in enumerate(records)]
    first = records[0]
    return engine.get_template("replay.html").render(
        Context(
            {
                "logs": [printable(log) for log in logs],
                "candidates": candidates,
                "facts": list(_facts(first)),
                "unreadable": [
                    (printable(line["file"]), f"{line['line']:,}", printable(line["text"]))
                    for line in first["unreadable_lines"]
                ],
                "whole_seconds": "refused_least" in first,
                "suggest": suggest,
            },
            autoescape=True,
            use_l10n=False,
        )
    )


def _facts(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    busiest = record["busiest_minute"]
    yield "requests", f"{record['requests']:,}"
    yield "identifiers", f"{record['identifiers']:,}"
    yield "first request", record["first"]
    yield "last request", record["last"]
    yield "busiest minute", f"{busiest['minute']} ({busiest['requests']:,} requests)"
    yield "lines that could not be read", f"{record['unreadable']:,}"
    for name, text in (
        ("unidentified", "requests without an identifier, not counted"),
        ("filtered", "requests left out by filters"),
        ("late", "lines too late to be sorted"),
    ):
        if record[name]:
            yield text, f"{record[name]:,}"


def _candidate(number: int, record: Mapping[str, Any], timeline: Timeline) -> dict[str, Any]:
    most = max((row["refused"] for row in record["most_affected"]), default=0)
    fixed = record["fixed_window"]
    return {
        "name": name_of(record),
        "algorithm": record["algorithm"],
        "refused": refused_text(record),
        "refused_share": share_text(record["refused_share"]),
        "refused_bar": share(record["refused"], record["requests"]),
        "touched": f"{record['identifiers_refused']:,}",
        "touched_share": share_text(record["identifiers_share"]),
        "touched_bar": share(record["identifiers_refused"], record["identifiers"]),
        "wait": wait_text(record["longest_wait"]),
        "busiest": f"{record['busiest_minute']['refused']:,}",
        "beyond": f"{fixed['beyond']:,}",
        "fixed": [
            (
                f"{window['limit']:,} in {duration_exact(window['window'])}",
                f"{window['most']:,}",
            )
            for window in fixed["windows"]
        ],
        "affected": [
            (
                printable(row["identifier"]),
                f"{row['requests']:,}",
                f"{row['refused']:,}",
                share(row["refused"], most),
            )
            for row in record["most_affected"]
        ],
        "suggest": [suggestion_text(found) for found in record.get("suggest", ())],
        "chart": _chart(number, record, timeline),
    }


def _chart(number: int, record: Mapping[str, Any], timeline: Timeline) -> Chart:
    refused = timeline.refused[number]
    admitted = list(map(sub, timeline.requests, refused))
    stamps = timeline.stamps()
    days = (stamps[-1] - stamps[0]) // (SECONDS["d"] * SECOND)
    label_format = "%H:%M" if not days else "%a %H:%M" if days < 7 else "%d %b"
    width = duration_exact(60 * timeline.minutes)
    return Chart(
        id=f"chart-{number}",
        title=f"Requests with {name_of(record)}, by {width}",
        description=f"{record['refused']:,} of {record['requests']:,} requests are refused.",
        labels=[
            datetime.fromtimestamp(stamp // SECOND, timezone.utc).strftime(label_format)
            for stamp in stamps
        ],
        series=[
            Series(name="admitted", values=admitted),
            Series(name="refused", values=refused),
        ],
    )
