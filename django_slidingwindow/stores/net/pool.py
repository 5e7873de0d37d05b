"""A stack of connections to one server, which threads share.

It bypasses redis-py's pool and its way to run commands, which would take most of a check's time.

An exception may occur at any point, raised by a signal handler or by gevent. So the stack uses no
lock that could stay locked and no counter that could become wrong: a place without a reference
to it is free.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from os import getpid, write
from typing import Any
from weakref import ref

from redis.exceptions import MaxConnectionsError

from ..errors import connecting, is_outage
from .channel import CHUNK, SHORT, SLACK, Channel
from .settings import ConnectionSettings

# A call that waits for a connection tries again after this many seconds, even if nothing wakes it.
_LOOK_AGAIN = 0.02
# A connection that was used within this many seconds is used again without a check. Servers and
# proxies close only connections that were idle for longer. Under uWSGI every use is checked,
# because uWSGI forks without Python's knowledge: the connection may belong to the parent process.
_FRESH = 0.0 if "uwsgi" in sys.modules else 0.01


class _Place:
    """Room for one connection. Either the stack or the call that uses it holds the place."""

    __slots__ = ("__weakref__", "channel", "connection")

    def __init__(self) -> None:
        self.connection: Any = None
        self.channel: Channel | None = None


class Connections:
    """A stack of idle connections. A thread takes one only while it exchanges something."""

    def __init__(self, find: Callable[[float], ConnectionSettings], *, most: int) -> None:
        """`find` takes a deadline and returns the settings for a new connection.

        `most` is the largest number of connections at the same time.
        """
        self._find = find
        self._most = most
        self._idle: deque[_Place] = deque()
        # All places in the order of their creation. Only the first `most` living ones are valid.
        self._places: dict[ref[_Place], None] = {}
        self._waiting: deque[threading.Lock] = deque()

    def exchange(self, payload: bytes, replies: int, deadline: float) -> list[Any]:
        """Send a payload once and return the replies. A server's error is returned, not raised."""
        place = None
        try:
            try:
                place = self._idle.pop()
            except IndexError:
                place = self._find_place(deadline, True)
            channel = place.channel
            if channel is None or not 0.0 <= deadline - channel.deadline < _FRESH:
                channel = self._look(place, deadline)
            channel.deadline = deadline
            if channel.descriptor is not None and len(payload) <= SHORT:
                write(channel.descriptor, payload)
            else:
                channel.send(payload)
            reader = channel.reader
            if reader is None:
                answers = channel.receive(replies)
            else:
                # `receive`, inlined for most replies (`python -m benchmarks views`).
                if not -SLACK < channel.timeout - deadline + time.monotonic() < SLACK:
                    channel.bound()
                reader.feed(channel.raw.recv(CHUNK))
                answer = reader.gets()
                if replies == 1 and type(answer) is bytes:
                    answers = [answer]
                else:
                    answers = channel.receive(replies, answer)
        except BaseException:
            # The next call must not read the replies to this one.
            self._discard(place)
            raise
        if type(answers[0]) is bytes and replies == 1 and not self._waiting:
            # `_give_back`, inlined for most replies.
            self._idle.append(place)
        else:
            self._give_back(place, answers)
        return answers

    def in_halves(
        self, payload: bytes, replies: int, deadline: float
    ) -> Generator[None, None, list[Any]]:
        """Do what `exchange` does, but yield between sending and reading.

        In between, the caller can send to other servers. Raise MaxConnectionsError if all
        connections are in use: a caller that holds connections to other servers must not wait.
        """
        place = None
        try:
            place = self._find_place(deadline, False)
            channel = self._look(place, deadline)
            channel.deadline = deadline
            channel.send(payload)
            yield
            answers = channel.receive(replies)
        except BaseException:
            # The caller may have stopped before the replies were read.
            self._discard(place)
            raise
        self._give_back(place, answers)
        return answers

    def close(self) -> None:
        """Close idle connections. Connections in use stay open."""
        with suppress(IndexError):
            while True:
                self._discard(self._idle.pop())

    def start_afresh(self) -> None:
        """Start without connections in a forked child.

        It closes the child's copies of the sockets. The parent's connections stay open.
        """
        self.close()
        self._places = {}
        self._waiting = deque()

    def _look(self, place: _Place, deadline: float) -> Channel:
        """Return the channel of a place, after connecting again if that is necessary.

        The connection may belong to the parent process, because uWSGI forks without Python's
        knowledge. Or the server may have closed it, which must be noticed before a charge is sent.
        """
        channel = place.channel
        if channel is None or place.connection.pid != getpid() or channel.watch.poll(0):
            channel = self._connect(place, deadline)
        return channel

    def _connect(self, place: _Place, deadline: float) -> Channel:
        """Make a new connection for a place, and return its channel."""
        if place.connection is not None:
            place.connection.disconnect()
        place.connection = self._find(deadline).sync(deadline)
        with connecting():
            place.connection.connect()
        channel: Channel = place.connection.channel
        place.channel = channel
        return channel

    def _find_place(self, deadline: float, wait: bool) -> _Place:
        """Return an idle place, or a new one if there is room for it."""
        while True:
            turn = threading.Lock()
            turn.acquire()
            # Wait in line before looking, so that a place that becomes free meanwhile wakes this.
            self._waiting.append(turn)
            try:
                with suppress(IndexError):
                    return self._idle.pop()
                place = _Place()
                if self._has_room_for(place):
                    return place
                left = min(_LOOK_AGAIN, deadline - time.monotonic())
                if left <= 0 or not wait:
                    raise MaxConnectionsError("all connections are in use")
                turn.acquire(timeout=left)
            finally:
                with suppress(ValueError):
                    self._waiting.remove(turn)

    def _has_room_for(self, place: _Place) -> bool:
        """Whether a new place is among the first `most`; if so, it is registered.

        Places without a reference do not count: an exception interrupted their calls.
        """
        mine = ref(place)
        self._places[mine] = None
        earlier = 0
        for each in list(self._places):
            if each is mine and earlier < self._most:
                return True
            if each() is None:
                self._places.pop(each, None)
            else:
                earlier += 1
        del self._places[mine]
        return False

    def _give_back(self, place: _Place, answers: list[Any]) -> None:
        for answer in answers:
            if type(answer) is not bytes and isinstance(answer, Exception) and is_outage(answer):
                # A new connection may lead to another server that can serve.
                self._discard(place)
                return
        self._idle.append(place)
        if self._waiting:
            self._wake()

    def _discard(self, place: _Place | None) -> None:
        if place is None:
            return
        self._places.pop(ref(place), None)
        if place.connection is not None:
            place.connection.disconnect()
        self._wake()

    def _wake(self) -> None:
        """Wake the call that has waited longest, so that it looks for a place again."""
        with suppress(IndexError):
            self._waiting.popleft().release()


def ask_once(settings: ConnectionSettings, payload: bytes, deadline: float) -> Any:
    """Return the reply to one command, which is sent on a new connection."""
    connection = settings.sync(deadline)
    try:
        with connecting():
            connection.connect()
        connection.channel.send(payload)
        return connection.channel.receive(1)[0]
    finally:
        connection.disconnect()
