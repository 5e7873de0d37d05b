"""throttled-py: its sliding window, which is two counters."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ..model import ADMITTED, REFUSED, Answer, Ask, AsyncAsk, Contender, Question, Setup
from ..site import TIMEOUT, no_retry
from .libraries import LACKS


def make(setup: Setup) -> Ask:
    from throttled import RedisStore, Throttled

    store = RedisStore(server=setup.redis, options=_options(setup))
    limiter = Throttled(store=store, **_rate(setup))

    def ask(question: Question) -> Answer:
        result = limiter.limit(question.client)
        if result.limited:
            return Answer(REFUSED, result.state.retry_after)
        return Answer(ADMITTED)

    return ask


def make_async(setup: Setup) -> AsyncAsk:
    from throttled.asyncio import RedisStore, Throttled

    limiter = Throttled(store=RedisStore(server=setup.redis), **_rate(setup))

    async def ask(question: Question) -> Answer:
        result = await limiter.limit(question.client)
        return Answer(REFUSED if result.limited else ADMITTED)

    return ask


def _rate(setup: Setup) -> dict[str, Any]:
    from throttled import RateLimiterType, per_duration

    return {
        "using": RateLimiterType.SLIDING_WINDOW.value,
        "quota": per_duration(timedelta(seconds=setup.rate.window), setup.rate.limit),
    }


def _options(setup: Setup) -> dict[str, Any]:
    if not setup.tuned:
        return {}
    return {
        "SOCKET_TIMEOUT": TIMEOUT,
        "SOCKET_CONNECT_TIMEOUT": TIMEOUT,
        "CONNECTION_POOL_KWARGS": {"retry": no_retry()},
    }


SLIDING_WINDOW = Contender(
    name="throttled-py, sliding window",
    module="throttled",
    make=make,
    make_async=make_async,
    is_library=True,
    lacks=LACKS,
)
