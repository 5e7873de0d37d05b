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


async def test_error_of_the_driver_is_raised_inside_the_flow() -> None:
    assert drive(forgiving(), refuse) == "forgave 7"
    assert await adrive(forgiving(), arefuse) == "forgave 7"


async def test_driver_raises_an_error_that_the_flow_does_not_handle() -> None:
    with pytest.raises(LookupError, match="1"):
        drive(doubled(1), refuse)
    with pytest.raises(LookupError, match="1"):
        await adrive(doubled(1), arefuse)


class Ended:
    """A flow that notes its end. It is kept alive, so that only the driver can end it."""

    def __init__(self) -> None:
        self.ended = False
        self.flow = self._flow()

    def _flow(self) -> Flow:
        try:
            yield 1
        finally:
            self.ended = True


async def test_flow_ends_at_once_when_the_call_is_cancelled() -> None:
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


def test_flow_ends_at_once_when_the_call_is_interrupted() -> None:
    def interrupt(question: int) -> None:
        raise KeyboardInterrupt

    ended = Ended()
    with pytest.raises(KeyboardInterrupt):
        drive(ended.flow, interrupt)
    assert ended.ended
