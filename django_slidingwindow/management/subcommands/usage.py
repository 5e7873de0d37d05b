"""manage.py slidingwindow usage: its arguments, and what it prints."""

from __future__ import annotations

from argparse import ArgumentTypeError
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser

from ...inspection.spans import Span, now
from ...inspection.usage import SHARES, Counts, busiest, read, trail, window_uses
from ...overrides.changes import parse_moment
from ...policies import LOG_ALL, Profile
from ...rates import parse_window
from ...registry import registry
from ..console import layouts
from ..console.choice import JSON
from ..console.exits import FAILED
from ..console.outputs import Output
from ..console.text import counted
from ..console.values import not_empty

EXAMPLE = """\
examples:
  manage.py slidingwindow usage --profile stripe --since 7d
  manage.py slidingwindow usage --profile stripe --id acme --since 2026-11-16T08:00 --json
"""
DEFAULT_SINCE = "24h"


def add_arguments(parser: CommandParser) -> None:
    parser.epilog = EXAMPLE
    parser.add_argument("--profile", required=True, help="the profile to measure")
    parser.add_argument(
        "--id",
        dest="identifier",
        type=not_empty,
        help="list each minute of this identifier instead",
    )
    parser.add_argument(
        "--since",
        type=_parse_since,
        default=DEFAULT_SINCE,
        metavar="WHEN",
        help=f"a duration such as 7d, or a time such as 2026-11-16T08:00 ({DEFAULT_SINCE})",
    )


def _parse_since(text: str) -> datetime:
    """Return the start of the span, from a duration or a time.

    Raise ArgumentTypeError if the text is neither, or in the future.
    """
    end = now()
    try:
        moment = end - timedelta(seconds=parse_window(text))
    except ValueError:
        try:
            moment = parse_moment(text)
        except ValueError:
            problem = f"{text!r} is neither a duration such as 7d, at most 400d, nor a time"
            raise ArgumentTypeError(problem) from None
    if moment >= end:
        raise ArgumentTypeError(f"{text!r} is in the future")
    return moment


def run(output: Output, options: dict[str, Any]) -> None:
    """Print the usage of a profile. Raise CommandError if the logs have no request."""
    profile = registry.get(options["profile"])
    span = Span(options["since"], now())
    if options["identifier"] is not None:
        records, shown = trail(profile, span, options["identifier"])
        _require_requests(records)
        output.table(layouts.TRAIL, records)
    else:
        counts = read(profile, span)
        _require_requests(counts.total.demand)
        shown = counts.span
        windows, totals = _windows(profile, counts), _totals(profile, counts)
        if options["format"] == JSON:
            # A profile that limits only requests in flight has no window to measure.
            output.table(layouts.USAGE, [window | totals for window in windows] or [totals])
        else:
            _print(output, windows, totals)
    if profile.log != LOG_ALL:
        output.note('The profile logs refused requests only; "log": "all" logs the others as well.')
    if shown.start > span.start:
        start = shown.start.isoformat(timespec="minutes")
        output.note(f"The logs have too many rows: only those from {start} on are counted.")


def _require_requests(found: object) -> None:
    if not found:
        raise CommandError("The logs have no such request.", returncode=FAILED)


def _totals(profile: Profile, counts: Counts) -> dict[str, Any]:
    """Return the numbers of the whole period, which the records of all windows repeat."""
    total = counts.total
    return {
        "profile": profile.name,
        "since": counts.span.start.isoformat(timespec="minutes"),
        "log": profile.log,
        "identifiers": len(counts.by_identifier),
        "admitted": total.admitted,
        "cost": total.cost,
        "refused": total.refused,
        "others": counts.others.admitted + counts.others.refused,
        "busiest": [
            {"identifier": who, "admitted": count.admitted, "refused": count.refused}
            for who, count in busiest(counts)
        ],
    }


def _windows(profile: Profile, counts: Counts) -> list[dict[str, Any]]:
    """Return a record for each window of the profile."""
    return [
        {
            "limit": use.limit,
            "window": use.window,
            "minutes": use.minutes,
            "limit_in_minutes": use.limit_in_minutes,
            "windows": use.samples,
            **{f"p{share}": use.percentiles.get(share) for share in SHARES},
            "most": use.most,
        }
        for use in window_uses(profile, counts)
    ]


def _print(output: Output, windows: list[dict[str, Any]], totals: dict[str, Any]) -> None:
    if windows:
        output.table(layouts.USAGE, windows)
        output.note("")
    output.note("Most requests:")
    output.table(layouts.BUSIEST, totals["busiest"])
    output.note("")
    output.note(
        f"{counted(totals['identifiers'], 'identifier')}, "
        f"{counted(totals['admitted'], 'request')} admitted, "
        f"which cost {counted(totals['cost'], 'hit')}, {totals['refused']:,} refused."
    )
    if totals["others"]:
        output.note(
            f"{totals['others']:,} of them are beyond LOG_ROWS_PER_MINUTE, and their identifiers "
            "are lost."
        )
