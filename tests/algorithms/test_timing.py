from __future__ import annotations

import hashlib
from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_slidingwindow.algorithms.timing import (
    SCRIPT_VERSION,
    bucket_us,
    grain,
    in_use,
    lives_ms,
    script,
    tick_us,
)
from django_slidingwindow.policies import ALGORITHMS, Policy

SETS = list(chain.from_iterable(combinations(sorted(ALGORITHMS), size) for size in range(1, 5)))

windows = st.integers(1_000, 400 * 86_400 * 1_000_000).map(lambda us: us / 1_000_000)


@given(windows)
def test_a_stamp_of_four_bytes_never_wraps_within_a_window(window: float) -> None:
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


def test_policies_name_the_algorithms_that_they_use_in_one_order() -> None:
    one, two = (Policy(limit=1, window=1, algorithm=name) for name in ("log", "compact"))
    assert in_use((one, two, one)) == in_use((two, one)) == ("compact", "log")


@pytest.mark.parametrize("evaluator", ["evaluate", "refund"])
@pytest.mark.parametrize("algorithms", SETS, ids="+".join)
def test_a_composed_source_says_its_version_and_holds_what_it_names(
    evaluator: str, algorithms: tuple[str, ...]
) -> None:
    composed = script(evaluator, algorithms)
    first = composed.source.partition("\n")[0]
    named = ", ".join(algorithms)
    assert first == f"-- django_slidingwindow {evaluator}, version {SCRIPT_VERSION}: {named}"
    for name in ALGORITHMS:
        assert (f"-- {name}: " in composed.source) == (name in algorithms)
    assert "--- " not in composed.source, "every section is in its place"
    assert composed.sha == hashlib.sha1(composed.source.encode()).hexdigest()


def test_each_set_of_algorithms_has_one_sha() -> None:
    scripts = [script(end, algorithms) for end in ("evaluate", "refund") for algorithms in SETS]
    assert len({composed.sha for composed in scripts}) == len(scripts) == 30
    assert script("evaluate", SETS[0]) is script("evaluate", SETS[0])
