"""limits: its moving window, which is exact."""

from __future__ import annotations

import time
from typing import Any

from ..model import ADMITTED, REFUSED, Answer, Ask, AsyncAsk, Contender, Question, Setup
from ..site import TIMEOUT, no_retry
from .libraries import LACKS


def make(setup: Setup) -> Ask:
    from limits.storage import RedisStorage
    from limits.strategies import MovingWindowRateLimiter

    limiter = MovingWindowRateLimiter(RedisStorage(setup.redis, **_options(setup)))
    item = _item(setup)

    def ask(question: Question) -> Answer:
        if limiter.hit(item, question.client):
            return Answer(ADMITTED)
        if not question.tell:
            return Answer(REFUSED)
        reset, _ = limiter.get_window_stats(item, question.client)
        return Answer(REFUSED, reset - time.time())

    return ask


def make_async(setup: Setup) -> AsyncAsk:
    from limits.aio.storage import RedisStorage
    from limits.aio.strategies import MovingWindowRateLimiter

    storage = RedisStorage(f"async+{setup.redis}", implementation="redispy")
    limiter, item = MovingWindowRateLimiter(storage), _item(setup)

    async def ask(question: Question) -> Answer:
        return Answer(ADMITTED if await limiter.hit(item, question.client) else REFUSED)

    return ask


def _item(setup: Setup) -> Any:
    from limits import RateLimitItemPerSecond

    return RateLimitItemPerSecond(setup.rate.limit, setup.rate.window)


def _options(setup: Setup) -> dict[str, Any]:
    if not setup.tuned:
        return {}
    return {
        "socket_timeout": TIMEOUT,
        "socket_connect_timeout": TIMEOUT,
        "retry": no_retry(),
    }


MOVING_WINDOW = Contender(
    name="limits, moving window",
    module="limits",
    make=make,
    make_async=make_async,
    is_library=True,
    lacks=LACKS,
)
