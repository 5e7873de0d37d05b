"""The commands that a server receives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redis import Redis


def commands_of(redis: Redis, ask: Callable[[], object]) -> list[str]:
    """Return the commands that clients send during a call, without those of scripts."""
    seen: list[str] = []
    with redis.monitor() as monitor:
        redis.echo("begin")
        ask()
        redis.echo("end")
        for command in monitor.listen():
            if command["command"] == "ECHO begin":
                seen.clear()
            elif command["command"] == "ECHO end":
                break
            elif command["client_type"] != "lua":
                seen.append(command["command"].split()[0])
    return seen
