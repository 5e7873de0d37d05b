"""Limiters with faults that the conformance benchmark must find."""

from __future__ import annotations

import time
from typing import Any

import redis

from benchmarks.conformance.model import (
    ADMITTED,
    REFUSED,
    Answer,
    Ask,
    AsyncAsk,
    Contender,
    Question,
    Setup,
)


def naive(setup: Setup) -> Ask:
    """Return a limiter that makes all the usual mistakes."""
    timeout = 10 if setup.patient or setup.asynchronous else 0.2
    client: Any = redis.Redis.from_url(setup.redis, socket_timeout=timeout)
    script = client.script_load("return 1")

    def ask(question: Question) -> Answer:
        who = question.forwarded.split(",")[0] or question.client
        client.evalsha(script, 0)
        client.rpush("log", who)
        outcome = ADMITTED
        for number, rate in enumerate(setup.rates):
            now = int(time.time()) // rate.window
            key = f"{number}:{'all' if rate.shared else who}:{now}"
            hits = int(client.get(key) or 0)
            time.sleep(0.001)
            client.set(key, hits + 1, ex=rate.window)
            if hits >= rate.limit:
                outcome = REFUSED
        return Answer(outcome, setup.rate.window + 1)

    return ask


def naive_async(setup: Setup) -> AsyncAsk:
    blocking = naive(setup)

    async def ask(question: Question) -> Answer:
        return blocking(question)

    return ask


def stubborn(setup: Setup) -> Ask:
    """Return a limiter whose window restarts with every request."""
    client: Any = redis.Redis.from_url(setup.redis)

    def ask(question: Question) -> Answer:
        hits = client.incr(question.client)
        client.expire(question.client, setup.rate.window)
        return Answer(ADMITTED if hits <= setup.rate.limit else REFUSED)

    return ask


NAIVE = Contender(name="naive", module="redis", make=naive, make_async=naive_async)
STUBBORN = Contender(name="stubborn", module="redis", make=stubborn)
MISSING = Contender(name="missing", module="no_such_module", make=naive)
FAILING = Contender(name="failing", module="redis", make=lambda setup: naive(setup)._no_such_thing)
