"""Live windows are found with SCAN, read many at a time, and reset."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
from collections import Counter
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from django_slidingwindow import limits
from django_slidingwindow.algorithms import decode, in_memory
from django_slidingwindow.core.keys import make_key
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.inspection import reader, windows
from django_slidingwindow.inspection.search import Filters
from django_slidingwindow.policies import ALGORITHMS, Policy
from django_slidingwindow.rejections.text import printable
from django_slidingwindow.stores.protocol import Evaluate, WindowRule
from django_slidingwindow.stores.redis import RedisStore
from tests.support.clock import Clock
from tests.support.oracle import Oracle

# A large budget: a busy machine must not look like an outage.
PATIENT = {"LATENCY_BUDGET": 5.0}
HOSTILE = "a\x1b[31m\n\u202e{x}*[b]?\\\r\0"


def by_name(identifier: str, request: object) -> str | None:
    if identifier == "broken":
        raise RuntimeError("no such tenant")
    return None if identifier == "free" else "7/h"


PROFILES: dict[str, dict[str, Any]] = {
    **{name: {"axis": "tenant", "rate": "10/h", "algorithm": name} for name in ALGORITHMS},
    "login": {"axis": "ip", "rates": ["2/m", "20/h"]},
    "shut": {"axis": "tenant", "rate": "0/h"},
    "paid": {"axis": "tenant", "rate": by_name},
    "key": {"axis": "header:X-Api-Key", "rate": "5/h"},
    "wrong": {"axis": "tenant"},
}

pytestmark = pytest.mark.usefixtures("redis", "profiles")


@contextlib.contextmanager
def settings(**values: Any):
    with override_settings(SLIDING_WINDOW={**PATIENT, "PROFILES": PROFILES, **values}):
        yield


@pytest.fixture
def profiles():
    with settings():
        yield


def found(**filters: Any) -> dict[str, windows.KeyState]:
    """Return all states that `scan` returns, by key."""
    states, cursor = {}, "0"
    while True:
        page = windows.scan(Filters(**filters), cursor=cursor)
        states |= {state.key: state for state in page.states}
        cursor = page.cursor
        if cursor == "0":
            return states


def only(**filters: Any) -> windows.KeyState:
    (state,) = found(**filters).values()
    return state


def hit(profile: str, identifier: str, times: int) -> None:
    for _ in range(times):
        limits.check(profile, identifier)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_scan_returns_the_state_of_a_window(algorithm):
    hit(algorithm, "acme", 4)
    state = only(profile=algorithm)
    assert state == windows.describe(state.key).__class__(
        key=make_key(
            "throttle", "tenant", "acme", algorithm, Policy.parse("10/h", algorithm=algorithm)
        ),
        axis="tenant",
        identifier="acme",
        scope=algorithm,
        algorithm=algorithm,
        window=3600.0,
        profile=algorithm,
        limit=10,
        hits=4,
        remaining=6,
        use=0.4,
        blocked=False,
        observed=False,
        retry_after=0.0,
        reset_after=state.reset_after,
        ttl=state.ttl,
        bytes=state.bytes,
    )
    assert 0 < state.reset_after <= 7200
    assert state.ttl is not None
    assert 0 < state.ttl <= 7201
    assert state.bytes is not None
    assert 0 < state.bytes < 1000


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_full_window_has_a_retry_after(algorithm):
    hit(algorithm, "acme", 12)
    state = only(profile=algorithm)
    assert (state.hits, state.remaining, state.use, state.blocked) == (10, 0, 1.0, True)
    assert state.retry_after is not None
    assert 0 < state.retry_after <= 7200


def test_limit_of_zero_never_has_a_retry_after():
    limits.check("shut", "acme")
    with override_settings(
        SLIDING_WINDOW={**PATIENT, "PROFILES": {"shut": {"axis": "tenant", "rate": "1/h"}}}
    ):
        limits.check("shut", "acme")
    state = only(profile="shut")
    assert (state.limit, state.blocked, state.retry_after, state.use) == (0, True, None, 1.0)


def test_state_shows_all_hits_when_the_limit_was_lowered():
    hit("compact", "acme", 9)
    lower = {"compact": {"axis": "tenant", "rate": "3/h"}}
    with override_settings(SLIDING_WINDOW={**PATIENT, "PROFILES": lower}):
        state = only(profile="compact")
    assert (state.hits, state.remaining, state.use, state.blocked) == (9, 0, 1.0, True)


def test_inspection_writes_nothing(redis):
    hit("compact", "acme", 2)
    (key,) = redis.keys("throttle:*")
    before = redis.dump(key)
    windows.scan()
    windows.hits(key)
    windows.keys_top(3)
    assert redis.dump(key) == before
    assert redis.dbsize() == 1


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("count", [1, 3, 64, 65, 300])
def test_hits_sum_to_the_hits_of_the_state(algorithm, count):
    profile = {"axis": "tenant", "rate": "1000/h", "algorithm": algorithm}
    with override_settings(SLIDING_WINDOW={**PATIENT, "PROFILES": {"p": profile}}):
        hit("p", "acme", count)
        state = only(profile="p")
        hits = windows.hits(state.key)
    assert sum(number for _, number in hits) == state.hits == count
    ages = [age for age, _ in hits]
    assert ages == sorted(ages, reverse=True)
    assert all(0 <= age <= 3600 for age in ages)


def test_compact_hits_are_in_order_when_the_ring_has_wrapped():
    policy = Policy(limit=100, window=10)
    key = make_key("throttle", "tenant", "acme", "ring", policy)
    now = [1_000_000_000]
    store = RedisStore("default", clock=lambda: now[0])
    for _ in range(250):
        now[0] += 100_000
        store.run(Evaluate((key,), (WindowRule(policy, 1),), True))
    value = store.client().get(key)
    hits = decode.compact_hits(value, policy, now[0])
    assert [round(age, 1) for age, _ in hits] == [round(n / 10, 1) for n in range(99, -1, -1)]


def sub_window(end: int, hits: int) -> bytes:
    return end.to_bytes(7, "big") + hits.to_bytes(4, "big") + bytes(7)


def two_windows(number: int, before: int, this: int) -> bytes:
    return struct.pack(">QII", number, before, this)[2:] + bytes(6)


@pytest.mark.parametrize("resolution", [7, 60, 1_000])
def test_buckets_hits_equal_the_oracle_at_every_step(resolution):
    policy = Policy(limit=50, window=10, algorithm="buckets", resolution=resolution)
    key = make_key("throttle", "tenant", "acme", "spread", policy)
    now = [1_000_000_000]
    store = RedisStore("default", clock=lambda: now[0])
    oracle = Oracle(store._clock, exact=False)
    for step in range(300):
        now[0] += 3_900_000 if step % 40 == 0 else 70_001 * (step % 5)
        call = Evaluate(
            (key,), (WindowRule(policy, 1 + step % 3, count_rejected=step % 2 == 0),), True
        )
        assert list(store.run(call)) == oracle.run(call)
        hits = decode.buckets_hits(store.client().hgetall(key), policy, now[0])
        counted = Counter(oracle.counted(policy, oracle.windows[key], now[0]))
        ages = [(max(0, now[0] - end) / 1_000_000, n) for end, n in sorted(counted.items())]
        assert hits == ages
    # Half a window later, some of the hits have left it, although nothing was written.
    half = decode.buckets_hits(store.client().hgetall(key), policy, now[0] + 5_000_000)
    assert 0 < len(half) < len(hits)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_decoders_skip_hits_that_have_left(algorithm):
    policy = Policy(limit=10, window=10, algorithm=algorithm, resolution=10)
    now = 1_000_000_000_000
    later = now + 30_000_000
    values: dict[str, Any] = {
        "compact": b"\x01" + now.to_bytes(7, "big"),
        "log": [(b"x", float(now))],
        "buckets": {b"s": sub_window(now + 1_000_000, 3)},
        "counter": two_windows(now // policy.window_us, 2, 3),
    }
    hits = decode.DECODERS[algorithm]
    assert sum(count for _, count in hits(values[algorithm], policy, now)) in (1, 3, 5)
    assert hits(values[algorithm], policy, later) == []


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_decoders_return_age_zero_when_hits_are_ahead_of_the_clock(algorithm):
    policy = Policy(limit=10, window=10, algorithm=algorithm, resolution=10)
    now = 1_000_000_000_000
    ahead = now + 25_000_000
    values: dict[str, Any] = {
        "compact": b"\x01" + ahead.to_bytes(7, "big"),
        "log": [(b"x", float(ahead))],
        "buckets": {b"s": sub_window(ahead + 1_000_000, 1)},
        "counter": two_windows(ahead // policy.window_us, 0, 1),
    }
    assert decode.DECODERS[algorithm](values[algorithm], policy, now) == [(0.0, 1)]


def test_counter_hits_weigh_the_previous_window():
    policy = Policy(limit=10, window=10, algorithm="counter")
    now = 1_000_000_000_000 + 4_000_000
    stored = two_windows(now // policy.window_us - 1, 9, 6)
    assert decode.counter_hits(stored, policy, now) == [(4.0, 4)]


def test_counter_hits_are_those_of_a_check_where_floats_round():
    policy = Policy(limit=100_000_000, window=400 * 86_400, algorithm="counter")
    now = 50 * policy.window_us + 33_497_522_358_799
    stored = two_windows(49, 0, 74_897_471)
    ((_, shown),) = decode.counter_hits(stored, policy, now)
    counter = in_memory.Counter("key", policy)
    counter.number, counter.this = 49, 74_897_471
    assert shown == counter.look(now, policy, False).count


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_empty_window_has_no_hits(algorithm):
    policy = Policy.parse("10/h", algorithm=algorithm)
    assert windows.hits(make_key("throttle", "tenant", "nobody", algorithm, policy)) == []


def test_inspection_ignores_keys_of_other_applications(redis):
    redis.set("session:1", "x")
    assert windows.describe("session:1") is None
    assert windows.hits("session:1") == []
    assert windows.reset_key("session:1") is False
    assert redis.get("session:1") == "x"


def test_describe_is_none_when_the_window_is_empty():
    policy = Policy.parse("10/h")
    assert windows.describe(make_key("throttle", "tenant", "x", "compact", policy)) is None


def test_scan_applies_the_filters():
    hit("compact", "acme", 1)
    hit("log", "acme", 1)
    hit("compact", "globex", 1)
    hit("login", "203.0.113.9", 1)
    assert {(s.profile, s.identifier) for s in found(profile="compact").values()} == {
        ("compact", "acme"),
        ("compact", "globex"),
    }
    assert {s.window for s in found(axis="ip").values()} == {60.0, 3600.0}
    assert {s.profile for s in found(identifier="acme").values()} == {"compact", "log"}
    assert {s.identifier for s in found(identifier="acm*").values()} == {"acme"}
    assert {s.profile for s in found(axis="tenant", identifier="acme").values()} == {
        "compact",
        "log",
    }
    assert only(profile="compact", identifier="globex").identifier == "globex"
    assert found(profile="compact", axis="ip") == {}
    assert len(found()) == len(found(identifier="*")) == 5


def test_state_is_not_blocked_when_the_profile_observes():
    observing = {"watched": {"axis": "tenant", "rate": "2/h", "mode": "observe"}}
    with settings(PROFILES=observing):
        hit("watched", "acme", 5)
        state = only(profile="watched")
        assert (state.hits, state.remaining, state.use) == (2, 0, 1.0)
        assert (state.observed, state.blocked, state.retry_after) == (True, False, 0.0)
        assert (
            list(windows.walk(Filters(blocked=True)))
            == windows.keys_top(5, Filters(blocked=True))
            == []
        )


def test_scan_raises_when_the_profile_is_unknown():
    with pytest.raises(ImproperlyConfigured, match="did you mean 'login'"):
        windows.scan(Filters(profile="logn"))


@pytest.mark.parametrize("prefix", ["throttle", "a*b?[c]\\d"])
def test_scan_escapes_an_identifier_with_pattern_characters(prefix):
    with settings(PREFIX=prefix):
        hit("compact", HOSTILE, 1)
        hit("compact", "other", 1)
        assert only(profile="compact", identifier=HOSTILE).identifier == HOSTILE
        assert only(identifier=HOSTILE[:-2] + "*").identifier == HOSTILE
        assert len(found()) == 2


def test_scan_escapes_a_prefix_with_pattern_characters(redis):
    with settings(PREFIX="thr*"):
        redis.set("throttle:tenant:{x}:compact:c3600", "x")
        hit("compact", "acme", 1)
        assert only().identifier == "acme"


def test_scan_finds_an_address_in_any_spelling():
    hit("login", "2001:db8::5", 1)
    for spelling in ("2001:db8::5", "2001:DB8:0::7", "2001:db8::/64"):
        assert {s.identifier for s in found(profile="login", identifier=spelling).values()} == {
            "2001:db8::/64"
        }


@pytest.mark.parametrize("identifier", ["a\x1bb", "9+bob%2Bx", "\x1b" + "i" * 200])
def test_scan_finds_an_identifier_as_it_is_shown(identifier):
    hit("compact", identifier, 1)
    state = only(identifier=identifier)
    shown = printable(state.identifier)
    assert only(identifier=shown).key == only(identifier=shown[:7] + "*").key == state.key


def test_scan_finds_a_secret_by_value_and_by_hash():
    hit("key", "s3cret", 1)
    listed = only(axis="header:X-Api-Key")
    assert "s3cret" not in listed.key
    assert only(identifier="s3cret").key == only(identifier=listed.identifier).key == listed.key


def test_scan_calls_a_limit_function_without_a_request():
    hit("paid", "acme", 2)
    assert (only(profile="paid").limit, only(profile="paid").hits) == (7, 2)


def test_state_has_no_limit_when_no_profile_uses_the_window():
    hit("compact", "acme", 3)
    with override_settings(SLIDING_WINDOW={}):
        state = only()
        assert found(profile="tenant_free") == {}
    assert (state.profile, state.limit, state.remaining, state.use) == (None, None, None, None)
    assert (state.hits, state.blocked) == (3, False)


def test_state_has_no_profile_when_the_limit_function_gives_none():
    other = {"paid": {"axis": "tenant", "rate": "7/h"}}
    with override_settings(SLIDING_WINDOW={**PATIENT, "PROFILES": other}):
        hit("paid", "broken", 1)
        hit("paid", "free", 1)
    assert {(s.identifier, s.profile) for s in found().values()} == {
        ("broken", None),
        ("free", None),
    }


def test_scan_finds_a_long_identifier_when_it_is_complete():
    long = "tenant-" * 40
    hit("paid", long, 1)
    assert only(identifier=long).limit == 7
    # The key alone does not contain the identifier that the limit depends on.
    assert only().limit is None
    shown = only().identifier
    assert shown != long
    assert only(identifier=shown).limit == 7


def test_scan_does_not_call_the_limit_function_with_a_pattern():
    seen = []

    def limit(identifier: str, request: object) -> str:
        seen.append(identifier)
        return "7/h"

    long = "tenant-" * 40
    profiles = {"paid": {"axis": "tenant", "rate": limit}}
    with override_settings(SLIDING_WINDOW={**PATIENT, "PROFILES": profiles}):
        hit("paid", long, 1)
        seen.clear()
        assert only(identifier="tenant-*").limit is None
        assert seen == []
        assert only(identifier=long).limit == 7
        assert set(seen) == {long}


def test_scan_shows_the_requested_profile_when_profiles_share_a_scope():
    shared = {
        "free": {"axis": "tenant", "rate": "5/h", "scope": "plan"},
        "paid": {"axis": "tenant", "rate": "50/h", "scope": "plan"},
    }
    with override_settings(SLIDING_WINDOW={**PATIENT, "PROFILES": shared}):
        hit("paid", "acme", 1)
        assert only(profile="paid").limit == 50
        assert only(profile="free").limit == 5
        assert only().profile == "free"


def test_blocked_window_is_found_when_a_profile_that_observes_shares_it():
    shared = {
        "trial": {"axis": "tenant", "rate": "1/h", "scope": "plan", "mode": "observe"},
        "paid": {"axis": "tenant", "rate": "2/h", "scope": "plan"},
    }
    with override_settings(SLIDING_WINDOW={**PATIENT, "PROFILES": shared}):
        hit("paid", "acme", 2)
        assert only(blocked=True).profile == "paid"
        assert only(profile="trial").blocked is False


def test_scan_returns_every_key_over_all_pages():
    for number in range(300):
        limits.check("compact", f"t{number}")
    pages, cursor, keys = 0, "0", []
    while True:
        page = windows.scan(count=50, cursor=cursor)
        keys += [state.key for state in page.states]
        pages, cursor = pages + 1, page.cursor
        if cursor == "0":
            break
    assert pages > 3
    assert len(set(keys)) == 300


def test_scan_skips_only_the_key_of_a_wrong_type(redis):
    hit("compact", "acme", 1)
    redis.lpush("throttle:tenant:{evil}:compact:c3600", "x")
    assert only().identifier == "acme"
    assert windows.describe("throttle:tenant:{evil}:compact:c3600") is None
    assert [state.identifier for state in windows.keys_top(5)] == ["acme"]
    with pytest.raises(StoreError, match="WRONGTYPE"):
        windows.hits("throttle:tenant:{evil}:compact:c3600")


def test_scan_skips_keys_with_an_invalid_suffix(redis):
    for ending in ("z1", "c0", "c99999999999", "c", "60"):
        redis.set(f"throttle:tenant:{{acme}}:compact:{ending}", "x")
    assert found() == {}


def test_state_has_no_profile_when_the_window_differs(redis):
    hit("compact", "acme", 1)
    shorter = {"compact": {"axis": "tenant", "rate": "10/m"}}
    with override_settings(SLIDING_WINDOW={**PATIENT, "PROFILES": shorter}):
        assert found(profile="compact") == {}
        assert only().profile is None


def test_scan_raises_when_the_server_fails_between_two_calls(monkeypatch):
    hit("compact", "acme", 1)
    hit("compact", "other", 1)
    errors = iter([StoreError("one key is wrong", outage=False), StoreError("gone")])
    monkeypatch.setattr(reader.store(), "run_many", lambda calls: [next(errors)] * len(calls))
    with pytest.raises(StoreError, match="gone"):
        windows.scan()


def test_state_lacks_ttl_and_bytes_when_the_user_lacks_rights(redis, redis_server):
    hit("compact", "acme", 1)
    redis.acl_setuser(
        "lean", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-memory", "-pttl"]
    )
    url = redis_server.url.replace("redis://", "redis://lean:x@")
    caches = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}}
    try:
        with override_settings(CACHES=caches):
            state = only()
    finally:
        redis.acl_deluser("lean")
    assert (state.hits, state.ttl, state.bytes) == (1, None, None)


def test_reset_key_also_clears_the_shield_of_this_process():
    hit("compact", "acme", 11)
    assert limits.check("compact", "acme").source == "shield"
    key = only(profile="compact").key
    assert windows.reset_key(key) is True
    assert windows.reset_key(key) is False
    assert limits.check("compact", "acme").allowed


def test_walk_yields_all_or_only_blocked_windows():
    hit("login", "203.0.113.9", 3)
    hit("compact", "acme", 1)
    assert len(list(windows.walk())) == 3
    (blocked,) = windows.walk(Filters(blocked=True))
    assert (blocked.window, blocked.blocked) == (60.0, True)


def test_keys_top_returns_the_most_used_first():
    for number in range(1, 8):
        hit("compact", f"t{number}", number)
    hit("login", "203.0.113.9", 3)
    assert [(s.identifier, s.use) for s in windows.keys_top(3)] == [
        ("203.0.113.9", 1.0),
        ("t7", 0.7),
        ("t6", 0.6),
    ]
    assert [s.identifier for s in windows.keys_top(9, Filters(blocked=True))] == ["203.0.113.9"]
    assert windows.keys_top(2, Filters(identifier="nobody")) == []


def test_keys_top_lists_a_key_once_when_scan_repeats_it(monkeypatch):
    hit("compact", "acme", 2)
    (key,) = found()
    pages = iter([("1", [key, key]), ("0", [key])])
    monkeypatch.setattr(reader.store(), "scan", lambda *_: next(pages), raising=True)
    assert [state.key for state in windows.keys_top(5)] == [key]


def test_keys_top_reports_progress_after_every_page():
    for number in range(30):
        limits.check("compact", f"t{number}")
    reported: list[tuple[int, int]] = []
    windows.keys_top(3, progress=lambda done, total: reported.append((done, total)))
    assert reported[-1] == (30, 30)


# redis-py 6.0 warns about its own pipeline.
@pytest.mark.filterwarnings("ignore:.*cluster_error_retry_attempts:DeprecationWarning")
def test_inspection_covers_all_nodes_of_a_cluster(cluster):
    caches = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": cluster.url,
            "OPTIONS": {
                "CONNECTION_FACTORY": "django_slidingwindow.cluster.ClusterConnectionFactory"
            },
        }
    }
    with override_settings(CACHES=caches):
        for number in range(1, 10):
            hit("compact", f"t{number}", number)
        states = found().values()
        assert {(s.identifier, s.hits) for s in states} == {(f"t{n}", n) for n in range(1, 10)}
        assert all(s.ttl and s.bytes for s in states)
        assert [s.identifier for s in windows.keys_top(2)] == ["t9", "t8"]
        assert reader.key_count() == 9
        state = only(identifier="t5")
        assert sum(count for _, count in windows.hits(state.key)) == 5
        assert windows.reset_key(state.key)
        assert len(found()) == 8


@pytest.fixture
def redis_down(fresh_server):
    caches = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": fresh_server.url}}
    with override_settings(CACHES=caches):
        fresh_server.kill()
        yield


@pytest.mark.usefixtures("redis_down")
def test_inspection_raises_when_redis_is_down():
    key = make_key("throttle", "tenant", "acme", "compact", Policy.parse("10/h"))
    for call in (
        windows.scan,
        lambda: windows.describe(key),
        lambda: windows.hits(key),
        lambda: windows.reset_key(key),
        lambda: windows.keys_top(3),
        reader.key_count,
    ):
        with pytest.raises(StoreError) as caught:
            call()
        assert caught.value.outage


def test_keys_top_needs_bounded_memory_when_there_are_many_keys(redis, monkeypatch):
    monkeypatch.setattr(windows, "KEYS_A_PAGE", 100)
    value = int(redis.time()[0]) * 1_000_000

    def peak(keys: int) -> int:
        redis.eval(
            """local value = struct.pack('>BI7', 1, ARGV[2])
               for i = 1, ARGV[1] do
                 redis.call('SET', 'throttle:tenant:{t' .. i .. '}:compact:c3600', value)
               end""",
            0,
            keys,
            value,
        )
        tracemalloc.start()
        try:
            assert len(windows.keys_top(10)) == 10
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(500)  # fill the caches
    few = peak(1_000)
    # All keys together would need four times these 500,000 bytes. Some of them are for packed
    # calls, which are cached for each length.
    assert peak(20_000) < few + 500_000


@pytest.mark.parametrize("algorithm", ["compact", "log", "buckets"])
def test_state_says_how_much_may_be_leased(algorithm):
    leased = {"axis": "tenant", "rate": "1000/h", "lease": 50, "algorithm": algorithm}
    settings = {**PATIENT, "PROFILES": {"leased": leased, "plain": {**leased, "lease": 0}}}
    with override_settings(SLIDING_WINDOW=settings):
        hit("leased", "acme", 2)
        hit("plain", "acme", 2)
        assert only(profile="plain").leased is None
        # Two hits are used and two are leased ahead, all within `lease_seconds`.
        state = only(profile="leased")
        assert (state.hits, state.leased, state.remaining) == (4, 4, 996)
        assert sum(count for _, count in windows.hits(state.key)) == 4
        limits.get_limiter().close()
        assert only(profile="leased").leased == 2


def test_hits_count_until_their_lease_has_ended():
    policy = Policy(limit=10, window=10, lease=5, lease_seconds=2)
    clock = Clock()
    store = RedisStore("default", clock=clock)
    store.run(Evaluate(("counted",), (WindowRule(policy, 3),), True))
    clock.now += 11_999_999
    rules = WindowRule(policy, 0), WindowRule(policy, 0, recent=True)
    reply = store.run(Evaluate(("counted",) * 2, rules, False))
    assert [window[1] for window in reply.windows()] == [7, 10]
    clock.now += 1
    assert store.run(Evaluate(("counted",), (WindowRule(policy, 0),), False)).remaining == (10,)
    store.close()
