"""Usage from the logs: percentiles in windows, the busiest, and one identifier over time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from datetime import timezone as datetime_timezone
from typing import Any

import pytest
from django.db import connections
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from django_slidingwindow.core.keys import escape, unescape
from django_slidingwindow.guard import override_snapshot
from django_slidingwindow.guard.identity import canonical, keyed_hash
from django_slidingwindow.guard.override import Override
from django_slidingwindow.inspection import spans, usage
from django_slidingwindow.inspection.spans import Span, last, minute_number
from django_slidingwindow.inspection.what_if import what_if
from django_slidingwindow.models import Usage
from django_slidingwindow.policies import Policy, Profile
from django_slidingwindow.registry import read_profile
from tests.support.databases import on_every_database
from tests.support.rejection_factories import row
from tests.support.usage_factories import usage_row

pytestmark = pytest.mark.django_db

PROFILE = Profile(
    name="api",
    axis="tenant",
    policies=(Policy(limit=10, window=60), Policy(limit=3, window=7), Policy(limit=99, window=150)),
    log="all",
)
DAY = timedelta(days=1)


def minute(back: int) -> Any:
    return timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=back)


def test_read_joins_both_logs_by_identifier_and_minute() -> None:
    usage_row(minute=minute(3), hits=4, cost=9).save()
    usage_row(minute=minute(3), hits=1, view="other/").save()
    usage_row(minute=minute(2), identifier="globex").save()
    usage_row(minute=minute(3), profile="other").save()
    usage_row(minute=minute(5_000)).save()
    row(profile="api", identifier="acme", minute=minute(3), hits=2).save()
    row(profile="api", identifier="acme", minute=minute(3), hits=2, reason="observe").save()
    row(profile="api", identifier="", minute=minute(3), hits=7, reason="overflow").save()
    usage_row(minute=minute(1), identifier="", others=True, hits=5).save()
    found = usage.read(PROFILE, last(DAY))
    at = minute_number(minute(0))
    assert found.by_identifier == {
        "acme": {at - 3: usage.Count(5, 10, 2)},
        "globex": {at - 2: usage.Count(1, 1, 0)},
    }
    assert found.others == usage.Count(5, 5, 7)
    assert found.total == usage.Count(11, 16, 9)
    assert [who for who, _ in usage.busiest(found)] == ["acme", "globex"]


def test_read_of_an_identifier_finds_all_its_spellings() -> None:
    by_header = Profile(name="api", axis="header:X-Key", policies=PROFILE.policies, log="all")
    usage_row(identifier=canonical("header:X-Key", "s3cret")).save()
    usage_row(identifier="other").save()
    usage_row(identifier="", others=True).save()
    assert usage.read(by_header, last(DAY), "s3cret").total.admitted == 1
    assert usage.read(by_header, last(DAY), "other").total.admitted == 1
    assert usage.read(by_header, last(DAY), "").total.admitted == 0


def test_read_counts_only_the_newest_rows_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for back in range(8):
        usage_row(minute=minute(back)).save()
        row(profile="api", identifier="acme", minute=minute(2 * back)).save()
    monkeypatch.setattr(spans, "MOST_ROWS", 6)
    found = usage.read(PROFILE, last(DAY))
    assert found.span.start == minute(5)
    # Refusals of earlier minutes would fit, but both logs are counted from the same minute on.
    assert found.total == usage.Count(6, 6, 3)


def test_percentiles_equal_brute_force() -> None:
    rng = random.Random(5)
    samples: dict[int, Counter[tuple[int, int]]] = {1: Counter(), 3: Counter()}
    for _ in range(300):
        who, back, hits = rng.randrange(9), rng.randrange(200), rng.randrange(1, 30)
        usage_row(identifier=f"t{who}", minute=minute(back), hits=hits).save()
        for length, found in samples.items():
            found[who, minute_number(minute(back)) // length] += hits
    windows = usage.window_uses(PROFILE, usage.read(PROFILE, last(DAY)))
    assert [(use.limit, use.window, use.minutes) for use in windows] == [
        (10, 60, 1),
        (3, 7, 1),
        (99, 150, 3),
    ]
    assert [use.limit_in_minutes for use in windows] == [10, 25, 118]
    for use in windows:
        ordered = sorted(samples[use.minutes].values())
        assert use.samples == len(ordered)
        assert use.most == ordered[-1]
        for share, value in use.percentiles.items():
            assert sum(one <= value for one in ordered) / len(ordered) >= share / 100
            assert sum(one < value for one in ordered) / len(ordered) < share / 100


def test_percentiles_are_empty_when_there_are_no_requests() -> None:
    (use, *_) = usage.window_uses(PROFILE, usage.read(PROFILE, last(DAY)))
    assert (use.samples, use.percentiles, use.most) == (0, {}, 0)


@pytest.mark.parametrize("window", [30, 60, 150, 900])
def test_fullest_equals_brute_force(window: float) -> None:
    rng = random.Random(7)
    minutes = {rng.randrange(100): usage.Count(1, rng.randrange(9), 3) for _ in range(40)}
    length = usage.whole_minutes(window)
    expected = [
        sum(count.cost for at, count in minutes.items() if minute - length < at <= minute)
        for minute in range(20, 90)
    ]
    assert usage.fullest(minutes, window, range(20, 90)) == expected


def test_trail_lists_each_minute_and_view() -> None:
    usage_row(minute=minute(3), hits=2, cost=6).save()
    usage_row(minute=minute(2), view="b/").save()
    usage_row(minute=minute(2), view="a/").save()
    row(profile="api", identifier="acme", minute=minute(2), hits=9, view="a/").save()
    row(profile="api", identifier="other", minute=minute(2)).save()
    records, shown = usage.trail(PROFILE, last(DAY), "acme")
    assert shown == last(DAY)
    facts = ("view", "admitted", "cost", "refused")
    assert [tuple(one[name] for name in facts) for one in records] == [
        ("api/orders/", 2, 6, 0),
        ("a/", 1, 1, 9),
        ("b/", 1, 1, 0),
    ]
    assert {(one["profile"], one["identifier"]) for one in records} == {("api", "acme")}
    assert records[0]["minute"] == minute(3).isoformat(timespec="minutes")


def by_function(identifier: str, request: Any) -> list[str] | None:
    return None if identifier == "free" else ["5/m", "100/h"]


def tier(identifier: str, request: Any) -> str:
    return "paid" if identifier == "acme" else "free"


def test_limits_of_leaves_out_requests_in_flight() -> None:
    busy = read_profile("busy", {"axis": "ip", "rate": "9/m", "inflight": 5})
    assert usage.limits_of(busy) == [(9, 60)]
    assert usage.limits_of(busy, "acme") == [(9, 60)]


def test_limits_of_returns_the_limits_of_a_profile_or_an_identifier() -> None:
    assert usage.limits_of(PROFILE) == [(10, 60), (3, 7), (99, 150)]
    dynamic = Profile(name="api", axis="tenant", limit_for=by_function)
    assert usage.limits_of(dynamic) == [(None, 60.0)]
    assert usage.limits_of(dynamic, "acme") == [(5, 60), (100, 3600)]
    assert usage.limits_of(dynamic, "free") == []
    tiers = {"paid": ["20/s", "1000/d"], "free": None}
    profile = read_profile("api", {"axis": "tenant", "tiers": tiers, "tier": tier})
    assert usage.limits_of(profile) == [(None, 1.0), (None, 86400.0)]
    assert usage.limits_of(profile, "acme") == [(20, 1.0), (1000, 86400.0)]
    nothing = read_profile("api", {"axis": "tenant", "tiers": {"free": None}, "tier": tier})
    assert usage.limits_of(nothing) == [(None, 60.0)]
    with override_settings(SLIDING_WINDOW={"LOG_IDENTIFIERS": "hash"}):
        assert usage.limits_of(dynamic, "acme") == [(5, 60), (100, 3600)]
        # The limit function needs the identifier, and the log has only its hash.
        assert usage.limits_of(dynamic, keyed_hash("acme")) == [(None, 60.0)]


ONE_RATE = Profile(name="api", axis="tenant", policies=(Policy(limit=10, window=60),))


@contextmanager
def overridden(
    action: str = "limit", *, identifiers: Iterable[str] = (), everybody: bool = False
) -> Iterator[None]:
    """Publish overrides of the profile `api`: 7 a minute, or another action."""
    override = Override(action, ((7, 60.0),))
    overrides = override_snapshot.ProfileOverrides()
    overrides.update(dict.fromkeys(identifiers, (override,)))
    overrides.everybody = (override,) if everybody else ()
    override_snapshot.publish(override_snapshot.Snapshot({"api": overrides}))
    try:
        yield
    finally:
        override_snapshot.publish(None)


@pytest.mark.parametrize("log_identifiers", ["plain", "hash"])
@pytest.mark.parametrize(("action", "expected"), [("limit", [(7, 60)]), ("exempt", [])])
def test_limits_of_applies_the_override_of_a_profile(
    action: str, expected: Any, log_identifiers: str
) -> None:
    settings = {"LOG_IDENTIFIERS": log_identifiers}
    with override_settings(SLIDING_WINDOW=settings), overridden(action, everybody=True):
        assert usage.limits_of(ONE_RATE, "acme") == expected
        assert usage.limits_of(ONE_RATE, keyed_hash("acme")) == expected


@pytest.mark.parametrize(
    ("axis", "texts"),
    [
        ("tenant", ["acme"]),
        ("ip", ["2001:db8::/64", "2001:db8::7", "2001:DB8:0::9"]),
        ("header:X-Key", ["s3cret", keyed_hash("s3cret")]),
        ("session", ["s3cret", keyed_hash("s3cret")]),
    ],
)
def test_limits_of_finds_an_identifier_in_all_its_spellings(axis: str, texts: list[str]) -> None:
    counted = canonical(axis, texts[0])
    profile = replace(ONE_RATE, axis=axis)
    dynamic = Profile(
        name="api", axis=axis, limit_for=lambda who, request: "8/m" if who == counted else "9/m"
    )
    for text in texts:
        assert usage.limits_of(dynamic, text) == [(8, 60)]
        with overridden(identifiers=[counted]):
            assert usage.limits_of(profile, text) == [(7, 60)]
    assert usage.limits_of(dynamic, "other") == [(9, 60)]


@override_settings(SLIDING_WINDOW={"LOG_IDENTIFIERS": "hash"})
def test_limits_of_finds_the_override_of_a_hash() -> None:
    dynamic = Profile(name="api", axis="tenant", limit_for=by_function)
    long = "tenant-" * 40
    shown = unescape(escape(long))
    with overridden(identifiers=["acme", shown]):
        for text in ("acme", keyed_hash("acme"), keyed_hash(shown)):
            assert usage.limits_of(ONE_RATE, text) == [(7, 60)]
        assert usage.limits_of(ONE_RATE, keyed_hash("other")) == [(10, 60)]
        # The override says which identifier the hash stands for.
        assert usage.limits_of(dynamic, keyed_hash("acme")) == [(7, 60), (100, 3600)]
        assert usage.limits_of(dynamic, keyed_hash("other")) == [(None, 60)]


@override_settings(USE_TZ=False, TIME_ZONE="Asia/Tokyo")
def test_minute_number_takes_naive_times_in_the_default_zone() -> None:
    noon = datetime(2026, 11, 16, 12, tzinfo=datetime_timezone.utc)
    with timezone.override("Europe/Berlin"):
        assert minute_number(datetime(2026, 11, 16, 21)) == minute_number(noon)
        # In Berlin the clocks were set forward during this span.
        assert len(Span(datetime(2026, 3, 29), datetime(2026, 3, 29, 6)).minutes) == 6 * 60
    assert len(Span(minute(10), minute(0)).minutes) == 10


# In Berlin the clocks were set forward at 1:00 UTC of the first day, and back on the second.
@pytest.mark.parametrize("hour", ["2026-03-29T01:30", "2026-10-25T00:30", "2026-10-25T01:30"])
def test_last_ends_now_and_has_its_length_when_the_clocks_change(
    hour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = datetime.fromisoformat(f"{hour}+00:00")
    monkeypatch.setattr(timezone, "now", lambda: moment)
    with timezone.override("Europe/Berlin"):
        span = last(timedelta(hours=1))
        assert span.minutes.stop == minute_number(moment) + 1
        assert len(span.minutes) == 60
        assert span.length == timedelta(hours=1)


@on_every_database
def test_queries_use_an_index_when_the_log_is_large(log_database: str) -> None:
    connection = connections[log_database]
    Usage.objects.using(log_database).bulk_create(
        (
            usage_row(
                profile=("api", "b", "c", "d", "e")[number % 5],
                identifier=f"t{number % 997}",
                minute=minute(number),
            )
            for number in range(30 * 1_440)
        ),
        batch_size=2_000,
    )
    table = Usage._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE TABLE {table}" if connection.vendor == "mysql" else "ANALYZE")
    with CaptureQueriesContext(connection) as captured:
        assert usage.read(PROFILE, last(DAY)).total.admitted == 1_440 // 5
        assert usage.read(PROFILE, last(30 * DAY), "t15").total.admitted > 1
        assert usage.trail(PROFILE, last(30 * DAY), "t15")[0]
        assert what_if(PROFILE, PROFILE.policies[:1], last(DAY)).requests == 1_440 // 5
    statements = [query["sql"] for query in captured if table in query["sql"]]
    assert len(statements) >= 8
    for sql in statements:
        with connection.cursor() as cursor:
            explain = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
            cursor.execute(f"{explain} {sql}")
            plan = str(cursor.fetchall())
        assert "slidingwindow_usage_" in plan, f"{sql}\n{plan}"
