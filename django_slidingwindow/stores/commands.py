"""Encode calls as bytes in the Redis protocol.

The bytes that depend only on the rules are prepared once; a check adds its keys.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeAlias

from redis.exceptions import NoScriptError

from ..algorithms.penalties import Penalty
from ..algorithms.scripts import Script, in_use, script
from ..algorithms.slots import Taken, new_token
from ..algorithms.timing import grain, lives_ms
from ..policies import LETTERS, SLOTS, Policy
from .protocol import Call, Evaluate, Refund, Reply, WindowRule, WindowRules

Clock: TypeAlias = "Callable[[], int]"
"""Returns microseconds and replaces the server's clock, for tests."""

_OBSERVED, _COUNT_REJECTED = 1, 2
# The largest cost that the argument can hold. It is above any limit, so larger costs are refused
# in the same way.
_MAX_COST = 2**32 - 1
# If the server flushes its scripts again and again, between loading one and calling it, the call
# is sent with the script's source after this number of attempts.
_MAX_LOADS = 3


def bulk(value: bytes) -> bytes:
    """Return one argument in the Redis protocol."""
    return b"$%d\r\n%s\r\n" % (len(value), value)


def pack_keys(keys: tuple[str, ...]) -> bytes:
    """Return keys as arguments in the Redis protocol."""
    return b"".join([b"$%d\r\n%b\r\n" % (len(name), name) for name in map(str.encode, keys)])


def pack(*arguments: bytes) -> bytes:
    """Return a command in the Redis protocol."""
    return b"*%d\r\n" % len(arguments) + b"".join(map(bulk, arguments))


def text(value: bytes | str) -> str:
    """Return a name from a reply as text. With some aliases, redis-py has decoded it already."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


class Command(NamedTuple):
    """A call as bytes, with its keys. `script` is None for a plain command."""

    payload: bytes
    keys: tuple[str, ...]
    script: Script | None = None

    @property
    def load(self) -> bytes:
        """The command that loads the script into the server."""
        assert self.script is not None
        return pack(b"SCRIPT", b"LOAD", self.script.source.encode())

    @property
    def by_source(self) -> bytes:
        """The same call, with the source of the script instead of its SHA."""
        assert self.script is not None
        by_sha = bulk(b"EVALSHA") + bulk(self.script.sha.encode())
        return self.payload.replace(by_sha, bulk(b"EVAL") + bulk(self.script.source.encode()), 1)


def encode(call: Call, clock: Clock | None) -> Command:
    """Return the command for a call. If `clock` is None, the server's clock is used."""
    if isinstance(call, Evaluate):
        if call.ahead:
            return _encode_leasing(call, clock)
        prepared = prepare(call.rules)
        mode = b"w" if call.writes else b"r"
        return Command(prepared.payload(call.keys, mode, clock), call.keys, prepared.script)
    if isinstance(call, Refund):
        keys = tuple(charge.key for charge in call.charges)
        prepared = _prepare_refund(call)
        return Command(prepared.payload(keys, b"w", clock), keys, prepared.script)
    return Command(pack(b"UNLINK", *(key.encode() for key in call.keys)), call.keys)


class Prepared(NamedTuple):
    """The bytes of a script call, without its keys, its mode and a clock for tests."""

    head: bytes
    """The bytes before the keys."""
    tail: bytes
    """The bytes after the mode, which follows the keys."""
    charging: bytes
    """The bytes after the keys of a charge by the server's clock: the mode and `tail`."""
    script: Script
    unpack: Callable[[bytes], tuple[int, ...]]
    """Unpacks the reply to a check."""

    def charge(self, keys: tuple[str, ...], clock: Clock | None) -> bytes:
        """Return the bytes of a check that charges windows."""
        if clock is not None:
            return self.payload(keys, b"w", clock)
        if len(keys) > 1:
            return self.head + pack_keys(keys) + self.charging
        name = keys[0].encode()
        return b"%b$%d\r\n%b\r\n%b" % (self.head, len(name), name, self.charging)

    def payload(
        self, keys: tuple[str, ...], mode: bytes, clock: Clock | None, more: bytes = b""
    ) -> bytes:
        """Return the bytes of the call.

        `mode` is b"w" to write or b"r" to read; `more` are further arguments, packed.
        """
        if clock is not None:
            mode += b"%d" % clock()
        return self.head + pack_keys(keys) + bulk(mode) + self.tail + more


class PreparedSlots(Prepared):
    """The bytes of a check of slots. Each call has a new token as its last argument."""

    __slots__ = ()

    def charge(self, keys: tuple[str, ...], clock: Clock | None) -> bytes:
        return self.payload(keys, b"w", clock)

    def payload(
        self, keys: tuple[str, ...], mode: bytes, clock: Clock | None, more: bytes = b""
    ) -> bytes:
        return super().payload(keys, mode, clock, more + bulk(new_token().encode()))


def prepare(rules: tuple[WindowRule, ...]) -> Prepared:
    """Return the prepared bytes of a check. They are made once for each set of rules."""
    found: Prepared | None = rules.prepared if isinstance(rules, WindowRules) else None
    if found is None:
        if any(rule.unreported for rule in rules):
            # No other call has the same ages, so the result is not worth caching.
            return _prepare_check.__wrapped__(rules)
        found = _prepare_check(rules)
        if isinstance(rules, WindowRules):
            # Reading an attribute is faster than hashing all the rules for the cache.
            rules.prepared = found
    return found


@lru_cache(maxsize=4096)
def _prepare_check(rules: tuple[WindowRule, ...]) -> Prepared:
    return _prepare_script_call(
        "evaluate",
        tuple(rule.policy for rule in rules),
        [
            b"".join(
                (
                    LETTERS[rule.policy.algorithm].encode(),
                    rule.policy.limit.to_bytes(4, "big"),
                    (rule.policy.lease_us if rule.recent else rule.policy.counted_us).to_bytes(
                        7, "big"
                    ),
                    min(rule.cost, _MAX_COST).to_bytes(4, "big"),
                    bytes([_flags(rule)]),
                    *_last_fields(rule),
                )
            )
            for rule in rules
        ],
    )


def _flags(rule: WindowRule) -> int:
    # A refused request is not in flight, so it never takes a slot.
    counts = rule.count_rejected and not rule.policy.inflight
    return _OBSERVED * rule.observed + _COUNT_REJECTED * counts


def _last_fields(rule: WindowRule) -> tuple[bytes, ...]:
    """Return the end of a window's argument, where windows and penalties have different fields."""
    policy = rule.policy
    if not isinstance(policy, Penalty):
        return grain(policy).to_bytes(7, "big"), b"%d" % lives_ms(policy)
    times = (*policy.steps_us, *rule.unreported)
    steps = bytes([len(policy.steps)])
    return rule.watches.to_bytes(7, "big"), steps, *[time.to_bytes(7, "big") for time in times]


def _encode_leasing(call: Evaluate, clock: Clock | None) -> Command:
    """Return the command for a check that takes units ahead."""
    prepared = _prepare_leasing(call.rules)
    ahead = b"".join(
        bulk(struct.pack(">III", *one[:3]) + one.stamp.to_bytes(7, "big")) for one in call.ahead
    )
    payload = prepared.payload(call.keys, b"w", clock, ahead)
    return Command(payload, call.keys, prepared.script)


@lru_cache(maxsize=4096)
def _prepare_leasing(rules: tuple[WindowRule, ...]) -> Prepared:
    algorithms = in_use(tuple(rule.policy for rule in rules))
    composed = script("evaluate", algorithms, leases=True)
    head = _head(composed, len(rules), 2 * len(rules) + (SLOTS in algorithms))
    return prepare(rules)._replace(head=head, script=composed)


def _prepare_refund(call: Refund) -> Prepared:
    return _prepare_script_call(
        "refund",
        tuple(charge.policy for charge in call.charges),
        [
            b"".join(
                (
                    LETTERS[charge.policy.algorithm].encode(),
                    charge.policy.counted_us.to_bytes(7, "big"),
                    charge.cost.to_bytes(4, "big"),
                    grain(charge.policy).to_bytes(7, "big"),
                    call.stamp.to_bytes(7, "big"),
                    getattr(call.stamp, "token", "").encode() if charge.policy.inflight else b"",
                )
            )
            for charge in call.charges
        ],
    )


def _prepare_script_call(
    evaluator: str, policies: tuple[Policy, ...], arguments: list[bytes]
) -> Prepared:
    algorithms = in_use(policies)
    composed = script(evaluator, algorithms)
    tail = b"".join(map(bulk, arguments))
    if SLOTS in algorithms and evaluator == "evaluate":
        head = _head(composed, len(policies), len(arguments) + 1)
        return PreparedSlots(head, tail, b"", composed, unpack)
    head = _head(composed, len(policies), len(arguments))
    return Prepared(head, tail, bulk(b"w") + tail, composed, _layout(len(policies)).unpack)


def _head(composed: Script, keys: int, arguments: int) -> bytes:
    """Return the bytes before the keys. `arguments` is their number, without the mode."""
    count = b"*%d\r\n" % (4 + keys + arguments)
    return count + bulk(b"EVALSHA") + bulk(composed.sha.encode()) + bulk(b"%d" % keys)


@cache
def _layout(windows: int) -> struct.Struct:
    """Return the format in which lua/evaluate.lua packs the reply for this number of windows."""
    return struct.Struct(">Bq" + "BIqq" * windows)


def unpack(reply: bytes) -> Reply:
    """Unpack the reply to a check of any number of windows. If it took slots, a token follows."""
    windows, token = divmod(len(reply) - 9, 21)
    fields = _layout(windows).unpack_from(reply)
    if token:
        return Reply((fields[0], Taken(fields[1], reply[-token:].decode()), *fields[2:]))
    return Reply(fields)


def known_script(command: Command, reply: Any, before: bytes = b"") -> Generator[bytes, Any, Any]:
    """Load the script if the first reply is NOSCRIPT, and return the final reply.

    A flow that yields payloads and receives their replies. `before` is put before each payload
    of the command itself. NOSCRIPT means that nothing ran, so a repeated call charges once.
    """
    for _ in range(_MAX_LOADS):
        if not isinstance(reply, NoScriptError):
            return reply
        loaded = yield command.load
        if isinstance(loaded, Exception):
            return loaded
        reply = yield before + command.payload
    if isinstance(reply, NoScriptError):
        reply = yield before + command.by_source
    return reply
