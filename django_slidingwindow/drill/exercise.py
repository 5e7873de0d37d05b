"""The exercise: requests before an outage, during it, and until Redis decides again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any, NamedTuple, TypeAlias

from ..conf import conf
from ..decisions import ALLOW, DENY, LOCAL
from ..exceptions import SlidingWindowError, StoreError
from ..guard.current_limiter import get_limiter
from ..stores.flows import adrive, drive
from .handlers import Asgi, Call, Wsgi
from .observer import Observer, SeenCheck
from .outage import Outage, interrupted

BEFORE, DURING, AFTER = PHASES = ("before", "outage", "after")
FALLBACKS = frozenset({LOCAL, ALLOW, DENY})
"""The sources of decisions that were made without the store."""

# Requests to each path before the outage, and after Redis decides again.
_USUAL = 3
# Seconds between requests that wait for Redis to decide again, and how long they do so.
_PACE, _PATIENCE = 0.05, 5.0


class DrillError(SlidingWindowError):
    """The drill cannot begin: these requests would prove nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do."""

    calls: Sequence[Call]
    """Sent in turn."""
    way: str
    seconds: float
    """How long the outage lasts."""
    requests: int
    """How many requests are spread over the outage."""
    asgi: bool = False


class Sent(NamedTuple):
    """A request, and the checks that were made while it was answered."""

    phase: str
    call: Call
    status: int | None
    """None if the handler raised an exception."""
    seconds: float
    error: str
    checks: Sequence[SeenCheck]


@dataclass(slots=True, kw_only=True)
class Result:
    """What was seen. Times are those of the monotonic clock."""

    plan: Plan
    outage: Outage
    observer: Observer
    budget: float
    """LATENCY_BUDGET, in seconds."""
    nodes: int = 1
    """Parts of the store that fail each by itself: more than one for a cluster."""
    sent: list[Sent] = field(default_factory=list)

    def of(self, *phases: str) -> list[Sent]:
        return [request for request in self.sent if request.phase in phases]

    @property
    def recovered_after(self) -> float | None:
        """Seconds from the end of the outage until Redis decided again."""
        ends = [at - self.outage.ends for at in self.observer.recovered]
        return max(0.0, ends[-1]) if ends else None


Step: TypeAlias = "Call | float"
"""A request to send, or seconds to wait."""


def rehearse(plan: Plan) -> Result:
    """Do the exercise. Raise DrillError if no limit is checked, StoreError if Redis is away."""
    if plan.asgi:
        return asyncio.run(_rehearse_async(plan))
    with ExitStack() as stack:
        result = _prepare(plan, stack)
        handler = Wsgi()
        return drive(_flow(result), lambda step: _answer(handler, step))


async def _rehearse_async(plan: Plan) -> Result:
    with ExitStack() as stack:
        result = _prepare(plan, stack)
        handler = Asgi()

        async def answer(step: Step) -> Any:
            if isinstance(step, Call):
                return await handler.send(step)
            await asyncio.sleep(step)
            return None

        return await adrive(_flow(result), answer)


def _answer(handler: Wsgi, step: Step) -> Any:
    if isinstance(step, Call):
        return handler.send(step)
    time.sleep(step)
    return None


def _prepare(plan: Plan, stack: ExitStack) -> Result:
    outage, observer = Outage(), Observer()
    stack.enter_context(interrupted(outage, plan.way))
    stack.enter_context(observer.watching())
    return Result(plan=plan, outage=outage, observer=observer, budget=conf.latency_budget)


def _flow(result: Result) -> Generator[Step, Any, Result]:
    plan, outage = result.plan, result.outage
    for call in plan.calls:
        for _ in range(_USUAL):
            yield from _send(result, BEFORE, call)
    _require_limits(result)
    # A cluster's are known once it has been asked.
    result.nodes = len(get_limiter().store.nodes())
    calls = cycle(plan.calls)
    outage.begin(plan.seconds)
    for number in range(plan.requests):
        yield from _wait_until(outage.began + number * plan.seconds / plan.requests)
        if not outage.is_on:
            # The views were slower than that.
            break
        yield from _send(result, DURING, next(calls))
    yield from _wait_until(outage.ends)
    while not _is_over(result):
        yield from _send(result, AFTER, next(calls))
        yield _PACE
    for call in plan.calls:
        for _ in range(_USUAL):
            yield from _send(result, AFTER, call)
    return result


def _send(result: Result, phase: str, call: Call) -> Generator[Step, Any, None]:
    checks = result.observer.checks
    first, start = len(checks), time.monotonic()
    status, error = None, ""
    try:
        status = yield call
    except Exception as raised:  # noqa: BLE001 -- a finding of the drill, whatever it is
        error = f"{type(raised).__name__}: {raised}"
    seconds = time.monotonic() - start
    result.sent.append(Sent(phase, call, status, seconds, error, checks[first:]))


def _wait_until(moment: float) -> Generator[Step, Any, None]:
    left = moment - time.monotonic()
    if left > 0:
        yield left


def _is_over(result: Result) -> bool:
    """Whether Redis decides again, was never missed, or has been waited for long enough."""
    observer = result.observer
    if len(observer.recovered) >= len(observer.degraded):
        return True
    return time.monotonic() > result.outage.ends + _PATIENCE


def _require_limits(result: Result) -> None:
    for call in result.plan.calls:
        sent = [request for request in result.of(BEFORE) if request.call is call]
        checks = [check for request in sent for check in request.checks]
        if not checks:
            raise DrillError(
                f"No limit was checked for {call.method} {call.path} from {call.ip} "
                f"(status {sent[-1].status}). Choose a path whose view or rule has a limit."
            )
        for check in checks:
            if check.decision.source in FALLBACKS:
                raise check.error or StoreError("the breaker of this process is open")
