"""Calls as bytes: what can be packed once per set of policies is."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from functools import cache, lru_cache
from typing import Any, NamedTuple

from redis.exceptions import NoScriptError

from ..algorithms.timing import Script, grain, in_use, lives_ms, script
from ..policies import LETTERS, Policy
from .protocol import Call, Evaluate, Line, Lines, Refund

_OBSERVED, _COUNT_REJECTED = 1, 2
# More than any limit, so the same to the script as all beyond it.
_MOST = 2**32 - 1
# A server that flushes its scripts between our loading and calling them is asked
# by source in the end.
LOADS = 3


def bulk(value: bytes) -> bytes:
    """One argument in the Redis protocol."""
    return b"$%d\r\n%s\r\n" % (len(value), value)


def packed(keys: tuple[str, ...]) -> bytes:
    """Keys as arguments in the Redis protocol."""
    return b"".join([b"$%d\r\n%b\r\n" % (len(name), name) for name in map(str.encode, keys)])


def pack(*arguments: bytes) -> bytes:
    """A command in the Redis protocol."""
    return b"*%d\r\n" % len(arguments) + b"".join(map(bulk, arguments))


def text(value: bytes | str) -> str:
    """A name in a reply, which an alias may have decoded."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


class Command(NamedTuple):
    """One call, packed. `script` is None for a plain command."""

    payload: bytes
    keys: tuple[str, ...]
    script: Script | None = None

    @property
    def load(self) -> bytes:
        """The command that makes the server know the script."""
        assert self.script is not None
        return pack(b"SCRIPT", b"LOAD", self.script.source.encode())

    @property
    def by_source(self) -> bytes:
        """The same call with the whole script in it."""
        assert self.script is not None
        by_sha = bulk(b"EVALSHA") + bulk(self.script.sha.encode())
        return self.payload.replace(by_sha, bulk(b"EVAL") + bulk(self.script.source.encode()), 1)


def encode(call: Call, clock: int | None) -> Command:
    """The command for a call; `clock` in microseconds, None for the server's own."""
    if type(call) is Evaluate:
        keys, lines, writes, _ = call
        known = (lines.prepared if type(lines) is Lines else None) or _know(lines)
        head, tail, source = known.head, known.tail, known.source
        mode = b"w" if writes else b"r"
    elif isinstance(call, Refund):
        keys = tuple(charge.key for charge in call.charges)
        head, tail, source = _refund(call)
        mode = b"w"
    else:
        return Command(pack(b"UNLINK", *(key.encode() for key in call.keys)), call.keys)
    if clock is not None:
        mode += b"%d" % clock
    return Command(head + packed(keys) + bulk(mode) + tail, keys, source)


class _Known(NamedTuple):
    """All of an evaluation's command but its keys and a clock that is passed in."""

    head: bytes
    tail: bytes
    writes: bytes
    """The tail with the usual mode before it."""
    source: Script
    unpack: Callable[[bytes], tuple[int, ...]]
    """What the reply says."""


def _know(lines: tuple[Line, ...]) -> _Known:
    known = _evaluate(lines)
    if isinstance(lines, Lines):
        # Found sooner than all that they are made of is hashed.
        lines.prepared = known
    return known


@lru_cache(maxsize=4096)
def _evaluate(lines: tuple[Line, ...]) -> _Known:
    head, tail, source = _script_call(
        "evaluate",
        tuple(line.policy for line in lines),
        [
            b"".join(
                (
                    LETTERS[line.policy.algorithm].encode(),
                    line.policy.limit.to_bytes(4, "big"),
                    line.policy.window_us.to_bytes(7, "big"),
                    min(line.cost, _MOST).to_bytes(4, "big"),
                    bytes([_OBSERVED * line.observed + _COUNT_REJECTED * line.count_rejected]),
                    grain(line.policy).to_bytes(7, "big"),
                    b"%d" % lives_ms(line.policy),
                )
            )
            for line in lines
        ],
    )
    return _Known(head, tail, bulk(b"w") + tail, source, reply_layout(9 + 21 * len(lines)).unpack)


def _refund(call: Refund) -> tuple[bytes, bytes, Script]:
    return _script_call(
        "refund",
        tuple(charge.policy for charge in call.charges),
        [
            b"".join(
                (
                    LETTERS[charge.policy.algorithm].encode(),
                    charge.policy.window_us.to_bytes(7, "big"),
                    charge.cost.to_bytes(4, "big"),
                    grain(charge.policy).to_bytes(7, "big"),
                    call.stamp.to_bytes(7, "big"),
                )
            )
            for charge in call.charges
        ],
    )


def _script_call(
    evaluator: str, policies: tuple[Policy, ...], arguments: list[bytes]
) -> tuple[bytes, bytes, Script]:
    """What stands before the keys, and after keys and mode."""
    script_ = script(evaluator, in_use(policies))
    count = 4 + len(policies) + len(arguments)
    head = b"*%d\r\n" % count + bulk(b"EVALSHA") + bulk(script_.sha.encode())
    head += bulk(b"%d" % len(policies))
    return head, b"".join(map(bulk, arguments)), script_


@cache
def reply_layout(length: int) -> struct.Struct:
    """How an evaluation's reply of so many bytes is packed: see lua/evaluate.lua."""
    return struct.Struct(">Bq" + "BIqq" * ((length - 9) // 21))


def known_script(command: Command, reply: Any) -> Generator[bytes, Any, Any]:
    """Goes on after a first reply until the server knows the script.

    Yields payloads to send and takes their replies. NOSCRIPT ran nothing, so
    sending again charges once.
    """
    for _ in range(LOADS):
        if not isinstance(reply, NoScriptError):
            return reply
        loaded = yield command.load
        if isinstance(loaded, Exception):
            return loaded
        reply = yield command.payload
    if isinstance(reply, NoScriptError):
        reply = yield command.by_source
    return reply
