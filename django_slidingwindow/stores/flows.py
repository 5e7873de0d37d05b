"""Logic without I/O: a flow is a generator that yields questions, and a driver answers them.

The sync and the async driver run the same flow, so that the logic is written once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

Question = TypeVar("Question")
Result = TypeVar("Result")


def drive(flow: Generator[Question, Any, Result], answer: Callable[[Question], Any]) -> Result:
    """Run a flow and return its result. Errors of `answer` are raised at the flow's `yield`."""
    try:
        question = next(flow)
        while True:
            try:
                reply = answer(question)
            except BaseException as error:  # noqa: BLE001 -- the flow may handle it
                question = flow.throw(error)
            else:
                question = flow.send(reply)
    except StopIteration as stop:
        result: Result = stop.value
        return result


async def adrive(
    flow: Generator[Question, Any, Result], answer: Callable[[Question], Awaitable[Any]]
) -> Result:
    """Do what `drive` does, without blocking the event loop."""
    try:
        question = next(flow)
        while True:
            try:
                reply = await answer(question)
            except BaseException as error:  # noqa: BLE001 -- the flow may handle it
                question = flow.throw(error)
            else:
                question = flow.send(reply)
    except StopIteration as stop:
        result: Result = stop.value
        return result
