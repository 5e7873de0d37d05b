"""One flow, two drivers: a generator yields questions, and a driver does the I/O."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

Question = TypeVar("Question")
Result = TypeVar("Result")


def drive(flow: Generator[Question, Any, Result], answer: Callable[[Question], Any]) -> Result:
    """Return the flow's result. What `answer` raises is raised where the flow asked."""
    try:
        question = next(flow)
        while True:
            try:
                reply = answer(question)
            except BaseException as error:  # noqa: BLE001 -- the flow handles it, or not
                question = flow.throw(error)
            else:
                question = flow.send(reply)
    except StopIteration as stop:
        result: Result = stop.value
        return result


async def adrive(
    flow: Generator[Question, Any, Result], answer: Callable[[Question], Awaitable[Any]]
) -> Result:
    """Do what `drive` does, awaiting each answer."""
    try:
        question = next(flow)
        while True:
            try:
                reply = await answer(question)
            except BaseException as error:  # noqa: BLE001 -- the flow handles it, or not
                question = flow.throw(error)
            else:
                question = flow.send(reply)
    except StopIteration as stop:
        result: Result = stop.value
        return result
