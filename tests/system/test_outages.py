"""Outages of Redis: every check gets a decision, and Redis decides again soon afterwards."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from django.core.handlers.base import BaseHandler
from django.test import AsyncClient, AsyncRequestFactory, Client, RequestFactory

from django_slidingwindow import decisions, limits, signals
from django_slidingwindow.core.breaker import CLOSED, OPEN
from django_slidingwindow.guard import limiter_factory
from tests.support.redis_failures import FAILURES, frozen, killed, read_only
from tests.support.servers.redis import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from django.http import HttpResponse
    from pytest_django.fixtures import SettingsWrapper

    from django_slidingwindow.decisions import Decision
    from tests.support.redis_failures import Failure
    from tests.support.servers import RedisServer

LIMIT = 1000
# Seconds that a check waits for Redis. Long, so that a busy machine is not taken for an outage.
PATIENT = 5.0
# For servers that do not answer at all.
SHORT = 0.1


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A server that all tests of this module break and repair."""
    from tests.support.servers import RedisServer

    with RedisServer() as server:
        yield server


def configure(settings: SettingsWrapper, url: str, **options: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}}
    profiles = {
        "many": {"axis": "ip", "limit": LIMIT, "window": 3600},
        "few": {"axis": "ip", "limit": 4, "window": 3600},
        "leased": {"axis": "ip", "limit": 40, "window": 3600, "lease": 10, "lease_seconds": 60},
        "later": {"axis": "ip", "limit": 40, "window": 3600, "mode": "deferred"},
    }
    settings.SLIDING_WINDOW = {"PROFILES": profiles, "LATENCY_BUDGET": PATIENT, **options}


@pytest.fixture
def runner() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """A function that runs a coroutine in the event loop of this test."""
    loop = asyncio.new_event_loop()
    yield loop.run_until_complete
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@pytest.fixture(params=["sync", "async"])
def check(
    request: pytest.FixtureRequest, runner: Callable[..., Any]
) -> Callable[[str, str], Decision]:
    """`limits.check`, or `limits.acheck`."""
    if request.param == "sync":
        return limits.check
    return lambda *arguments: runner(limits.acheck(*arguments))


@pytest.fixture(params=["sync", "async"])
def get(
    request: pytest.FixtureRequest, runner: Callable[..., Any]
) -> Callable[[str], HttpResponse]:
    """Django's test client, or the asynchronous one."""
    if request.param == "sync":
        return lambda path: Client().get(f"/{path}/sync/")
    return lambda path: runner(AsyncClient().get(f"/{path}/async/"))


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_every_check_gets_a_decision_and_redis_decides_again(
    failure: Failure,
    check: Callable[[str, str], Decision],
    server: RedisServer,
    settings: SettingsWrapper,
) -> None:
    configure(settings, server.url, LATENCY_BUDGET=SHORT)
    with server.client() as client:
        client.flushall()
    wait_until(lambda: check("many", "k").source == decisions.REDIS, "Redis decides")
    breaker = limits.get_limiter().breaker
    with failure(server):
        start = time.monotonic()
        answers = []
        while breaker.state == CLOSED:
            answers.append(check("many", "k"))
            assert time.monotonic() - start < 5, "each check may take the latency budget"
        assert 3 <= len(answers) <= 5
        answers.append(check("many", "k"))
        assert {answer.source for answer in answers} == {decisions.LOCAL}
        assert all(answer.allowed for answer in answers)
    wait_until(lambda: check("many", "k").source == decisions.REDIS, "Redis decides again")
    assert breaker.state == CLOSED


@pytest.mark.parametrize("failure", [killed, frozen])
def test_leased_profile_admits_its_units_and_those_of_the_fallback(
    failure: Failure,
    check: Callable[[str, str], Decision],
    server: RedisServer,
    settings: SettingsWrapper,
) -> None:
    configure(settings, server.url, LATENCY_BUDGET=3 * SHORT)
    with server.client() as client:
        client.flushall()
    before = [check("leased", "k") for _ in range(4)]
    assert before[-1].source == decisions.LEASE
    with failure(server):
        answers = [check("leased", "k") for _ in range(100)]
        assert limits.get_limiter().breaker.state != CLOSED
    assert {answer.source for answer in answers} <= {decisions.LEASE, decisions.LOCAL}
    local = [answer.allowed for answer in answers if answer.source == decisions.LOCAL]
    assert sum(local) == 40
    wait_until(lambda: check("many", "k").source == decisions.REDIS, "Redis decides again")
    after = [check("leased", "k") for _ in range(100)]
    # A killed server starts again without its data.
    counted = after if failure is killed else [*before, *answers, *after]
    by_redis = [answer for answer in counted if answer.source != decisions.LOCAL]
    assert 0 < sum(answer.allowed for answer in by_redis) <= 40


@pytest.mark.parametrize("failure", [killed, frozen])
def test_deferred_profile_uses_no_socket_and_counts_lost_hits(
    failure: Failure,
    check: Callable[[str, str], Decision],
    server: RedisServer,
    settings: SettingsWrapper,
) -> None:
    configure(settings, server.url, LATENCY_BUDGET=SHORT, DEFERRED_SECONDS=0.01)
    with server.client() as client:
        client.flushall()
    reported: Counter[str] = Counter()

    def note(charged: int, lost: int, **_: Any) -> None:
        reported["hits"] += charged + lost

    answers: list[Decision] = []

    def ask() -> str:
        answers.append(check("later", "k"))
        return answers[-1].source

    signals.deferred_sent.connect(note)
    try:
        assert ask() == decisions.DEFERRED
        with failure(server):
            assert work_of(ask).sockets == 0
            while limits.get_limiter().breaker.state == CLOSED:
                check("many", "k")
            assert {ask() for _ in range(50)} <= {decisions.DEFERRED, decisions.LOCAL}
        wait_until(lambda: check("many", "k").source == decisions.REDIS, "Redis decides again")
        wait_until(lambda: ask() == decisions.DEFERRED, "charges are sent again")
        deferred = [each for each in answers if each.source == decisions.DEFERRED]
        admitted = sum(answer.allowed for answer in deferred)
        wait_until(
            lambda: reported["hits"] == admitted, "every hit was sent, or is counted as lost"
        )
    finally:
        signals.deferred_sent.disconnect(note)
    local = [answer.allowed for answer in answers if answer.source == decisions.LOCAL]
    assert sum(local) <= 40


async def test_killed_connections_of_an_event_loop_do_not_open_the_breaker(
    server: RedisServer, settings: SettingsWrapper
) -> None:
    """Redis admits at most the limit, and each kill loses at most the checks in flight."""
    limit, tasks_at_once, kills = 400, 20, 8
    profiles = {"crowded": {"axis": "ip", "limit": limit, "window": 3600}}
    configure(settings, server.url, LATENCY_BUDGET=30, SHIELD_SECONDS=0)
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "PROFILES": profiles}
    answers: Counter[tuple[str, bool]] = Counter()
    ended = asyncio.Event()

    async def ask() -> None:
        while not ended.is_set():
            decision = await limits.acheck("crowded", "k")
            answers[decision.source, decision.allowed] += 1
            # A check may decide without waiting, and the other tasks must run too.
            await asyncio.sleep(0)

    def by_redis() -> int:
        return answers[decisions.REDIS, True] + answers[decisions.REDIS, False]

    with server.client() as client:
        client.flushall()
        breaker = limits.get_limiter().breaker
        tasks = [asyncio.ensure_future(ask()) for _ in range(tasks_at_once)]
        for _ in range(kills):
            before = by_redis()
            while by_redis() < before + 5 * tasks_at_once:
                assert breaker.state == CLOSED
                await asyncio.sleep(0)
            await asyncio.to_thread(client.execute_command, "CLIENT", "KILL", "TYPE", "normal")
        ended.set()
        await asyncio.gather(*tasks)
    assert breaker.state == CLOSED
    assert answers[decisions.REDIS, True] <= limit
    assert answers[decisions.LOCAL, True] <= kills * tasks_at_once
    assert answers[decisions.REDIS, True] + kills * tasks_at_once >= limit


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_every_request_gets_a_response_with_decorator_and_middleware(
    failure: Failure,
    get: Callable[[str], HttpResponse],
    server: RedisServer,
    settings: SettingsWrapper,
) -> None:
    rules = [{"path": "^/ruled/", "profiles": ["many"]}]
    configure(settings, server.url, LATENCY_BUDGET=SHORT, RULES=rules, LOG=False)
    settings.ROOT_URLCONF = "tests.support.sites.outage_urls"
    settings.MIDDLEWARE = ["django_slidingwindow.middleware.RateLimitMiddleware"]

    def sources() -> set[str]:
        responses = [get("decorated"), get("ruled")]
        assert [response.status_code for response in responses] == [200, 200]
        requests = [
            getattr(response, "asgi_request", None) or response.wsgi_request
            for response in responses
        ]
        return {request.rate_limit.source for request in requests}

    wait_until(lambda: sources() == {decisions.REDIS}, "Redis decides")
    with failure(server):
        while limits.get_limiter().breaker.state == CLOSED:
            assert sources() == {decisions.LOCAL}
        assert sources() == {decisions.LOCAL}
    wait_until(lambda: sources() == {decisions.REDIS}, "Redis decides again")


@pytest.mark.parametrize("keep_data", [True, False])
def test_restart_between_two_checks_is_not_an_outage(
    keep_data: bool,
    check: Callable[[str, str], Decision],
    server: RedisServer,
    settings: SettingsWrapper,
) -> None:
    configure(settings, server.url)
    with server.client() as client:
        client.flushall()
    assert check("many", "k").remaining == LIMIT - 1
    server.restart(keep_data=keep_data)
    found = check("many", "k")
    assert found.source == decisions.REDIS
    assert found.remaining == LIMIT - (2 if keep_data else 1)


def test_process_that_starts_while_redis_is_down_recovers(
    check: Callable[[str, str], Decision], server: RedisServer, settings: SettingsWrapper
) -> None:
    configure(settings, server.url)
    with killed(server):
        assert [check("many", "k").source for _ in range(5)] == [decisions.LOCAL] * 5
    wait_until(lambda: check("many", "k").source == decisions.REDIS, "Redis decides")


@pytest.mark.parametrize(
    ("processes", "share"), [(1, 4), (2, 2), (3, 1), (100, 1)], ids="processes={}".format
)
def test_local_fallback_admits_the_share_of_this_process(
    processes: int,
    share: int,
    check: Callable[[str, str], Decision],
    server: RedisServer,
    settings: SettingsWrapper,
) -> None:
    configure(settings, server.url, FALLBACK_PROCESSES=processes)
    with killed(server):
        answers = [check("few", "k") for _ in range(6)]
    assert [answer.allowed for answer in answers] == [True] * share + [False] * (6 - share)
    refused = answers[-1]
    assert refused.reason == decisions.FALLBACK
    assert refused.limit == share
    assert refused.policy is not None
    assert refused.policy.limit == 4


def test_admissions_of_the_fallback_do_not_count_after_recovery(
    check: Callable[[str, str], Decision], server: RedisServer, settings: SettingsWrapper
) -> None:
    configure(settings, server.url)
    with server.client() as client:
        client.flushall()
    with killed(server):
        for _ in range(4):
            assert check("few", "k").allowed
        assert not check("few", "k").allowed
        assert len(limits.get_limiter().local) == 1
    wait_until(lambda: check("many", "other").source == decisions.REDIS, "Redis decides")
    assert len(limits.get_limiter().local) == 0
    assert check("few", "k").remaining == 3, "nothing is written back"


def test_fallback_allow_admits_everything(
    check: Callable[[str, str], Decision], server: RedisServer, settings: SettingsWrapper
) -> None:
    configure(settings, server.url, FALLBACK="allow")
    with killed(server):
        answers = [check("few", "k") for _ in range(10)]
    assert all(answer.allowed for answer in answers)
    assert {answer.source for answer in answers} == {decisions.ALLOW}


def test_fallback_deny_refuses_everything(
    check: Callable[[str, str], Decision], server: RedisServer, settings: SettingsWrapper
) -> None:
    configure(settings, server.url, FALLBACK="deny")
    with killed(server):
        answers = [check("few", "k") for _ in range(10)]
    assert not any(answer.allowed for answer in answers)
    assert {answer.source for answer in answers} == {decisions.DENY}
    assert all(answer.retry_after and answer.retry_after >= 0.1 for answer in answers)


def test_transition_sends_one_signal(
    check: Callable[[str, str], Decision],
    server: RedisServer,
    settings: SettingsWrapper,
    caplog: pytest.LogCaptureFixture,
) -> None:
    configure(settings, server.url)
    sent: list[tuple[str, Any]] = []

    def degraded(alias: str, error: Exception, **_: Any) -> None:
        sent.append((alias, error))

    def recovered(alias: str, seconds: float, **_: Any) -> None:
        sent.append((alias, seconds))

    signals.store_degraded.connect(degraded)
    signals.store_recovered.connect(recovered)
    try:
        with caplog.at_level(logging.WARNING, "django_slidingwindow"), killed(server):
            for _ in range(50):
                check("many", "k")
        wait_until(lambda: check("many", "k").source == decisions.REDIS, "Redis decides")
    finally:
        signals.store_degraded.disconnect(degraded)
        signals.store_recovered.disconnect(recovered)
    assert [alias for alias, _ in sent] == ["default", "default"]
    assert "ConnectionError" in str(sent[0][1])
    assert sent[1][1] > 0
    messages = [record.message for record in caplog.records]
    assert len(messages) == 2
    assert messages[0].startswith("Redis is away")
    assert messages[1].startswith("Redis is back after")


def test_key_of_another_type_is_not_logged_for_every_check(
    server: RedisServer,
    settings: SettingsWrapper,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(settings, server.url)
    monkeypatch.setattr(limiter_factory, "_failure_logged_at", float("-inf"))
    with server.client() as client:
        client.rpush(*limits._windows(limits.get_limiter(), "few", "spoiled", 1, True).keys, "x")
    with caplog.at_level(logging.ERROR, "django_slidingwindow"):
        answers = [limits.check("few", "spoiled") for _ in range(6)]
    assert {answer.source for answer in answers} == {decisions.LOCAL}
    assert [answer.allowed for answer in answers] == [True] * 4 + [False] * 2
    assert limits.check("few", "other").source == decisions.REDIS
    (record,) = caplog.records
    assert "WRONGTYPE" in record.message


def test_peek_does_not_close_the_breaker(server: RedisServer, settings: SettingsWrapper) -> None:
    """A replica serves reads, but refuses writes, so a peek does not prove a recovery."""
    configure(settings, server.url)
    limits.check("many", "k")
    with read_only(server):
        assert limits.peek("many", "k").source == decisions.REDIS
        while limits.get_limiter().breaker.state == CLOSED:
            limits.check("many", "k")
            limits.peek("many", "k")
        breaker = limits.get_limiter().breaker
        wait_until(lambda: breaker.probe_in == 0, "a probe is due")
        assert limits.peek("many", "k").source == decisions.LOCAL
        assert breaker.state == OPEN
    wait_until(lambda: limits.check("many", "k").source == decisions.REDIS, "Redis decides")


def test_refund_during_an_outage_returns_nothing(
    server: RedisServer, settings: SettingsWrapper
) -> None:
    configure(settings, server.url)
    with server.client() as client:
        client.flushall()
    charged = [limits.check("few", "k") for _ in range(2)]
    with killed(server):
        assert limits.refund(charged[0]) == 0
        for _ in range(5):
            local = limits.check("few", "k")
        assert limits.refund(local) == 0, "a refused check was not charged"
        assert limits.refund(charged[1]) == 0, "no socket is touched"
    wait_until(lambda: limits.check("many", "k").source == decisions.REDIS, "Redis decides")


def test_call_that_timed_out_is_charged_once_when_the_server_continues(
    check: Callable[[str, str], Decision], server: RedisServer, settings: SettingsWrapper
) -> None:
    configure(settings, server.url, LATENCY_BUDGET=3 * SHORT)
    with server.client() as client:
        client.flushall()
        check("many", "k")
        with frozen(server):
            assert check("many", "k").source == decisions.LOCAL
        wait_until(lambda: bool(client.ping()), "the server has answered what came before")
    left = limits.peek("many", "k").remaining
    # The first check, the call that timed out, and the cost that the peek itself includes.
    assert left == LIMIT - 3


class Work(NamedTuple):
    """The work of the current thread during an action."""

    sockets: int
    """How many calls connect a socket or send over one."""
    calls: int
    """How many functions are called, including those in C."""


def uses_socket(function: Any) -> bool:
    if isinstance(getattr(function, "__self__", None), socket.socket):
        return function.__name__ in ("connect", "connect_ex", "send", "sendall", "sendmsg")
    return function is os.write


def work_of(action: Callable[[], Any]) -> Work:
    """Return the work of an action."""
    calls = sockets = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls, sockets
        calls += event in ("call", "c_call")
        sockets += event == "c_call" and uses_socket(argument)

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return Work(sockets, calls)


class Requests:
    """A check, and requests for pages that the decorator or the middleware limits."""

    def __init__(self, runner: Callable[..., Any] | None) -> None:
        """With a `runner` of coroutines, check and request asynchronously."""
        self._runner = runner
        self._handler = BaseHandler()
        self._handler.load_middleware(is_async=runner is not None)

    def work(self) -> dict[str, Work]:
        """Return the work of each. For pages, the calls beyond those of a page without limits."""
        bare, decorated, ruled = (
            self._work(partial(self._page, name)) for name in ("bare", "decorated", "ruled")
        )
        assert bare.sockets == 0
        return {
            "check": self._work(self._check),
            "decorated": decorated._replace(calls=decorated.calls - bare.calls),
            "ruled": ruled._replace(calls=ruled.calls - bare.calls),
        }

    def _work(self, ask: Callable[[], Any]) -> Work:
        """Return the fewest calls (garbage collection adds some) and most sockets of five runs."""
        runner = self._runner
        action = ask if runner is None else lambda: runner(ask())
        found = [work_of(action) for _ in range(5)]
        return Work(max(work.sockets for work in found), min(work.calls for work in found))

    def _check(self) -> Any:
        return (limits.check if self._runner is None else limits.acheck)("many", "k")

    def _page(self, name: str) -> Any:
        if self._runner is None:
            return self._handler.get_response(RequestFactory().get(f"/{name}/sync/"))
        return self._handler.get_response_async(AsyncRequestFactory().get(f"/{name}/async/"))


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_open_breaker_keeps_every_request_off_the_network(
    failure: Failure,
    way: str,
    runner: Callable[..., Any],
    server: RedisServer,
    settings: SettingsWrapper,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor does a request make many more calls. For times, run `python -m benchmarks outage`."""
    monkeypatch.setattr("django_slidingwindow.core.breaker._FIRST_DELAY", 3600.0)  # no probe
    rules = [{"path": "^/ruled/", "profiles": ["many"]}]
    settings.ROOT_URLCONF = "tests.support.sites.outage_urls"
    settings.MIDDLEWARE = ["django_slidingwindow.middleware.RateLimitMiddleware"]
    configure(settings, server.url, LATENCY_BUDGET=SHORT, RULES=rules, LOG=False)
    with server.client() as client:
        client.flushall()
    requests = Requests(runner if way == "async" else None)
    requests.work()  # the first requests prepare what later ones use
    usual = requests.work()
    assert {work.sockets for work in usual.values()} == {1}
    with failure(server):
        while limits.get_limiter().breaker.state == CLOSED:
            limits.check("many", "k")
        behind = requests.work()
    assert {name: work.sockets for name, work in behind.items()} == dict.fromkeys(usual, 0)
    # The process decides itself: a few calls more instead of the network.
    more = {name: work.calls - usual[name].calls for name, work in behind.items()}
    assert max(more.values()) <= 16, more


def test_recovery_is_quick_after_a_long_outage(
    check: Callable[[str, str], Decision], server: RedisServer, settings: SettingsWrapper
) -> None:
    """The schedule of probes (test_breaker) allows 0.9 s; the rest is for a busy machine."""
    configure(settings, server.url)
    with killed(server):
        ends = time.monotonic() + 2
        while time.monotonic() < ends:
            assert check("many", "k").source == decisions.LOCAL
            time.sleep(0.01)
    returned = time.monotonic()
    wait_until(lambda: check("many", "k").source == decisions.REDIS, "Redis decides")
    assert time.monotonic() - returned < 3


def test_flood_of_identifiers_during_an_outage_uses_bounded_memory(
    server: RedisServer, settings: SettingsWrapper
) -> None:
    configure(settings, server.url, FALLBACK_MAX_KEYS=500)
    with killed(server):
        for number in range(3_000):
            assert limits.check("few", f"flood{number}").source == decisions.LOCAL
        assert len(limits.get_limiter().local) == 500


def functions_of(ask: Callable[[], object]) -> list[str]:
    """Return the functions of this app that a call runs, in order."""
    visited = []

    def note(frame: Any, event: str, argument: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("django_slidingwindow."):
            visited.append(f"{module}.{frame.f_code.co_name}")

    sys.setprofile(note)
    try:
        ask()
    finally:
        sys.setprofile(None)
    return visited


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_first_and_third_failure_of_an_outage_run_the_same_code(
    kind: str, server: RedisServer, settings: SettingsWrapper, runner: Callable[..., Any]
) -> None:
    configure(settings, server.url)
    assert limits.check("many", "k").source == decisions.REDIS

    def failing() -> None:
        if kind == "sync":
            decision = limits.check("many", "k")
        else:
            decision = runner(limits.acheck("many", "k"))
        assert decision.source == decisions.LOCAL

    with killed(server):
        # Close idle connections, and prepare the local windows.
        limits.get_limiter().store.close()
        failing()
        limits.get_limiter().breaker.of("").succeeded()
        limits.get_limiter().breaker.is_healthy = True
        first, second, third = (functions_of(failing) for _ in range(3))
    # The third failure opens the breaker, which logs and closes idle connections. Some checks
    # sweep the local windows.
    others = ("._schedule", "._degraded", "signals.send", "._tidy", "._sweep", ".expired", ".close")
    first, second, third = (
        [name for name in visited if not name.endswith(others)]
        for visited in (first, second, third)
    )
    assert first == second
    assert first == third
    assert len(first) > 10
