"""Stamps of logs."""

from __future__ import annotations

from datetime import datetime, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_slidingwindow.replay.times import SECOND, StampError, Stamps, text_of

NOON = 1_794_916_800 * SECOND  # 2026-11-17T12:00:00Z
HOUR = 3_600 * SECOND


@pytest.mark.parametrize(
    ("text", "stamp"),
    [
        ("17/Nov/2026:12:00:00 +0000", NOON),
        ("17/Nov/2026:12:00:07 +0100", NOON - HOUR + 7 * SECOND),
        ("17/Nov/2026:04:30:00 -0730", NOON),
        ("17/Nov/2026:12:00:00", NOON),
        ("2026-11-17T12:00:00Z", NOON),
        ("2026-11-17 12:00", NOON),
        ("2026-11-17T13:00:00.25+01:00", NOON + SECOND // 4),
        ("2026-11-17T12:00:00,1234567", NOON + 123_456),
        ("2026-11-17T11:59:60Z", NOON),
        ("1794916800", NOON),
        ("1794916800.5", NOON + SECOND // 2),
        ("1794916800.0000019", NOON + 1),
        ("1794916800500", NOON + SECOND // 2),
        ("1794916800500000", NOON + SECOND // 2),
        ("1794916800500000999", NOON + SECOND // 2),
        (" 1794916800 ", NOON),
    ],
)
def test_stamps_of_all_forms_are_recognised(text: str, stamp: int) -> None:
    assert Stamps()(text) == stamp


def test_stamps_read_the_chosen_form() -> None:
    assert Stamps("ms")("1000.5") == SECOND + 500
    assert Stamps("us")("1000.5") == 1_000
    assert Stamps("ns")("1000.5") == 1
    assert Stamps("s")("123456789012") == 123_456_789_012 * SECOND
    assert Stamps("%d.%m.%Y %H:%M")("17.11.2026 12:00") == NOON
    assert Stamps("%d.%m.%Y %H:%M %z")("17.11.2026 13:00 +0100") == NOON


def test_zone_is_used_for_stamps_without_one() -> None:
    stamps = Stamps(zone=ZoneInfo("Europe/Berlin"))
    assert stamps("2026-11-17 13:00") == NOON
    assert stamps("2026-11-17 12:00Z") == NOON
    # The same minute again, and another offset in summer.
    assert stamps("2026-11-17 13:00:01") == NOON + SECOND
    assert stamps("2026-07-17 14:00") == Stamps()("2026-07-17 12:00")
    assert Stamps("%H %d.%m.%Y", ZoneInfo("Europe/Berlin"))("13 17.11.2026") == NOON


@pytest.mark.parametrize(
    "text",
    [
        "yesterday",
        "",
        "17/Nov/2026",
        "17/Abc/2026:12:00:00 +0000",
        "32/Nov/2026:12:00:00 +0000",
        "17/Nov/2026:12:00:61 +0000",
        "17/Nov/2026:12:00:00 +9900",
        "2026-11-17",
        "2026-13-17T12:00Z",
        "-5",
        "1e9",
        "999999999999999999999",
        "99999999999.5" * 2,
        "0001-01-01T00:00:00Z",
    ],
)
def test_stamps_raise_when_the_text_is_not_a_stamp(text: str) -> None:
    with pytest.raises(StampError, match="is not a time"):
        Stamps()(text)


def test_chosen_form_rejects_other_forms() -> None:
    with pytest.raises(StampError):
        Stamps("iso")("1794916800")
    with pytest.raises(StampError):
        Stamps("%d.%m.%Y")("2026-11-17")


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1), timezones=st.just(timezone.utc)))
def test_text_of_a_stamp_is_read_back(moment: datetime) -> None:
    stamp = Stamps()(moment.isoformat())
    assert Stamps()(text_of(stamp)) == stamp
    assert abs(stamp / SECOND - moment.timestamp()) < 0.001
