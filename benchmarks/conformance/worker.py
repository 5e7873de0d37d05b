"""A process that runs one contender, with questions from the standard input.

`hosts.Host` runs `python -m benchmarks.conformance.worker CONTENDER SETUP`. Each line of input is a
JSON list of questions; each line of output is a JSON list of answers.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from .model import Answer, Ask, AsyncAsk, Contender, Question, Rate, Setup

TICK = 0.005
"""Seconds between two looks at the event loop."""


def main() -> None:
    path, text = sys.argv[1:]
    given = json.loads(text)
    setup = Setup(**{**given, "rates": tuple(Rate(**rate) for rate in given["rates"])})
    # Contenders may print, so only answers go to the original standard output.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    _set_clock(setup.clock)
    contender = load(path)
    _start_django(contender, setup)
    run = _async_runner(contender, setup) if setup.asynchronous else _runner(contender, setup)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(run([Question(*item) for item in json.loads(line)])), file=answers)
        answers.flush()


def load(path: str) -> Contender:
    """Return the contender at `module:name`."""
    module, _, name = path.partition(":")
    found: Contender = getattr(importlib.import_module(module), name)
    return found


def _set_clock(ahead: float) -> None:
    """Shift the wall clock of this process, before anything else has imported it."""
    if not ahead:
        return
    time.time = _Shifted(time.time, ahead)
    time.time_ns = _Shifted(time.time_ns, int(ahead * 1e9))


class _Shifted:
    """A clock that is ahead. Unlike a function, it may be an attribute of a class."""

    def __init__(self, clock: Callable[[], Any], ahead: float) -> None:
        self._clock, self._ahead = clock, ahead

    def __call__(self) -> Any:
        return self._clock() + self._ahead


def _start_django(contender: Contender, setup: Setup) -> None:
    import django
    from django.conf import settings

    from .site import base_settings

    settings.configure(**{**base_settings(setup), **contender.settings(setup)})
    django.setup()


def _runner(contender: Contender, setup: Setup) -> Any:
    ask = contender.make(setup)
    return lambda questions: [_answer(ask, question) for question in questions]


def _answer(ask: Ask, question: Question) -> Answer:
    wait = question.at - time.monotonic()
    if wait > 0:
        time.sleep(wait)
    sent = time.monotonic()
    try:
        answer = ask(question)
    except Exception as error:  # noqa: BLE001, a contender that fails is a result
        answer = Answer(type(error).__name__)
    return answer._replace(sent=sent, received=time.monotonic())


def _async_runner(contender: Contender, setup: Setup) -> Any:
    """Ask all questions at once; the last answer's `retry_after` is the longest stall."""
    loop = asyncio.new_event_loop()
    assert contender.make_async is not None
    ask = contender.make_async(setup)

    async def run(questions: list[Question]) -> list[Answer]:
        watch = asyncio.ensure_future(_longest_stall(done := asyncio.Event()))
        await asyncio.sleep(0)
        answers = await asyncio.gather(*(_async_answer(ask, question) for question in questions))
        done.set()
        return [*answers, Answer("stall", await watch)]

    return lambda questions: loop.run_until_complete(run(questions))


async def _async_answer(ask: AsyncAsk, question: Question) -> Answer:
    sent = time.monotonic()
    try:
        answer = await ask(question)
    except Exception as error:  # noqa: BLE001, a contender that fails is a result
        answer = Answer(type(error).__name__)
    return answer._replace(sent=sent, received=time.monotonic())


async def _longest_stall(done: asyncio.Event) -> float:
    """Return the longest time that the event loop did not run anything."""
    longest, last = 0.0, time.monotonic()
    while not done.is_set():
        await asyncio.sleep(TICK)
        now = time.monotonic()
        longest, last = max(longest, now - last - TICK), now
    return longest


if __name__ == "__main__":
    main()
