from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import RequestFactory, override_settings

from django_slidingwindow import limits, signals
from django_slidingwindow.core.limiter import Limiter
from django_slidingwindow.decisions import NO_LIMIT, Decision
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.guard import check as guard
from django_slidingwindow.guard import current_limiter, limiter_factory
from django_slidingwindow.guard.peek import apeek
from django_slidingwindow.guard.requirements import joined, requirements_from
from django_slidingwindow.policies import ALGORITHMS, Policy, Profile
from django_slidingwindow.registry import register, unregister
from django_slidingwindow.stores.memory import MemoryStore
from tests.support.servers.redis import wait_until

if TYPE_CHECKING:
    from redis import Redis

    from tests.support.servers import RedisServer

# So much time that Redis decides even on a slow machine.
PATIENT = {"LATENCY_BUDGET": 60, "SHIELD_SECONDS": 0}


@pytest.fixture(autouse=True)
def _limits(settings: Any, redis: Redis) -> None:
    settings.SLIDING_WINDOW = PATIENT


class Calls:
    """The functions of `limits`, or their async twins, each run to its end."""

    def __init__(self, asynchronous: bool) -> None:
        self.asynchronous = asynchronous

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not self.asynchronous:
            return getattr(limits, name)  # type: ignore[no-any-return]
        twin = getattr(limits, f"a{name}")
        return lambda *args, **kwargs: asyncio.run(twin(*args, **kwargs))


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Calls:
    return Calls(request.param)


def profile(rate: str = "3/m", **fields: Any) -> Profile:
    policy = Policy.parse(rate, algorithm=fields.pop("algorithm", "compact"))
    return Profile(**{"name": "mine", "axis": "user", "policies": (policy,), **fields})


def unlimited(*_: Any) -> None:
    return None


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_check_charges_until_the_limit(call: Calls, algorithm: str) -> None:
    mine = profile("3/h", algorithm=algorithm)
    decisions = [call.check(mine, "ada") for _ in range(4)]
    assert [decision.allowed for decision in decisions] == [True, True, True, False]
    assert [decision.remaining for decision in decisions] == [2, 1, 0, 0]
    first, *_, last = decisions
    assert (first.profile, first.policy, first.limit) == ("mine", mine.policies[0], 3)
    assert (first.reason, first.source, first.retry_after) == ("allowed", "redis", 0.0)
    assert (last.reason, last.source, last.receipt) == ("limit", "redis", None)
    assert last.retry_after is not None
    assert 0 < last.retry_after <= 7_200


def test_a_profile_is_found_by_its_name(call: Calls, redis: Redis) -> None:
    assert call.check("tenant_paid", "acme").remaining == 9_999
    assert redis.keys() == ["throttle:tenant:{acme}:tenant_paid:c86400"]
    assert call.peek("tenant_paid", "acme").remaining == 9_998


def test_error_of_an_unknown_name_suggests_a_known_one(call: Calls) -> None:
    with pytest.raises(ImproperlyConfigured, match="did you mean 'tenant_paid'"):
        call.check("tenant_payed", "acme")


def test_the_prefix_and_the_profiles_of_the_settings_are_used(call: Calls, redis: Redis) -> None:
    mine = {"login": {"axis": "ip", "rates": ["5/m", "20/h"], "algorithm": "log"}}
    with override_settings(SLIDING_WINDOW={**PATIENT, "PREFIX": "shop:x", "PROFILES": mine}):
        decision = call.check("login", "203.0.113.9")
    assert [verdict.remaining for verdict in decision.verdicts] == [4, 19]
    stem = "shop:x:ip:{203.0.113.9}:login"
    assert sorted(redis.keys()) == [f"{stem}:l3600", f"{stem}:l60"]


def test_a_cost_is_charged_whole_or_not_at_all(call: Calls) -> None:
    mine = profile("10/h")
    assert call.check(mine, "ada", cost=7).remaining == 3
    refused = call.check(mine, "ada", cost=4)
    assert (refused.allowed, refused.remaining) == (False, 3)
    assert call.check(mine, "ada", 3).remaining == 0


@pytest.mark.parametrize("cost", [-1, 0.5, 1.0, "1", None, True])
def test_a_negative_or_fractional_cost_is_a_value_error(call: Calls, cost: Any) -> None:
    for ask in (call.check, call.peek, call.acquire):
        with pytest.raises(ValueError, match="is not a whole number of at least 0"):
            ask(profile(), "ada", cost)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("rate", ["0/m", "1/m"])
def test_a_cost_of_nothing_is_always_allowed(call: Calls, algorithm: str, rate: str) -> None:
    mine = profile(rate, algorithm=algorithm)
    call.check(mine, "ada")
    decision = call.check(mine, "ada", cost=0)
    assert (decision.allowed, decision.remaining, decision.receipt) == (True, 0, None)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_refusal_without_end_has_no_retry_after(
    call: Calls, redis: Redis, algorithm: str
) -> None:
    for mine, cost in ((profile("0/m"), 1), (profile("3/m", algorithm=algorithm), 4)):
        decision = call.check(mine, "ada", cost)
        assert (decision.allowed, decision.retry_after) == (False, None)
    assert redis.keys() == []


def test_a_peek_returns_what_a_check_would_and_charges_nothing(call: Calls, redis: Redis) -> None:
    mine = profile("2/h")
    for _ in range(3):
        peeked = call.peek(mine, "ada")
        assert peeked.remaining == call.peek(mine, "ada").remaining
        assert peeked.receipt is None
        checked = call.check(mine, "ada")
        assert (peeked.allowed, peeked.remaining) == (checked.allowed, checked.remaining)
        assert (peeked.reason, peeked.source) == (checked.reason, checked.source)
    assert not call.peek(mine, "ada", cost=1).allowed
    assert call.peek(mine, "ada", cost=0).allowed
    assert call.peek(mine, "bob", cost=2).remaining == 0
    assert len(redis.keys()) == 1


def test_an_identifier_that_is_not_a_string_is_an_error(call: Calls) -> None:
    for wrong in (5, None):
        with pytest.raises(TypeError, match=r"must be a string, not (int|NoneType)"):
            call.check("ip_public", wrong)


def test_a_reset_deletes_only_the_windows_of_the_identifier(call: Calls, redis: Redis) -> None:
    mine = Profile(name="mine", axis="user", policies=(Policy.parse("1/m"), Policy.parse("1/h")))
    for name in ("ada", "bob"):
        assert call.check(mine, name).allowed
        assert not call.check(mine, name).allowed
    assert call.reset(mine, "ada") == 2
    assert call.reset(mine, "ada") == 0
    assert call.check(mine, "ada").allowed
    assert not call.check(mine, "bob").allowed


def test_a_reset_clears_what_the_shield_remembers(call: Calls) -> None:
    with override_settings(SLIDING_WINDOW={**PATIENT, "SHIELD_SECONDS": 60}):
        mine = profile("1/h")
        call.check(mine, "ada")
        assert [call.check(mine, "ada").source for _ in range(2)] == ["redis", "shield"]
        call.reset(mine, "ada")
        assert call.check(mine, "ada").allowed


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_refund_gives_back_once(call: Calls, redis: Redis, algorithm: str) -> None:
    mine = profile("5/h", algorithm=algorithm)
    decision = call.check(mine, "ada", cost=4)
    assert not call.check(mine, "ada", cost=2).allowed
    assert call.refund(decision) == 4
    assert call.refund(decision) == 0
    assert redis.keys() == []
    assert call.check(mine, "ada", cost=5).allowed


def test_a_refund_gives_nothing_back_when_nothing_was_charged(call: Calls) -> None:
    mine = profile("1/h")
    call.check(mine, "ada")
    for decision in (call.check(mine, "ada"), call.peek(mine, "bob"), call.check(mine, "x", 0)):
        assert call.refund(decision) == 0
    assert not call.peek(mine, "ada").allowed


def test_a_profile_without_a_limit_is_unlimited_and_asks_nothing(call: Calls, redis: Redis) -> None:
    mine = Profile(name="free", axis="tenant", limit_for=unlimited)
    redis.config_resetstat()
    decision = call.check(mine, "acme", cost=10**9)
    assert decision == call.peek(mine, "acme") == call.acquire(mine, "acme", timeout=0)
    assert decision == Decision(
        allowed=True,
        profile="free",
        policy=None,
        limit=NO_LIMIT,
        remaining=NO_LIMIT,
        retry_after=0.0,
        reset_after=0.0,
        reason="unlimited",
        source="allow",
    )
    assert call.refund(decision) == 0
    assert call.reset(mine, "acme") == 0
    assert "cmdstat_evalsha" not in redis.info("commandstats")
    assert "cmdstat_unlink" not in redis.info("commandstats")


def test_a_limit_may_depend_on_the_identifier(call: Calls) -> None:
    plans = {"acme": "7/d", "free": None}
    mine = Profile(name="plan", axis="tenant", limit_for=lambda name, request: plans[name])
    assert call.check(mine, "acme").remaining == 6
    assert call.check(mine, "free").reason == "unlimited"
    plans["acme"] = "2/d"
    assert call.check(mine, "acme").remaining == 0
    assert not call.check(mine, "acme").allowed


def test_nothing_is_limited_when_limits_are_disabled(call: Calls, redis: Redis) -> None:
    mine = profile("1/h")
    assert call.check(mine, "ada").allowed
    with override_settings(SLIDING_WINDOW={**PATIENT, "ENABLED": False}):
        assert call.check(mine, "ada").reason == "unlimited"
        assert call.reset(mine, "ada") == 1
    assert call.check(mine, "ada").allowed


def test_limit_function_is_not_called_when_limits_are_disabled(call: Calls) -> None:
    def fail(identifier: str, request: Any) -> str:
        raise AssertionError("nobody needs the limit")

    mine = Profile(name="plan", axis="tenant", limit_for=fail)
    with override_settings(SLIDING_WINDOW={"ENABLED": False}):
        assert call.check(mine, "acme").reason == "unlimited"


@pytest.mark.parametrize(
    ("axis", "one", "two"),
    [
        ("ip", "2001:db8::1", "2001:0DB8:0:0:ffff::2"),
        ("ip", "::ffff:203.0.113.9", "203.0.113.9"),
        ("ip", "unknown", "unknown"),
        ("tenant", "Acme", "Acme"),
        ("header:X-Api-Key", "secret", "secret"),
    ],
)
def test_an_identifier_has_one_spelling_for_its_axis(
    call: Calls, redis: Redis, axis: str, one: str, two: str
) -> None:
    mine = profile("1/h", axis=axis)
    assert call.check(mine, one).allowed
    assert not call.check(mine, two).allowed
    [key] = redis.keys()
    assert "secret" not in key
    assert call.reset(mine, two) == 1


@pytest.mark.parametrize(
    ("axis", "one", "two"),
    [
        ("ip", "2001:db8::1", "2001:db8:0:1::1"),
        ("ip", "203.0.113.8", "203.0.113.9"),
        ("tenant", "acme", "Acme"),
        ("global", "", "queue"),
        ("header:X-Api-Key", "secret", "Secret"),
    ],
)
def test_other_identifiers_have_their_own_windows(
    call: Calls, axis: str, one: str, two: str
) -> None:
    mine = profile("1/h", axis=axis)
    assert call.check(mine, one).allowed
    assert call.check(mine, two).allowed


class Watch:
    """The calls of Redis during a wait, and the sleeps between them."""

    def __init__(self) -> None:
        self.decisions: list[Decision] = []
        self.sleeps: list[float] = []

    def checked(self, decision: Decision, **_: Any) -> None:
        self.decisions.append(decision)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    watch = Watch()
    sleep, asleep = time.sleep, asyncio.sleep

    def slept(seconds: float) -> None:
        watch.sleeps.append(seconds)
        sleep(seconds)

    async def aslept(seconds: float) -> None:
        watch.sleeps.append(seconds)
        await asleep(seconds)

    monkeypatch.setattr(time, "sleep", slept)
    monkeypatch.setattr(asyncio, "sleep", aslept)
    signals.limit_checked.connect(watch.checked)
    yield watch
    signals.limit_checked.disconnect(watch.checked)


@pytest.mark.parametrize("shield", [0, 1.0])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("timeout", [None, 30])
def test_acquire_sleeps_exactly_until_the_next_slot(
    call: Calls, watch: Watch, shield: float, algorithm: str, timeout: float | None
) -> None:
    with override_settings(SLIDING_WINDOW={**PATIENT, "SHIELD_SECONDS": shield}):
        mine = profile("2/200ms", algorithm=algorithm)
        # One call for both hits, so that they are in the same window of the counter.
        assert call.check(mine, "ada", cost=2).allowed
        watch.decisions.clear()
        decision = call.acquire(mine, "ada", cost=2, timeout=timeout)
    assert decision.allowed
    assert decision.source == "redis"
    *refused, admitted = watch.decisions
    assert admitted is decision
    # One sleep between two checks, as long as the refusal says; none for a very short wait.
    assert len(watch.sleeps) == len(refused) <= 1
    for slept, one in zip(watch.sleeps, refused, strict=True):
        assert 0 < slept <= max(one.retry_after or 0, 0.005)


def test_acquire_that_needs_no_wait_does_not_sleep(call: Calls, watch: Watch) -> None:
    assert call.acquire(profile("1/h"), "ada", timeout=0).allowed
    assert watch.sleeps == []


def test_acquire_is_refused_at_once_if_the_next_slot_is_too_far(
    call: Calls, watch: Watch, redis: Redis
) -> None:
    mine = profile("1/h")
    call.check(mine, "ada")
    for timeout in (0, 0.5, 3_000):
        decision = call.acquire(mine, "ada", timeout=timeout)
        assert not decision.allowed
        assert decision.retry_after > timeout
    assert watch.sleeps == []


@pytest.mark.parametrize(("rate", "cost"), [("0/m", 1), ("3/m", 4)])
def test_acquire_is_refused_at_once_if_it_can_never_pass(
    call: Calls, watch: Watch, rate: str, cost: int
) -> None:
    decision = call.acquire(profile(rate), "ada", cost)
    assert (decision.allowed, decision.retry_after) == (False, None)
    assert watch.sleeps == []


def test_each_call_is_measured(call: Calls, watch: Watch) -> None:
    mine = profile("1/h")
    made = [call.check(mine, "ada"), call.check(mine, "ada")]
    call.peek(mine, "ada")
    assert watch.decisions == made


def test_a_reset_that_cannot_reach_redis_is_an_error(
    call: Calls, fresh_server: RedisServer, settings: Any
) -> None:
    mine = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": fresh_server.url}
    settings.CACHES = {**settings.CACHES, "fresh": mine}
    settings.SLIDING_WINDOW = {**PATIENT, "CACHE": "fresh"}
    assert call.check(profile(), "ada").source == "redis"
    fresh_server.kill()
    with pytest.raises(StoreError):
        call.reset(profile(), "ada")


def test_the_limiter_is_made_once_and_again_when_settings_change(settings: Any) -> None:
    limiter = limits.get_limiter()
    assert limits.get_limiter() is limiter
    settings.LANGUAGE_CODE = "de"
    assert limits.get_limiter() is limiter
    settings.SLIDING_WINDOW = {**PATIENT, "PREFIX": "other"}
    assert limits.get_limiter() is not limiter
    assert limits.get_limiter().prefix == "other"


def test_limiter_of_settings_that_have_changed_keeps_no_connection(redis: Redis) -> None:
    def connections() -> int:
        return len([found for found in redis.client_list() if found["id"] not in before])

    before = {found["id"] for found in redis.client_list()}
    limiter = limits.get_limiter()
    for _ in range(2):
        limits.check(profile(), "ann")
        assert connections() == 1
        with override_settings(SLIDING_WINDOW={**PATIENT, "PREFIX": "other"}):
            wait_until(lambda: connections() == 0, "the server has heard of it")
            limits.check(profile(), "ann")
            assert connections() == 1
        wait_until(lambda: connections() == 0, "the server has heard of it")
    # Code that has a reference to the limiter can still use it.
    assert limiter.charge(limits._windows(limiter, profile(), "ann", 1, True)).remaining == 0
    limiter.close()


REQUIREMENTS = joined(requirements_from(["ip_public"]))
UNLIMITED = Decision(
    allowed=True,
    profile="ip_public",
    policy=None,
    limit=NO_LIMIT,
    remaining=NO_LIMIT,
    retry_after=0.0,
    reset_after=0.0,
    reason="unlimited",
    source="allow",
)


async def hold_one() -> None:
    async with limits.ahold("ip_public", "acme"):
        pass


async def check_and_refund_request() -> None:
    request = RequestFactory().get("/")
    await guard.acheck(request, REQUIREMENTS)
    current_limiter._forget_limiter()
    await guard.arefund(request, REQUIREMENTS[0])


FIRST_CALLS: dict[str, Callable[[], Any]] = {
    "acheck": lambda: limits.acheck("ip_public", "acme"),
    "apeek": lambda: limits.apeek("ip_public", "acme"),
    "aacquire": lambda: limits.aacquire("ip_public", "acme"),
    "ahold": hold_one,
    "arefund": lambda: limits.arefund(UNLIMITED),
    "areset": lambda: limits.areset("ip_public", "acme"),
    "request": check_and_refund_request,
    "peek of a request": lambda: apeek(RequestFactory().get("/"), [REQUIREMENTS]),
}


@pytest.mark.parametrize("name", FIRST_CALLS)
def test_first_limiter_is_not_made_on_the_event_loop(name: str) -> None:
    """Because this waits for the overrides."""
    made: list[threading.Thread] = []

    def make() -> Limiter:
        made.append(threading.current_thread())
        return Limiter(MemoryStore())

    async def ask() -> threading.Thread:
        await FIRST_CALLS[name]()
        return threading.current_thread()

    with current_limiter.limiters_from(make):
        loop = asyncio.run(ask())
    assert made
    assert loop not in made


def test_limiter_that_outlives_its_settings_elsewhere_keeps_no_connection(redis: Redis) -> None:
    before = {found["id"] for found in redis.client_list()}
    limits.check(profile(), "ann")
    with current_limiter.limiters_from(lambda: Limiter(MemoryStore())):
        assert len(redis.client_list()) == len(before) + 1
        with override_settings(SLIDING_WINDOW={**PATIENT, "PREFIX": "other"}):
            limits.check(profile(), "ann")
    wait_until(lambda: {f["id"] for f in redis.client_list()} <= before, "it is closed")


def test_shield_of_zero_seconds_remembers_nothing(settings: Any) -> None:
    mine = profile("0/m")
    assert [limits.check(mine, "ada").source for _ in range(2)] == ["redis", "redis"]
    settings.SLIDING_WINDOW = {"LATENCY_BUDGET": 60}
    assert [limits.check(mine, "ada").source for _ in range(2)] == ["redis", "shield"]


def in_memory() -> Limiter:
    return Limiter(MemoryStore())


def test_limiters_from_replaces_the_limiter_within_its_context(settings: Any) -> None:
    usual = limits.get_limiter()
    with current_limiter.limiters_from(in_memory):
        assert limits.check(profile(), "ada").source == "local"
        own = limits.get_limiter()
        settings.LANGUAGE_CODE = "de"
        assert limits.get_limiter() is own
    assert limits.get_limiter() is usual


def test_a_limiter_of_settings_that_have_changed_meanwhile_is_not_used_again(
    settings: Any,
) -> None:
    usual = limits.get_limiter()
    with current_limiter.limiters_from(in_memory):
        own = limits.get_limiter()
        settings.SLIDING_WINDOW = {**PATIENT, "PREFIX": "other"}
        assert limits.get_limiter() is not own
        assert limits.check(profile(), "ada").source == "local"
    assert limits.get_limiter() is not usual
    assert limits.get_limiter().prefix == "other"


def test_a_check_that_redis_cannot_answer_is_logged_once_a_minute(
    call: Calls, redis: Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limiter_factory, "_failure_logged_at", float("-inf"))
    # Another program's value under the key of a window.
    redis.rpush("throttle:user:{ada}:mine:c60", "not ours")
    assert [call.check(profile(), "ada").source for _ in range(3)] == ["local"] * 3
    assert call.check(profile(), "bob").source == "redis"
    [record] = caplog.records
    assert "Redis could not answer a check" in record.getMessage()
    assert record.alias == "default"


def test_an_outage_is_signalled_once_when_it_begins_and_once_when_it_ends(
    fresh_server: RedisServer, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": fresh_server.url}
    settings.CACHES = {**settings.CACHES, "fresh": cache}
    settings.SLIDING_WINDOW = {**PATIENT, "CACHE": "fresh"}
    sent: list[dict[str, Any]] = []

    def hear(**arguments: Any) -> None:
        sent.append(arguments)

    signals.store_degraded.connect(hear)
    signals.store_recovered.connect(hear)
    mine = profile("1000000/h")
    assert limits.check(mine, "ada").source == "redis"
    fresh_server.kill()
    assert {limits.check(mine, "ada").source for _ in range(20)} == {"local"}
    fresh_server.start()
    wait_until(lambda: limits.check(mine, "ada").source == "redis", "Redis decides again")
    degraded, recovered = sent
    assert degraded["signal"] is signals.store_degraded
    assert degraded["alias"] == recovered["alias"] == "fresh"
    assert isinstance(degraded["error"], StoreError)
    assert recovered["signal"] is signals.store_recovered
    assert recovered["seconds"] > 0
    away, back = (record.getMessage() for record in caplog.records)
    assert away.startswith("Redis is away (")
    assert away.endswith("): limits fall back to 'local'")
    assert back.startswith("Redis is back after ")


FORKED = """
import os
import sys
import django
django.setup()
from django.test import override_settings
from django_slidingwindow import limits
from django_slidingwindow.guard import current_limiter
with override_settings(SLIDING_WINDOW={"LATENCY_BUDGET": 60}):
    limits.check("tenant_free", "forked")
    before = limits.get_limiter()
    # As if another thread were about to make the limiter.
    current_limiter._lock.acquire()
    child = os.fork()
    if not child:
        print(limits.get_limiter() is before, limits.check("tenant_free", "forked").remaining)
        sys.stdout.flush()
        os._exit(0)
    os.waitpid(child, 0)
    current_limiter._lock.release()
    print(limits.get_limiter() is before, limits.check("tenant_free", "forked").remaining)
"""


WITHOUT_REDIS = """
import django
django.setup()
from django.core.management import call_command
from django_slidingwindow import decorators, limits, middleware
call_command("check")
limits.get_limiter()
print([limits.check("tenant_free", "acme").remaining for _ in range(3)])
print(limits.check("tenant_free", "acme").source)
"""


def output_of(script: str, redis_url: str) -> list[str]:
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "TEST_REDIS_URL": redis_url,
    }
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=Path(__file__).parent.parent,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_process_starts_and_limits_while_redis_is_down() -> None:
    # Nothing listens on port 1: that would need root.
    output = output_of(WITHOUT_REDIS, "redis://127.0.0.1:1/0")
    assert output[-2:] == ["[99, 98, 97]", "local"]


def test_a_forked_process_has_a_limiter_and_a_lock_of_its_own(redis_server: RedisServer) -> None:
    assert output_of(FORKED, redis_server.url) == ["False 98", "True 97"]


async def test_a_limit_function_never_runs_on_the_event_loop() -> None:
    def on_a_loop() -> bool:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return False
        return True

    seen: list[bool] = []

    def limit_for(identifier: str, request: object) -> str:
        seen.append(on_a_loop())
        return "3/m"

    mine = Profile(name="plan", axis="tenant", limit_for=limit_for)
    assert (await limits.acheck(mine, "acme")).remaining == 2
    assert (await limits.apeek(mine, "acme")).remaining == 1
    assert (await limits.aacquire(mine, "acme")).remaining == 1
    assert await limits.areset(mine, "acme") == 1
    assert seen == [False] * 4


def test_a_changed_profile_is_used_at_the_next_check(call: Calls) -> None:
    try:
        register("mine", {"axis": "tenant", "rate": "5/h"})
        assert call.check("mine", "acme").limit == 5
        register("mine", {"axis": "tenant", "rate": "7/h"})
        assert call.check("mine", "acme").limit == 7
    finally:
        unregister("mine")
    with pytest.raises(ImproperlyConfigured, match="unknown rate-limit profile 'mine'"):
        call.check("mine", "acme")


def test_another_limiter_is_used_at_the_next_check(call: Calls, redis: Redis) -> None:
    assert call.check("tenant_paid", "acme").source == "redis"
    with current_limiter.limiters_from(lambda: Limiter(MemoryStore(), prefix="other")):
        decision = call.check("tenant_paid", "acme")
    assert decision.source == "local"
    assert decision.key.startswith("other:")
    assert call.check("tenant_paid", "acme").remaining == 9_998


def test_a_boolean_cost_is_an_error_even_if_an_equal_one_is_cached(
    call: Calls,
) -> None:
    assert call.check("tenant_paid", "acme", 1).allowed
    with pytest.raises(ValueError, match="is not a whole number of at least 0"):
        call.check("tenant_paid", "acme", True)


# Requests in flight


def slots(limit: int = 2, **fields: Any) -> Profile:
    policy = Policy(limit=limit, window=3600, algorithm="slots")
    return Profile(**{"name": "mine", "axis": "user", "policies": (policy,), **fields})


def hold(call: Calls, *args: Any, inside: Callable[[Decision], None]) -> None:
    """Hold a slot while a function runs."""
    if not call.asynchronous:
        with limits.hold(*args) as decision:
            inside(decision)
        return

    async def holding() -> None:
        async with limits.ahold(*args) as decision:
            inside(decision)

    asyncio.run(holding())


def test_slot_is_held_until_the_block_ends(call: Calls, redis: Redis) -> None:
    key = "throttle:user:{ada}:mine:i3600"

    def inside(decision: Decision) -> None:
        assert (decision.allowed, decision.limit, decision.remaining) == (True, 2, 1)
        assert redis.zcard(key) == 1

    for _ in range(3):
        hold(call, slots(), "ada", inside=inside)
        assert redis.zcard(key) == 0


def test_refusal_yields_a_decision_and_holds_nothing(call: Calls, redis: Redis) -> None:
    taken = [call.check(slots(), "ada") for _ in range(2)]

    def inside(decision: Decision) -> None:
        assert (decision.allowed, decision.reason) == (False, "limit")
        assert (decision.remaining, decision.retry_after) == (0, 0.0)

    hold(call, slots(), "ada", inside=inside)
    assert redis.zcard("throttle:user:{ada}:mine:i3600") == 2
    assert call.refund(taken[0]) == 1
    assert call.refund(taken[0]) == 0
    assert call.peek(slots(), "ada").allowed
    assert call.reset(slots(), "ada") == 1
    assert call.refund(taken[1]) == 0


def test_slot_is_free_after_an_exception_and_hits_stay(call: Calls, redis: Redis) -> None:
    both = slots(policies=(Policy(limit=5, window=60), *slots().policies))

    def fail(decision: Decision) -> None:
        assert [verdict.remaining for verdict in decision.verdicts] == [4, 1]
        raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        hold(call, both, "ada", inside=fail)
    assert [one.remaining for one in call.peek(both, "ada", 0).verdicts] == [4, 2]


@pytest.mark.parametrize("refunded", [False, True])
@pytest.mark.usefixtures("redis")
async def test_slot_is_free_when_the_task_that_gives_it_back_is_cancelled(refunded: bool) -> None:
    async def hold_and_cancel() -> None:
        async with limits.ahold(slots(), "ada") as decision:
            task = asyncio.current_task()
            assert task is not None
            # The next call sends its command before this happens, and cannot get the reply.
            asyncio.get_running_loop().call_soon(task.cancel)
            if refunded:
                await limits.arefund(decision)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(hold_and_cancel())
    # This call follows on the same connection.
    assert (await limits.apeek(slots(), "ada")).remaining == 1


def test_hold_takes_no_slot_without_inflight_or_when_limits_are_disabled(
    call: Calls, settings: Any, redis: Redis
) -> None:
    hold(call, profile(), "ada", inside=lambda decision: None)
    assert call.peek(profile(), "ada", 0).remaining == 2
    settings.SLIDING_WINDOW = {"ENABLED": False}
    hold(call, slots(limit=0), "ada", inside=lambda decision: None)
    assert redis.keys("*:i3600") == []


def test_acquire_waits_for_a_slot(redis: Redis) -> None:
    taken = limits.check(slots(limit=1), "ada")
    refused = limits.acquire(slots(limit=1), "ada", timeout=0.2)
    assert not refused.allowed
    # More slots than there are: waiting does not help.
    assert limits.acquire(slots(limit=1), "ada", cost=2).retry_after is None
    timer = threading.Timer(0.2, limits.refund, [taken])
    timer.start()
    assert limits.acquire(slots(limit=1), "ada", timeout=60).allowed
    timer.join()


def test_retry_delay_is_random_when_no_slot_is_free() -> None:
    limits.check(slots(limit=1), "ada")
    refused = limits.check(slots(limit=1), "ada")
    delays = {limits.retry_delay(refused, attempt=3) for _ in range(50)}
    assert len(delays) == 50
    assert 0 <= min(delays) <= max(delays) <= 8
    with pytest.raises(ValueError, match="no wait helps"):
        limits.retry_delay(limits.check(slots(limit=1), "ada", cost=2))
