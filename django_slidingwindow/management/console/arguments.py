"""The arguments of each action of the command."""

from __future__ import annotations

from django.core.management.base import CommandParser

from ...decisions import BLOCK, EXEMPT, LIMIT, OBSERVED
from ...durations import SECONDS
from ...overrides.changes import parse_until
from ...rejections.purge import BATCH, MAX_DAYS
from .values import checked, not_empty, number_to, whole_number

EXAMPLES = {
    "keys": ("keys --top 10", 'keys --axis ip --id "203.0.113.*" --json'),
    "show": (
        "show --profile tenant_free --id acme",
        "show 'throttle:tenant:{acme}:tenant_free:c86400'",
    ),
    "reset": ("reset --profile login --id 203.0.113.9",),
    "profiles": ("profiles", "profiles --json"),
    "watch": ("watch --top 20 --blocked",),
    "override": (
        'override --profile api --id acme --limit 500 --until +2h --note "launch"',
        'override --profile search --limit "40/s, 20000/d"',
        "override --profile login --id 203.0.113.9 --block",
        "override --profile login --id 203.0.113.9 --end",
    ),
    "overrides": ("overrides", "overrides --ended --json"),
    "doctor": ("doctor", "doctor --json"),
    "purge": ("purge --dry-run", "purge --days 90"),
    "replay": (
        "replay access.log --try 30/m --try 60/m,500/h",
        "replay access.log.*.gz --profile search --html report.html",
        "replay access.log --try 100/m --suggest 0.1% --json",
    ),
}
"""Examples by action. Other actions have their own, in `subcommands`."""
# A day, in seconds.
_MAX_INTERVAL = int(SECONDS["day"])


def examples(action: str) -> str:
    """Return the examples for the end of an action's help."""
    lines = (f"  manage.py slidingwindow {line}" for line in EXAMPLES.get(action, ()))
    return "\n".join(("examples:", *lines))


def add_filters(parser: CommandParser) -> None:
    parser.add_argument("--profile", type=not_empty, help="only windows of this profile")
    parser.add_argument("--axis", type=not_empty, help="only windows of profiles with this axis")
    parser.add_argument(
        "--id",
        dest="identifier",
        type=not_empty,
        help='only this identifier, or "text*" for a prefix',
    )
    parser.add_argument(
        "--blocked", action="store_true", help="only windows that would refuse a request now"
    )


def add_keys(parser: CommandParser) -> None:
    add_filters(parser)
    parser.add_argument(
        "--top", type=whole_number, metavar="N", help="only the N most used windows"
    )
    parser.add_argument("--limit", type=whole_number, metavar="N", help="stop after N windows")


def add_watch(parser: CommandParser) -> None:
    add_filters(parser)
    parser.add_argument(
        "--top", type=whole_number, metavar="N", default=20, help="the number of windows (20)"
    )
    parser.add_argument(
        "--interval",
        type=number_to(_MAX_INTERVAL),
        metavar="SECONDS",
        default=2.0,
        help="the time between two views (2)",
    )
    parser.add_argument("--count", type=whole_number, metavar="N", help="quit after N views")


def add_target(parser: CommandParser) -> None:
    parser.add_argument("key", nargs="*", help="keys as they are in Redis")
    parser.add_argument("--profile", help="instead of a key, with --id")
    parser.add_argument("--id", dest="identifier", help="instead of a key, with --profile")


def add_reset(parser: CommandParser) -> None:
    add_target(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be deleted")


def add_purge(parser: CommandParser) -> None:
    parser.add_argument(
        "--days", type=number_to(MAX_DAYS), metavar="N", help="use this age instead of LOG_DAYS"
    )
    parser.add_argument(
        "--batch",
        type=whole_number,
        metavar="ROWS",
        default=BATCH,
        help=f"rows that one statement deletes ({BATCH})",
    )
    parser.add_argument("--dry-run", action="store_true", help="only count the rows")


def add_override(parser: CommandParser) -> None:
    parser.add_argument("--profile", required=True, help="the profile to override")
    parser.add_argument(
        "--id",
        dest="identifier",
        type=not_empty,
        help="only this identifier (a hash with hash: before it); without it, all",
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument(
        "--limit", metavar="N", help='another limit: 500, or "40/s, 20000/d" for several windows'
    )
    for name, text in {
        EXEMPT: "no limit",
        OBSERVED: "count, but refuse nothing",
        BLOCK: "refuse everything",
    }.items():
        action.add_argument(
            f"--{name}", dest="override_action", action="store_const", const=name, help=text
        )
    action.add_argument("--end", action="store_true", help="end what is in force now")
    parser.add_argument(
        "--until",
        type=checked(parse_until),
        metavar="WHEN",
        help="when it ends: +2h, or a time such as 2026-11-17T18:00",
    )
    parser.add_argument("--note", default="", help="why, for others to read")
    parser.set_defaults(override_action=LIMIT)


def add_overrides(parser: CommandParser) -> None:
    parser.add_argument("--ended", action="store_true", help="also list those that have ended")
