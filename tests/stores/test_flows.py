from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator
from typing import Any

import pytest

from django_slidingwindow.stores.flows import adrive, drive

Flow = Generator[int, int, Any]


def doubled(*questions: int) -> Flow:
    answers = []
    for question in questions:
        answers.append((yield question))
    return answers


def double(question: int) -> int:
    return 2 * question


async def adouble(question: int) -> int:
    await asyncio.sleep(0)
    return 2 * question


@pytest.mark.parametrize("questions", [(), (1,), (1, 2, 3)])
async def test_both_drivers_give_a_flow_its_answers(questions: tuple[int, ...]) -> None:
    expected = [2 * question for question in questions]
    assert drive(doubled(*questions), double) == expected
    assert await adrive(doubled(*questions), adouble) == expected


def refuse(question: int) -> int:
    raise LookupError(question)


async def arefuse(question: int) -> int:
    return refuse(question)


def forgiving() -> Flow:
    try:
        yield 7
    except LookupError as error:
        with contextlib.suppress(LookupError):
            yield 8
        return f"forgave {error}"


async def test_an_error_of_the_answer_is_raised_where_the_flow_asked() -> None:
    assert drive(forgiving(), refuse) == "forgave 7"
    assert await adrive(forgiving(), arefuse) == "forgave 7"


async def test_an_error_that_the_flow_does_not_handle_leaves_the_driver() -> None:
    with pytest.raises(LookupError, match="1"):
        drive(doubled(1), refuse)
    with pytest.raises(LookupError, match="1"):
        await adrive(doubled(1), arefuse)


class Ended:
    """A flow that knows whether it was ended, and kept alive so that nobody else ends it."""

    def __init__(self) -> None:
        self.ended = False
        self.flow = self._flow()

    def _flow(self) -> Flow:
        try:
            yield 1
        finally:
            self.ended = True


async def test_a_cancelled_call_ends_its_flow_at_once() -> None:
    asked = asyncio.Event()

    async def never(question: int) -> None:
        asked.set()
        await asyncio.Event().wait()

    ended = Ended()
    task = asyncio.ensure_future(adrive(ended.flow, never))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.ended


def test_an_interrupted_call_ends_its_flow_at_once() -> None:
    def interrupt(question: int) -> None:
        raise KeyboardInterrupt

    ended = Ended()
    with pytest.raises(KeyboardInterrupt):
        drive(ended.flow, interrupt)
    assert ended.ended
