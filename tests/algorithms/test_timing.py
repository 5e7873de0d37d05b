from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_slidingwindow.algorithms.timing import bucket_us, grain, lives_ms, tick_us
from django_slidingwindow.policies import Policy

windows = st.integers(1_000, 400 * 86_400 * 1_000_000).map(lambda us: us / 1_000_000)


@given(windows)
def test_stamp_of_four_bytes_never_wraps_within_a_window(window: float) -> None:
    policy = Policy(limit=1, window=window)
    assert policy.window_us // tick_us(policy) <= 2**31
    assert tick_us(policy) >= 1


@given(windows)
def test_expiry_covers_a_hit_at_the_end_of_its_tick(window: float) -> None:
    policy = Policy(limit=1, window=window)
    lasts = policy.window_us + tick_us(policy) - 1
    assert lasts + 500_000 <= lives_ms(policy) * 1_000 < lasts + 501_000


def test_tick_is_a_microsecond_when_the_window_is_half_an_hour() -> None:
    assert tick_us(Policy(limit=1, window=1_800)) == 1


@pytest.mark.parametrize(
    ("algorithm", "expected"), [("compact", 41), ("log", 1), ("buckets", 8_640_000_000)]
)
def test_each_algorithm_has_its_grain(algorithm: str, expected: int) -> None:
    policy = Policy(limit=1, window=86_400, algorithm=algorithm, resolution=10)
    assert grain(policy) == expected


@given(windows, st.integers(1, 1_000))
def test_sub_windows_cover_the_window(window: float, resolution: int) -> None:
    policy = Policy(limit=1, window=window, algorithm="buckets", resolution=resolution)
    assert bucket_us(policy) * resolution >= policy.window_us > (bucket_us(policy) - 1) * resolution
