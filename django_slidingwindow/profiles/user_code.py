"""Call functions of the project, sync or async, from sync and async code."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async

Result = TypeVar("Result")


# Results of `is_async`. Finding one takes longer than most of these functions do, and a request
# calls several. Weak, so that a function that was created for one request can be deleted.
_is_async: WeakKeyDictionary[Callable[..., Any], bool] = WeakKeyDictionary()


def is_async(function: Callable[..., Any]) -> bool:
    """Whether the function returns an awaitable."""
    try:
        return _is_async[function]
    except (KeyError, TypeError):
        found = iscoroutinefunction(function) or iscoroutinefunction(
            getattr(type(function), "__call__", None)  # noqa: B004 -- an async __call__
        )
    # Some objects cannot be hashed, or have no weak references.
    with suppress(TypeError):
        _is_async[function] = found
    return found


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a function of the project. An `async def` runs in an event loop."""
    return async_to_sync(function)(*args) if is_async(function) else function(*args)


async def acall(function: Callable[..., Any], *args: Any) -> Any:
    """Do what `call` does, without blocking the event loop. A sync function runs in a thread."""
    return await (function(*args) if is_async(function) else in_thread(function, *args))


async def in_thread(function: Callable[..., Result], *args: Any) -> Result:
    """Return the result of a function, without blocking the event loop."""
    return await sync_to_async(function)(*args)


def path_of(function: Callable[..., Any]) -> str:
    """Return the dotted path of a function of the project, for people."""
    named: Any = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"
