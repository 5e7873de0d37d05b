"""The promises of docs/failure-modes.md, and whether a drill saw them kept."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from django.core.exceptions import ImproperlyConfigured

from ..conf import conf
from ..core.breaker import LAST_DELAY, THRESHOLD, most_probes
from ..decisions import DENY, LOCAL
from ..durations import duration_rounded_up
from ..policies import SLOTS
from ..registry import registry
from .exercise import AFTER, BEFORE, DURING, FALLBACKS, Result, Sent
from .observer import SeenCheck
from .outage import BLACKHOLE

_SERVER_ERROR = 500
# Seconds that may pass between the decision of a check and its signal.
_TOLERANCE = 0.05


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise of the docs, and what a drill has seen of it."""

    name: str
    text: str
    kept: bool | None
    """None if the drill saw nothing that could keep or break it."""
    evidence: str


def promises(result: Result) -> list[Promise]:
    """Return all promises, each of them kept, broken or not seen."""
    return [judge(result) for judge in _JUDGES]


def _answered(result: Result) -> Promise:
    """Leave out paths with errors before the outage: their views have errors of their own."""
    faulty = {request.call for request in result.of(BEFORE) if _is_error(request)}
    sent = [request for request in result.of(DURING, AFTER) if request.call not in faulty]
    failed = [request for request in sent if _is_error(request)]
    evidence = f"requests: {len(sent)}, errors: {len(failed)}"
    if failed:
        first = failed[0]
        evidence += f"; the first: {first.call.path} {first.error or first.status}"
    return Promise(
        "answered",
        "No request fails because Redis is away.",
        not failed if sent else None,
        evidence,
    )


def _is_error(request: Sent) -> bool:
    if request.status is None:
        return True
    # The fallback "deny" answers with status 503.
    denied = any(check.decision.source == DENY for check in request.checks)
    return request.status >= _SERVER_ERROR and not denied


def _limited(result: Result) -> Promise:
    sent = [request for request in result.of(DURING) if not _is_error(request)]
    unchecked = [request for request in sent if not request.checks]
    checks = _fallback_checks(result)
    wrong = [check for check in checks if check.decision.source != _fallback(check)]
    evidence = f"checks by the fallback: {len(checks)}"
    if unchecked:
        evidence += f"; requests to {unchecked[0].call.path} that met no check: {len(unchecked)}"
    if wrong:
        decision = wrong[0].decision
        evidence += f"; {decision.source} decided for the profile {decision.profile}"
    return Promise(
        "limited",
        "Limits stay in force: the fallback of each profile decides.",
        not unchecked and not wrong if unchecked or checks else None,
        evidence,
    )


def _fallback(check: SeenCheck) -> str:
    try:
        return registry.get(check.decision.profile).fallback or conf.fallback
    except ImproperlyConfigured:
        # A profile that is not in the settings.
        return conf.fallback


def _share(result: Result) -> Promise:
    """Compare the hits that each local window admitted within its length with its limit."""
    hits: dict[str, list[tuple[float, int]]] = defaultdict(list)
    limits: dict[str, tuple[int, float]] = {}
    for check in _fallback_checks(result):
        decision = check.decision
        receipt = decision.receipt
        # Hits that were given back have made room for others.
        if decision.source != LOCAL or (receipt is not None and receipt.used):
            continue
        for verdict in decision.verdicts:
            if not verdict.observed and verdict.policy.algorithm not in ("counter", SLOTS):
                limits[verdict.key] = verdict.limit, verdict.policy.window
        for charges, _ in receipt.parts if decision.allowed and receipt else ():
            for charge in charges:
                hits[charge.key].append((check.ended, charge.cost))
    most = {key: _most_hits(hits[key], window) for key, (_, window) in limits.items()}
    over = [key for key in limits if most[key] > limits[key][0]]
    shown = over[0] if over else max(limits, key=lambda key: most[key], default="")
    evidence = f"{most[shown]} of {limits[shown][0]} in {shown}" if limits else "no local window"
    return Promise(
        "share",
        "A local window admits at most this process's share of the limit.",
        not over if limits else None,
        evidence,
    )


def _most_hits(hits: list[tuple[float, int]], window: float) -> int:
    """Return the most hits that were certainly admitted within one window."""
    most = recent = first = 0
    window = max(window - _TOLERANCE, window / 2)
    for at, cost in hits:
        recent += cost
        while at - hits[first][0] >= window:
            recent -= hits[first][1]
            first += 1
        most = max(most, recent)
    return most


def _budget(result: Result) -> Promise:
    slowest = slowest_check(result.of(DURING))
    kept = None if slowest is None else slowest <= 2 * result.budget
    return Promise(
        "budget",
        "A check ends within LATENCY_BUDGET; on a busy machine within twice that.",
        kept,
        f"slowest {_duration(slowest)}, LATENCY_BUDGET {_duration(result.budget)}",
    )


def slowest_check(sent: list[Sent]) -> float | None:
    """Return the longest time that a check waited for the store."""
    waits = [check.seconds for request in sent for check in request.checks]
    return max((seconds for seconds in waits if seconds is not None), default=None)


def _breaker(result: Result) -> Promise:
    outage = result.outage
    most = result.nodes * (THRESHOLD + most_probes(outage.ended - outage.began))
    failures = _failures(result)
    return Promise(
        "breaker",
        "After three failures only one probe at a time uses a socket.",
        failures <= most if result.observer.degraded else None,
        f"checks that asked in vain: {failures}; at most {most} may",
    )


def _reported(result: Result) -> Promise:
    degraded, recovered = len(result.observer.degraded), len(result.observer.recovered)
    is_outage = degraded or _failures(result) >= result.nodes * THRESHOLD
    return Promise(
        "reported",
        "The outage and its end are reported once each.",
        (degraded, recovered) == (1, 1) if is_outage else None,
        f"store_degraded {degraded}, store_recovered {recovered}",
    )


def _recovery(result: Result) -> Promise:
    """Judge by the checks after the allowed time: a slow view only delays the next check."""
    allowed = LAST_DELAY + (2 if result.plan.way == BLACKHOLE else 1) * result.budget
    latest = result.outage.ended + allowed + _TOLERANCE
    late = [check for check in _fallback_checks(result) if check.began > latest]
    after = result.recovered_after
    evidence = "never seen to recover" if after is None else f"after {_duration(after)}"
    if late:
        evidence += f"; checks after that time, decided without Redis: {len(late)}"
    return Promise(
        "recovery",
        f"Redis decides again within {_duration(allowed)} of its return.",
        not late and after is not None if result.observer.degraded else None,
        evidence,
    )


def _fallback_checks(result: Result) -> list[SeenCheck]:
    """Return the checks that were decided without the store."""
    return [check for check in result.observer.checks if check.decision.source in FALLBACKS]


def _failures(result: Result) -> int:
    """Return how many checks asked the store during an outage, as their errors say."""
    errors = [check.error for check in result.observer.checks]
    return len([error for error in errors if error is not None and error.outage])


def _duration(seconds: float | None) -> str:
    return "-" if seconds is None else duration_rounded_up(seconds)


_JUDGES: tuple[Callable[[Result], Promise], ...] = (
    _answered,
    _limited,
    _share,
    _budget,
    _breaker,
    _reported,
    _recovery,
)
