"""manage.py slidingwindow: live windows, profiles, the health of it all, the log's end."""

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

# Exit codes. argparse has 2 for wrong arguments as well.
NOT_FOUND, WRONG, AWAY = 1, 2, 3


class Command(BaseCommand):
    """Parses, asks, prints; docs/commands.md describes each sub-command."""

    help = "Looks at rate limits and their windows in Redis, and unblocks."
    # The doctor has to tell what they find.
    requires_system_checks = ()

    output: Output

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        for name, (summary, add) in {
            "keys": ("live windows, all or those most used", _add_keys),
            "show": ("one window, or those of an identifier", _add_target),
            "reset": ("forget windows, so that who was blocked is let in", _add_reset),
            "profiles": ("what is configured", None),
            "watch": ("a live view of the windows most used; q to leave", _add_watch),
            "doctor": ("is everything in order? exits 1 on errors", None),
            "purge": ("delete what the log has kept longer than LOG_DAYS", _add_purge),
        }.items():
            action = actions.add_parser(name, help=summary, description=summary)
            action.add_argument(
                "--format",
                choices=FORMATS,
                default=AUTO,
                help="auto: rich on a terminal that has it, else plain",
            )
            action.add_argument(
                "--json", dest="format", action="store_const", const=JSON, help="--format json"
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
            with _told_errors():
                getattr(self, options["action"])(**options)
            self.stdout.flush()
        except BrokenPipeError:
            # The reader has seen enough. Python flushes once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def keys(self, top: int | None, limit: int | None, **options: Any) -> None:
        filters = Filters.from_options(options)
        with progress_bar(sys.stderr, "keys") as progress:
            if top is None:
                # On the same terminal the rows are progress enough.
                told = None if self.stdout.isatty() else progress
                found = inspection.walk(filters, progress=told)
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
            raise CommandError("Nobody to ask here: say --yes or --dry-run.", returncode=WRONG)
        for state in states:
            sys.stderr.write(f"{as_key(state.key)}: {state.hits:,} hits\n")
        what = "this window" if len(states) == 1 else f"these {len(states)} windows"
        sys.stderr.write(f"Forget {what}? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError("Nothing was forgotten.", returncode=NOT_FOUND)

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
            self.output.note("q leaves" if self.stdout.isatty() else "")

        stream = cast(TextIO, self.stdout)
        # Ctrl-C leaves as q does.
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
            tell = None if progress is None else lambda done: progress(done, total)
            count = total if dry_run else purging.purge(before, batch=batch, progress=tell)
        told = before.isoformat(timespec="seconds")
        record = {"before": told, "rows": count, "deleted": not dry_run}
        self.output.facts(layouts.PURGE, record)


def _add_filters(parser: CommandParser) -> None:
    parser.add_argument("--profile", help="windows of this profile")
    parser.add_argument("--axis", help="windows that count by this axis")
    parser.add_argument(
        "--id", dest="identifier", help='this identifier, or "text*" for all that begin so'
    )
    parser.add_argument("--blocked", action="store_true", help="only who would be refused now")


def _add_keys(parser: CommandParser) -> None:
    _add_filters(parser)
    parser.add_argument("--top", type=_count, metavar="N", help="the N most used")
    parser.add_argument("--limit", type=_count, metavar="N", help="stop after N")


def _add_watch(parser: CommandParser) -> None:
    _add_filters(parser)
    parser.add_argument("--top", type=_count, metavar="N", default=20)
    parser.add_argument("--interval", type=_positive, metavar="SECONDS", default=2.0)
    parser.add_argument("--count", type=_count, metavar="N", help="leave after N views")


def _add_target(parser: CommandParser) -> None:
    parser.add_argument("key", nargs="*", help="keys as they stand in Redis")
    parser.add_argument("--profile", help="instead of a key, with --id")
    parser.add_argument("--id", dest="identifier", help="instead of a key, with --profile")


def _add_reset(parser: CommandParser) -> None:
    _add_target(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")


def _add_purge(parser: CommandParser) -> None:
    parser.add_argument("--days", type=_positive, metavar="N", help="instead of LOG_DAYS")
    parser.add_argument("--batch", type=_count, metavar="ROWS", default=purging.BATCH)
    parser.add_argument("--dry-run", action="store_true", help="only count")


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"{text!r} is not a whole number from 1")
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
def _told_errors() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        said = "Redis is away" if error.outage else "Redis refuses"
        raise CommandError(f"{said}: {harmless(error)}", returncode=AWAY) from error
    except DatabaseError as error:
        raise CommandError(f"The database fails: {harmless(error)}", returncode=AWAY) from error
    except (ImproperlyConfigured, NotImplementedError) as error:
        raise CommandError(harmless(error), returncode=WRONG) from error


def _targets(options: dict[str, Any], damaged: bool = False) -> list[inspection.KeyState]:
    """Return the windows that keys, or profile and identifier, name; there is at least one.

    Windows that cannot be read are returned on request only.
    """
    keys, profile, identifier = options["key"], options["profile"], options["identifier"]
    if bool(keys) == bool(profile or identifier) or bool(profile) != bool(identifier):
        raise CommandError("Name keys, or --profile and --id together.", returncode=WRONG)
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
        raise CommandError("There is no such window: nothing is counted.", returncode=NOT_FOUND)
    return found


def _reset(state: inspection.KeyState, dry_run: bool) -> Record:
    gone = not dry_run and inspection.reset_key(state.key)
    return {"key": state.key, "hits": state.hits, "reset": gone, "dry_run": dry_run}
