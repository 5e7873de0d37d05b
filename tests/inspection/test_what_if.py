"""The bounds of `what_if` contain what the real engine refuses."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import given, settings
from hypothesis import strategies as st

from django_slidingwindow.core.limiter import Limiter
from django_slidingwindow.core.windows import ProfileCheck
from django_slidingwindow.inspection.spans import Span, last
from django_slidingwindow.inspection.what_if import Bounds, refusals, what_if
from django_slidingwindow.models import Rejection, Usage
from django_slidingwindow.policies import ALGORITHMS, Policy, Profile
from django_slidingwindow.stores.memory import MemoryStore
from tests.support.rejection_factories import row
from tests.support.usage_factories import usage_row

SECOND = 1_000_000
# The start of a minute that is not also the start of a longer window.
START = 29_000_003 * 60
WINDOWS = [1, 7, 30, 59.5, 60, 61, 90, 120, 150, 300, 3_600]


def refused_by_engine(
    seconds: list[int], policies: tuple[Policy, ...], *, count_rejected: bool
) -> int:
    """Return how many requests the real engine refuses, on a clock of its own."""
    now = 0
    limiter = Limiter(MemoryStore(clock=lambda: now * SECOND))
    profile = Profile(name="p", axis="ip", policies=policies, count_rejected=count_rejected)
    windows = limiter.windows([ProfileCheck(profile, "acme", policies)])
    refused = 0
    for second in seconds:
        now = START + second
        refused += not limiter.charge(windows).allowed
    return refused


def by_minute(seconds: list[int]) -> dict[int, int]:
    return dict(Counter((START + second) // 60 for second in seconds))


# Bursts, so that limits are reached: a start, and the gaps between the requests of a burst.
bursts = st.lists(
    st.tuples(st.integers(0, 900), st.lists(st.sampled_from([0, 0, 1, 5, 29, 60]), max_size=12)),
    max_size=5,
)


def seconds_of(made: list[tuple[int, list[int]]]) -> list[int]:
    found = []
    for start, gaps in made:
        second = start
        for gap in gaps:
            second += gap
            found.append(second)
    return sorted(found)


rates = st.tuples(st.integers(0, 8), st.sampled_from(WINDOWS))


@pytest.mark.parametrize("count_rejected", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=200)
@given(made=bursts, several=st.lists(rates, min_size=1, max_size=2, unique_by=lambda r: r[1]))
def test_bounds_contain_what_the_engine_refuses(
    algorithm: str, count_rejected: bool, made: Any, several: Any
) -> None:
    seconds = seconds_of(made)
    policies = tuple(
        Policy(limit=limit, window=window, algorithm=algorithm, resolution=10)
        for limit, window in several
    )
    truth = refused_by_engine(seconds, policies, count_rejected=count_rejected)
    bounds = refusals(by_minute(seconds), policies, count_rejected=count_rejected)
    assert bounds.most is not None
    assert 0 <= bounds.least <= truth <= bounds.most <= len(seconds)


@pytest.mark.parametrize("count_rejected", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=50)
@given(made=bursts, rate=rates, more=st.integers(1, 5))
def test_higher_limit_refuses_no_more(
    algorithm: str, count_rejected: bool, made: Any, rate: Any, more: int
) -> None:
    seconds = seconds_of(made)
    limit, window = rate

    def refused(limit: int) -> int:
        policy = Policy(limit=limit, window=window, algorithm=algorithm, resolution=10)
        return refused_by_engine(seconds, (policy,), count_rejected=count_rejected)

    assert refused(limit + more) <= refused(limit)


@pytest.mark.parametrize(("seconds", "refused"), [((0, 60), 0), ((55, 65), 10)])
def test_bounds_of_an_exact_algorithm_can_be_reached(seconds: Any, refused: int) -> None:
    # Ten requests in each of two minutes: far apart, or around the full minute.
    log = [second for second in seconds for _ in range(10)]
    policies = (Policy(limit=10, window=60),)
    assert refusals(by_minute(log), policies) == Bounds(least=0, most=10)
    assert refused_by_engine(log, policies, count_rejected=False) == refused


def test_bounds_are_equal_when_the_seconds_do_not_matter() -> None:
    policies = (Policy(limit=10, window=60),)
    assert refusals({5: 4, 6: 4}, policies) == Bounds(least=0, most=0)
    assert refusals({5: 14}, policies) == Bounds(least=4, most=4)
    assert refusals({}, policies) == Bounds(least=0, most=0)


PROFILE = Profile(name="api", axis="tenant", policies=(Policy(limit=10, window=60),), log="all")
REFUSED_ONLY = Profile(name="api", axis="tenant", policies=(Policy(limit=10, window=60),))


def policy(rate: str) -> list[Policy]:
    return [Policy.parse(rate)]


def ask(profile: Profile, rate: str, span: Span | None = None) -> Any:
    return what_if(profile, policy(rate), span or last(timedelta(days=1)))


@pytest.mark.django_db
class TestFromLogs:
    def minute(self, back: int) -> Any:
        return timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=back)

    def fill(self) -> None:
        usage_row(identifier="acme", minute=self.minute(30), hits=10).save()
        usage_row(identifier="acme", minute=self.minute(30), hits=2, view="other/").save()
        usage_row(identifier="globex", minute=self.minute(20), hits=3).save()
        row(profile="api", identifier="acme", minute=self.minute(30), hits=5).save()
        # Rows that do not count: not over a limit, or of another profile.
        row(profile="api", identifier="acme", minute=self.minute(30), reason="block").save()
        row(profile="api", identifier="acme", minute=self.minute(30), reason="observe").save()
        row(profile="other", identifier="acme", minute=self.minute(30)).save()
        usage_row(profile="other", identifier="acme", minute=self.minute(30)).save()

    def test_admitted_and_refused_requests_are_counted_together(self) -> None:
        self.fill()
        found = ask(PROFILE, "5/m")
        assert (found.requests, found.refused, found.identifiers, found.touched) == (20, 5, 2, 1)
        assert found.bounds == Bounds(least=12, most=12)
        assert found.touched_bounds == Bounds(least=1, most=1)
        (affected,) = found.affected
        assert (affected.identifier, affected.requests, affected.refused) == ("acme", 17, 5)
        assert not found.has_costs
        assert ask(PROFILE, "100/m").affected == []

    def test_refusals_before_the_usage_log_begins_are_left_out(self) -> None:
        self.fill()
        row(profile="api", identifier="early", minute=self.minute(300), hits=50).save()
        found = ask(PROFILE, "5/m")
        assert found.requests == 20
        assert found.span.start == self.minute(30)

    def test_bounds_are_zero_when_there_are_no_rows(self) -> None:
        found = ask(PROFILE, "5/m")
        assert (found.requests, found.bounds) == (0, Bounds(least=0, most=0))

    def test_requests_of_lost_identifiers_are_left_out(self) -> None:
        self.fill()
        usage_row(others=True, identifier="", view="", minute=self.minute(20), hits=40).save()
        row(profile="api", identifier="", minute=self.minute(20), reason="overflow", hits=2).save()
        found = ask(PROFILE, "5/m")
        assert (found.requests, found.others) == (20, 42)

    @pytest.mark.parametrize("profile", [PROFILE, REFUSED_ONLY])
    def test_refusals_for_other_reasons_are_counted_separately(self, profile: Profile) -> None:
        self.fill()
        for reason, hits in (("penalty", 7), ("observe_penalty", 50)):
            values = {"minute": self.minute(20), "reason": reason, "hits": hits}
            row(profile="api", identifier="acme", **values).save()
        found = ask(profile, "5/m")
        assert found.refused < 7
        # Seven by the penalty, and the one of `fill` that an override blocked.
        assert found.for_other_reasons == 8

    @pytest.mark.parametrize("others", [False, True])
    def test_has_costs_when_a_request_costs_several_hits(self, others: bool) -> None:
        usage_row(minute=self.minute(3), hits=2, cost=9, others=others).save()
        assert ask(PROFILE, "5/m").has_costs

    def test_refusals_alone_bound_a_higher_limit_from_above(self) -> None:
        self.fill()
        found = ask(REFUSED_ONLY, "150/m")
        assert found.requests is None
        # The observed request was over the limit, but it was not refused.
        assert (found.refused, found.observed) == (5, 1)
        assert found.bounds == Bounds(least=0, most=6)
        assert found.touched_bounds == Bounds(least=0, most=1)

    def test_limit_on_requests_in_flight_does_not_change_the_bounds(self) -> None:
        self.fill()
        slots = Policy(limit=5, window=120, algorithm="slots")
        busy = replace(REFUSED_ONLY, policies=(*REFUSED_ONLY.policies, slots))
        for rate in ("5/m", "150/m"):
            assert ask(busy, rate).bounds == ask(REFUSED_ONLY, rate).bounds

    @pytest.mark.parametrize("rate", ["5/m", "150/m"])
    def test_refusals_by_requests_in_flight_are_left_out(self, rate: str) -> None:
        self.fill()
        before = {profile.log: ask(profile, rate) for profile in (PROFILE, REFUSED_ONLY)}
        slots = {"profile": "api", "limit": 5, "window": 90.0, "algorithm": "slots"}
        for reason, hits in (("limit", 40), ("observe", 300)):
            values = {"minute": self.minute(25), "reason": reason, "hits": hits}
            row(identifier="globex", **values, **slots).save()
        for profile in (PROFILE, REFUSED_ONLY):
            found = ask(profile, rate)
            expected = replace(before[profile.log], for_other_reasons=41)
            assert replace(found, span=expected.span) == expected

    def test_smallest_limit_of_a_window_decides(self) -> None:
        self.fill()
        for several in (["5/m", "150/m"], ["150/m", "5/m"]):
            policies = [Policy.parse(rate) for rate in several]
            found = what_if(REFUSED_ONLY, policies, last(timedelta(days=1)))
            assert found.bounds == Bounds(least=6, most=None)

    @pytest.mark.parametrize("profile", [PROFILE, REFUSED_ONLY])
    def test_observed_requests_are_not_refused_in_fact(self, profile: Profile) -> None:
        usage_row(identifier="acme", minute=self.minute(30), hits=200).save()
        row(profile="api", identifier="acme", minute=self.minute(30), reason="observe").save()
        found = ask(profile, "150/m")
        assert (found.refused, found.touched) == (0, 0)

    def test_identifiers_are_ordered_by_their_requests_over_the_limit(self) -> None:
        for who, reason, hits in (("a", "observe", 2), ("b", "limit", 3), ("c", "observe", 9)):
            row(profile="api", identifier=who, reason=reason, hits=hits).save()
        for rate in ("11/m", "150/m"):
            found = ask(REFUSED_ONLY, rate)
            assert [one.identifier for one in found.affected] == ["c", "b", "a"]

    def test_refusals_alone_bound_a_lower_limit_from_below(self) -> None:
        self.fill()
        row(profile="api", identifier="", minute=self.minute(20), reason="overflow", hits=2).save()
        found = ask(REFUSED_ONLY, "9/m")
        assert found.bounds == Bounds(least=6, most=None)
        assert found.touched_bounds == Bounds(least=1, most=None)
        assert found.affected[0].bounds == Bounds(least=6, most=None)
        assert found.others == 2

    @pytest.mark.parametrize("filled", [False, True])
    @pytest.mark.parametrize("rate", ["60/h", "5/s"])
    def test_refusals_alone_do_not_bound_another_window(self, rate: str, filled: bool) -> None:
        if filled:
            self.fill()
        assert ask(REFUSED_ONLY, rate).bounds == Bounds(least=0, most=None)

    def test_no_refusals_bound_a_higher_limit_only(self) -> None:
        assert ask(REFUSED_ONLY, "11/m").bounds == Bounds(least=0, most=0)
        assert ask(REFUSED_ONLY, "9/m").bounds == Bounds(least=0, most=None)

    def test_limits_between_those_in_force_are_not_bounded(self) -> None:
        # The limit is 10 a minute now. It was 120 when the requests of `fill` were refused.
        self.fill()
        assert ask(REFUSED_ONLY, "60/m").bounds == Bounds(least=0, most=None)
        assert ask(REFUSED_ONLY, "9/m").bounds == Bounds(least=6, most=None)

    def test_refusals_alone_do_not_bound_limits_of_a_function_from_above(self) -> None:
        self.fill()
        profile = Profile(name="api", axis="tenant", limit_for=lambda who, request: "120/m")
        assert ask(profile, "150/m").bounds == Bounds(least=0, most=None)
        assert ask(profile, "90/m").bounds == Bounds(least=6, most=None)

    def test_bounds_contain_the_refusals_of_a_random_log(self) -> None:
        rng = random.Random(21)
        policies = (Policy(limit=6, window=120),)
        end = self.minute(0)
        start = end - timedelta(minutes=30)
        first = int(start.timestamp())
        truth = touched = 0
        for who in range(40):
            count = rng.randrange(40)
            seconds = sorted(first + int(rng.random() ** 2 * 1_800) for _ in range(count))
            refused = refused_by_engine(
                [second - START for second in seconds], policies, count_rejected=False
            )
            truth += refused
            touched += bool(refused)
            for minute, hits in Counter(second // 60 for second in seconds).items():
                at = start + timedelta(minutes=minute - first // 60)
                admitted = rng.randrange(hits + 1)
                if admitted:
                    usage_row(identifier=f"t{who}", minute=at, hits=admitted).save()
                if hits - admitted:
                    left = hits - admitted
                    row(profile="api", identifier=f"t{who}", minute=at, hits=left).save()
        usage_row(identifier="first", minute=start, hits=1).save()
        found = what_if(PROFILE, policies, Span(start, end))
        assert found.bounds.least <= truth <= found.bounds.most
        assert 0 < found.bounds.least < found.bounds.most < found.requests
        assert found.touched_bounds.least <= touched <= found.touched_bounds.most
        assert Rejection.objects.exists()
        assert Usage.objects.exists()
