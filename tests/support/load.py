"""Threads and an event loop that check one identifier all the time."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from django_slidingwindow import limits
from tests.support.servers.redis import wait_until

if TYPE_CHECKING:
    from typing_extensions import Self

    from django_slidingwindow.decisions import Decision

PAUSE = 0.005


class Load:
    """Runs from `with` to its end, which raises what a check has raised."""

    callers = 3

    def __init__(self, profile: str, identifier: str) -> None:
        self.answers: list[Decision] = []
        self._asked = (profile, identifier)
        self._ended = threading.Event()
        self._executor = ThreadPoolExecutor(self.callers)
        self._running: list[Future[None]] = []

    @property
    def admitted(self) -> int:
        return sum(answer.allowed for answer in self.answers)

    @property
    def sources(self) -> set[str]:
        return {answer.source for answer in self.answers}

    def go_on(self, count: int) -> None:
        """Return after this number of further answers."""
        goal = len(self.answers) + count
        wait_until(
            lambda: len(self.answers) >= goal or any(caller.done() for caller in self._running),
            "the load goes on",
        )

    def __enter__(self) -> Self:
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
            self.answers.append(limits.check(*self._asked))

    async def _acheck(self) -> None:
        while not self._ended.is_set():
            self.answers.append(await limits.acheck(*self._asked))
            await asyncio.sleep(PAUSE)
