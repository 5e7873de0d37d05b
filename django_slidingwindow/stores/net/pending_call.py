"""A call on the connection of an event loop."""

from __future__ import annotations

import asyncio
from typing import Any


class PendingCall:
    """A call that waits for a number of replies."""

    __slots__ = ("answer", "replies", "spare", "timer", "wanted")

    def __init__(self, answer: asyncio.Future[list[Any]], wanted: int) -> None:
        self.answer = answer
        self.wanted = wanted
        self.replies: list[Any] = []
        self.timer: asyncio.TimerHandle | None = None
        # The seconds that the server may take after the call has stopped waiting.
        self.spare = 0.0

    def stop(self) -> None:
        """Stop the timer."""
        if self.timer is not None:
            self.timer.cancel()

    def answered(self) -> bool:
        """Note that all replies have come; return False if the call had failed before that."""
        self.stop()
        if self.answer.done():
            return self.answer.cancelled()
        self.answer.set_result(self.replies)
        return True

    def fail(self, error: Exception) -> None:
        self.stop()
        if not self.answer.done():
            self.answer.set_exception(error)

    def withdraw(self) -> None:
        """End a call that was not sent."""
        self.stop()
        if not self.answer.cancel() and not self.answer.cancelled():
            # Retrieve the exception, or asyncio logs that nobody did.
            self.answer.exception()
