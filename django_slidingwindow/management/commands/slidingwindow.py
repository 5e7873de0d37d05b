"""manage.py slidingwindow: inspect limits and their windows, and change them."""

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
from django.db import Error

from ...durations import duration_exact
from ...exceptions import StoreError
from ...inspection import doctor, profiles, windows
from ...inspection.search import Filters
from ...inspection.windows import KeyState
from ...overrides import changes
from ...rejections import purge
from ..console import arguments, layouts, live
from ..console.choice import AUTO, FORMATS, JSON, choose
from ..console.exits import AWAY, FAILED, INVALID
from ..console.outputs import Output, Record
from ..console.progress import progress_bar
from ..console.text import as_key, counted, density, harmless, sparkline
from ..subcommands import drill, explain, load, replay, usage


class Command(BaseCommand):
    """Parse arguments, call the inspection functions and print. See docs/commands.md.

    Each action is the method with its name.
    """

    help = "Shows rate limits and their windows in Redis, and unblocks clients."
    # `doctor` must run even if a check fails, because it reports the failed checks.
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
            "usage": ("show how much of its limits a profile uses", usage.add_arguments),
            "override": (
                "change a limit now, for an identifier or all",
                arguments.add_override,
            ),
            "overrides": ("list the overrides in force", arguments.add_overrides),
            "doctor": ("check that everything works; exits 1 on errors", None),
            "purge": ("delete rows of the log that are older than LOG_DAYS", arguments.add_purge),
            "replay": ("replay access logs against limits", replay.add_arguments),
            "drill": ("rehearse an outage of Redis in this process", drill.add_arguments),
            "load": ("test a limit of your own site over HTTP", load.add_arguments),
            "explain": (
                "say which limits a request would meet; exits 1 if refused",
                explain.add_arguments,
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
            raise CommandError(f"{error}: pip install rich", returncode=INVALID) from error
        try:
            with _command_errors():
                getattr(self, options["action"])(**options)
            self.stdout.flush()
        except BrokenPipeError:
            # The reader has closed the pipe. Python flushes stdout once more at exit, which must
            # not fail again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def keys(self, top: int | None, limit: int | None, **options: Any) -> None:
        filters = Filters.from_options(options)
        with progress_bar(sys.stderr, "keys") as progress:
            if top is None:
                # If the rows go to a terminal, they show the progress themselves.
                shown = None if self.stdout.isatty() else progress
                found = windows.walk(filters, progress=shown)
                self.output.table(layouts.KEYS, map(asdict, islice(found, limit)))
                return
            states = windows.keys_top(top, filters, progress=progress)
        # A list: plain text lines up rows that are all known.
        self.output.table(layouts.KEYS, [*map(asdict, states[:limit])])

    def show(self, **options: Any) -> None:
        states, damaged = _requested_windows(options)
        for i, state in enumerate(states):
            if i:
                self.output.note("")
            hits = windows.hits(state.key)
            drawn = sparkline(density(hits, state.window))
            self.output.facts(
                layouts.KEY,
                asdict(state) | {"log": hits},
                f"{duration_exact(state.window)} ago |{drawn}| now",
            )
        if damaged:
            keys = ", ".join([as_key(state.key) for state in damaged])
            raise CommandError(f"Damaged value, reset this window: {keys}", returncode=FAILED)

    def reset(self, yes: bool, dry_run: bool, **options: Any) -> None:
        readable, damaged = _requested_windows(options)
        states = [*readable, *damaged]
        if not dry_run and not yes:
            self._confirm(states)
        self.output.table(layouts.RESET, (_reset(state, dry_run) for state in states))

    def _confirm(self, states: list[KeyState]) -> None:
        """Ask whether to delete windows. Raise CommandError unless the answer is yes."""
        if not sys.stdin or not sys.stdin.isatty():
            raise CommandError(
                "Cannot ask for confirmation without a terminal: use --yes or --dry-run.",
                returncode=INVALID,
            )
        for state in states:
            sys.stderr.write(f"{as_key(state.key)}: {counted(state.hits, 'hit')}\n")
        what = "this window" if len(states) == 1 else f"these {len(states)} windows"
        sys.stderr.write(f"Delete {what}? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise CommandError("Nothing was deleted.", returncode=FAILED)

    def profiles(self, **options: Any) -> None:
        records = [state.record() for state in profiles.profiles()]
        self.output.table(layouts.profiles(), records)

    def watch(self, top: int, interval: float, count: int | None, **options: Any) -> None:
        filters = Filters.from_options(options)

        def draw(number: int) -> None:
            try:
                states = windows.keys_top(top, filters)
            except StoreError as error:
                self.output.note(f"Redis is away: {harmless(error)}")
                return
            records = [asdict(state) | {"view": number} for state in states]
            self.output.table(layouts.KEYS, records)
            self.output.note("press q to quit" if self.stdout.isatty() else "")

        stream = cast(TextIO, self.stdout)
        # Ctrl-C quits like q.
        with suppress(KeyboardInterrupt):
            live.repeat(draw, stream=stream, interval=interval, count=count)

    def override(self, profile: str, identifier: str | None, end: bool, **options: Any) -> None:
        if end:
            ended = changes.end_all(profile, identifier or "")
            if not ended:
                raise CommandError("There is no such override in force.", returncode=FAILED)
            self.output.table(layouts.OVERRIDES, [*map(changes.record, ended)])
            return
        try:
            made = changes.make(
                profile=profile,
                identifier=identifier or "",
                action=options["override_action"],
                limit=options["limit"] or "",
                until=options["until"],
                note=options["note"],
            )
        except ValidationError as error:
            raise CommandError(harmless(" ".join(error.messages)), returncode=INVALID) from error
        self.output.table(layouts.OVERRIDES, [changes.record(made)])

    def overrides(self, ended: bool, **options: Any) -> None:
        listed = changes.listed(ended=ended)
        self.output.table(layouts.OVERRIDES, [*map(changes.record, listed)])

    def doctor(self, **options: Any) -> None:
        findings = [asdict(finding) for finding in doctor.examine()]
        levels = [finding["level"] for finding in findings]
        ok = doctor.ERROR not in levels
        if options["format"] == JSON:
            self.output.table(layouts.FINDINGS, [{"ok": ok, "findings": findings}])
        else:
            self.output.table(layouts.FINDINGS, findings)
        if not ok:
            errors = counted(levels.count(doctor.ERROR), "error")
            raise CommandError(f"{errors}.", returncode=FAILED)

    def purge(self, days: float | None, batch: int, dry_run: bool, **options: Any) -> None:
        before = purge.cutoff(days)
        with progress_bar(sys.stderr, "rows") as progress:
            total = purge.count_old(before) if dry_run or progress else 0
            report = None if progress is None else lambda done: progress(done, total)
            count = total if dry_run else purge.purge(before, batch=batch, progress=report)
        cutoff = before.isoformat(timespec="seconds")
        record = {"before": cutoff, "rows": count, "deleted": not dry_run}
        self.output.facts(layouts.PURGE, record)

    def usage(self, **options: Any) -> None:
        usage.run(self.output, options)

    def replay(self, **options: Any) -> None:
        replay.run(self.output, options)

    def drill(self, **options: Any) -> None:
        drill.run(self.output, options)

    def load(self, **options: Any) -> None:
        load.run(self.output, options)

    def explain(self, **options: Any) -> None:
        explain.run(self.output, options)


@contextmanager
def _command_errors() -> Iterator[None]:
    """Convert errors of Redis, the database and the settings to CommandError."""
    try:
        yield
    except StoreError as error:
        problem = "Redis is away" if error.outage else "Redis refused the command"
        raise CommandError(f"{problem}: {harmless(error)}", returncode=AWAY) from error
    except Error as error:
        raise CommandError(f"The database failed: {harmless(error)}", returncode=AWAY) from error
    except (ImproperlyConfigured, NotImplementedError) as error:
        raise CommandError(harmless(error), returncode=INVALID) from error


def _requested_windows(options: dict[str, Any]) -> tuple[list[KeyState], list[KeyState]]:
    """Return the windows of the given keys, or of a profile and an identifier.

    The second list has the damaged windows. Raise CommandError if both lists are empty.
    """
    keys, profile, identifier = options["key"], options["profile"], options["identifier"]
    if bool(keys) == bool(profile or identifier) or bool(profile) != bool(identifier):
        raise CommandError("Give either keys, or --profile and --id.", returncode=INVALID)
    filters = Filters(profile=profile, identifier=identifier)
    if keys:
        found = [state for key in keys if (state := windows.describe(key)) is not None]
    else:
        found = list(windows.walk(filters))
    damaged = windows.damaged(filters, keys=keys or None)
    if not found and not damaged:
        raise CommandError("There is no such window: it has no hits.", returncode=FAILED)
    return found, damaged


def _reset(state: KeyState, dry_run: bool) -> Record:
    deleted = not dry_run and windows.reset_key(state.key)
    return {"key": state.key, "hits": state.hits, "reset": deleted, "dry_run": dry_run}
