"""manage.py slidingwindow: a subcommand for each thing that an operator wants to know or do."""

from __future__ import annotations

import os
import sys
from argparse import RawDescriptionHelpFormatter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import islice
from typing import Any, TextIO, cast

from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from ...durations import duration_exact
from ...exceptions import StoreError
from ...inspection import doctor as diagnosis
from ...inspection import profiles as overview
from ...inspection import windows as inspection
from ...inspection.search import Filters
from ...overrides import changes
from ...rejections import purge as purging
from .. import drilling, explaining, loading, replaying, using
from ..console import arguments, layouts, live
from ..console.choice import AUTO, FORMATS, JSON, choose
from ..console.exits import AWAY, NOT_FOUND, WRONG
from ..console.outputs import Output, Record
from ..console.progress import progress_bar
from ..console.text import as_key, density, harmless, sparkline


class Command(BaseCommand):
    """Parse arguments, call the inspection functions and print. See docs/commands.md."""

    help = "Shows rate limits and their windows in Redis, and unblocks clients."
    # `doctor` must be able to run and report what the checks find.
    requires_system_checks = ()

    output: Output

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        for name, (summary, add) in {
            "keys": ("list live windows, all or the most used", arguments.add_keys),
            "show": ("show one window, or the windows of an identifier", arguments.add_target),
            "reset": (
                "delete windows, so that blocked clients are admitted again",
                arguments.add_reset,
            ),
            "profiles": ("list the configured profiles", None),
            "watch": ("show a live view of the most used windows; q quits", arguments.add_watch),
            "usage": ("show how much of its limits a profile uses", using.add_arguments),
            "override": (
                "change a limit now, for an identifier or all",
                arguments.add_override,
            ),
            "overrides": ("list the overrides in force", arguments.add_overrides),
            "doctor": ("check that everything works; exits 1 on errors", None),
            "purge": ("delete rows of the log that are older than LOG_DAYS", arguments.add_purge),
            "replay": ("replay access logs against limits", replaying.add_arguments),
            "drill": ("rehearse an outage of Redis in this process", drilling.add_arguments),
            "load": ("test a limit of your own site over HTTP", loading.add_arguments),
            "explain": (
                "say which limits a request would meet; exits 1 if refused",
                explaining.add_arguments,
            ),
        }.items():
            action = actions.add_parser(
                name,
                help=summary,
                description=summary,
                epilog=arguments.examples(name),
                formatter_class=RawDescriptionHelpFormatter,
            )
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
        states, damaged = _targets(options)
        for i, state in enumerate(states):
            if i:
                self.output.note("")
            hits = inspection.hits(state.key)
            drawn = sparkline(density(hits, state.window))
            self.output.facts(
                layouts.KEY,
                asdict(state) | {"log": hits},
                f"{duration_exact(state.window)} ago |{drawn}| now",
            )
        if damaged:
            keys = ", ".join([as_key(state.key) for state in damaged])
            raise CommandError(f"Damaged value, reset this window: {keys}", returncode=NOT_FOUND)

    def reset(self, yes: bool, dry_run: bool, **options: Any) -> None:
        sound, damaged = _targets(options)
        states = [*sound, *damaged]
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

    def override(self, profile: str, identifier: str, end: bool, **options: Any) -> None:
        if end:
            ended = changes.end_all(profile, identifier)
            if not ended:
                raise CommandError("There is no such override in force.", returncode=NOT_FOUND)
            self.output.table(layouts.OVERRIDES, map(changes.record, ended))
            return
        try:
            made = changes.make(
                profile=profile,
                identifier=identifier,
                action=options["override_action"],
                limit=options["limit"] or "",
                until=options["until"],
                note=options["note"],
            )
        except ValidationError as error:
            raise CommandError(harmless(" ".join(error.messages)), returncode=WRONG) from error
        self.output.table(layouts.OVERRIDES, [changes.record(made)])

    def overrides(self, ended: bool, **options: Any) -> None:
        self.output.table(layouts.OVERRIDES, map(changes.record, changes.listed(ended=ended)))

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

    def usage(self, **options: Any) -> None:
        using.run(self.output, options)

    def replay(self, **options: Any) -> None:
        replaying.run(self.output, options)

    def drill(self, **options: Any) -> None:
        drilling.run(self.output, options)

    def load(self, **options: Any) -> None:
        loading.run(self.output, options)

    def explain(self, **options: Any) -> None:
        explaining.run(self.output, options)


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


def _targets(
    options: dict[str, Any],
) -> tuple[list[inspection.KeyState], list[inspection.KeyState]]:
    """Return the windows of the given keys, or of a profile and an identifier, and the damaged.

    Raise CommandError if there is none.
    """
    keys, profile, identifier = options["key"], options["profile"], options["identifier"]
    if bool(keys) == bool(profile or identifier) or bool(profile) != bool(identifier):
        raise CommandError("Give either keys, or --profile and --id.", returncode=WRONG)
    filters = Filters(profile=profile, identifier=identifier)
    if keys:
        found = [state for key in keys if (state := inspection.describe(key)) is not None]
    else:
        found = list(inspection.walk(filters))
    damaged = inspection.damaged(filters, keys=keys or None)
    if not found and not damaged:
        raise CommandError("There is no such window: it has no hits.", returncode=NOT_FOUND)
    return found, damaged


def _reset(state: inspection.KeyState, dry_run: bool) -> Record:
    deleted = not dry_run and inspection.reset_key(state.key)
    return {"key": state.key, "hits": state.hits, "reset": deleted, "dry_run": dry_run}
