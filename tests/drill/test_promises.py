"""Each promise is kept, broken or not seen, depending on the observations."""

from __future__ import annotations

from typing import Any

import pytest

from django_slidingwindow import decisions
from django_slidingwindow.decisions import Charge, Decision, Receipt, Verdict
from django_slidingwindow.drill.exercise import AFTER, BEFORE, DURING, Plan, Result, Sent
from django_slidingwindow.drill.handlers import Call
from django_slidingwindow.drill.observer import Observer, SeenCheck
from django_slidingwindow.drill.outage import BLACKHOLE, BREAKER, Outage
from django_slidingwindow.drill.promises import Promise, promises
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.policies import SLOTS, Policy
from tests.support.docs_pages import code_in, table

CALL = Call(method="GET", path="/page/", host="localhost")
LIMIT, WINDOW, BUDGET = 3, 10.0, 0.1
AWAY = StoreError("away")
START, END = 1000.0, 1005.0


@pytest.fixture(autouse=True)
def _profiles(settings: Any) -> None:
    profiles = {"local": {"axis": "ip", "rate": "3/10s"}}
    settings.SLIDING_WINDOW = {"PROFILES": profiles}


def decision(
    source: str = decisions.LOCAL,
    *,
    profile: str = "local",
    allowed: bool = True,
    algorithm: str = "compact",
    observed: bool = False,
    cost: int = 1,
) -> Decision:
    policy = Policy(limit=LIMIT, window=WINDOW, algorithm=algorithm)
    verdict = Verdict(profile, policy, "key", allowed, observed, LIMIT, 0, 0.0, 0.0)
    receipt = Receipt((((Charge("key", policy, cost),), 0),), local=True) if allowed else None
    return Decision(
        allowed=allowed,
        profile=profile,
        policy=policy,
        limit=LIMIT,
        remaining=0,
        retry_after=0.0,
        reset_after=0.0,
        reason=decisions.ALLOWED,
        source=source,
        verdicts=(verdict,),
        receipt=receipt,
    )


def check(
    at: float = START,
    *,
    seconds: float | None = None,
    error: StoreError | None = None,
    **changes: Any,
) -> SeenCheck:
    return SeenCheck(at, seconds, error, decision(**changes))


def result(
    *checks: SeenCheck,
    sent: list[Sent] | None = None,
    degraded: int = 1,
    recovered: tuple[float, ...] = (END + 0.5,),
    way: str = BREAKER,
    seconds: float = END - START,
) -> Result:
    outage = Outage(iter([START, START + seconds]).__next__)
    outage.begin()
    outage.end()
    observer = Observer()
    observer.checks += checks
    observer.degraded += [START] * degraded
    observer.recovered += recovered
    plan = Plan(calls=[CALL], way=way, seconds=seconds, requests=1)
    made = Result(plan=plan, outage=outage, observer=observer, budget=BUDGET)
    made.sent = [request(*checks)] if sent is None else sent
    return made


def request(
    *checks: SeenCheck, phase: str = DURING, status: int | None = 200, error: str = ""
) -> Sent:
    return Sent(phase, CALL, status, 0.01, error, checks)


def judged(name: str, found: Result) -> Promise:
    return {promise.name: promise for promise in promises(found)}[name]


def test_answered_ignores_views_that_failed_before_the_outage() -> None:
    usual, later = request(phase=BEFORE, status=500), request(check(), status=500)
    assert judged("answered", result(sent=[usual, later])).kept is None
    healthy = request(phase=BEFORE)
    broken = judged("answered", result(sent=[healthy, later]))
    assert broken.kept is False
    assert broken.evidence == "requests: 1, errors: 1; the first: /page/ 500"


def test_answered_is_broken_and_shows_the_text_when_a_handler_raises() -> None:
    failed = request(phase=AFTER, status=None, error="ValueError: no")
    broken = judged("answered", result(sent=[failed]))
    assert broken.kept is False
    assert "ValueError: no" in broken.evidence


def test_answered_accepts_503_of_the_fallback_deny() -> None:
    denied = request(check(source=decisions.DENY, allowed=False), status=503)
    assert judged("answered", result(sent=[denied])).kept is True
    assert judged("answered", result(sent=[request(check(), status=503)])).kept is False


def test_limited_is_broken_when_a_request_has_no_check() -> None:
    seen = check()
    assert judged("limited", result(seen, sent=[request(seen)])).kept is True
    broken = judged("limited", result(seen, sent=[request(seen), request()]))
    assert broken.kept is False
    assert "requests to /page/ that met no check: 1" in broken.evidence
    assert judged("limited", result(sent=[request(status=500)])).kept is None


@pytest.mark.parametrize("profile", ["local", "unknown"])
def test_limited_is_broken_when_another_fallback_decides(profile: str) -> None:
    assert judged("limited", result(check(profile=profile))).kept is True
    broken = judged("limited", result(check(profile=profile, source=decisions.ALLOW)))
    assert broken.kept is False
    assert f"allow decided for the profile {profile}" in broken.evidence


def test_share_is_broken_when_a_window_admits_more_than_its_limit() -> None:
    four = [check(START + i) for i in range(LIMIT + 1)]
    assert judged("share", result(*four[:LIMIT])).kept is True
    broken = judged("share", result(*four))
    assert broken.kept is False
    assert broken.evidence == "4 of 3 in key"
    apart = [check(START + i * WINDOW / LIMIT) for i in range(10)]
    assert judged("share", result(*apart)).kept is True


def test_share_counts_costs_but_not_refusals() -> None:
    assert judged("share", result(check(cost=LIMIT + 1))).kept is False
    refusals = [check(START + i, allowed=False) for i in range(10)]
    assert judged("share", result(*refusals)).kept is True


def test_share_does_not_count_hits_that_were_given_back() -> None:
    many = [check(START + i) for i in range(10)]
    for one in many:
        assert one.decision.receipt is not None
        one.decision.receipt.use()
    assert judged("share", result(*many)).kept is None
    stayed = [check(START + i) for i in range(LIMIT)]
    found = judged("share", result(*many, *stayed))
    assert (found.kept, found.evidence) == (True, "3 of 3 in key")
    assert judged("share", result(*many, *stayed, check())).kept is False


@pytest.mark.parametrize(
    "changes",
    [
        {"source": decisions.ALLOW},
        {"algorithm": "counter"},
        {"algorithm": SLOTS},
        {"observed": True},
    ],
)
def test_share_is_judged_only_for_exact_local_windows(changes: dict[str, Any]) -> None:
    found = judged("share", result(*[check(START + i, **changes) for i in range(10)]))
    assert found.kept is None
    assert found.evidence == "no local window"


def test_budget_is_broken_when_a_check_takes_more_than_twice_as_long() -> None:
    assert judged("budget", result(check())).kept is None
    assert judged("budget", result(check(seconds=2 * BUDGET, error=AWAY))).kept is True
    assert judged("budget", result(check(seconds=0.21, error=AWAY))).kept is False


def test_breaker_is_broken_when_too_many_checks_ask_the_store() -> None:
    # Three failures, and ten probes: after 0.075, 0.225, 0.525 s and then every 0.6 s.
    failures = [check(START, seconds=0.01, error=AWAY)] * 14
    assert judged("breaker", result(*failures[:13])).kept is True
    assert judged("breaker", result(*failures)).kept is False
    assert judged("breaker", result(*failures, degraded=0)).kept is None
    other = StoreError("one call", outage=False)
    assert judged("breaker", result(*failures[:13], check(error=other))).kept is True


def test_reported_is_kept_when_outage_and_end_are_reported_once() -> None:
    assert judged("reported", result()).kept is True
    assert judged("reported", result(degraded=2)).kept is False
    assert judged("reported", result(recovered=())).kept is False
    silent = result(*[check(error=AWAY)] * 3, degraded=0, recovered=())
    assert judged("reported", silent).kept is False
    assert judged("reported", result(check(error=AWAY), degraded=0, recovered=())).kept is None


@pytest.mark.parametrize(("way", "allowed"), [(BREAKER, 0.9), (BLACKHOLE, 1.0)])
def test_recovery_is_broken_when_a_fallback_decides_after_the_promised_time(
    way: str, allowed: float
) -> None:
    early, late = check(END + allowed), check(END + allowed + 0.1)
    assert judged("recovery", result(early, way=way)).kept is True
    broken = judged("recovery", result(early, late, way=way))
    assert broken.kept is False
    assert "checks after that time, decided without Redis: 1" in broken.evidence
    # A slow view only delays the next check.
    assert judged("recovery", result(early, recovered=(END + 3,), way=way)).kept is True


def test_recovery_is_broken_when_it_is_not_seen() -> None:
    assert judged("recovery", result(recovered=())).kept is False
    assert judged("recovery", result(degraded=0, recovered=())).kept is None


def test_promises_are_those_of_the_docs() -> None:
    rows = table("docs/failure-modes.md", "Rehearse an outage")
    found = promises(result())
    assert [code_in(row[0])[0] for row in rows] == [promise.name for promise in found]
    for (_, text), promise in zip(rows, found, strict=True):
        assert text.startswith(promise.text.rstrip("."))
