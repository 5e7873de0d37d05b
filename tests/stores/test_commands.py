from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from redis.connection import Connection
from redis.exceptions import NoPermissionError, NoScriptError, ResponseError

from django_slidingwindow.algorithms.scripts import script
from django_slidingwindow.decisions import Charge
from django_slidingwindow.policies import Policy
from django_slidingwindow.stores.commands import Command, bulk, encode, known_script, pack, text
from django_slidingwindow.stores.errors import checked as checked_reply
from django_slidingwindow.stores.flows import drive
from django_slidingwindow.stores.protocol import Evaluate, Refund, Reset, WindowRule, WindowRules

if TYPE_CHECKING:
    from redis import Redis

MINUTE = Policy(limit=5, window=60)
DAY = Policy(limit=100, window=86_400, algorithm="log")
SPREAD = Policy(limit=7, window=60, algorithm="buckets", resolution=6)


def packed(letter: str, *fields: tuple[int, int]) -> bytes:
    """Return the argument of a policy: the letter, then each value in its number of bytes."""
    return letter.encode() + b"".join(value.to_bytes(size, "big") for value, size in fields)


def checked(letter: str, limit: int, window: int, cost: int, flags: int, grain: int) -> bytes:
    late = grain - 1 if letter == "c" else 0
    lives = -(-(window + late) // 1_000) + 500
    numbers = packed(letter, (limit, 4), (window, 7), (cost, 4), (flags, 1), (grain, 7))
    return numbers + b"%d" % lives


def refunded(letter: str, window: int, cost: int, grain: int, stamp: int) -> bytes:
    return packed(letter, (window, 7), (cost, 4), (grain, 7), (stamp, 7))


def as_redis_py_packs(*arguments: Any) -> bytes:
    return b"".join(Connection().pack_command(*arguments))


@pytest.fixture
def exchange(redis: Redis) -> Iterator[Callable[[bytes], Any]]:
    """Return a function that sends a payload and returns the reply or the server's error."""
    redis.script_flush()
    connection = redis.connection_pool.get_connection()

    def exchange(payload: bytes) -> Any:
        connection.send_packed_command([payload])
        try:
            return connection.read_response(disable_decoding=True)
        except ResponseError as error:
            return error

    yield exchange
    redis.connection_pool.release(connection)


def test_command_is_packed_as_by_redis_py() -> None:
    assert pack(b"SET", b"a\r\n", b"") == as_redis_py_packs("SET", "a\r\n", "")
    assert bulk("é".encode()) == b"$2\r\n\xc3\xa9\r\n"


@pytest.mark.parametrize(
    ("name", "expected"), [("é", "é"), ("é".encode(), "é"), (b"\xff", "\N{REPLACEMENT CHARACTER}")]
)
def test_name_in_a_reply_becomes_text_whether_the_alias_decodes_or_not(
    name: bytes | str, expected: str
) -> None:
    assert text(name) == expected


def test_check_is_packed_with_the_arguments_of_each_policy() -> None:
    rules = (
        WindowRule(MINUTE, 2),
        WindowRule(DAY, 1, observed=True),
        WindowRule(SPREAD, 1, observed=True, count_rejected=True),
    )
    command = encode(Evaluate(("a", "b", "é"), rules, writes=True), clock=lambda: 17)
    used = script("evaluate", ("buckets", "compact", "log"))
    assert command.script is used
    assert command.keys == ("a", "b", "é")
    head = ("EVALSHA", used.sha, 3, "a", "b", "é", "w17")
    compact = checked("c", 5, 60_000_000, 2, 0, 1)
    log = checked("l", 100, 86_400_000_000, 1, 1, 1)
    buckets = checked("b", 7, 60_000_000, 1, 3, 10_000_000)
    assert command.payload == as_redis_py_packs(*head, compact, log, buckets)


def test_cost_above_any_limit_is_sent_as_the_largest_cost() -> None:
    command = encode(Evaluate(("a",), (WindowRule(MINUTE, 2**40),), True), clock=None)
    assert checked("c", 5, 60_000_000, 2**32 - 1, 0, 1) in command.payload


def test_peek_only_reads_and_uses_the_clock_of_the_server() -> None:
    command = encode(Evaluate(("a",), (WindowRule(MINUTE, 1, count_rejected=True),), False), None)
    used = script("evaluate", ("compact",))
    arguments = ("a", "r", checked("c", 5, 60_000_000, 1, 2, 1))
    assert command.payload == as_redis_py_packs("EVALSHA", used.sha, 1, *arguments)


def test_refund_is_packed_with_the_charges_and_their_time() -> None:
    call = Refund((Charge("a", MINUTE, 2), Charge("b", SPREAD, 3)), stamp=99)
    command = encode(call, clock=None)
    used = script("refund", ("buckets", "compact"))
    assert command.keys == ("a", "b")
    compact = refunded("c", 60_000_000, 2, 1, 99)
    buckets = refunded("b", 60_000_000, 3, 10_000_000, 99)
    head = ("EVALSHA", used.sha, 2, "a", "b", "w")
    assert command.payload == as_redis_py_packs(*head, compact, buckets)


def test_reset_is_a_plain_command() -> None:
    command = encode(Reset(("a", "b")), clock=None)
    assert command == Command(as_redis_py_packs("UNLINK", "a", "b"), ("a", "b"))


def test_long_window_is_sent_with_its_tick() -> None:
    day = Policy(limit=5, window=86_400)
    command = encode(Evaluate(("a",), (WindowRule(day, 1),), True), clock=lambda: 0)
    arguments = ("a", "w0", checked("c", 5, 86_400_000_000, 1, 0, 41))
    sha = script("evaluate", ("compact",)).sha
    assert command.payload == as_redis_py_packs("EVALSHA", sha, 1, *arguments)


def test_script_is_not_sent_when_the_server_knows_it(exchange: Any) -> None:
    command = encode(Evaluate(("a",), (WindowRule(MINUTE, 1),), True), clock=None)
    exchange(command.load)
    sent: list[bytes] = []
    reply = drive(known_script(command, exchange(command.payload)), sent.append)
    assert checked_reply(reply)[0] == 1
    assert sent == []


def test_unknown_script_is_loaded_and_called_again(exchange: Any) -> None:
    command = encode(Evaluate(("a",), (WindowRule(MINUTE, 1),), True), clock=None)
    first = exchange(command.payload)
    assert isinstance(first, NoScriptError)
    reply = drive(known_script(command, first), exchange)
    assert checked_reply(reply)[3] == 4


@pytest.mark.parametrize("flushes", range(1, 6))
def test_call_charges_once_when_the_server_forgets_the_script_at_once(
    redis: Redis, exchange: Any, flushes: int
) -> None:
    command = encode(Evaluate(("a",), (WindowRule(MINUTE, 1),), True), clock=None)
    left = flushes

    def forgetful(payload: bytes) -> Any:
        nonlocal left
        if b"EVALSHA" in payload and left:
            left -= 1
            redis.script_flush()
        return exchange(payload)

    reply = drive(known_script(command, forgetful(command.payload)), forgetful)
    assert checked_reply(reply)[3] == 4, "charged once"
    assert encode(Evaluate(("a",), (WindowRule(MINUTE, 1),), True), clock=None) == command


def test_reply_is_the_error_when_the_script_may_not_be_loaded() -> None:
    command = encode(Evaluate(("a",), (WindowRule(MINUTE, 1),), True), clock=None)
    refusal = NoPermissionError("no")
    sent: list[bytes] = []

    def refuse(payload: bytes) -> Any:
        sent.append(payload)
        return refusal

    assert drive(known_script(command, NoScriptError("unknown")), refuse) is refusal
    assert sent == [command.load]


@pytest.mark.parametrize("reply", [[1, 2], ResponseError("another error")])
def test_other_replies_are_returned_unchanged(reply: Any) -> None:
    command = encode(Evaluate(("a",), (WindowRule(MINUTE, 1),), True), clock=None)
    sent: list[bytes] = []
    assert drive(known_script(command, reply), sent.append) is reply
    assert sent == []


def test_reply_becomes_integers_whether_it_is_packed_or_not() -> None:
    row = struct.pack(">BIqq", 0, 7, -1, 60_000_000)
    assert checked_reply(struct.pack(">Bq", 0, 17) + row) == (0, 17, 0, 7, -1, 60_000_000)
    assert checked_reply([1, 2]) == [1, 2]
    assert checked_reply(3) == [3]


def test_shared_rules_are_prepared_once() -> None:
    kept = WindowRules((WindowRule(MINUTE, 2),))
    one = encode(Evaluate(("a",), kept, True), clock=None)
    prepared = kept.prepared
    two = encode(Evaluate(("b",), kept, True), clock=None)
    assert kept.prepared is prepared is not None
    assert two.payload == one.payload.replace(b"$1\r\na", b"$1\r\nb")
    assert two == encode(Evaluate(("b",), (WindowRule(MINUTE, 2),), True), clock=None)
