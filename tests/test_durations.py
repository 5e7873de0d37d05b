"""Durations as text, and the table of units."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import django_slidingwindow
from django_slidingwindow.durations import (
    SECONDS,
    UNITS,
    UNITS_HELP,
    count_rounded_up,
    duration_exact,
    duration_rounded_up,
    microseconds,
    rate_exact,
    seconds_exact,
)
from django_slidingwindow.rates import MAX_WINDOW, parse_window

PACKAGE = Path(django_slidingwindow.__file__).parent
SIZES = {symbol: size for symbol, size, _ in UNITS}


def read(text: str) -> int:
    """Return the microseconds of a text such as "4 min 10 s"."""
    parts = re.findall(r"([\d.]+) ([a-z]+)", text)
    assert " ".join(" ".join(part) for part in parts) == text
    return sum(round(float(count) * SIZES[symbol]) for count, symbol in parts)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "250 ms"),
        (0.2001, "201 ms"),
        (0.9999, "1 s"),
        (7 * 0.1, "700 ms"),
        (3 * 1.1, "3.3 s"),
        (12.34, "12.4 s"),
        (42, "42 s"),
        (59.99, "1 min"),
        (60, "1 min"),
        (75, "1 min 15 s"),
        (249.1, "4 min 10 s"),
        (3_599.5, "1 h"),
        (3_600, "1 h"),
        (7_441, "2 h 5 min"),
        (86_399, "1 d"),
        (86_400 + 7_200 + 59, "1 d 3 h"),
        (273_600, "3 d 4 h"),
        (14 * 86_400, "14 d"),
    ],
)
def test_duration_rounded_up_is_short(seconds: float, text: str) -> None:
    assert duration_rounded_up(seconds) == text


@given(st.floats(0, MAX_WINDOW))
def test_duration_rounded_up_is_never_too_short(seconds: float) -> None:
    text = duration_rounded_up(seconds)
    assert microseconds(seconds) <= read(text)
    assert text.count(" ") in (1, 3)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.5, "500 ms"),
        (0.0015, "0.0015 s"),
        (1, "1 s"),
        (60, "1 min"),
        (5_400, "1 h 30 min"),
        (3_661, "3661 s"),
        (86_400.0, "1 d"),
        (86_460, "86460 s"),
        (1_234_567, "1234567 s"),
    ],
)
def test_duration_exact_does_not_round(seconds: float, text: str) -> None:
    assert duration_exact(seconds) == text
    assert rate_exact(10_000, seconds) == f"10,000 / {text}"


@given(st.integers(1_000, int(MAX_WINDOW) * 1_000_000))
def test_duration_exact_is_exact(micro: int) -> None:
    assert read(duration_exact(micro / 1_000_000)) == micro


def test_seconds_exact_are_plain_digits() -> None:
    assert [seconds_exact(value) for value in (60, 0.25, 0.000001, 34_560_000)] == [
        "60",
        "0.25",
        "0.000001",
        "34560000",
    ]


@pytest.mark.parametrize(
    ("seconds", "count"),
    [
        (1, (1, "s")),
        (119, (119, "s")),
        (120, (2, "min")),
        (121, (3, "min")),
        (7_200, (2, "h")),
        (172_799, (48, "h")),
        (172_801, (3, "d")),
        (30 * 86_400, (30, "d")),
    ],
)
def test_count_rounded_up_has_one_unit(seconds: float, count: tuple[int, str]) -> None:
    assert count_rounded_up(seconds) == count


def test_every_unit_can_be_read_and_is_in_the_help() -> None:
    for symbol, size, names in UNITS:
        assert symbol in names
        for name in names:
            assert parse_window(f"1{name}") == SECONDS[name] == size / 1_000_000
    assert set(re.findall(r"\b[a-z]+\b", UNITS_HELP)) <= set(SECONDS)


def test_no_other_module_has_a_table_of_units() -> None:
    """Numbers of seconds in an hour or a day belong in the table."""
    numbers = re.compile(r"\b(3_?600|86_?400|604_?800)(_?000)*\b")
    found = [
        str(path.relative_to(PACKAGE))
        for path in sorted(PACKAGE.rglob("*.py"))
        if numbers.search(path.read_text())
    ]
    assert found == ["durations.py"]
