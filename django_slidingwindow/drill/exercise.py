"""The drill itself: requests before an outage, during it, and until Redis decides again."""

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
"""Sources of decisions that were made without the store."""

# Requests to each path before the outage, and again after Redis has recovered.
_REQUESTS_EACH = 3
# Seconds between requests while the drill waits for Redis to recover, and the longest wait.
_PAUSE, _PATIENCE = 0.05, 5.0


class DrillError(SlidingWindowError):
    """The drill cannot begin, because its requests would prove nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The requests and the outage of a drill."""

    calls: Sequence[Call]
    """Sent in turn."""
    way: str
    """One of WAYS."""
    seconds: float
    """How long the outage lasts."""
    requests: int
    """How many requests are spread over the outage."""
    asgi: bool = False


class Sent(NamedTuple):
    """A request, its result, and the checks that were made for it."""

    phase: str
    call: Call
    status: int | None
    """None if the handler raised an exception."""
    seconds: float
    error: str
    checks: Sequence[SeenCheck]


@dataclass(slots=True, kw_only=True)
class Result:
    """What a drill has seen. Times are those of the monotonic clock."""

    plan: Plan
    outage: Outage
    observer: Observer
    budget: float
    """LATENCY_BUDGET, in seconds."""
    nodes: int = 1
    """The number of nodes of the store, which fail independently: more than one for a cluster."""
    sent: list[Sent] = field(default_factory=list)

    def of(self, *phases: str) -> list[Sent]:
        """Return the requests of these phases."""
        return [request for request in self.sent if request.phase in phases]

    @property
    def recovered_after(self) -> float | None:
        """Seconds from the end of the outage until `store_recovered`; None if it was not sent."""
        recovered = self.observer.recovered
        return max(0.0, recovered[-1] - self.outage.ended) if recovered else None


Step: TypeAlias = "Call | float"
"""A request to send, or seconds to wait."""


def rehearse(plan: Plan) -> Result:
    """Carry out the plan. Raise DrillError if no limit is checked, StoreError if Redis is away."""
    if plan.asgi:
        return asyncio.run(_rehearse_async(plan))
    with ExitStack() as stack:
        result = _prepare(plan, stack)
        handler = Wsgi()
        return drive(_flow(result), lambda step: _perform(handler, step))


async def _rehearse_async(plan: Plan) -> Result:
    with ExitStack() as stack:
        result = _prepare(plan, stack)
        handler = Asgi()

        async def perform(step: Step) -> Any:
            if isinstance(step, Call):
                return await handler.send(step)
            await asyncio.sleep(step)
            return None

        return await adrive(_flow(result), perform)


def _perform(handler: Wsgi, step: Step) -> Any:
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
    """Yield the steps of the drill."""
    plan, outage = result.plan, result.outage
    for call in plan.calls:
        for _ in range(_REQUESTS_EACH):
            yield from _send(result, BEFORE, call)
    _require_limits(result)
    # The nodes of a cluster are known after the first requests.
    result.nodes = len(get_limiter().store.nodes())
    calls = cycle(plan.calls)
    outage.begin()
    end = outage.began + plan.seconds
    for number in range(plan.requests):
        yield from _wait_until(outage.began + number * plan.seconds / plan.requests)
        if time.monotonic() >= end:
            # The views were too slow to send all requests in time.
            break
        yield from _send(result, DURING, next(calls))
    yield from _wait_until(end)
    # Not by the clock: a request that began during the outage must not end after it.
    outage.end()
    while not _is_over(result):
        yield from _send(result, AFTER, next(calls))
        yield _PAUSE
    for call in plan.calls:
        for _ in range(_REQUESTS_EACH):
            yield from _send(result, AFTER, call)
    return result


def _send(result: Result, phase: str, call: Call) -> Generator[Step, Any, None]:
    """Send a request, and add it to the result with the checks that were made meanwhile."""
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
    """Whether Redis decides again, no outage was reported, or the wait has been long enough."""
    observer = result.observer
    if len(observer.recovered) >= len(observer.degraded):
        return True
    return time.monotonic() > result.outage.ended + _PATIENCE


def _require_limits(result: Result) -> None:
    """Raise an error if a path has no limit, or if Redis did not decide before the outage."""
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
