"""Which charge crosses a share of a limit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from django_slidingwindow.algorithms.penalties import Penalty
from django_slidingwindow.core.background import Background
from django_slidingwindow.core.callbacks import Callbacks
from django_slidingwindow.core.listeners import NOBODY
from django_slidingwindow.core.near_limit import NearLimit
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.policies import ALGORITHMS, Policy, Profile
from tests.support.simulated_processes import Site, leased, stored, windows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django_slidingwindow.core.limiter import Limiter
    from django_slidingwindow.decisions import Decision, Verdict

pytestmark = pytest.mark.usefixtures("redis")


@pytest.fixture
def crossed() -> list[Verdict]:
    return []


@pytest.fixture(params=[False, True], ids=["one slot", "slots"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    site = Site(split=request.param)
    yield site
    site.close()


def process(site: Site, crossed: list[Verdict], share: float | None = 0.8) -> Limiter:
    return site.process(callbacks=Callbacks(near=NearLimit(lambda: share, crossed.append)))


def profile(limit: int = 10, name: str = "api", **options: Any) -> Profile:
    policy = Policy(limit=limit, window=60, algorithm=options.pop("algorithm", "compact"))
    return Profile(name=name, axis="tenant", policies=(policy,), **options)


def charge(limiter: Limiter, *profiles: Profile, **options: Any) -> Decision:
    return limiter.charge(windows(limiter, *profiles, **options))


def sends(limiter: Limiter, crossed: list[Verdict], one: Profile, times: int = 10) -> list[int]:
    """Return which of several charges have crossed the share, counted from 1."""
    found = []
    for number in range(1, times + 1):
        charge(limiter, one)
        found += [number] * len(crossed)
        crossed.clear()
    return found


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_only_the_charge_that_crosses_the_share_is_near(
    site: Site, crossed: list[Verdict], algorithm: str
) -> None:
    limiter = process(site, crossed)
    assert sends(limiter, crossed, profile(algorithm=algorithm), times=13) == [8]


@pytest.mark.parametrize(
    ("share", "limit", "expected"),
    [
        (0.8, 1, [1]),
        (0.8, 2, [2]),
        (0.81, 10, [9]),
        (0.07, 100, [7]),
        (0.001, 10, [1]),
        (1, 10, [10]),
        (0.8, 0, []),
        (0, 10, []),
        (None, 10, []),
    ],
)
def test_share_of_the_limit_is_rounded_up(
    site: Site, crossed: list[Verdict], share: float | None, limit: int, expected: list[int]
) -> None:
    assert sends(process(site, crossed, share), crossed, profile(limit)) == expected


@pytest.mark.parametrize("names", [["acme", "acme"], ["acme", "globex"]])
def test_profile_with_a_penalty_is_near_but_its_penalty_is_not(
    site: Site, crossed: list[Verdict], names: list[str]
) -> None:
    limiter = process(site, crossed)
    penalized = profile(penalty=Penalty(limit=1, window=600, steps=(60.0,)))
    assert sends(limiter, crossed, penalized, times=11) == [8]
    # The last one was refused. So one refusal counts, which is all that the penalty tolerates.
    site.wait(61)
    both = [penalized, profile(100, "other")]
    for _ in range(10):
        assert charge(limiter, *both, names=names).allowed
    assert [(near.profile, near.policy) for near in crossed] == [("api", penalized.policies[0])]


def test_verdict_says_which_window_is_near(site: Site, crossed: list[Verdict]) -> None:
    limiter = process(site, crossed)
    charge(limiter, profile(), cost=7)
    decision = charge(limiter, profile(), cost=2)
    assert crossed == list(decision.verdicts)
    assert (crossed[0].profile, crossed[0].limit, crossed[0].remaining) == ("api", 10, 1)


def test_refused_and_uncharged_requests_are_not_near(site: Site, crossed: list[Verdict]) -> None:
    limiter = process(site, crossed)
    charge(limiter, profile(), cost=7)
    assert not charge(limiter, profile(), cost=4).allowed
    assert not charge(limiter, profile(), profile(2, "tight"), cost=3).allowed
    charge(limiter, profile(), cost=0)
    limiter.peek(windows(limiter, profile()))
    assert crossed == []


def test_each_window_of_a_request_is_near_by_itself(site: Site, crossed: list[Verdict]) -> None:
    limiter = process(site, crossed)
    both = [profile(5, "small"), profile(10, "large")]
    for _ in range(5):
        charge(limiter, *both, names=["acme", "globex"])
    assert [verdict.profile for verdict in crossed] == ["small"]
    asyncio.run(limiter.acharge(windows(limiter, both[1], names=["globex"], cost=3)))
    assert [verdict.profile for verdict in crossed] == ["small", "large"]


def test_observing_profile_is_near_as_well(site: Site, crossed: list[Verdict]) -> None:
    limiter, observing = process(site, crossed), profile(mode="observe")
    # Those above the limit are admitted, but not charged.
    assert [charge(limiter, observing).allowed for _ in range(13)] == [True] * 13
    assert [(verdict.observed, verdict.remaining) for verdict in crossed] == [(True, 2)]


def test_window_that_was_left_is_near_again(site: Site, crossed: list[Verdict]) -> None:
    limiter, one = process(site, crossed), profile()
    charge(limiter, one, cost=7)
    decision = charge(limiter, one)
    limiter.refund(decision)
    charge(limiter, one)
    assert len(crossed) == 2
    site.wait(61)
    assert sends(limiter, crossed[:0], one) == []
    assert len(crossed) == 3


def test_nothing_is_reported_near_during_an_outage(site: Site, crossed: list[Verdict]) -> None:
    limiter, one = process(site, crossed), profile()
    limiter.store.fails = lambda call: StoreError("away")  # type: ignore[attr-defined]
    assert [charge(limiter, one).source for _ in range(10)] == ["local"] * 10
    assert crossed == []


def test_callback_is_not_called_without_listeners(site: Site, crossed: list[Verdict]) -> None:
    near = NearLimit(lambda: 0.8, crossed.append, NOBODY)
    limiter = site.process(callbacks=Callbacks(near=near))
    for one in (profile(), leased(20), profile(mode="deferred", name="later")):
        for _ in range(20):
            charge(limiter, one)
        charge(limiter, one, profile(20, name="other"), names=["acme", "globex"])
    limiter.deferred.flush()
    assert crossed == []


def test_units_taken_ahead_count_when_they_are_taken(site: Site, crossed: list[Verdict]) -> None:
    limiter, one = process(site, crossed), leased(100, lease=10)
    taken = []
    for _ in range(100):
        before = len(crossed)
        charge(limiter, one)
        if len(crossed) > before:
            taken.append(stored(limiter, one))
    assert len(taken) == 1
    assert 80 <= taken[0] <= 80 + 10
    assert crossed[0].remaining >= 100 - taken[0]


def test_units_returned_by_the_same_call_do_not_count_as_crossing(
    site: Site, crossed: list[Verdict]
) -> None:
    limiter, one = process(site, crossed), leased(100, lease=10, lease_seconds=5)
    while stored(limiter, one) < 80:
        charge(limiter, one)
    assert len(crossed) == 1
    # What is held is not enough: it goes back, and the call takes more.
    charge(limiter, one, cost=9)
    assert stored(limiter, one) > 80
    assert len(crossed) == 1


def test_deferred_charge_is_near_when_it_is_sent(
    site: Site, crossed: list[Verdict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Background, "wake", lambda self, within=0.0: None)
    limiter, later = process(site, crossed), profile(mode="deferred", name="later")
    for _ in range(9):
        charge(limiter, later)
    assert crossed == []
    limiter.deferred.flush()
    assert [(near.profile, near.remaining) for near in crossed] == [("later", 1)]
    wide = profile(mode="deferred", name="wide", limit=12, scope="later")
    charge(limiter, wide, later)
    limiter.deferred.flush()
    assert [(near.profile, near.remaining) for near in crossed[1:]] == [("wide", 2)]
    # Above the limit the reply does not say how many hits there were before.
    for _ in range(5):
        charge(limiter, later)
    limiter.deferred.flush()
    charge(limiter, later, names=["globex"], cost=9)
    away = [StoreError("away")] * 2
    monkeypatch.setattr(limiter.store, "run_many", lambda calls, within: away)
    limiter.deferred.flush()
    assert len(crossed) == 2
