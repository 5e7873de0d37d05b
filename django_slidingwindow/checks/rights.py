"""What the app asks of a Redis user, and whether a server grants it.

A command that is queued by MULTI is checked against the user's rights at once, and
DISCARD forgets it: so every right is tried, and nothing runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from redis.exceptions import NoPermissionError

from .server import Server

Arguments = tuple[str, ...]

# Each with the arguments that follow it; KEY stands for a key of the app.
KEY = "<key>"
ALWAYS: Mapping[str, Arguments] = {
    "EVALSHA": ("0" * 40, "1", KEY),
    "EVAL": ("return 1", "1", KEY),
    "SCRIPT|LOAD": ("return 1",),
    "UNLINK": (KEY,),
    "TIME": (),
    "PEXPIRE": (KEY, "1"),
}
BY_ALGORITHM: Mapping[str, Mapping[str, Arguments]] = {
    "compact": {
        "GETRANGE": (KEY, "0", "0"),
        "SETRANGE": (KEY, "0", "x"),
        "SET": (KEY, "x"),
        "DEL": (KEY,),
    },
    "log": {
        "ZADD": (KEY, "1", "x"),
        "ZCARD": (KEY,),
        "ZCOUNT": (KEY, "1", "1"),
        "ZRANGE": (KEY, "0", "0"),
        "ZREVRANGE": (KEY, "0", "0"),
        "ZREVRANGEBYSCORE": (KEY, "1", "1"),
        "ZREM": (KEY, "x"),
        "ZREMRANGEBYRANK": (KEY, "0", "0"),
        "ZREMRANGEBYSCORE": (KEY, "1", "1"),
    },
    "buckets": {
        "HGETALL": (KEY,),
        "HINCRBY": (KEY, "x", "1"),
        "HDEL": (KEY, "x"),
    },
    "counter": {"GET": (KEY,), "SET": (KEY, "x"), "DEL": (KEY,)},
}
INSPECTION: Mapping[str, Arguments] = {
    "SCAN": ("0",),
    "DBSIZE": (),
    "PTTL": (KEY,),
    "MEMORY|USAGE": (KEY,),
    "GET": (KEY,),
    "ZRANGE": (KEY, "0", "0"),
    "HGETALL": (KEY,),
}


def needed(algorithms: Iterable[str]) -> dict[str, Arguments]:
    """The commands that limits with these algorithms run."""
    commands = dict(ALWAYS)
    for algorithm in algorithms:
        commands |= BY_ALGORITHM[algorithm]
    return commands


@dataclass(frozen=True, slots=True)
class Refusals:
    """What a user may not do."""

    commands: tuple[str, ...]
    keys: bool
    """Some command may run, but not on the app's keys."""


def refusals(server: Server, commands: Mapping[str, Arguments], key: str) -> Refusals | None:
    """What the server refuses this user; None if it does not let itself be asked."""
    if isinstance(server.ask("MULTI"), NoPermissionError):
        return None
    missing, keys = [], False
    for name, arguments in commands.items():
        filled = (key if argument == KEY else argument for argument in arguments)
        refusal = server.ask(*name.split("|"), *filled)
        if isinstance(refusal, NoPermissionError):
            if _about_keys(refusal):
                keys = True
            else:
                missing.append(name)
    server.ask("DISCARD")
    return Refusals(tuple(missing), keys)


def _about_keys(refusal: Any) -> bool:
    # "... one of the keys used as arguments" in 6.2, "No permissions to access a key" after.
    return "access" in str(refusal)
