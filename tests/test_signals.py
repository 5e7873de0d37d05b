from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.dispatch import Signal

from django_slidingwindow import limits, signals
from django_slidingwindow.core.limiter import Limiter


@pytest.fixture(autouse=True)
def _patience(settings: Any) -> None:
    """However slow the machine is, Redis decides."""
    settings.SLIDING_WINDOW = {"LATENCY_BUDGET": 60}


class Ear:
    """Hears a signal, and remembers what it said."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []

    def __call__(self, **arguments: Any) -> None:
        self.heard.append(arguments)

    __qualname__ = "Ear"


@pytest.fixture
def connect() -> Iterator[Callable[[Signal, Any], None]]:
    connected: list[tuple[Signal, Any]] = []

    def connect(signal: Signal, receiver: Any) -> None:
        signal.connect(receiver, weak=False)
        connected.append((signal, receiver))

    yield connect
    for signal, receiver in connected:
        signal.disconnect(receiver)


def test_receivers_are_called(connect: Any) -> None:
    ear = Ear()
    connect(signals.store_degraded, ear)
    signals.send(signals.store_degraded, Limiter, alias="default", error=None)
    [heard] = ear.heard
    assert heard == {
        "signal": signals.store_degraded,
        "sender": Limiter,
        "alias": "default",
        "error": None,
    }


def test_nothing_is_sent_when_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    def unheard(*_: Any, **__: Any) -> None:
        raise AssertionError("sent, though nobody listens")

    monkeypatch.setattr(signals.limit_checked, "send_robust", unheard)
    signals.send(signals.limit_checked, Limiter, decision=None, seconds=None)
    assert not signals.limit_checked.has_listeners(Limiter)


def test_a_receiver_that_fails_is_logged_and_the_others_are_called(
    connect: Any, redis: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(**_: Any) -> None:
        raise LookupError("not here")

    ear = Ear()
    connect(signals.limit_checked, fails)
    connect(signals.limit_checked, ear)
    decision = limits.check("ip_public", "203.0.113.1")
    assert decision.allowed
    assert [heard["decision"] for heard in ear.heard] == [decision]
    assert "not here" in caplog.text


async def test_a_coroutine_function_that_listens_cannot_fail_a_check(
    connect: Any, redis: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def listens(**_: Any) -> None: ...

    ear = Ear()
    connect(signals.limit_checked, listens)
    connect(signals.limit_checked, ear)
    decision = await limits.acheck("ip_public", "203.0.113.1")
    assert decision.allowed
    assert len(ear.heard) == 1
    assert "asynchronous receiver" in caplog.text


def test_a_coroutine_receiver_is_called_where_no_loop_runs(connect: Any) -> None:
    heard: list[str] = []

    async def listens(alias: str, **_: Any) -> None:
        heard.append(alias)

    connect(signals.store_recovered, listens)
    signals.send(signals.store_recovered, Limiter, alias="default", seconds=1.0)
    assert heard == ["default"]


async def test_a_charge_that_comes_near_a_limit_is_heard_once(
    connect: Any, redis: Any, settings: Any
) -> None:
    profiles = {"api": {"axis": "tenant", "rate": "10/h"}}
    settings.SLIDING_WINDOW = {"LATENCY_BUDGET": 60, "PROFILES": profiles}
    ear = Ear()
    connect(signals.limit_near, ear)
    sync, a_sync = "a {strange} tenant+", "globex"
    for _ in range(12):
        await sync_to_async(limits.check)("api", sync)
        await limits.acheck("api", a_sync)
    assert [heard["identifier"] for heard in ear.heard] == [sync, a_sync]
    verdict = ear.heard[0]["verdict"]
    assert (verdict.profile, verdict.limit, verdict.remaining) == ("api", 10, 2)
    assert ear.heard[0]["sender"] is Limiter


@pytest.mark.parametrize("share", [None, 0])
def test_nothing_is_near_a_limit_if_that_is_turned_off(
    connect: Any, redis: Any, settings: Any, share: Any
) -> None:
    profiles = {"api": {"axis": "tenant", "rate": "10/h"}}
    settings.SLIDING_WINDOW = {"PROFILES": profiles, "NEAR_SHARE": share}
    ear = Ear()
    connect(signals.limit_near, ear)
    for _ in range(12):
        limits.check("api", "acme")
    assert ear.heard == []


@pytest.mark.parametrize("fails", [False, True])
def test_a_refusal_reaches_the_log_and_the_receivers(
    connect: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any, fails: bool
) -> None:
    written: list[tuple[Any, Any]] = []

    def log(request: Any, decision: Any) -> None:
        written.append((request, decision))
        if fails:
            raise ValueError("no room")

    ear, request, decision = Ear(), object(), object()
    connect(signals.request_limited, ear)
    monkeypatch.setattr(signals, "refusal_log", log)
    signals.report_refusal(request, decision)  # type: ignore[arg-type]
    assert written == [(request, decision)]
    [heard] = ear.heard
    assert (heard["sender"], heard["request"], heard["decision"]) == (object, request, decision)
    assert [record.exc_info is not None for record in caplog.records] == [True] * fails


def test_without_the_app_a_refusal_only_sends_the_signal(
    connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ear = Ear()
    connect(signals.request_limited, ear)
    monkeypatch.setattr(signals, "refusal_log", None)
    signals.report_refusal(object(), None)  # type: ignore[arg-type]
    assert len(ear.heard) == 1
