"""manage.py slidingwindow load: its arguments, and what it prints."""

from __future__ import annotations

from contextlib import closing
from typing import Any, NamedTuple

from django.core.management.base import CommandError, CommandParser

from ...conf import conf
from ...durations import duration_exact
from ...exceptions import PolicyError
from ...load.client import MAX_REQUESTS, Client
from ...load.patterns import Pattern
from ...load.report import OVER, UNSURE, WITHIN, record
from ...load.target import Target, TargetError
from ...policies import Policy, rates_of
from ...registry import registry
from ..console.choice import JSON
from ..console.exits import AWAY, FAILED, INVALID
from ..console.layouts import field
from ..console.outputs import BAD, GOOD, WARN, Cell, Column, Layout, Output, Record
from ..console.text import counted, harmless, number, wait
from ..console.values import add_header, number_to, whole_to

EXAMPLE = """\
examples:
  manage.py slidingwindow load http://127.0.0.1:8000/api/ --limit 20/10s
  manage.py slidingwindow load https://staging.example.com/api/ --profile search
  manage.py slidingwindow load http://127.0.0.1:8000/api/ --limit 120/m --rate 5

Sends GET requests, and only to this host or to a host of ALLOWED_HOSTS. Without --rate it sends
bursts across the boundary of a window, which takes a little more than two windows.
"""
_MAX_SECONDS, _MAX_RATE = 600, 1_000
# A test sends three bursts, and some requests between them.
_MAX_BURST = MAX_REQUESTS // 4
_CONFIRMATION = "--yes-this-is-my-site"


def add_arguments(parser: CommandParser) -> None:
    parser.epilog = EXAMPLE
    parser.add_argument("url", metavar="URL", help="what to request")
    limit = parser.add_mutually_exclusive_group(required=True)
    limit.add_argument("--profile", metavar="P", help="the limits to test are those of a profile")
    limit.add_argument("--limit", metavar="RATE", help="the limit to test, such as 120/m")
    pattern = parser.add_mutually_exclusive_group()
    pattern.add_argument(
        "--burst",
        type=whole_to(_MAX_BURST),
        metavar="N",
        help="requests of each burst (a tenth more than the limit)",
    )
    pattern.add_argument(
        "--rate", type=number_to(_MAX_RATE), metavar="R", help="requests a second, without bursts"
    )
    parser.add_argument(
        "--seconds",
        type=number_to(_MAX_SECONDS),
        metavar="S",
        help="when to stop at the latest (three windows and 10 s; with --rate two windows)",
    )
    add_header(parser)
    parser.add_argument(
        _CONFIRMATION, dest="own", action="store_true", help="the URL is yours, wherever it is"
    )


def run(output: Output, options: dict[str, Any]) -> None:
    """Test the limit and print the report.

    Raise CommandError if an option is invalid or a limit was exceeded.
    """
    target = _target(options)
    test = _test(options)
    with closing(Client(target, options["header"], seconds=test.seconds)) as client:
        pattern = Pattern(client)
        if options["rate"] is not None:
            pattern.steady(options["rate"])
        else:
            pattern.boundary(test.burst, test.window)
    found = record(options["url"], client.answers, test.policies)
    if not found["admitted"] + found["refused"]:
        _raise_inconclusive(found)
    if options["format"] == JSON:
        output.table(_WINDOWS, [found])
    else:
        _print(output, found)
    if not found["ok"]:
        raise CommandError("More than the limit was admitted.", returncode=FAILED)


def _target(options: dict[str, Any]) -> Target:
    try:
        target = Target.of(options["url"])
    except TargetError as error:
        raise CommandError(harmless(error), returncode=INVALID) from error
    if not options["own"] and not target.is_own(conf.allowed_hosts):
        raise CommandError(
            f"{harmless(target.host)} is neither this host nor named in ALLOWED_HOSTS. If it is "
            f"your own site, add {_CONFIRMATION}.",
            returncode=INVALID,
        )
    return target


class _Test(NamedTuple):
    """The limits to test, and how."""

    policies: tuple[Policy, ...]
    window: float
    """The shortest window, in seconds."""
    burst: int
    """The requests of each burst."""
    seconds: float
    """When to stop at the latest."""


def _test(options: dict[str, Any]) -> _Test:
    policies = _policies(options)
    shortest = min(policies, key=lambda policy: policy.window)
    limit, window = shortest.limit, shortest.window
    burst = options["burst"] or limit + max(1, limit // 10)
    steady = options["rate"] is not None
    seconds = options["seconds"] or min(2 * window if steady else 3 * window + 10, _MAX_SECONDS)
    if not steady and burst > _MAX_BURST:
        raise CommandError(
            f"A burst of {burst:,} requests is too large, the most are {_MAX_BURST:,}: use --rate "
            "or --burst, or test another limit.",
            returncode=INVALID,
        )
    if not steady and seconds < 2 * window:
        raise CommandError(
            f"Bursts across a boundary take two windows, {duration_exact(2 * window)}, and this "
            f"test ends after {duration_exact(seconds)}. Use --rate, more --seconds (at most "
            f"{_MAX_SECONDS}), or test a shorter window.",
            returncode=INVALID,
        )
    return _Test(policies, window, burst, seconds)


def _policies(options: dict[str, Any]) -> tuple[Policy, ...]:
    if options["profile"] is None:
        try:
            return (Policy.parse(options["limit"]),)
        except PolicyError as error:
            raise CommandError(harmless(error), returncode=INVALID) from error
    profile, name = registry.get(options["profile"]), harmless(options["profile"])
    policies = rates_of(profile.policies)
    if not policies:
        problem = f"The limits of {name} depend on the identifier: use --limit."
        if profile.limit_for is None:
            problem = f"{name} limits only requests in flight, which this test does not hold."
        raise CommandError(problem, returncode=INVALID)
    return policies


def _raise_inconclusive(found: Record) -> None:
    """Raise CommandError, because no response was a success or a refusal."""
    statuses = harmless(_statuses(found))
    if all(status.isdecimal() for status in found["statuses"]):
        raise CommandError(
            f"No request was admitted, or refused with 429: {statuses}. See URL and --header.",
            returncode=INVALID,
        )
    raise CommandError(f"The site does not answer: {statuses}.", returncode=AWAY)


def _statuses(found: Record) -> str:
    return ", ".join(f"{status} x {count}" for status, count in found["statuses"].items())


_VERDICTS = {
    OVER: Cell("MORE than the limit", BAD),
    WITHIN: Cell("within the limit", GOOD),
    UNSURE: Cell("within the limit, as far as this client can tell", WARN),
}


def _most(record: Record) -> Cell:
    least, most = record["most_least"], record["most_most"]
    return Cell(number(least) if least == most else f"{number(least)} to {number(most)}")


_WINDOWS = Layout(
    [
        Column("limit", field("rate"), 16),
        Column("most admitted in a window", _most, 25, right=True),
        Column("verdict", lambda r: _VERDICTS[r["verdict"]]),
    ]
)


def _print(output: Output, found: Record) -> None:
    output.note(
        f"{counted(found['requests'], 'request')} in {wait(found['seconds'])}: "
        f"{found['admitted']:,} admitted, {found['refused']:,} refused "
        f"({harmless(_statuses(found))}). The slowest took {wait(found['slowest'])}."
    )
    output.note("")
    output.table(_WINDOWS, found["windows"])
    output.note("")
    fields = found["fields"]
    limits = ", ".join(map(number, fields["limits"])) or "none"
    output.note(f"limit in the fields of responses: {limits}")
    output.note(
        f"Retry-After: kept {counted(fields['retry_after_kept'], 'time')}, broken "
        f"{counted(fields['retry_after_broken'], 'time')}, missing in "
        f"{counted(fields['retry_after_missing'], 'refusal')}"
    )
    output.note(
        f"requests left: named by {counted(fields['remaining_seen'], 'response')}, broken "
        f"{counted(fields['remaining_broken'], 'time')}"
    )
    if not found["refused"]:
        output.note("Nothing was refused: the limit was not reached, so nothing is proven.")
    if any(window["most_least"] != window["most_most"] for window in found["windows"]):
        output.note('"18 to 20" means at least 18 and at most 20: a request was counted at some')
        output.note("moment between its sending and its response.")
