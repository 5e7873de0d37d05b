"""Calls of functions that a project has given, sync or async, from sync and async code."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async

Result = TypeVar("Result")


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


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Return what a function of the project answers; an `async def` gets a loop."""
    return async_to_sync(function)(*args) if is_async(function) else function(*args)


async def acall(function: Callable[..., Any], *args: Any) -> Any:
    """Do what `call` does on an event loop: a function that is not `async def` gets a thread."""
    return await (function(*args) if is_async(function) else in_thread(function, *args))


async def in_thread(function: Callable[..., Result], *args: Any) -> Result:
    """Return the function's result, without blocking the loop."""
    return await sync_to_async(function)(*args)


def path_of(function: Callable[..., Any]) -> str:
    """Return the dotted path of a function of the project, for people."""
    named: Any = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"
