"""manage.py slidingwindow explain: its arguments, and what it prints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError, CommandParser

from ...conf import conf
from ...decisions import IDENTITY_ERROR
from ...durations import rate_exact
from ...inspection.explain import explain
from ...inspection.profiles import profiles
from ...inspection.sample_request import find_user, request_of
from ...overrides.watcher import watcher
from ...policies import SLOTS
from ..console.choice import JSON
from ..console.exits import FAILED, INVALID
from ..console.layouts import blocked_for, field
from ..console.outputs import BAD, DIM, GOOD, WARN, Cell, Column, Layout, Output, Record
from ..console.text import as_key, harmless, number, or_dash, wait
from ..console.values import add_header, checked, not_empty

EXAMPLE = """\
examples:
  manage.py slidingwindow explain GET /api/orders/ --user 7 --ip 203.0.113.9
  manage.py slidingwindow explain POST /login/ --ip 10.0.0.1 --header X-Forwarded-For:203.0.113.9
  manage.py slidingwindow explain GET /api/orders/ --tenant acme --json
"""


def add_arguments(parser: CommandParser) -> None:
    parser.epilog = EXAMPLE
    parser.add_argument("method", metavar="METHOD", help="GET, POST, ...")
    parser.add_argument("path", metavar="PATH", help="the path, with its query if need be")
    parser.add_argument("--user", metavar="U", help="primary key or name of the user (anonymous)")
    parser.add_argument(
        "--ip",
        default="127.0.0.1",
        metavar="A",
        help="peer of the connection, such as the last proxy; empty for a unix socket (127.0.0.1)",
    )
    add_header(parser)
    parser.add_argument("--tenant", type=not_empty, metavar="T", help="same as --identify tenant=T")
    parser.add_argument(
        "--identify",
        action="append",
        default=[],
        type=checked(_parse_identify),
        metavar="AXIS=ID",
        help="the identifier of an axis that a made-up request does not have; may be repeated",
    )


def run(output: Output, options: dict[str, Any]) -> None:
    """Explain a request and print the explanation.

    Raise CommandError if an option is invalid or the request would be refused.
    """
    given = dict(options["identify"])
    if options["tenant"] is not None:
        given["tenant"] = options["tenant"]
    try:
        _require_axes(given)
        request = request_of(
            options["method"],
            options["path"],
            ip=options["ip"],
            headers=options["header"],
            user=find_user(options["user"]),
        )
    except ValueError as error:
        raise CommandError(harmless(error), returncode=INVALID) from error
    overrides_are_current = watcher.refresh() if conf.overrides_seconds else True
    found = explain(request, given)
    if not overrides_are_current:
        found.unknown.append("The overrides could not be read: those that were read before hold.")
    record = asdict(found)
    if options["format"] == JSON:
        output.facts(REQUEST, record)
    else:
        _print(output, record)
    if found.refused:
        decision = record["decision"]
        again = decision["retry_after"]
        after = "no retry can pass" if again is None else f"a retry can pass in {wait(again)}"
        if decision["waits_for_slot"]:
            after = "a retry can pass when a request in flight ends"
        elif decision["reason"] == IDENTITY_ERROR:
            after = "it is unknown when a retry can pass"
        by = f"{decision['profile']} ({decision['reason']})" if decision["profile"] else "a choice"
        text = f"Refused with {decision['status']} by {harmless(by)}: {after}."
        raise CommandError(text, returncode=FAILED)


def _parse_identify(text: str) -> tuple[str, str]:
    """Return axis and identifier of "AXIS=ID". Raise ValueError for any other text."""
    axis, equals, identifier = text.partition("=")
    if not equals or not axis or not identifier:
        raise ValueError(f"{text!r} is not AXIS=ID, such as tenant=acme")
    return axis, identifier


def _require_axes(axes: Iterable[str]) -> None:
    """Raise ValueError if no profile counts by one of the axes."""
    valid = [state.profile for state in profiles() if state.profile is not None]
    known = {part for profile in valid for part in profile.axis.split("+")}
    for axis in axes:
        if axis not in known:
            names = ", ".join(sorted(known))
            raise ValueError(f"no profile counts by {axis!r}; the profiles count by {names}.")


def _print(output: Output, record: Record) -> None:
    output.facts(REQUEST, record)
    if record["rules"]:
        output.note("")
        output.table(RULES, record["rules"])
    if record["profiles"]:
        output.note("")
        output.table(PROFILES, record["profiles"])
    windows = [
        {**window, "profile": state["profile"]}
        for state in record["profiles"]
        for window in state["windows"]
    ]
    if windows:
        output.note("")
        output.table(WINDOWS, windows)
    output.note("")
    if record["decision"] is None:
        output.note("Nothing counts this request.")
    elif not record["refused"]:
        output.note("Admitted.")
    for text in record["unknown"]:
        output.note(f"- {harmless(text)}")


def _client(record: Record) -> Cell:
    client = record["client"]
    if client["address"] is None:
        return Cell(f"unknown: {harmless(client['why'])}", BAD)
    counted = client["counted"]
    alias = "" if counted == client["address"] else f", counted as {counted}"
    return Cell(f"{harmless(client['address'] + alias)}: {harmless(client['why'])}")


def _hops(record: Record) -> Cell:
    return Cell(" > ".join(_hop(hop) for hop in record["client"]["passed"]))


def _hop(hop: Record) -> str:
    what = "trusted proxy" if hop["trusted"] else "not a proxy" if hop["valid"] else "no address"
    return f"{hop['where']} {or_dash(hop['text'])} ({what})"


REQUEST = Layout(
    [
        Column("request", lambda r: Cell(harmless(f"{r['method']} {r['path']}"))),
        Column("view", field("view", or_dash)),
        Column("client", _client),
        Column("hops", _hops),
        Column("exempt by", lambda r: Cell(or_dash(r["exempt"]), WARN if r["exempt"] else "")),
    ]
)


def _yes_or_no(name: str) -> Column:
    return Column(name, lambda r: Cell("yes", GOOD) if r[name] else Cell("no", DIM), 7)


RULES = Layout(
    [
        Column("rule", field("rule"), 10),
        _yes_or_no("applies"),
        Column("profiles", lambda r: Cell(harmless(", ".join(r["profiles"]))), 24),
        Column("why", field("why")),
    ]
)

PROFILES = Layout(
    [
        Column("profile", field("profile", or_dash), 20),
        _yes_or_no("counts"),
        Column("identifier", field("identifier", or_dash), 20),
        Column("cost", lambda r: Cell(number(r["cost"] or None)), 4, right=True),
        Column("override", lambda r: Cell(or_dash(r["override"]), WARN), 8),
        Column("place", field("place"), 15),
        Column("required by", field("origin", or_dash), 30),
        Column("why", field("why"), 24),
        Column("identified by", lambda r: Cell(or_dash("; ".join(r["found_by"])))),
    ]
)


def _blocked_for(record: Record) -> Cell:
    if record["allowed"] is None:
        return Cell("unknown", WARN)
    return blocked_for(
        record["retry_after"],
        full=not record["allowed"],
        observed=record["observed"],
        in_flight=_is_in_flight(record),
    )


def _rate(record: Record) -> Cell:
    return Cell(rate_exact(record["limit"], record["window"], inflight=_is_in_flight(record)))


def _is_in_flight(record: Record) -> bool:
    """Return whether a window counts requests in flight."""
    return bool(record["algorithm"] == SLOTS)


WINDOWS = Layout(
    [
        Column("window of", field("profile"), 20),
        Column("rate", _rate, 16),
        Column("left after it", field("remaining", number), 13, right=True),
        Column("blocked for", _blocked_for, 11, right=True),
        Column("key", field("key", as_key)),
    ]
)
