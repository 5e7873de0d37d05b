"""The slots that a request holds, until its response is closed.

Django calls `request.close` when a response is closed, whichever middleware or error handler has
made it, and after the last byte of a stream. So `hold` puts a function in the place of that
method. Without a response there is nothing to close. If a client of an ASGI server goes away,
Django cancels the task of the request, but cannot stop a sync view, which runs in a thread: then
the slots are free when that thread has done its work. At the latest they are free when Python
deletes the request.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import ref

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.core.signals import request_finished
from django.dispatch import receiver

from ..core.background import Background

if TYPE_CHECKING:
    from django.http import HttpRequest

    from ..core.limiter import Limiter
    from ..decisions import Decision
    from .state import RequestState

logger = logging.getLogger("django_slidingwindow")
_CLOSE = "close"


class HeldSlots:
    """What closing a request does while it holds slots."""

    def __init__(self, request: HttpRequest, state: RequestState, limiter: Limiter) -> None:
        # Weak, so that both are deleted as soon as nobody needs them any more.
        self._request = ref(request)
        # What another library has put in the same place.
        self._before: Callable[[], None] | None = vars(request).get(_CLOSE)
        self._state = state
        self._limiter = limiter
        self._pid = os.getpid()

    def __call__(self) -> None:
        """Free the slots, and close the request. It may block: Django calls it in a thread."""
        for decision in self._decisions():
            _release(self._limiter, decision)
        request = self._request()
        if self._before is not None:
            self._before()
        elif request is not None:
            type(request).close(request)

    def leave(self) -> None:
        """Let the thread free the slots. It waits for no lock, so that `__del__` may call it."""
        for decision in self._decisions():
            _left.append((self._limiter, decision))
            _background.wake()

    def _decisions(self) -> list[Decision]:
        # As they are now: `charge_when` may have given back a part of them.
        return [one for one in self._state.decisions if one.receipt and one.receipt.holds_slots]

    def __del__(self) -> None:
        # A forked child has a copy, and not the slots.
        if self._pid == os.getpid():
            self.leave()


def hold(request: HttpRequest, state: RequestState, limiter: Limiter) -> None:
    """Free the slots of a request when it ends."""
    if isinstance(vars(request).get(_CLOSE), HeldSlots):
        return
    _background.start()
    held = HeldSlots(request, state, limiter)
    request.close = held  # type: ignore[method-assign]
    task, found = _running_task(), ref(held)
    if task is not None:
        task.add_done_callback(lambda ended: _ended(ended, found()))
        _in_task.set(found)
    elif isinstance(request, ASGIRequest):
        _here.held = found


def _running_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _ended(task: asyncio.Task[Any], held: HeldSlots | None) -> None:
    """Free the slots if the task was cancelled."""
    if task.cancelled() and held is not None:
        leaving = asyncio.ensure_future(_leave_after_view(held))
        _leaving.add(leaving)
        leaving.add_done_callback(_leaving.discard)


async def _leave_after_view(held: HeldSlots) -> None:
    # A sync view runs in this very thread, so that this waits for it.
    with suppress(RuntimeError):  # that thread has ended already
        await sync_to_async(held.leave)()
    held.leave()


# An event loop forgets tasks that nobody holds.
_leaving: set[asyncio.Future[None]] = set()


class _Here(threading.local):
    """What this thread was last asked to hold for an ASGI server."""

    held: ref[HeldSlots] | None = None


_here = _Here()
# What the task of a request holds. From Django 6.0 on, that task is not cancelled when the client
# goes away: only what it waits for is, and then it sends `request_finished`.
_in_task: ContextVar[ref[HeldSlots] | None] = ContextVar("_in_task", default=None)


@receiver(request_finished)
def _finished(**kwargs: Any) -> None:
    """Free what this thread and task have taken, if Django has not closed the response."""
    places = (_here.held, _in_task.get())
    _here.held = None
    _in_task.set(None)
    for found in places:
        held = None if found is None else found()
        if held is not None:
            held.leave()


def _release(limiter: Limiter, decision: Decision) -> None:
    try:
        limiter.release(decision)
    except Exception:
        logger.exception("could not free the slot of a request: it is free after `hold`")


# Slots that are left to the thread. To append something is safe in `__del__`.
_left: deque[tuple[Limiter, Decision]] = deque()


def _free() -> None:
    with suppress(IndexError):
        while True:
            _release(*_left.popleft())


# It does not end, so that `__del__` need not start it. In a forked child, the slots are the
# parent's.
_background = Background(
    _free, name="django_slidingwindow.inflight", forked=_left.clear, ends_idle=False
)
