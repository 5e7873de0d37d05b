"""Questions that a flow asks of code that may block, answered from sync and async alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async

Result = TypeVar("Result")


class Ask:
    """A function in its two forms, and what it is called with."""

    __slots__ = ("args", "asynch", "sync")

    def __init__(
        self,
        sync: Callable[..., Any],
        asynch: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
    ) -> None:
        self.sync = sync
        self.asynch = asynch
        self.args = args


def answer(question: Ask) -> Any:
    """Return the answer, for sync code."""
    return question.sync(*question.args)


async def aanswer(question: Ask) -> Any:
    """Return the answer, for async code."""
    return await question.asynch(*question.args)


# To find it out takes longer than most of these functions do, and a request asks several. Weak:
# a function that a request has made for itself goes with the request.
_found_async: WeakKeyDictionary[Callable[..., Any], bool] = WeakKeyDictionary()


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await."""
    try:
        return _found_async[function]
    except (KeyError, TypeError):
        found = iscoroutinefunction(function) or iscoroutinefunction(
            getattr(type(function), "__call__", None)  # noqa: B004 -- an async __call__
        )
    # Not every object can be kept so.
    with suppress(TypeError):
        _found_async[function] = found
    return found


def ask(function: Callable[..., Any], *args: Any) -> Ask:
    """Return a call of the project's own function, which nobody knows to be quick.

    In async code a sync function runs in a thread, so that it may use the database,
    and an `async def` runs on the loop. In sync code an `async def` gets a loop.
    """
    return Ask(*both_forms(function), args)


def both_forms(
    function: Callable[..., Any],
) -> tuple[Callable[..., Any], Callable[..., Awaitable[Any]]]:
    """Return the function for sync code and for async code."""
    if is_async(function):
        return partial(_on_a_loop, function), function
    return function, partial(in_thread, function)


def _on_a_loop(function: Callable[..., Awaitable[Any]], *args: Any) -> Any:
    return async_to_sync(function)(*args)


async def in_thread(function: Callable[..., Result], *args: Any) -> Result:
    """Return the function's result, without blocking the loop."""
    return await sync_to_async(function)(*args)
