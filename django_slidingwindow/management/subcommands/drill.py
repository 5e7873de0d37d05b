"""manage.py slidingwindow drill: its arguments, and what it prints."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils.encoding import iri_to_uri

from ...conf import conf
from ...drill.exercise import DrillError, Plan, rehearse
from ...drill.handlers import Call
from ...drill.outage import BREAKER, WAYS
from ...drill.report import record
from ...guard.credentials import is_token
from ..console.choice import JSON
from ..console.exits import FAILED, INVALID
from ..console.layouts import field
from ..console.outputs import BAD, DIM, GOOD, Cell, Column, Layout, Output, Record
from ..console.text import harmless, number, wait
from ..console.values import add_header, number_to, whole_to

EXAMPLE = """\
examples:
  manage.py slidingwindow drill --path /api/orders/ --seconds 5
  manage.py slidingwindow drill --path /health/ --way blackhole --asgi --json

The requests run the views of these paths for real, and are counted in Redis before and after the
outage. Choose a path that changes nothing. Other processes are not affected.
"""
_MAX_SECONDS, _MAX_REQUESTS = 600, 10_000


def add_arguments(parser: CommandParser) -> None:
    parser.epilog = EXAMPLE
    parser.add_argument(
        "--path",
        action="append",
        default=[],
        help="what to request, such as /api/orders/?page=1; may be repeated",
    )
    parser.add_argument(
        "--seconds",
        type=number_to(_MAX_SECONDS),
        default=5.0,
        metavar="N",
        help="how long the outage lasts (5)",
    )
    parser.add_argument(
        "--way",
        choices=WAYS,
        default=BREAKER,
        help="breaker: connections are refused; blackhole: they are never answered (breaker)",
    )
    parser.add_argument(
        "--requests",
        type=whole_to(_MAX_REQUESTS),
        default=50,
        metavar="R",
        help="how many requests are spread over the outage (50)",
    )
    parser.add_argument(
        "--method", default="GET", metavar="M", help="the method of the requests (GET)"
    )
    parser.add_argument(
        "--ip", default="127.0.0.1", metavar="A", help="the address of the client (127.0.0.1)"
    )
    add_header(parser)
    parser.add_argument(
        "--asgi", action="store_true", help="send the requests through Django's ASGI handler"
    )


def run(output: Output, options: dict[str, Any]) -> None:
    """Rehearse the outage and print the report.

    Raise CommandError if an option is invalid or a promise is broken.
    """
    plan = _plan(options)
    try:
        found = record(rehearse(plan))
    except DrillError as error:
        raise CommandError(harmless(error), returncode=INVALID) from error
    if options["format"] == JSON:
        output.table(_PHASES, [found])
    else:
        _print(output, found)
    broken = [promise["name"] for promise in found["promises"] if promise["kept"] is False]
    if broken:
        raise CommandError(f"Broken promises: {', '.join(broken)}.", returncode=FAILED)


def _plan(options: dict[str, Any]) -> Plan:
    paths = options["path"]
    if not paths:
        raise CommandError(
            "Give at least one --path. Its view runs for real, so choose one that changes nothing.",
            returncode=INVALID,
        )
    for path in paths:
        if not path.startswith("/") or path.startswith("//"):
            raise CommandError(f"{harmless(path)!r} is not a path: /orders/", returncode=INVALID)
    method = options["method"].upper()
    if not is_token(method):
        raise CommandError(f"{harmless(method)!r} is not a method.", returncode=INVALID)
    try:
        ip = str(ip_address(options["ip"]))
    except ValueError as error:
        raise CommandError(f"{harmless(error)}.", returncode=INVALID) from error
    headers = tuple(options["header"])
    return Plan(
        calls=[
            Call(method=method, path=iri_to_uri(path), host=_host(), ip=ip, headers=headers)
            for path in paths
        ],
        way=options["way"],
        seconds=options["seconds"],
        requests=options["requests"],
        asgi=options["asgi"],
    )


def _host() -> str:
    """Return a host that ALLOWED_HOSTS accepts."""
    named = [host.lstrip(".") for host in conf.allowed_hosts if host != "*"]
    return named[0] if named else "localhost"


def _sources(record: Record) -> Cell:
    texts = []
    for source, counts in record["sources"].items():
        shown = [f"{count} {what}" for what, count in counts.items() if count]
        texts.append(f"{source}: {', '.join(shown)}")
    return Cell("; ".join(texts) or "-")


def _statuses(record: Record) -> Cell:
    texts = (f"{status} x {count}" for status, count in record["statuses"].items())
    return Cell(harmless(", ".join(texts) or "-"))


def _seconds(name: str) -> Column:
    def cell(record: Record) -> Cell:
        return Cell("-" if record[name] is None else wait(record[name]))

    return Column(name.replace("_", " "), cell, 15, right=True)


_PHASES = Layout(
    [
        Column("phase", field("phase"), 7),
        Column("requests", field("requests", number), 8, right=True),
        Column("statuses", _statuses, 24),
        _seconds("slowest_request"),
        _seconds("slowest_check"),
        Column("decided by", _sources),
    ]
)
_VERDICTS = {True: Cell("kept", GOOD), False: Cell("BROKEN", BAD), None: Cell("not seen", DIM)}
_PROMISES = Layout(
    [
        Column("", lambda r: _VERDICTS[r["kept"]], 8),
        Column("promise", field("text"), 72),
        Column("seen", field("evidence")),
    ]
)


def _print(output: Output, found: Record) -> None:
    away = "refused connections" if found["way"] == BREAKER else "answered nothing"
    output.note(
        f"For {wait(found['seconds'])}, Redis {away} for this process alone "
        f"(process {found['pid']}). Other processes of the site were not affected."
    )
    output.note("")
    output.table(_PHASES, found["phases"])
    output.note("")
    sent = ", ".join(f"{name} {count}" for name, count in found["signals"].items())
    output.note(f"signals: {sent}")
    for metric in found["metrics"]:
        labels = ", ".join(f"{name}={value}" for name, value in metric["labels"].items())
        output.note(harmless(f"metric: {metric['name']}{{{labels}}} {metric['value']:g}"))
    recovery = found["recovery_seconds"]
    if recovery is not None:
        output.note(f"recovery: {wait(recovery)} after Redis could be reached again")
    output.note(f"LATENCY_BUDGET: {wait(found['latency_budget'])}")
    output.note("")
    output.table(_PROMISES, found["promises"])
    if any(promise["kept"] is None for promise in found["promises"]):
        output.note("Not seen: send more --requests, or let the outage last for more --seconds.")
