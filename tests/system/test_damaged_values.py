"""Values under a window's key that another program has written or truncated."""

from __future__ import annotations

import random
import struct
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django.urls import reverse

from django_slidingwindow import decisions, limits
from django_slidingwindow.algorithms.decode import DECODERS
from django_slidingwindow.algorithms.penalties import Penalty
from django_slidingwindow.algorithms.slots import Taken
from django_slidingwindow.core.breaker import CLOSED
from django_slidingwindow.core.keys import make_key
from django_slidingwindow.core.windows import ProfileCheck
from django_slidingwindow.decisions import Charge
from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.inspection import windows as inspection
from django_slidingwindow.inspection.search import Filters
from django_slidingwindow.policies import ALGORITHMS, PENALTY, SLOTS, Policy
from django_slidingwindow.stores.commands import encode, known_script, unpack
from django_slidingwindow.stores.errors import is_outage
from django_slidingwindow.stores.protocol import Evaluate, Refund, WindowRule
from django_slidingwindow.stores.redis import RedisStore
from tests.support.clock import SECOND, START, Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redis import Redis

    from django_slidingwindow.stores.protocol import Call
    from tests.support.servers import RedisServer

VALUES = 10_000
BATCH = 250
# START is the begin of a clock window; this is in the middle of one.
NOW = START + 1_234_567_891
KINDS = (*ALGORITHMS, SLOTS, PENALTY)
# A token that has taken slots, the steps of a penalty, and a window that is always full.
TOKEN = "0123456789abcdef"
STEPS = (60.0, 600.0)
FULL = Policy(limit=0, window=60)


@pytest.fixture
def store(fresh_server: RedisServer, settings: Any) -> Iterator[RedisStore]:
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": fresh_server.url}
    settings.CACHES = {**settings.CACHES, "fresh": cache}
    store = RedisStore("fresh", clock=Clock(NOW))
    yield store
    store.close()


def window(kind: str, limit: int = 100) -> Policy:
    if kind == PENALTY:
        return Penalty(limit=limit, window=3_600, steps=STEPS)
    return Policy(limit=limit, window=3_600, algorithm=kind, resolution=20)


def key_of(policy: Policy, name: object) -> str:
    return make_key("throttle", "tenant", str(name), "damaged", policy)


def sound_values(store: RedisStore, client: Redis, policy: Policy) -> list[Any]:
    """Return values of one hit, of a few, and of enough that a log becomes a ring."""
    values, clock = [], Clock()
    writer = RedisStore(store.alias, clock=clock)
    for hits in (1, 3, 60, 64, 90):
        clock.now = NOW - 1_700 * SECOND
        key = key_of(policy, hits)
        for _ in range(hits):
            writer.run(evaluate(key, WindowRule(policy, 1), True))
            clock.now += 1_700 * SECOND // hits
        values.append(read(client, key))
    if isinstance(policy, Penalty):
        # The penalty blocks, and later it has blocked.
        for _ in range(9):
            writer.run(evaluate(key, WindowRule(replace(policy, limit=2), 1), True))
            values.append(read(client, key))
            clock.now += 20 * SECOND
    writer.close()
    return values


def evaluate(key: str, rule: WindowRule, writes: bool) -> Evaluate:
    """Return the call for one window. A penalty comes with a window that it watches."""
    if not isinstance(rule.policy, Penalty):
        return Evaluate((key,), (rule,), writes)
    watched = rule._replace(policy=FULL, unreported=())
    return Evaluate((f"{key}:watched", key), (watched, rule._replace(watches=1)), writes)


def read(client: Redis, key: str) -> Any:
    kind = client.type(key)
    if kind == b"hash":
        return client.hgetall(key)
    return client.zrange(key, 0, -1, withscores=True) if kind == b"zset" else client.get(key)


def damaged(value: bytes, dice: random.Random) -> bytes:
    """Generate values that are truncated, extended, or have other bytes or another header."""
    cut = dice.randrange(len(value) + 1)
    noise = dice.randbytes(dice.choice([1, 2, 3, 4, 8, 400]))
    numbers = struct.pack(">I", dice.choice([0, 1, 63, 64, 65, 2**16, 1_600_000_000, 2**32 - 1]))
    return dice.choice(
        [
            value[:cut],
            value + noise,
            value[:cut] + noise + value[cut + len(noise) :],
            value[: 4 * (cut // 4)] + numbers + value[4 * (cut // 4) + 4 :],
            noise + value,
            bytes([dice.randrange(4)]) + value[1:],
            value[:8] + numbers + numbers + value[16:],
            dice.randbytes(len(value)),
        ]
    )


def assert_decodes_or_says_why(client: Redis, key: str, policy: Policy) -> None:
    """Assert that the decoder of the tools reads a value, or raises its own error."""
    if client.type(key) == b"list":
        return
    with suppress(LookupError, ValueError):
        DECODERS[policy.algorithm](read(client, key), policy, NOW)


def write(pipeline: Any, key: str, kind: str, value: Any, dice: random.Random) -> None:
    if dice.random() < 0.2:
        pipeline.rpush(key, b"another type")
    elif kind in ("compact", "counter", PENALTY):
        pipeline.set(key, damaged(value, dice))
    elif kind == "buckets":
        fields = dict(value)
        for name in dice.sample(sorted(fields), dice.randint(1, len(fields))):
            if dice.random() < 0.2:
                del fields[name]
            else:
                fields[name] = damaged(fields[name], dice)
        pipeline.hset(key, mapping=fields or {b"x": b"y"})
    else:
        members = {}
        for member, score in value:
            score = dice.choice([score, score, -score, float("inf"), float("-inf"), 0.5, score * 2])
            names = [member, member[:5], b"%d-%d" % (NOW, 10**20), f"{TOKEN}-1".encode()]
            members[dice.choice(names)] = score
        pipeline.zadd(key, members)


def replies(store: RedisStore, calls: list[Call]) -> list[Any]:
    """Return the server's replies to the calls, with errors among them."""
    commands = [encode(call, lambda: NOW) for call in calls]
    server = store._find_server()
    deadline = time.monotonic() + 60
    said = server.exchange(b"".join(one.payload for one in commands), len(commands), deadline)
    found = []
    for command, reply in zip(commands, said, strict=True):
        flow = known_script(command, reply)
        try:
            payload = next(flow)
            while True:
                payload = flow.send(server.exchange(payload, 1, deadline)[0])
        except StopIteration as done:
            found.append(done.value)
    return found


def asked(key: str, policy: Policy) -> list[Call]:
    few = replace(policy, limit=5)
    calls: list[Call] = [
        evaluate(key, WindowRule(policy, 2), False),
        evaluate(key, WindowRule(few, 1, count_rejected=True), False),
        evaluate(key, WindowRule(policy, 1), True),
        evaluate(key, WindowRule(policy, 3), True),
        evaluate(key, WindowRule(few, 2, count_rejected=True), True),
    ]
    if isinstance(policy, Penalty):
        reported = WindowRule(few, 1, unreported=(0, 5 * SECOND, policy.window_us))
        return [*calls, evaluate(key, reported, True)]
    return [*calls, Refund((Charge(key, policy, 2),), Taken(NOW - 5 * SECOND, TOKEN))]


def assert_is_bounded(reply: list[Any] | bytes, policy: Policy) -> None:
    """Assert that a block lasts at most one step, and a slot at most `hold`.

    A reset must not be in the past.
    """
    if isinstance(reply, list):
        assert reply in ([0], [1], [2])
        return
    *_, (_, remaining, retry, reset) = unpack(reply).windows()
    assert remaining <= policy.limit
    assert reset >= 0
    if policy.inflight or isinstance(policy, Penalty):
        assert reset <= policy.window_us
        assert retry <= (0 if policy.inflight else max(STEPS) * SECOND)


@pytest.mark.parametrize("kind", KINDS)
def test_no_damaged_value_holds_up_the_server(
    fresh_server: RedisServer, store: RedisStore, kind: str
) -> None:
    policy, dice = window(kind), random.Random(kind)
    with fresh_server.client(decode_responses=False) as client:
        client.config_set("slowlog-log-slower-than", 500_000)
        values = sound_values(store, client, policy)
        client.flushdb()
        answered = errors = 0
        for start in range(0, VALUES, BATCH):
            keys = [key_of(policy, number) for number in range(start, start + BATCH)]
            with client.pipeline(transaction=False) as pipeline:
                for key in keys:
                    write(pipeline, key, kind, dice.choice(values), dice)
                pipeline.execute()
            for key in keys[:25]:
                assert_decodes_or_says_why(client, key, policy)
            for reply in replies(store, [call for key in keys for call in asked(key, policy)]):
                if isinstance(reply, Exception):
                    assert not is_outage(reply)
                    errors += 1
                else:
                    answered += 1
                    assert_is_bounded(reply, policy)
            client.flushdb()
        assert answered > VALUES
        assert errors > VALUES // 2
        assert client.slowlog_len() == 0
        assert client.info("memory")["used_memory_peak"] < 100_000_000


# For a hash: two sub-windows before the newest.
MORE = bytes(16) + b"\0\0\2" + bytes(3)
LARGE_RING = struct.pack(">BxxxxxxxIIII", 2, 0, 2**32 - 1, 0, 1_600_000_000) + bytes(400)


def newest_is_now(value: bytes) -> bytes:
    """Give the header of a compact log a stamp that still counts."""
    return value[:1] + (int(time.time()) * SECOND).to_bytes(7, "big") + value[8:]


DAMAGES: list[tuple[str, str, Callable[[bytes], bytes]]] = [
    ("compact", "empty", lambda _: b"x"),
    ("compact", "a byte short", lambda value: value[:-1]),
    ("compact", "a byte long", lambda value: value + b"x"),
    ("compact", "an unknown format", lambda value: b"\x07" + value[1:]),
    ("compact", "too many for the short form", lambda value: value + 70 * value[-4:]),
    ("compact", "a ring that is not there", lambda _: newest_is_now(LARGE_RING)),
    ("compact", "a ring without a header", lambda value: b"\x02" + value[1:]),
    ("compact", "a ring of size 0", lambda value: b"\x02" + value[1:8] + bytes(32)),
    ("counter", "a byte short", lambda value: value[:-1]),
    ("counter", "the format of before", lambda _: b"29384756:0:12"),
    ("buckets", "a byte short", lambda value: value[:-1]),
    ("buckets", "the format of before", lambda value: value[:11]),
    ("buckets", "fields that are not there", lambda value: value + MORE),
    ("penalty", "empty", lambda _: b""),
    ("penalty", "a byte short", lambda value: value[:-1]),
    ("penalty", "an unknown format", lambda value: b"\x07" + value[1:]),
    # A sorted set is replaced by a value of another type.
    ("log", "another type", lambda value: value),
    ("slots", "another type", lambda value: value),
]


@pytest.fixture
def profiles(redis: Redis, settings: Any) -> None:
    settings.SLIDING_WINDOW = {
        "LATENCY_BUDGET": 60,
        "SHIELD_SECONDS": 0,
        "PROFILES": {
            name: {"axis": "tenant", "rate": "10/h", "algorithm": name} for name in ALGORITHMS
        }
        | {
            "slots": {"axis": "tenant", "inflight": 10, "hold": "1h"},
            "penalty": {
                "axis": "tenant",
                "rate": "10/h",
                "penalty": {"after": "10/h", "steps": ["1h"]},
            },
        },
    }


def spoil(redis_server: RedisServer, kind: str, damage: Callable[[bytes], bytes]) -> str:
    """Damage the window of acme, which has three hits, or its penalty. Return the key."""
    for _ in range(3):
        limits.check(kind, "acme")
    if kind == PENALTY:
        # It costs too much.
        limits.check(kind, "acme", cost=11)
    states = inspection.scan(Filters(profile=kind, identifier="acme")).states
    (key,) = [state.key for state in states if state.algorithm == kind]
    with redis_server.client(decode_responses=False) as client:
        if kind == "buckets":
            client.hset(key, "s", damage(client.hget(key, "s")))
        elif kind in ("log", SLOTS):
            client.set(key, damage(b"text"))
        else:
            client.set(key, damage(client.get(key)))
    return key


@pytest.mark.usefixtures("profiles")
@pytest.mark.parametrize(
    ("algorithm", "damage"),
    [pytest.param(name, damage, id=f"{name}: {what}") for name, what, damage in DAMAGES],
)
def test_damaged_value_is_an_error_of_its_key_only(
    redis_server: RedisServer, algorithm: str, damage: Callable[[bytes], bytes]
) -> None:
    charged = limits.check(algorithm, "acme")
    key = spoil(redis_server, algorithm, damage)
    store = limits.get_limiter().store
    policy = window(algorithm, 10)
    for cost, writes in ((0, False), (1, False), (1, True), (3, True)):
        with pytest.raises(StoreError, match=r"damaged value|WRONGTYPE") as raised:
            store.run(evaluate(key, WindowRule(policy, cost), writes))
        assert not raised.value.outage
    for _ in range(5):
        assert limits.check(algorithm, "acme").source == decisions.LOCAL
    assert limits.peek(algorithm, "acme").source == decisions.LOCAL
    # The window beside a damaged penalty is intact.
    assert limits.refund(charged) == (algorithm == PENALTY)
    assert limits.get_limiter().breaker.state == CLOSED
    assert limits.check(algorithm, "other").source == decisions.REDIS
    assert limits.reset(algorithm, "acme") == 1 + (algorithm == PENALTY)
    assert limits.check(algorithm, "acme").remaining == 9


@pytest.mark.usefixtures("profiles")
def test_damaged_value_charges_no_other_window_of_the_request(redis_server: RedisServer) -> None:
    for name in ("compact", "counter", "buckets"):
        key = spoil(redis_server, name, lambda value: value[:-1])
        sound = limits._windows(limits.get_limiter(), "log", "acme", 1, True).keys[0]
        store = limits.get_limiter().store
        lines = tuple(WindowRule(Policy.parse("10/h", algorithm=one), 1) for one in ("log", name))
        with pytest.raises(StoreError, match=r"damaged value in KEYS\[2\]"):
            store.run(Evaluate((sound, key), lines, True))
        assert store.run(Evaluate((sound,), (lines[0]._replace(cost=0),), False))[3] == 10


@pytest.mark.usefixtures("profiles")
@pytest.mark.parametrize(
    ("algorithm", "damage"),
    [
        pytest.param(name, damage, id=f"{name}: {what}")
        for name, what, damage in DAMAGES
        if name in ALGORITHMS
    ],
)
def test_window_beside_a_damaged_one_is_refunded(
    redis_server: RedisServer, algorithm: str, damage: Callable[[bytes], bytes]
) -> None:
    sound = limits.check("compact", "sound")
    damaged = limits.check(algorithm, "acme")
    assert sound.receipt is not None
    assert damaged.receipt is not None
    spoil(redis_server, algorithm, damage)
    ((of_sound, stamp),) = sound.receipt.parts
    ((of_damaged, _),) = damaged.receipt.parts
    together = Refund((*of_damaged, *of_sound), stamp)
    assert limits.get_limiter().store.run(together) == [0, 1]
    assert limits.peek("compact", "sound").remaining == 9


@pytest.mark.usefixtures("profiles")
@pytest.mark.parametrize("target", ["key", "profile"])
@pytest.mark.parametrize("algorithm", ["compact", "counter", "buckets", "slots", "penalty"])
def test_damaged_window_can_be_reset_by_the_command(
    redis_server: RedisServer, capsys: pytest.CaptureFixture[str], algorithm: str, target: str
) -> None:
    key = spoil(redis_server, algorithm, lambda value: value[:-1])
    limits.check("log", "acme")
    call_command("slidingwindow", "keys")
    assert "log" in capsys.readouterr().out
    named = [key] if target == "key" else ["--profile", algorithm, "--id", "acme"]
    with pytest.raises(CommandError, match="Damaged value, reset this window") as raised:
        call_command("slidingwindow", "show", *named)
    assert key in str(raised.value)
    shown = capsys.readouterr().out
    assert key not in shown
    # The window of the penalty's profile is intact, and is shown.
    assert ("throttle:" in shown) == ((algorithm, target) == ("penalty", "profile"))
    call_command("slidingwindow", "reset", "--yes", *named)
    assert key in capsys.readouterr().out
    assert limits.check(algorithm, "acme", cost=11).source == decisions.REDIS
    assert limits.check(algorithm, "acme").source == decisions.REDIS
    call_command("slidingwindow", "show", *named)


@pytest.mark.usefixtures("profiles")
def test_hits_of_a_window_that_lacks_a_field_are_an_error(
    redis_server: RedisServer, admin_client: Any
) -> None:
    """A check reads only the fields that it needs, but the tools read all of them."""
    key = spoil(redis_server, "buckets", lambda value: value + value[:7] + MORE[7:])
    assert inspection.describe(key) is not None
    with pytest.raises(StoreError, match="damaged value"):
        inspection.hits(key)
    with pytest.raises(CommandError, match="damaged value, reset this window") as raised:
        call_command("slidingwindow", "show", key)
    assert key in str(raised.value)
    page = admin_client.get(reverse("admin:django_slidingwindow_rejection_key"), {"key": key})
    assert "The stored value is damaged: reset this window." in page.content.decode()


@pytest.mark.usefixtures("profiles")
@pytest.mark.parametrize("algorithm", ["compact", "counter", "buckets", "slots", "penalty"])
def test_live_pages_survive_a_damaged_window(
    redis_server: RedisServer, admin_client: Any, algorithm: str
) -> None:
    key = spoil(redis_server, algorithm, lambda value: value[:-1])
    limits.check("log", "acme")
    live = reverse("admin:django_slidingwindow_rejection_live")
    rows = admin_client.get(live).context["rows"]
    assert {row.state.scope for row in rows} - {"penalty"} == {"log"}
    assert key not in {row.state.key for row in rows}
    page = admin_client.get(reverse("admin:django_slidingwindow_rejection_key"), {"key": key})
    text = page.content.decode()
    assert "The stored value is damaged: reset this window." in text
    # A window that cannot be read is not shown as empty.
    assert "<dt>Blocked</dt>" not in text
    assert "<dt>Usage</dt>" not in text
    assert "<dt>Oldest hit leaves in</dt>" not in text
    unblock = page.context["row"].unblock_url
    assert admin_client.get(unblock).context["rows"][0].state.key == key
    assert admin_client.post(unblock).status_code == 302
    with redis_server.client() as client:
        assert not client.exists(key)


@pytest.mark.usefixtures("profiles")
@pytest.mark.parametrize("order", [("acme", "other"), ("other", "acme")])
def test_slot_beside_a_damaged_one_is_freed(redis: Redis, order: tuple[str, str]) -> None:
    limiter, profile = limits.get_limiter(), limits.registry.get("slots")
    checks = [ProfileCheck(profile, name, profile.policies) for name in order]
    decision = limiter.charge(limiter.windows(checks))
    assert limits.peek("slots", "other", 0).remaining == 9
    redis.set(key_of_slots("acme"), "text")
    assert limiter.release(decision) == 1
    assert limits.peek("slots", "other", 0).remaining == 10
    assert not redis.exists(key_of_slots("other"))


def key_of_slots(name: str) -> str:
    return f"throttle:tenant:{{{name}}}:slots:i3600"


@pytest.mark.usefixtures("profiles")
def test_slot_that_is_damaged_while_its_view_runs_fails_no_request(
    redis: Redis, settings: Any
) -> None:
    identities = {"tenant": lambda request: "acme"}
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "IDENTITIES": identities}

    @rate_limit("slots")
    def view(request: HttpRequest) -> HttpResponse:
        redis.set(key_of_slots("acme"), "text")
        return HttpResponse("ok")

    for source in (decisions.REDIS, decisions.LOCAL):
        request = RequestFactory().get("/")
        assert view(request).status_code == 200
        assert request.rate_limit.source == source  # type: ignore[attr-defined]
        request.close()
