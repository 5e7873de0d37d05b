"""Hold the slots of a request until its response is closed.

Django calls `request.close` when a response is closed, whichever middleware or error handler has
made the response, and after the last byte of a stream. So `hold` replaces that method. Without a
response there is nothing to close. If a client of an ASGI server goes away, Django cancels the task
of the request, but cannot stop a sync view, which runs in a thread: the slots are freed when that
thread has done its work. At the latest they are freed when Python deletes the request.
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
    """The slots of one request, and the function that replaces `request.close`."""

    def __init__(self, request: HttpRequest, state: RequestState, limiter: Limiter) -> None:
        # Weak, because the request refers to this object: both are deleted without the garbage
        # collector.
        self._request = ref(request)
        # Another library may have replaced the method too.
        self._replaced: Callable[[], None] | None = vars(request).get(_CLOSE)
        self._state = state
        self._limiter = limiter
        self._pid = os.getpid()

    def __call__(self) -> None:
        """Free the slots and close the request. This may block: Django calls it in a thread."""
        for decision in self._decisions():
            _release(self._limiter, decision)
        request = self._request()
        if self._replaced is not None:
            self._replaced()
        elif request is not None:
            type(request).close(request)

    def free_later(self) -> None:
        """Let the background thread free the slots.

        This does not wait for a lock, so that `__del__` may call it.
        """
        for decision in self._decisions():
            _to_free.append((self._limiter, decision))
            _background.wake()

    def _decisions(self) -> list[Decision]:
        """Return the decisions that hold slots now. `charge_when` may have replaced some."""
        return [one for one in self._state.decisions if one.receipt and one.receipt.holds_slots]

    def __del__(self) -> None:
        # A forked child has a copy of this object. The slots are the parent's.
        if self._pid == os.getpid():
            self.free_later()


def hold(request: HttpRequest, state: RequestState, limiter: Limiter) -> None:
    """Free the slots of a request when the request ends."""
    if isinstance(vars(request).get(_CLOSE), HeldSlots):
        return
    _background.start()
    held = HeldSlots(request, state, limiter)
    request.close = held  # type: ignore[method-assign]
    task, weak = _running_task(), ref(held)
    if task is not None:
        task.add_done_callback(lambda done: _task_done(done, weak()))
        _held_by_task.set(weak)
    elif isinstance(request, ASGIRequest):
        _by_thread.held = weak


def _running_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _task_done(task: asyncio.Task[Any], held: HeldSlots | None) -> None:
    """Free the slots if the task was cancelled."""
    if task.cancelled() and held is not None:
        freeing = asyncio.ensure_future(_free_after_view(held))
        _freeing.add(freeing)
        freeing.add_done_callback(_freeing.discard)


async def _free_after_view(held: HeldSlots) -> None:
    # A sync view runs in the thread of `sync_to_async`, so that this waits until the view ends.
    with suppress(RuntimeError):  # that thread has ended already
        await sync_to_async(held.free_later)()
    held.free_later()


# An event loop has only weak references to its tasks.
_freeing: set[asyncio.Future[None]] = set()


class _ByThread(threading.local):
    """The slots that a sync view of an ASGI server has last taken in this thread."""

    held: ref[HeldSlots] | None = None


_by_thread = _ByThread()
# The slots of the task that runs. From Django 6.0 on, the task of a request is not cancelled when
# the client goes away. Only what the task waits for is cancelled; then it sends `request_finished`.
_held_by_task: ContextVar[ref[HeldSlots] | None] = ContextVar("_held_by_task", default=None)


@receiver(request_finished)
def _request_finished(**kwargs: Any) -> None:
    """Free the slots of this thread and task, if Django has not closed the response."""
    references = (_by_thread.held, _held_by_task.get())
    _by_thread.held = None
    _held_by_task.set(None)
    for weak in references:
        held = None if weak is None else weak()
        if held is not None:
            held.free_later()


def _release(limiter: Limiter, decision: Decision) -> None:
    try:
        limiter.release(decision)
    except Exception:
        logger.exception("could not free the slot of a request: it expires after `hold`")


# Slots that the background thread has to free. `deque.append` is safe in `__del__`.
_to_free: deque[tuple[Limiter, Decision]] = deque()


def _free_all() -> None:
    with suppress(IndexError):
        while True:
            _release(*_to_free.popleft())


# The thread does not end, so that `__del__` never has to start it. A forked child forgets the
# slots: they are the parent's.
_background = Background(
    _free_all, name="django_slidingwindow.inflight", forked=_to_free.clear, ends_idle=False
)
