"""Bounds for stamps of whole seconds hold for all possible times within the seconds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_slidingwindow.policies import Policy
from django_slidingwindow.replay.bounds import bounds_of
from django_slidingwindow.replay.candidates import Candidate, parse_try
from django_slidingwindow.replay.engine import Replay
from django_slidingwindow.replay.times import SECOND
from tests.support.clock import START
from tests.support.replay_oracle import refusals, requests

seconds = st.lists(st.integers(0, 4), min_size=1, max_size=4).map(sorted)


def possible(stamps: list[int], positions: int) -> Iterator[list[int]]:
    """Yield the times that requests may have had, with each at several positions in its second."""
    places = [SECOND * i // positions for i in range(positions - 1)] + [SECOND - 1]
    for fractions in product(places, repeat=len(stamps)):
        yield sorted(
            START + stamp * SECOND + fraction
            for stamp, fraction in zip(stamps, fractions, strict=True)
        )


def refused_by_logs(times: list[int], policies: tuple[Policy, ...]) -> int:
    admitted: list[int] = []
    for time in times:
        if all(
            sum(hit > time - policy.window_us for hit in admitted) < policy.limit
            for policy in policies
        ):
            admitted.append(time)
    return len(times) - len(admitted)


def interval(stamps: list[int], candidate: Candidate) -> tuple[int, int]:
    replay = Replay([candidate])
    replay.run([(START + stamp * SECOND, "a") for stamp in stamps])
    (trial,) = replay.trials
    assert trial.bounds is not None
    assert trial.bounds.least <= trial.refused <= trial.bounds.most
    return trial.bounds.least, trial.bounds.most


@settings(max_examples=40)
@given(
    stamps=seconds,
    candidate=st.sampled_from(["0/s", "1/s", "1/2s", "2/s", "2/2s", "1/s,2/3s", "2/s,3/4s"]).map(
        parse_try
    ),
)
def test_bounds_of_exact_logs_can_be_reached(stamps: list[int], candidate: Candidate) -> None:
    counts = {refused_by_logs(times, candidate.policies) for times in possible(stamps, 9)}
    assert interval(stamps, candidate) == (min(counts), max(counts))


@settings(max_examples=60)
@given(
    stamps=seconds,
    policies=st.sampled_from([1, 2, 3]).flatmap(
        # One resolution, as in a profile: policies with the same window share its hits.
        lambda resolution: st.lists(
            st.builds(
                Policy,
                limit=st.integers(0, 3),
                window=st.sampled_from([0.5, 1, 1.5, 2, 3]),
                algorithm=st.sampled_from(["compact", "buckets", "counter"]),
                resolution=st.just(resolution),
            ),
            min_size=1,
            max_size=2,
        )
    ),
    count_rejected=st.booleans(),
)
def test_bounds_hold_for_every_algorithm(
    stamps: list[int], policies: list[Policy], count_rejected: bool
) -> None:
    candidate = Candidate(label="", policies=tuple(policies), count_rejected=count_rejected)
    if bounds_of(candidate) is None:
        return
    least, most = interval(stamps, candidate)
    for times in possible(stamps, 3):
        assert least <= len(refusals([(time, "a") for time in times], candidate)) <= most


@pytest.mark.parametrize("algorithm", ["compact", "buckets"])
@settings(max_examples=30)
@given(entries=requests(), window=st.sampled_from([1, 10, 60]), limit=st.integers(0, 4))
def test_bounds_hold_for_long_logs(algorithm, entries, window, limit) -> None:
    """Replay random times, rounded to whole seconds as in a log."""
    policy = Policy(limit=limit, window=window, algorithm=algorithm, resolution=10)
    candidate = Candidate(label="", policies=(policy,))
    replay = Replay([candidate])
    replay.run([(stamp // SECOND * SECOND, identifier) for stamp, identifier in entries])
    bounds = replay.trials[0].bounds
    assert bounds is not None
    assert bounds.least <= len(refusals(entries, candidate)) <= bounds.most


def test_bounds_are_equal_for_buckets_of_whole_seconds() -> None:
    policy = Policy(limit=1, window=60, algorithm="buckets")
    assert interval([0, 1, 30, 60, 61, 62], Candidate(label="", policies=(policy,))) == (4, 4)


@pytest.mark.parametrize(
    ("rates", "algorithm"), [("1/s,2/m", "compact"), ("1/500ms", "counter"), ("1/400d", "log")]
)
def test_bounds_are_unknown_for_some_candidates(rates: str, algorithm: str) -> None:
    candidate = parse_try(rates, algorithm=algorithm, count_rejected=True)
    assert bounds_of(candidate) is None


def test_bounds_are_left_out_when_a_stamp_has_a_fraction() -> None:
    replay = Replay([parse_try("1/s")])
    replay.run([(START, "a"), (START + 1, "a")])
    assert not replay.whole_seconds
    assert replay.trials[0].bounds is None
