"""A decision that was made in haste says what the other would have said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_slidingwindow import decisions
from django_slidingwindow.core.claims import Claim
from django_slidingwindow.core.results import admission, decision_of
from django_slidingwindow.core.windows import Plan, Planner
from django_slidingwindow.decisions import Decision
from django_slidingwindow.policies import Policy, Profile


def plan_of(limits: list[int], mode: str = "enforce") -> Plan:
    policies = tuple(Policy(limit=limit, window=60 + i) for i, limit in enumerate(limits))
    profile = Profile(name="p", axis="tenant", policies=policies, mode=mode)
    return Planner("throttle").plan([Claim(profile, "acme", policies)])


def said(decision: Decision) -> Any:
    receipt = decision.receipt
    return decision, decision.key, decision.verdicts, receipt and (receipt.parts, receipt.local)


windows = st.lists(
    st.integers(1, 1_000).flatmap(
        lambda limit: st.tuples(st.just(limit), st.integers(0, limit - 1), st.integers(0, 10**8))
    ),
    min_size=1,
    max_size=8,
)


@given(windows, st.sampled_from([decisions.REDIS, decisions.LOCAL]))
def test_windows_that_let_in_are_told_the_same_in_haste(
    windows: list[tuple[int, int, int]], source: str
) -> None:
    plan = plan_of([limit for limit, _, _ in windows])
    reply = [1, 1_700_000_000_000_000]
    for _, left, reset in windows:
        reply += [1, left, 0, reset]
    given = plan.form.lines, plan.keys, reply, source
    assert said(admission(plan.form, *given)) == said(decision_of(plan, *given[:1], *given[2:]))


@pytest.mark.parametrize("admits", [0, 1])
def test_one_window_that_observes_is_told_the_same_in_haste(admits: int) -> None:
    plan = plan_of([5], mode="observe")
    reply = [1, 1_700_000_000_000_000, admits, 0, 0 if admits else 7_000_000, 9_000_000]
    hasty = admission(plan.form, plan.form.lines, plan.keys, reply, decisions.REDIS)
    assert said(hasty) == said(decision_of(plan, plan.form.lines, reply, decisions.REDIS))
    assert hasty.reason == (decisions.ALLOWED if admits else decisions.OBSERVED)


def test_a_receipt_of_it_is_used_once_however_often_it_is_looked_at() -> None:
    plan = plan_of([5])
    reply = [1, 1_700_000_000_000_000, 1, 4, 0, 60_000_000]
    hasty = admission(plan.form, plan.form.lines, plan.keys, reply, decisions.REDIS)
    assert hasty.receipt is not None
    assert hasty.receipt is hasty.receipt
    assert [hasty.receipt.use(), hasty.receipt.use()] == [True, False]


@pytest.mark.parametrize(
    ("limits", "mode", "share"),
    [([5, 6], "enforce", (5, 6)), ([5, 0], "enforce", None), ([5, 6], "observe", None)],
)
def test_shares_are_taken_only_of_limits_that_are_enforced(
    limits: list[int], mode: str, share: Any
) -> None:
    assert plan_of(limits, mode).form.limits == share
