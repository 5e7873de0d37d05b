"""How a store's reply becomes a decision."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_slidingwindow import decisions
from django_slidingwindow.core.ranking import strictest
from django_slidingwindow.core.results import decision_of
from django_slidingwindow.core.windows import ProfileCheck, WindowCache, WindowSet
from django_slidingwindow.decisions import Decision
from django_slidingwindow.policies import Policy, Profile
from django_slidingwindow.stores.protocol import Reply

CLOCK = 1_700_000_000_000_000


def windows_of(limits: list[int], mode: str = "enforce") -> WindowSet:
    policies = tuple(Policy(limit=limit, window=60 + i) for i, limit in enumerate(limits))
    profile = Profile(name="p", axis="tenant", policies=policies, mode=mode)
    return WindowCache("throttle").windows([ProfileCheck(profile, "acme", policies)])


def decide(windows: WindowSet, *reply: int) -> Decision:
    return decision_of(windows, windows.template.rules, Reply(reply), decisions.REDIS)


answers = st.lists(
    st.integers(1, 1_000).flatmap(
        lambda limit: st.tuples(st.just(limit), st.integers(0, limit - 1), st.integers(0, 10**8))
    ),
    min_size=1,
    max_size=8,
)


@given(answers)
def test_admission_names_the_window_that_the_headers_name(
    answers: list[tuple[int, int, int]],
) -> None:
    windows = windows_of([limit for limit, _, _ in answers])
    rows = [number for _, left, reset in answers for number in (1, left, 0, reset)]
    decision = decide(windows, 1, CLOCK, *rows)
    verdict = strictest(decision.verdicts)
    assert (decision.policy, decision.key) == (verdict.policy, verdict.key)
    assert (decision.remaining, decision.reset_after) == (verdict.remaining, verdict.reset_after)
    assert decision.remaining == min(left for _, left, _ in answers)


@pytest.mark.parametrize("admits", [0, 1])
def test_window_that_observes_says_whether_it_would_refuse(admits: int) -> None:
    windows = windows_of([5], mode="observe")
    decision = decide(windows, 1, CLOCK, admits, 0, 0 if admits else 7_000_000, 9_000_000)
    assert decision.allowed
    assert decision.reason == (decisions.ALLOWED if admits else decisions.OBSERVED)


def test_receipt_names_the_policy_that_the_store_has_charged() -> None:
    """The first of those with the same key, even if it only observes and refuses."""
    policies = [Policy(limit=limit, window=60, algorithm="buckets") for limit in (1, 9, 5)]
    profiles = [
        Profile(name=f"{i}", axis="tenant", scope="s", policies=(policy,), mode=mode)
        for i, (policy, mode) in enumerate(
            zip(policies, ("observe", "enforce", "enforce"), strict=True)
        )
    ]
    windows = WindowCache("throttle").windows(
        [ProfileCheck(profile, "acme", profile.policies) for profile in profiles]
    )
    decision = decide(windows, 1, CLOCK, 0, 0, 9, 9, 1, 4, 0, 9, 1, 2, 0, 9)
    assert decision.receipt is not None
    ((charges, _),) = decision.receipt.parts
    assert [charge.policy for charge in charges] == [policies[0]]


def test_strictest_refusal_lasts_longest() -> None:
    decision = decide(
        windows_of([5, 6, 7]),
        *(0, CLOCK),
        *(0, 0, 7_000_000, 9_000_000),
        *(0, 0, 8_000_000, 8_000_000),
        *(1, 3, 0, 60_000_000),
    )
    assert decision.policy is not None
    assert (decision.policy.limit, decision.retry_after) == (6, 8.0)
    assert strictest(decision.verdicts).limit == 6


def test_strictest_of_equal_admissions_resets_last() -> None:
    rows = (1, 2, 0, 9_000_000, 1, 2, 0, 10_000_000)
    decision = decide(windows_of([5, 6]), 1, CLOCK, *rows)
    assert (decision.limit, decision.reset_after) == (6, 10.0)


def test_strictest_decision_is_not_that_of_an_observing_profile() -> None:
    enforced = decide(windows_of([100]), 1, CLOCK, 1, 99, 0, 9_000_000)
    observed = decide(windows_of([5], mode="observe"), 1, CLOCK, 0, 0, 7_000_000, 9_000_000)
    refused = decide(windows_of([100]), 0, CLOCK, 0, 0, 3_000_000, 9_000_000)
    assert strictest([observed, enforced]) is enforced
    assert strictest([observed, refused]) is refused


def test_receipt_is_used_once_however_often_it_is_looked_at() -> None:
    decision = decide(windows_of([5]), 1, CLOCK, 1, 4, 0, 60_000_000)
    assert decision.receipt is not None
    assert decision.receipt is decision.receipt
    assert [decision.receipt.use(), decision.receipt.use()] == [True, False]
