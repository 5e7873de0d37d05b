"""Threads and an event loop that check one identifier, or request one page, without a pause."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from django.core.handlers.base import BaseHandler
from django.test import AsyncRequestFactory, RequestFactory

from django_slidingwindow import limits
from tests.support.servers.redis import wait_until

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse
    from typing_extensions import Self

    from django_slidingwindow.decisions import Decision

PAUSE = 0.005


class Load:
    """Check an identifier all the time inside a `with` block.

    The end of the block raises the first exception that a check has raised.
    """

    callers = 3

    def __init__(self, profile: str, identifier: str) -> None:
        self.answers: list[Decision] = []
        self.seconds: list[float] = []
        """How long each check took, without the time in which the machine held up this process."""
        self._target = (profile, identifier)
        self._ended = threading.Event()
        self._executor = ThreadPoolExecutor(self.callers + 1)
        self._running: list[Future[None]] = []
        # For how many seconds this process was held up so far, and when `_watch` is due again.
        self._held_up = 0.0, math.inf

    @property
    def admitted(self) -> int:
        return sum(answer.allowed for answer in self.answers)

    @property
    def sources(self) -> set[str]:
        return {answer.source for answer in self.answers}

    def go_on(self, count: int) -> None:
        """Wait for this number of further answers."""
        goal = len(self.answers) + count
        wait_until(
            lambda: len(self.answers) >= goal or any(caller.done() for caller in self._running),
            "the load goes on",
        )

    def __enter__(self) -> Self:
        self._running.append(self._executor.submit(self._watch))
        for _ in range(self.callers - 1):
            self._running.append(self._executor.submit(self._check))
        self._running.append(self._executor.submit(asyncio.run, self._acheck()))
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._executor.shutdown()
        for caller in self._running:
            caller.result()

    def _check(self) -> None:
        while not self._ended.wait(PAUSE):
            start = self._clock()
            self._note(self._ask(), start)

    async def _acheck(self) -> None:
        while not self._ended.is_set():
            start = self._clock()
            self._note(await self._aask(), start)
            await asyncio.sleep(PAUSE)

    def _note(self, answer: Decision, start: float) -> None:
        self.seconds.append(self._clock() - start)
        self.answers.append(answer)

    def _clock(self) -> float:
        """Return the time of a clock that stops while the machine holds up this process."""
        held_up, due = self._held_up
        now = time.perf_counter()
        late = now - due
        return now - held_up - (late if late > PAUSE else 0.0)

    def _watch(self) -> None:
        """Measure how late this thread runs: it waits for a processor only, never for a check."""
        while not self._ended.wait(PAUSE):
            now = time.perf_counter()
            self._held_up = now - self._clock(), now + PAUSE

    def _ask(self) -> Decision:
        return limits.check(*self._target)

    async def _aask(self) -> Decision:
        return await limits.acheck(*self._target)


class PageLoad(Load):
    """Request a page of `outage_urls` through Django's handler. No request may fail."""

    def __init__(self, page: str) -> None:
        super().__init__(page, "")
        self._page = page
        self._handler, self._ahandler = BaseHandler(), BaseHandler()
        self._handler.load_middleware()
        self._ahandler.load_middleware(is_async=True)

    def _ask(self) -> Decision:
        request = RequestFactory().get(f"/{self._page}/sync/")
        return _decision(request, self._handler.get_response(request))

    async def _aask(self) -> Decision:
        request = AsyncRequestFactory().get(f"/{self._page}/async/")
        return _decision(request, await self._ahandler.get_response_async(request))


def _decision(request: HttpRequest, response: HttpResponse) -> Decision:
    decision: Decision = request.rate_limit  # type: ignore[attr-defined]
    assert response.status_code == (200 if decision.allowed else 429)
    return decision
