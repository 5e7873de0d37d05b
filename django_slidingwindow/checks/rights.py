"""The commands that the app needs, and whether a Redis server allows them.

After MULTI, the server checks the rights for each command when it is queued, and DISCARD
removes all of them. So every right is tested, and nothing runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from redis.exceptions import NoPermissionError, ResponseError

from ..policies import PENALTY, SLOTS
from .server import Server

Arguments = tuple[str, ...]

# Each command with its arguments; KEY stands for a key of the app.
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
        "STRLEN": (KEY,),
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
        "HGET": (KEY, "x"),
        "HSET": (KEY, "x", "1"),
        "HDEL": (KEY, "x"),
    },
    PENALTY: {"GET": (KEY,), "SET": (KEY, "x")},
    SLOTS: {
        "ZADD": (KEY, "1", "x"),
        "ZCARD": (KEY,),
        "ZCOUNT": (KEY, "1", "1"),
        "ZRANGE": (KEY, "0", "0"),
        "ZREVRANGEBYSCORE": (KEY, "1", "1"),
        "ZREM": (KEY, "x"),
        "ZREMRANGEBYSCORE": (KEY, "1", "1"),
    },
    "counter": {"GET": (KEY,), "SET": (KEY, "x"), "DEL": (KEY,)},
}
IN_CLUSTER: Mapping[str, Arguments] = {"CLUSTER|SLOTS": (), "ASKING": ()}
INSPECTION: Mapping[str, Arguments] = {
    "SCAN": ("0",),
    "DBSIZE": (),
    "PTTL": (KEY,),
    "MEMORY|USAGE": (KEY,),
    "GET": (KEY,),
    "ZRANGE": (KEY, "0", "0"),
    "HGETALL": (KEY,),
}


def needed(algorithms: Iterable[str], *, cluster: bool = False) -> dict[str, Arguments]:
    """Return the commands that limits with these algorithms run."""
    commands = {**ALWAYS, **IN_CLUSTER} if cluster else dict(ALWAYS)
    for algorithm in sorted(algorithms):
        commands |= BY_ALGORITHM[algorithm]
    return commands


@dataclass(frozen=True, slots=True)
class Refusals:
    """The commands and keys that a server refuses to a user."""

    commands: tuple[str, ...]
    keys: bool
    """Whether the user may run a command, but not on the keys of the app."""


def refusals(server: Server, commands: Mapping[str, Arguments], key: str) -> Refusals | None:
    """Return what the server refuses to its user; None if it refuses MULTI or DISCARD."""
    queued = [
        (*name.split("|"), *(key if argument == KEY else argument for argument in arguments))
        for name, arguments in commands.items()
    ]
    if any(isinstance(reply, ResponseError) for reply in server.send(["MULTI"], ["DISCARD"])):
        return None
    _, *replies, _ = server.send(["MULTI"], *queued, ["DISCARD"])
    refused = {
        name: str(reply)
        for name, reply in zip(commands, replies, strict=True)
        if isinstance(reply, NoPermissionError)
    }
    names = tuple(name for name, error in refused.items() if not _about_keys(error))
    return Refusals(commands=names, keys=len(names) < len(refused))


def _about_keys(error: str) -> bool:
    # Redis 6.2 says "... to access one of the keys used as arguments", later "... to access a key".
    return "access" in error


def command_of(error: NoPermissionError) -> str:
    """Return the command that an error names, or its whole text."""
    named = re.search(r"'(\S+)' command", str(error))
    return named[1].upper() if named else str(error)
