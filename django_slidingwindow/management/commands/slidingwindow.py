"""manage.py slidingwindow: show live windows and profiles, unblock, check health, purge the log."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import islice
from typing import Any, TextIO, cast

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from ...durations import duration_exact
from ...exceptions import StoreError
from ...inspection import doctor as diagnosis
from ...inspection import profiles as overview
from ...inspection import windows as inspection
from ...inspection.search import Filters
from ...rejections import purge as purging
from ..console import layouts, live
from ..console.choice import AUTO, FORMATS, JSON, choose
from ..console.outputs import Output, Record
from ..console.progress import progress_bar
from ..console.text import as_key, density, harmless, sparkline

# Exit codes. argparse also uses 2 for wrong arguments.
NOT_FOUND, WRONG, AWAY = 1, 2, 3


class Command(BaseCommand):
    """Parse arguments, call the inspection functions and print. See docs/commands.md."""

    help = "Shows rate limits and their windows in Redis, and unblocks clients."
    # `doctor` must be able to run and report what the checks find.
    requires_system_checks = ()

    output: Output

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        for name, (summary, add) in {
            "keys": ("list live windows, all or the most used", _add_keys),
            "show": ("show one window, or the windows of an identifier", _add_target),
            "reset": ("delete windows, so that blocked clients are admitted again", _add_reset),
            "profiles": ("list the configured profiles", None),
            "watch": ("show a live view of the most used windows; q quits", _add_watch),
            "doctor": ("check that everything works; exits 1 on errors", None),
            "purge": ("delete rows of the log that are older than LOG_DAYS", _add_purge),
        }.items():
            action = actions.add_parser(name, help=summary, description=summary)
            action.add_argument(
                "--format",
                choices=FORMATS,
                default=AUTO,
                help="auto: rich on a terminal if it is installed, otherwise plain",
            )
            action.add_argument(
                "--json",
                dest="format",
                action="store_const",
                const=JSON,
                help="same as --format json",
            )
            if add is not None:
                add(action)

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.ending = ""
        stream = cast(TextIO, self.stdout)
        try:
            self.output = choose(options["format"], stream, color=not options["no_color"])
        except ModuleNotFoundError as error:
            raise CommandError(f"{error}: pip install rich", returncode=WRONG) from error
        try:
            with _command_errors():
                getattr(self, options["action"])(**options)
            self.stdout.flush()
        except BrokenPipeError:
            # The reader has closed the pipe. Python flushes once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def keys(self, top: int | None, limit: int | None, **options: Any) -> None:
        filters = Filters.from_options(options)
        with progress_bar(sys.stderr, "keys") as progress:
            if top is None:
                # On a terminal the rows themselves show the progress.
                shown = None if self.stdout.isatty() else progress
                found = inspection.walk(filters, progress=shown)
                self.output.table(layouts.KEYS, map(asdict, islice(found, limit)))
                return
            states = inspection.keys_top(top, filters, progress=progress)
        self.output.table(layouts.KEYS, map(asdict, states))

    def show(self, **options: Any) -> None:
        for i, state in enumerate(_targets(options)):
            if i:
                self.output.note("")
            hits = inspection.hits(state.key)
            drawn = sparkline(density(hits, state.window))
            self.output.facts(
                layouts.KEY,
                asdict(state) | {"log": hits},
                f"{duration_exact(state.window)} ago |{drawn}| now",
            )

    def reset(self, yes: bool, dry_run: bool, **options: Any) -> None:
        states = _targets(options, damaged=True)
        if not dry_run and not yes:
            self._confirm(states)
        self.output.table(layouts.RESET, (_reset(state, dry_run) for state in states))

    def _confirm(self, states: list[inspection.KeyState]) -> None:
        if not sys.stdin or not sys.stdin.isatty():
            raise CommandError(
                "Cannot ask for confirmation without a terminal: use --yes or --dry-run.",
                returncode=WRONG,
            )
        for state in states:
            sys.stderr.write(f"{as_key(state.key)}: {state.hits:,} hits\n")
        what = "this window" if len(states) == 1 else f"these {len(states)} windows"
        sys.stderr.write(f"Delete {what}? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError("Nothing was deleted.", returncode=NOT_FOUND)

    def profiles(self, **options: Any) -> None:
        records = (state.record() for state in overview.profiles())
        self.output.table(layouts.profiles(), records)

    def watch(self, top: int, interval: float, count: int | None, **options: Any) -> None:
        filters = Filters.from_options(options)

        def draw(number: int) -> None:
            try:
                states = inspection.keys_top(top, filters)
            except StoreError as error:
                self.output.note(f"Redis is away: {harmless(error)}")
                return
            records = (asdict(state) | {"view": number} for state in states)
            self.output.table(layouts.KEYS, records)
            self.output.note("press q to quit" if self.stdout.isatty() else "")

        stream = cast(TextIO, self.stdout)
        # Ctrl-C quits like q.
        with suppress(KeyboardInterrupt):
            live.repeat(draw, stream=stream, interval=interval, count=count)

    def doctor(self, **options: Any) -> None:
        findings = [asdict(finding) for finding in diagnosis.examine()]
        levels = [finding["level"] for finding in findings]
        ok = diagnosis.ERROR not in levels
        if options["format"] == JSON:
            self.output.table(layouts.FINDINGS, [{"ok": ok, "findings": findings}])
        else:
            self.output.table(layouts.FINDINGS, findings)
        if not ok:
            raise CommandError(f"{levels.count(diagnosis.ERROR)} errors.", returncode=1)

    def purge(self, days: float | None, batch: int, dry_run: bool, **options: Any) -> None:
        before = purging.cutoff(days)
        with progress_bar(sys.stderr, "rows") as progress:
            total = purging.count_old(before) if dry_run or progress else 0
            report = None if progress is None else lambda done: progress(done, total)
            count = total if dry_run else purging.purge(before, batch=batch, progress=report)
        cutoff = before.isoformat(timespec="seconds")
        record = {"before": cutoff, "rows": count, "deleted": not dry_run}
        self.output.facts(layouts.PURGE, record)


def _add_filters(parser: CommandParser) -> None:
    parser.add_argument("--profile", help="only windows of this profile")
    parser.add_argument("--axis", help="only windows of profiles with this axis")
    parser.add_argument(
        "--id", dest="identifier", help='only this identifier, or "text*" for a prefix'
    )
    parser.add_argument(
        "--blocked", action="store_true", help="only windows that would refuse a request now"
    )


def _add_keys(parser: CommandParser) -> None:
    _add_filters(parser)
    parser.add_argument("--top", type=_count, metavar="N", help="only the N most used windows")
    parser.add_argument("--limit", type=_count, metavar="N", help="stop after N windows")


def _add_watch(parser: CommandParser) -> None:
    _add_filters(parser)
    parser.add_argument(
        "--top", type=_count, metavar="N", default=20, help="the number of windows (20)"
    )
    parser.add_argument(
        "--interval",
        type=_positive,
        metavar="SECONDS",
        default=2.0,
        help="the time between two views (2)",
    )
    parser.add_argument("--count", type=_count, metavar="N", help="quit after N views")


def _add_target(parser: CommandParser) -> None:
    parser.add_argument("key", nargs="*", help="keys as they are in Redis")
    parser.add_argument("--profile", help="instead of a key, with --id")
    parser.add_argument("--id", dest="identifier", help="instead of a key, with --profile")


def _add_reset(parser: CommandParser) -> None:
    _add_target(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be deleted")


def _add_purge(parser: CommandParser) -> None:
    parser.add_argument(
        "--days", type=_positive, metavar="N", help="use this age instead of LOG_DAYS"
    )
    parser.add_argument(
        "--batch",
        type=_count,
        metavar="ROWS",
        default=purging.BATCH,
        help=f"rows that one statement deletes ({purging.BATCH})",
    )
    parser.add_argument("--dry-run", action="store_true", help="only count the rows")


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


@contextmanager
def _command_errors() -> Iterator[None]:
    """Convert errors of Redis, the database and the settings to CommandError."""
    try:
        yield
    except StoreError as error:
        problem = "Redis is away" if error.outage else "Redis refused the command"
        raise CommandError(f"{problem}: {harmless(error)}", returncode=AWAY) from error
    except DatabaseError as error:
        raise CommandError(f"The database failed: {harmless(error)}", returncode=AWAY) from error
    except (ImproperlyConfigured, NotImplementedError) as error:
        raise CommandError(harmless(error), returncode=WRONG) from error


def _targets(options: dict[str, Any], damaged: bool = False) -> list[inspection.KeyState]:
    """Return the windows of the given keys, or of a profile and an identifier.

    Raise CommandError if there is none. Include unreadable windows only if `damaged` is set.
    """
    keys, profile, identifier = options["key"], options["profile"], options["identifier"]
    if bool(keys) == bool(profile or identifier) or bool(profile) != bool(identifier):
        raise CommandError("Give either keys, or --profile and --id.", returncode=WRONG)
    filters = Filters(profile=profile, identifier=identifier)
    if keys:
        found = [state for key in keys if (state := inspection.describe(key)) is not None]
    else:
        found = list(inspection.walk(filters))
    unreadable = inspection.damaged(filters, keys=keys or None)
    if damaged:
        found += unreadable
    elif unreadable and not found:
        raise CommandError("The stored value is damaged: reset this window.", returncode=NOT_FOUND)
    if not found:
        raise CommandError("There is no such window: it has no hits.", returncode=NOT_FOUND)
    return found


def _reset(state: inspection.KeyState, dry_run: bool) -> Record:
    deleted = not dry_run and inspection.reset_key(state.key)
    return {"key": state.key, "hits": state.hits, "reset": deleted, "dry_run": dry_run}
