"""Checks of requests in flight: a check that is cancelled keeps neither slots nor hits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any

from ..decisions import Decision

# An event loop keeps only weak references to its tasks.
_undoing: set[asyncio.Future[None]] = set()


async def charge_whole(
    charging: Coroutine[Any, Any, Decision], refund: Callable[[Decision], Awaitable[int]]
) -> Decision:
    """Return the decision. If the caller is cancelled meanwhile, give back what was charged."""
    task = asyncio.ensure_future(charging)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        undoing = asyncio.ensure_future(_undo(task, refund))
        _undoing.add(undoing)
        undoing.add_done_callback(_undoing.discard)
        await asyncio.shield(undoing)
        raise


async def _undo(
    task: asyncio.Future[Decision], refund: Callable[[Decision], Awaitable[int]]
) -> None:
    # Nobody is left to handle an error.
    with suppress(Exception):
        await refund(await task)
