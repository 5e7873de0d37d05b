"""manage.py slidingwindow replay: its arguments, and what it prints."""

from __future__ import annotations

import sys
from argparse import _ArgumentGroup
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import timezone
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from ...policies import ALGORITHMS
from ...registry import registry
from ...replay import formats, ordering, times
from ...replay import options as replay_options
from ...replay.candidates import parse_share
from ...replay.engine import Replay
from ...replay.page import page
from ...replay.readers import LogFile, ReadError, Tally
from ...replay.report import records
from ...replay.texts import suggestion_text
from ..console import layouts
from ..console.choice import JSON
from ..console.exits import FAILED, INVALID
from ..console.outputs import Output
from ..console.progress import progress_bar
from ..console.text import counted, harmless
from ..console.values import checked, whole_number

_MEGABYTE = 1_000_000


def add_arguments(parser: CommandParser) -> None:
    parser.add_argument(
        "file", nargs="+", metavar="FILE", help="access logs, also gzipped; - is standard input"
    )
    parser.add_argument(
        "--html", metavar="PAGE", help="also write a report with charts to this file"
    )
    _add_tries(parser.add_argument_group("what is tried"))
    _add_reading(parser.add_argument_group("how the logs are read"))
    _add_filters(parser.add_argument_group("which requests are replayed"))


def _add_tries(tried: _ArgumentGroup) -> None:
    tried.add_argument(
        "--try",
        dest="tries",
        action="append",
        default=[],
        metavar="RATES",
        help="a candidate such as 30/m or 60/m,500/h; may be repeated",
    )
    tried.add_argument("--profile", help="try a profile's own rates, and count by its axis")
    tried.add_argument(
        "--algorithm", choices=ALGORITHMS, help="how --try counts (compact, or as --profile)"
    )
    tried.add_argument(
        "--suggest",
        metavar="SHARE",
        help="also find the smallest limit that touches at most this share of identifiers: 0.1%%",
    )


def _add_reading(read: _ArgumentGroup) -> None:
    read.add_argument(
        "--log-format",
        default=formats.AUTO,
        metavar="FORMAT",
        help=f"{', '.join(formats.NAMED)}, or nginx's '$remote_addr [$time_local] ...' (auto)",
    )
    read.add_argument(
        "--nginx-conf", metavar="CONF", help="a file of nginx that defines --log-format"
    )
    read.add_argument(
        "--field",
        action="append",
        default=[],
        type=checked(replay_options.field_name),
        metavar="WHAT=NAME",
        help=f"the field's name in this log; WHAT is {', '.join(formats.ALIASES)}",
    )
    read.add_argument(
        "--time",
        default=times.AUTO,
        help=f"{', '.join(times.NAMED)}, or a format such as %%d.%%m.%%Y %%H:%%M:%%S (auto)",
    )
    read.add_argument(
        "--timezone",
        type=checked(replay_options.zone),
        default=timezone.utc,
        metavar="ZONE",
        help="the time zone of stamps without one (UTC)",
    )
    read.add_argument(
        "--identify", metavar="BY", help="ip, field:NAME or regex:PATTERN (ip, or as --profile)"
    )
    read.add_argument(
        "--reorder",
        type=whole_number,
        default=ordering.BUFFER,
        metavar="LINES",
        help=f"how many lines too late a line may come ({ordering.BUFFER})",
    )


def _add_filters(kept: _ArgumentGroup) -> None:
    kept.add_argument("--path", metavar="REGEX", help="only paths in which this is found")
    kept.add_argument("--method", metavar="NAMES", help="only these methods: GET,POST")
    kept.add_argument(
        "--status", metavar="CODES", help="only these statuses: 2xx,404; or not: !429"
    )
    kept.add_argument("--since", metavar="TIME", help="only from this time on: 2026-11-17T03:00Z")
    kept.add_argument("--until", metavar="TIME", help="only before this time")
    kept.add_argument(
        "--rules",
        action="store_true",
        help="only requests that RULES or a decorated view count by --profile",
    )


def run(output: Output, options: dict[str, Any]) -> None:
    """Replay the logs and print the report.

    Raise CommandError if an option is invalid, a file cannot be used, or there is no request.
    """
    try:
        replay, tally, page_file = _replayed(options)
    except (ReadError, ValueError) as error:
        raise CommandError(harmless(error), returncode=INVALID) from error
    if not replay.requests:
        problems = ["There is no request to replay.", *_remarks(tally)]
        raise CommandError("\n".join(problems), returncode=FAILED)
    found = records(replay, tally)
    if page_file is not None:
        suggest = options["suggest"] or ""
        text = page(found, replay.timeline, logs=options["file"], suggest=suggest)
        page_file.write_text(text, "utf-8")
    output.table(layouts.REPLAY, found)
    if options["format"] != JSON:
        _print_rest(output, found, tally, whole_seconds=replay.whole_seconds)


def _replayed(options: dict[str, Any]) -> tuple[Replay, Tally, Path | None]:
    profile = registry.get(options["profile"]) if options["profile"] else None
    share = options["suggest"]
    replay = Replay(
        replay_options.candidates(options, profile),
        suggest=None if share is None else parse_share(share),
    )
    reading = replay_options.reading(options, profile)
    page_file = _writable(options["html"])
    tally = Tally()
    with ExitStack() as opened, progress_bar(sys.stderr, "MB") as draw:
        logs = [opened.enter_context(closing(LogFile(path))) for path in options["file"]]
        total = sum(log.size for log in logs)
        entries = [log.entries(reading, tally) for log in logs]
        replay.run(
            ordering.in_order(entries, tally, buffer=options["reorder"]),
            None if draw is None else lambda: draw(tally.bytes // _MEGABYTE, total // _MEGABYTE),
        )
    return replay, tally, page_file


def _print_rest(
    output: Output, found: list[dict[str, Any]], tally: Tally, *, whole_seconds: bool
) -> None:
    for record in found:
        for suggestion in record.get("suggest", ()):
            output.note(f"{record['try']}: the smallest limit is {suggestion_text(suggestion)}")
    for record in found:
        if record["most_affected"]:
            output.note("")
            output.note(f"Most affected by {record['try']}:")
            output.table(layouts.AFFECTED, record["most_affected"])
    output.note("")
    first = found[0]
    busiest = first["busiest_minute"]
    requests = counted(first["requests"], "request")
    output.note(f"{requests} from {first['first']} to {first['last']}.")
    requests = counted(busiest["requests"], "request")
    output.note(f"Busiest minute: {busiest['minute']}, {requests}.")
    if whole_seconds:
        output.note(
            'The stamps are whole seconds. "10 to 12" refused means at least 10 and at most'
        )
        output.note(
            "12, wherever in their seconds the requests came. Other numbers take the stamps"
        )
        output.note("as they stand.")
    for remark in _remarks(tally):
        output.note(remark)


def _remarks(tally: Tally) -> Iterator[str]:
    """Yield sentences about the lines that were left out or moved."""
    if tally.unreadable:
        yield f"Lines that could not be read: {tally.unreadable:,} of {tally.lines:,}. The first:"
        for file, line, text in tally.samples:
            yield f"{harmless(file)}:{line}: {harmless(text)}"
    if tally.unidentified:
        yield f"Requests without an identifier, not counted: {tally.unidentified:,}."
    if tally.filtered:
        yield f"Requests left out by the filters: {tally.filtered:,}."
    if tally.late:
        yield (
            f"Lines too late to be sorted, replayed at the time of the request before them: "
            f"{tally.late:,}. Try a larger --reorder."
        )


def _writable(path: str | None) -> Path | None:
    """Return the path of the HTML page. Raise ReadError if it cannot be written.

    A replay can take long, so this is checked before it starts.
    """
    if path is None:
        return None
    try:
        # Not touch(), which also succeeds for a folder and for a file that cannot be written.
        Path(path).open("ab").close()
    except OSError as error:
        raise ReadError(f"cannot write {path}: {error.strerror}.") from error
    return Path(path)
