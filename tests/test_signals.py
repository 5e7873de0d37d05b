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
    """Give Redis a long time, so that it decides even on a slow machine."""
    settings.SLIDING_WINDOW = {"LATENCY_BUDGET": 60}


class Receiver:
    """A receiver that remembers the arguments of each call."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []

    def __call__(self, **arguments: Any) -> None:
        self.calls.append(arguments)

    __qualname__ = "Receiver"


@pytest.fixture
def connect() -> Iterator[Callable[[Signal, Any], None]]:
    connected: list[tuple[Signal, Any]] = []

    def connect(signal: Signal, receiver: Any) -> None:
        signal.connect(receiver, weak=False)
        connected.append((signal, receiver))

    yield connect
    for signal, receiver in connected:
        signal.disconnect(receiver)


def test_send_calls_receivers(connect: Any) -> None:
    receiver = Receiver()
    connect(signals.store_degraded, receiver)
    signals.send(signals.store_degraded, Limiter, alias="default", error=None)
    [call] = receiver.calls
    assert call == {
        "signal": signals.store_degraded,
        "sender": Limiter,
        "alias": "default",
        "error": None,
    }


def test_send_does_nothing_when_a_signal_has_no_receivers(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("sent without receivers")

    monkeypatch.setattr(signals.limit_checked, "send_robust", fail)
    signals.send(signals.limit_checked, Limiter, decision=None, seconds=None)
    assert not signals.limit_checked.has_listeners(Limiter)


def test_send_logs_an_error_and_calls_the_other_receivers(
    connect: Any, redis: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(**_: Any) -> None:
        raise LookupError("not here")

    receiver = Receiver()
    connect(signals.limit_checked, fails)
    connect(signals.limit_checked, receiver)
    decision = limits.check("ip_public", "203.0.113.1")
    assert decision.allowed
    assert [call["decision"] for call in receiver.calls] == [decision]
    assert "not here" in caplog.text


async def test_send_logs_a_coroutine_receiver_when_a_loop_runs(
    connect: Any, redis: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def on_signal(**_: Any) -> None: ...

    receiver = Receiver()
    connect(signals.limit_checked, on_signal)
    connect(signals.limit_checked, receiver)
    decision = await limits.acheck("ip_public", "203.0.113.1")
    assert decision.allowed
    assert len(receiver.calls) == 1
    assert "asynchronous receiver" in caplog.text


def test_send_calls_a_coroutine_receiver_when_no_loop_runs(connect: Any) -> None:
    aliases: list[str] = []

    async def on_signal(alias: str, **_: Any) -> None:
        aliases.append(alias)

    connect(signals.store_recovered, on_signal)
    signals.send(signals.store_recovered, Limiter, alias="default", seconds=1.0)
    assert aliases == ["default"]


async def test_limit_near_is_sent_once_for_each_identifier(
    connect: Any, redis: Any, settings: Any
) -> None:
    profiles = {"api": {"axis": "tenant", "rate": "10/h"}}
    settings.SLIDING_WINDOW = {"LATENCY_BUDGET": 60, "PROFILES": profiles}
    receiver = Receiver()
    connect(signals.limit_near, receiver)
    sync, a_sync = "a {strange} tenant+", "globex"
    for _ in range(12):
        await sync_to_async(limits.check)("api", sync)
        await limits.acheck("api", a_sync)
    assert [call["identifier"] for call in receiver.calls] == [sync, a_sync]
    verdict = receiver.calls[0]["verdict"]
    assert (verdict.profile, verdict.limit, verdict.remaining) == ("api", 10, 2)
    assert receiver.calls[0]["sender"] is Limiter


@pytest.mark.parametrize("share", [None, 0])
def test_limit_near_is_not_sent_when_it_is_turned_off(
    connect: Any, redis: Any, settings: Any, share: Any
) -> None:
    profiles = {"api": {"axis": "tenant", "rate": "10/h"}}
    settings.SLIDING_WINDOW = {"PROFILES": profiles, "NEAR_SHARE": share}
    receiver = Receiver()
    connect(signals.limit_near, receiver)
    for _ in range(12):
        limits.check("api", "acme")
    assert receiver.calls == []


@pytest.mark.parametrize("fails", [False, True])
def test_report_refusal_reaches_the_log_and_the_receivers(
    connect: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any, fails: bool
) -> None:
    written: list[tuple[Any, Any]] = []

    def log(request: Any, decision: Any) -> None:
        written.append((request, decision))
        if fails:
            raise ValueError("no room")

    receiver, request, decision = Receiver(), object(), object()
    connect(signals.request_limited, receiver)
    monkeypatch.setattr(signals, "refusal_log", log)
    signals.report_refusal(request, decision)  # type: ignore[arg-type]
    assert written == [(request, decision)]
    [call] = receiver.calls
    assert (call["sender"], call["request"], call["decision"]) == (object, request, decision)
    assert [record.exc_info is not None for record in caplog.records] == [True] * fails


def test_report_refusal_only_sends_the_signal_when_the_app_is_not_installed(
    connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = Receiver()
    connect(signals.request_limited, receiver)
    monkeypatch.setattr(signals, "refusal_log", None)
    signals.report_refusal(object(), None)  # type: ignore[arg-type]
    assert len(receiver.calls) == 1
