"""Send requests over HTTP, and keep when each was sent and answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPSConnection
from typing import NamedTuple

from .. import __version__
from ..inspection.sample_request import merged
from .target import Target

USER_AGENT = f"django_slidingwindow-load/{__version__} (manage.py slidingwindow load)"
MAX_REQUESTS = 10_000
"""The most requests of one test."""

REFUSED = 429
_FIRST_ERROR = 400
_TIMEOUT = 10.0
_WORKERS = 8


class Answer(NamedTuple):
    """The result of a request. The site decided at some moment between `sent` and `came`."""

    sent: float
    came: float
    status: int | None
    """None if there was no response."""
    headers: HTTPMessage | None = None
    error: str = ""

    @property
    def admitted(self) -> bool:
        return self.status is not None and self.status < _FIRST_ERROR

    @property
    def refused(self) -> bool:
        return self.status == REFUSED


class Client:
    """Sends GET requests to one target and keeps the answers, until its time is over.

    Each request has its own connection. If a server closes a connection while it is used again, the
    client cannot know whether the request was counted.
    """

    def __init__(
        self,
        target: Target,
        headers: Sequence[tuple[str, str]] = (),
        *,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is sent after `seconds`."""
        self.answers: list[Answer] = []
        self.clock = clock
        self.end = clock() + seconds
        self._left = MAX_REQUESTS
        self._target = target
        own = {"User-Agent": USER_AGENT, "Connection": "close"}
        given = dict(merged(headers))
        replaced = {name.lower() for name in given}
        self._headers = {name: own[name] for name in own if name.lower() not in replaced} | given
        self._pool = ThreadPoolExecutor(_WORKERS)
        self._futures: list[Future[None]] = []

    def ask(self) -> Answer | None:
        """Send one request and return its answer; None if no more requests may be sent."""
        answers = self.burst(1)
        return answers[0] if answers else None

    def begin(self) -> bool:
        """Send one request as soon as a worker is free; return False if none may be sent."""
        if not self._left or self.clock() >= self.end:
            return False
        self._left -= 1
        self._futures.append(self._pool.submit(self._run))
        return True

    def wait(self) -> None:
        """Wait for all requests that have begun."""
        for future in self._futures:
            future.result()
        self._futures.clear()

    def burst(self, size: int) -> Sequence[Answer]:
        """Send requests as fast as the workers can, and return their answers."""
        first = len(self.answers)
        for _ in range(size):
            if not self.begin():
                break
        self.wait()
        return self.answers[first:]

    def close(self) -> None:
        """Drop requests that are not sent yet, and wait for the others."""
        self._pool.shutdown(cancel_futures=True)

    def _run(self) -> None:
        if self.clock() < self.end:
            self.answers.append(self._exchange())

    def _exchange(self) -> Answer:
        kind = HTTPSConnection if self._target.scheme == "https" else HTTPConnection
        sent = self.clock()
        try:
            with closing(kind(self._target.host, self._target.port, timeout=_TIMEOUT)) as http:
                http.connect()
                sent = self.clock()
                http.request("GET", self._target.path, headers=self._headers)
                response = http.getresponse()
                came = self.clock()
                response.read()
        except (OSError, HTTPException, UnicodeError) as error:
            return Answer(sent, self.clock(), None, error=f"{type(error).__name__}: {error}")
        return Answer(sent, came, response.status, response.headers)
