"""Connections to one server for threads: a stack of them.

What is left out is redis-py's pool and its command path, which are most of a
check's time.

An exception may come at any moment: a signal handler raises it, or gevent. So there is no
lock that could stay locked, and no count that could be wrong: a place that nobody holds
any more is free.
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

from ..errors import is_outage
from .channel import CHUNK, SHORT, SLACK, Channel
from .settings import ConnectionSettings

# Seconds after which a call that waits for a connection looks by itself whether there is one.
_LOOK_AGAIN = 0.02
# Seconds after a call in which a connection is used again without a look at it. Servers and proxies
# close connections that were idle for longer. uWSGI forks without Python's knowledge, so that a
# connection may be the parent's at any time.
_FRESH = 0.0 if "uwsgi" in sys.modules else 0.01


class _Place:
    """Room for one connection, held by the call that uses it or by the stack."""

    __slots__ = ("__weakref__", "channel", "connection")

    def __init__(self) -> None:
        self.connection: Any = None
        self.channel: Channel | None = None


class Connections:
    """Idle connections in a stack: as many as are in use at once, never one a thread."""

    def __init__(self, find: Callable[[float], ConnectionSettings], *, most: int) -> None:
        """`find` gets a deadline and returns the server that a new connection goes to."""
        self._find = find
        self._most = most
        self._idle: deque[_Place] = deque()
        # In the order in which they were asked for: the first `most` of those that live count.
        self._places: dict[ref[_Place], None] = {}
        self._waiting: deque[threading.Lock] = deque()

    def exchange(self, payload: bytes, replies: int, deadline: float) -> list[Any]:
        """Send once and read the replies; a server's error is returned, not raised."""
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
                # In place what `receive` does with most replies (`python -m benchmarks views`).
                if not -SLACK < channel.timeout - deadline + time.monotonic() < SLACK:
                    channel.bound()
                reader.feed(channel.raw.recv(CHUNK))
                answer = reader.gets()
                if replies == 1 and type(answer) is bytes:
                    answers = [answer]
                else:
                    answers = channel.receive(replies, answer)
        except BaseException:
            # Unread replies would answer the next command.
            self._discard(place)
            raise
        if type(answers[0]) is bytes and replies == 1 and not self._waiting:
            # In place what `_give_back` does with the reply to nearly every call.
            self._idle.append(place)
        else:
            self._give_back(place, answers)
        return answers

    def in_halves(
        self, payload: bytes, replies: int, deadline: float
    ) -> Generator[None, None, list[Any]]:
        """Do the same as `exchange`, with a pause in which other servers can be asked.

        MaxConnectionsError where all are in use: a call that holds connections of other
        servers must not wait for one.
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
            # Nobody may have waited for the replies.
            self._discard(place)
            raise
        self._give_back(place, answers)
        return answers

    def close(self) -> None:
        """Close what is idle; what is in use goes on."""
        with suppress(IndexError):
            while True:
                self._discard(self._idle.pop())

    def start_afresh(self) -> None:
        """In a forked child: close its copies of the parent's connections, which stay open."""
        self.close()
        self._places = {}
        self._waiting = deque()

    def _look(self, place: _Place, deadline: float) -> Channel:
        """Return the channel of a place, or a new one if that cannot be used.

        It may be the parent's, where a server forks without Python's knowledge (uWSGI), or a
        server may have closed it, which is better known before a charge is sent.
        """
        channel = place.channel
        if channel is None or place.connection.pid != getpid() or channel.watch.poll(0):
            channel = self._connect(place, deadline)
        return channel

    def _connect(self, place: _Place, deadline: float) -> Channel:
        """Put a new connection into a place, and return its channel."""
        if place.connection is not None:
            place.connection.disconnect()
        place.connection = self._find(deadline).sync(deadline)
        place.connection.connect()
        channel: Channel = place.connection.channel
        place.channel = channel
        return channel

    def _find_place(self, deadline: float, wait: bool) -> _Place:
        """Return one that another call gives back, or a new one if there is room for it."""
        while True:
            turn = threading.Lock()
            turn.acquire()
            # Before it looks: whatever is free from now on wakes it.
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
        """Claim one of the `most` places. Those that were lost are free."""
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
                # Another server may have taken its place.
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
        """Let a call that waits look again."""
        with suppress(IndexError):
            self._waiting.popleft().release()


def ask_once(settings: ConnectionSettings, payload: bytes, deadline: float) -> Any:
    """Return the reply to one command, on a connection of its own."""
    connection = settings.sync(deadline)
    try:
        connection.connect()
        connection.channel.send(payload)
        return connection.channel.receive(1)[0]
    finally:
        connection.disconnect()
