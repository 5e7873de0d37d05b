"""Call functions of the project, sync or async, from sync and async code."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async

Result = TypeVar("Result")


def is_async(function: Callable[..., Any]) -> bool:
    """Whether the function returns an awaitable."""
    return iscoroutinefunction(function) or iscoroutinefunction(
        getattr(type(function), "__call__", None)  # noqa: B004 -- an async __call__
    )


def synchronous(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for sync code: an `async def` runs in an event loop.

    An async check calls it in a thread, so that it runs in the event loop of the check.
    """
    if not is_async(function):
        return function

    @wraps(function)
    def wrapper(*args: Any) -> Any:
        return async_to_sync(function)(*args)

    return wrapper


async def acall(function: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a function of the project. A sync function runs in a thread."""
    return await (function(*args) if is_async(function) else in_thread(function, *args))


async def in_thread(function: Callable[..., Result], *args: Any) -> Result:
    """Return the result of a function, without blocking the event loop."""
    return await sync_to_async(function)(*args)


def path_of(function: Callable[..., Any]) -> str:
    """Return the dotted path of a function of the project, for people."""
    # An object that `synchronous` has wrapped has no name that the wrapper could take over.
    function = getattr(function, "__wrapped__", function)
    named: Any = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"
