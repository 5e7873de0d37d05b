"""Admitted requests of profiles with `"log": "all"` are counted in the usage log."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from django.db import connection
from django.http import HttpResponse
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import ResolverMatch
from django.utils.timezone import localtime

from django_slidingwindow import apps, limits, signals
from django_slidingwindow.conf import conf
from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.guard import override_snapshot
from django_slidingwindow.guard.override import Override
from django_slidingwindow.models import Rejection, Usage
from django_slidingwindow.policies import Policy, Profile
from django_slidingwindow.rejections import recorder, upsert
from django_slidingwindow.rejections.buffer import LogBuffer
from django_slidingwindow.rejections.usage_rows import UsageGroup, UsageTally
from django_slidingwindow.rejections.writer import LogWriter
from django_slidingwindow.testing import limits_in_memory
from tests.support.databases import on_every_database

MINUTE = datetime(2026, 11, 16, 12, 34, tzinfo=timezone.utc)


def free(identifier: str, request: Any) -> str:
    return "free"


PROFILES: dict[str, dict[str, Any]] = {
    "audited": {"axis": "ip", "rates": ["3/m", "100/h"], "log": "all"},
    "plain": {"axis": "ip", "rate": "100/m"},
    "keys": {"axis": "header:X-Key", "tiers": {"free": None}, "tier": free, "log": "all"},
    "watched": {"axis": "ip", "rate": "1/m", "mode": "observe", "log": "all"},
    "quota": {"axis": "global", "rate": "2/m", "log": "all"},
    "slots": {"axis": "global", "inflight": 2, "log": "all"},
    "shared": {"axis": "ip", "rate": "9/m", "scope": "audited", "log": "all"},
}


@contextmanager
def logged_limits(**forced: Any) -> Iterator[None]:
    """Count limits in memory, and log them."""
    with limits_in_memory(), conf.forced(log=True), conf.forced(**forced):
        yield


@pytest.fixture(autouse=True)
def _limits(settings: Any, db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    settings.SLIDING_WINDOW = {"PROFILES": PROFILES}
    # Async code has its own connection, where no test is open: the thread would write the rows.
    monkeypatch.setattr(recorder._recorder._background, "start", lambda: None)
    with logged_limits():
        yield
    override_snapshot.publish(None)
    recorder.flush()


def request(**headers: str) -> Any:
    made = RequestFactory().get("/orders/", headers=headers)
    made.resolver_match = ResolverMatch(view, (), {}, route="orders/")
    return made


def view(request: Any) -> HttpResponse:
    return HttpResponse(b"ok")


def usage() -> list[tuple[str, str, str, int, int]]:
    """Return profile, identifier, view, hits and cost of each row, of all minutes together."""
    assert recorder.flush()
    found: dict[tuple[str, str, str], list[int]] = {}
    for row in Usage.objects.all():
        counts = found.setdefault((row.profile, row.identifier, row.view), [0, 0])
        counts[0] += row.hits
        counts[1] += row.cost
    return [(*key, hits, cost) for key, (hits, cost) in sorted(found.items())]


def test_admitted_requests_are_counted_by_identifier_and_view() -> None:
    limited = rate_limit("audited", "plain")(view)
    with CaptureQueriesContext(connection) as queries:
        codes = [limited(request()).status_code for _ in range(5)]
    assert codes == [200] * 3 + [429] * 2
    assert len(queries) == 0
    assert usage() == [("audited", "127.0.0.1", "orders/", 3, 3)]
    (refused,) = Rejection.objects.values_list("profile", "identifier", "hits")
    assert refused == ("audited", "127.0.0.1", 2)


def test_async_requests_are_counted() -> None:
    async def aview(request: Any) -> HttpResponse:
        return HttpResponse(b"ok")

    asyncio.run(rate_limit("audited", cost=2)(aview)(request()))
    assert usage() == [("audited", "127.0.0.1", "orders/", 1, 2)]


def test_huge_cost_is_counted_as_a_smaller_one() -> None:
    for cost in (10**400, 2**63, 1):
        assert rate_limit("watched", cost=cost)(view)(request()).status_code == 200
    assert usage() == [("watched", "127.0.0.1", "orders/", 3, 2 * 10**12 + 1)]


def test_profile_counts_nothing_when_it_does_not_log_all() -> None:
    rate_limit("plain")(view)(request())
    limits.check("plain", "192.0.2.1")
    assert usage() == []


def test_request_counts_once_when_several_decorators_charge_it() -> None:
    rate_limit("audited", cost=2)(rate_limit("audited")(view))(request())
    assert usage() == [("audited", "127.0.0.1", "orders/", 1, 2)]
    asked = request()
    rate_limit("audited")(view)(asked)
    rate_limit("audited", "watched", cost=1)(view)(asked)
    assert ("watched", "127.0.0.1", "orders/", 1, 1) in usage()


def test_later_check_of_a_request_only_adds_its_cost() -> None:
    from functools import wraps

    def other(inner: Any) -> Any:
        @wraps(inner)
        def wrapper(request: Any) -> Any:
            return inner(request)

        return wrapper

    # The decorator between the limits prevents that they are joined in one check.
    rate_limit("audited")(other(rate_limit("audited", cost=3)(view)))(request())
    assert usage() == [("audited", "127.0.0.1", "orders/", 1, 3)]


def test_profiles_that_share_a_window_are_counted_separately() -> None:
    rate_limit("audited", "shared")(view)(request())
    assert [row[0] for row in usage()] == ["audited", "shared"]


def test_observed_request_is_admitted_and_refused() -> None:
    for _ in range(3):
        rate_limit("watched")(view)(request())
    assert usage() == [("watched", "127.0.0.1", "orders/", 3, 3)]
    assert list(Rejection.objects.values_list("reason", "hits")) == [("observe", 2)]


def test_identifier_without_a_limit_is_counted_under_its_hash() -> None:
    rate_limit("keys")(view)(request(X_Key="s3cret"))
    limits.check("keys", "s3cret")
    found = usage()
    assert [(row[0], row[2], row[3]) for row in found] == [("keys", "", 1), ("keys", "orders/", 1)]
    (identifier,) = {row[1] for row in found}
    assert "s3cret" not in identifier


@on_every_database
@pytest.mark.usefixtures("log_database")
def test_windows_chosen_for_each_request_share_a_row(settings: Any) -> None:
    rates = iter(["9/m", "9/h", None] * 2)
    profile = {"axis": "ip", "rate": lambda identifier, request: next(rates), "log": "all"}
    settings.SLIDING_WINDOW = {"PROFILES": {"planned": profile}}
    with logged_limits():
        for _ in range(6):
            limits.check("planned", "192.0.2.1")
    assert usage() == [("planned", "192.0.2.1", "", 6, 6)]
    # In each minute.
    assert Usage.objects.count() <= 2


@pytest.mark.parametrize("action", ["exempt", "block"])
def test_exempt_requests_are_counted_and_blocked_ones_refused(action: str) -> None:
    overrides = override_snapshot.ProfileOverrides()
    overrides.everybody = (Override(action),)
    override_snapshot.publish(override_snapshot.Snapshot({"audited": overrides}))
    rate_limit("audited")(view)(request())
    limits.check("audited", "127.0.0.1")
    rows = usage()
    refused = sum(Rejection.objects.values_list("hits", flat=True))
    if action == "exempt":
        assert [row[1:] for row in rows] == [
            ("127.0.0.1", "", 1, 1),
            ("127.0.0.1", "orders/", 1, 1),
        ]
        assert refused == 0
    else:
        assert rows == []
        assert refused == 2


def test_calls_of_limits_are_counted_without_a_view() -> None:
    async def acalls() -> None:
        await limits.acheck("quota", "all")
        await limits.aacquire("quota", "all", timeout=0)

    sent: list[Any] = []
    signals.request_limited.connect(lambda **arguments: sent.append(arguments), weak=False)
    try:
        limits.check("quota", "all")
        limits.acquire("quota", "all", timeout=0)
        asyncio.run(acalls())
    finally:
        signals.request_limited.receivers.clear()
        signals.request_limited.sender_receivers_cache.clear()
    assert usage() == [("quota", "all", "", 2, 2)]
    assert list(Rejection.objects.values_list("identifier", "view", "hits")) == [("all", "", 2)]
    # `request_limited` is not sent, because there is no request.
    assert sent == []


def test_held_slots_are_counted() -> None:
    async def aholds() -> None:
        async with limits.ahold("slots", "acme", cost=2):
            pass

    with limits.hold("slots", "acme"):
        asyncio.run(aholds())
    assert usage() == [("slots", "acme", "", 1, 1)]
    assert list(Rejection.objects.values_list("identifier", "view", "hits")) == [("acme", "", 1)]


def test_observed_calls_of_limits_are_logged() -> None:
    for _ in range(2):
        limits.check("watched", "192.0.2.7")
    assert usage() == [("watched", "192.0.2.7", "", 2, 2)]
    assert Rejection.objects.get().reason == "observe"


def test_row_of_a_call_of_limits_has_no_client(settings: Any) -> None:
    settings.SLIDING_WINDOW = {"PROFILES": PROFILES, "LOG_CLIENT": True}
    with logged_limits():
        for _ in range(3):
            limits.check("quota", "all")
    usage()
    assert Rejection.objects.get().client == ""


@pytest.mark.parametrize("change", [{"log": False}, {"enabled": False}])
def test_nothing_is_counted_when_the_log_or_limits_are_off(change: Any) -> None:
    with logged_limits(**change):
        rate_limit("audited")(view)(request())
        limits.check("audited", "192.0.2.1")
    assert usage() == []


def test_failure_of_the_log_does_not_fail_a_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(signals, "usage_log", fail)
    assert rate_limit("audited")(view)(request()).status_code == 200
    assert "could not be counted for the usage log" in caplog.text
    monkeypatch.setattr(signals, "usage_log", None)
    assert rate_limit("audited")(view)(request()).status_code == 200


def test_first_admission_loads_the_recorder(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[Any] = []
    monkeypatch.setattr(recorder, "count", lambda *arguments: counted.append(arguments))
    monkeypatch.setattr(signals, "usage_log", apps._start_usage)
    for _ in range(2):
        rate_limit("audited")(view)(request())
    assert len(counted) == 2
    assert signals.usage_log is recorder.count


def test_identifiers_are_stored_as_in_the_rejection_log(settings: Any) -> None:
    hostile = "<script>\u202e\x1b[31m" + "x" * 300
    for mode in ("plain", "hash"):
        settings.SLIDING_WINDOW = {"PROFILES": PROFILES, "LOG_IDENTIFIERS": mode}
        with logged_limits():
            for _ in range(3):
                limits.check("quota", hostile)
        assert recorder.flush()
        (admitted,) = Usage.objects.values_list("identifier", flat=True)
        (refused,) = Rejection.objects.values_list("identifier", flat=True)
        assert admitted == refused
        assert admitted.isprintable()
        Usage.objects.all().delete()
        Rejection.objects.all().delete()


def test_requests_beyond_the_bound_share_a_row(settings: Any) -> None:
    settings.SLIDING_WINDOW = {"LOG_ROWS_PER_MINUTE": 2}
    buffer = LogBuffer(100)
    for number in range(5):
        stem = f"throttle:ip:{{192.0.2.{number}}}:audited"
        buffer.add(UsageGroup(1, "audited", stem, "orders/"), UsageTally(1, 3))
    rows = [group.row(tally) for group, tally in buffer.take().items()]
    assert [(row.identifier, row.others, row.view, row.hits, row.cost) for row in rows] == [
        ("192.0.2.0", False, "orders/", 1, 3),
        ("192.0.2.1", False, "orders/", 1, 3),
        ("", True, "", 3, 9),
    ]
    assert len({row.digest for row in rows}) == 3


@on_every_database
def test_rows_differ_when_a_profile_changes_its_scope(log_database: str) -> None:
    writer = LogWriter(Usage, LogBuffer(100))
    for scope in ("one", "two"):
        group = UsageGroup(1, "audited", f"throttle:ip:{{192.0.2.1}}:{scope}", "orders/")
        writer.buffer.add(group, UsageTally(1, 1))
    assert writer.write()
    assert Usage.objects.using(log_database).count() == 2


def test_usage_cannot_displace_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    own = recorder.Recorder(max_rows=2, interval=60)
    admitted = limits.get_limiter().template(
        Profile(name="p", axis="ip", policies=(Policy(limit=9, window=60),), log="all"),
        (Policy(limit=9, window=60),),
        1,
    )
    for number in range(5):
        identifier = f"192.0.2.{number}"
        own.count(None, admitted.windows(identifier), {"p": (identifier, 1)})
    stats = own.stats()
    assert (stats.recorded, stats.dropped, stats.waiting) == (5, 3, 2)
    decision = limits.check("quota", "all", cost=3)
    own.record(request(), decision)
    assert own.stats().waiting == 3
    assert own.flush()
    assert (Usage.objects.count(), Rejection.objects.count()) == (2, 1)
    own.stop()


def row(number: int = 1, **values: Any) -> Usage:
    fields: dict[str, Any] = {
        "minute": MINUTE,
        "digest": uuid.UUID(int=number),
        "profile": "audited",
        "identifier": "acme",
        "view": "orders/",
        "hits": 2,
        "cost": 5,
    }
    return Usage(**{**fields, **values})


@on_every_database
@pytest.mark.parametrize("way", ["one statement", "row by row"])
def test_write_adds_hits_and_cost(
    log_database: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "row by row":
        monkeypatch.setattr(upsert, "CLAUSES", {})
    upsert.write([row(1), row(2)], log_database)
    upsert.write([row(1, hits=0, cost=1), row(3, hits=2**40)], log_database)
    upsert.write([row(1, minute=MINUTE + timedelta(minutes=1))], log_database)
    found = {(r.minute.minute, r.digest.int): (r.hits, r.cost) for r in Usage.objects.all()}
    assert found == {(34, 1): (2, 6), (34, 2): (2, 5), (34, 3): (2**40, 5), (35, 1): (2, 5)}


def test_row_has_a_readable_name() -> None:
    assert str(row()) == f"audited acme {localtime(MINUTE):%Y-%m-%d %H:%M}: 2"
