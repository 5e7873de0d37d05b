"""Connections to one server for threads: a stack of them.

What is left out is redis-py's pool and its command path, which are most of a
check's time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

from redis.exceptions import MaxConnectionsError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from .errors import is_outage
from .links import CHUNK, CLOSE_ENOUGH, Link


class Connections:
    """Idle connections in a stack: as many as are in use at once, never one a thread."""

    def __init__(self, find: Callable[[float | None], Link], *, most: int) -> None:
        """`find` says, by a deadline, which server a new connection goes to."""
        self._find = find
        self._most = most
        self._idle: deque[Any] = deque()
        self._made = 0
        self._freed = threading.Condition()

    def exchange(self, payload: bytes, replies: int, deadline: float | None) -> list[Any]:
        """Sends once and reads the replies; a server's error is returned, not raised."""
        connection = self._take(deadline)
        try:
            answers: list[Any] = connection.exchange(payload, replies)
        except BaseException:
            # Unread replies would answer the next command.
            self._discard(connection)
            raise
        self._give_back(connection, answers)
        return answers

    def in_halves(
        self, payload: bytes, replies: int, deadline: float | None
    ) -> Generator[None, None, list[Any]]:
        """What `exchange` does, with a pause in which other servers can be asked.

        MaxConnectionsError where all are in use: whoever holds connections of others must not
        wait for one.
        """
        connection = self._take(deadline, wait=False)
        try:
            connection.socket.sendall(payload)
            yield
            answers: list[Any] = connection.receive(replies)
        except BaseException:
            # Nobody may have waited for the replies.
            self._discard(connection)
            raise
        self._give_back(connection, answers)
        return answers

    def ask(self, payload: bytes, deadline: float | None, left: float) -> Any:
        """The reply to one command, in less time than `exchange` takes: a check's only one.

        `left`: seconds until the deadline.
        """
        try:
            connection = self._idle.pop()
        except IndexError:
            return self.exchange(payload, 1, deadline)[0]
        reader, sock = connection.reader, connection.socket
        if (
            reader is None
            or not (left <= sock.set_to <= left * CLOSE_ENOUGH)
            or connection.watch.poll(0)
        ):
            self._idle.append(connection)
            return self.exchange(payload, 1, deadline)[0]
        connection.deadline = deadline
        try:
            raw = sock.raw
            raw.sendall(payload)
            reader.feed(raw.recv(CHUNK))
            answer = reader.gets()
            if type(answer) is not bytes:
                answer = connection.settle(answer)
        except (BlockingIOError, TimeoutError):
            self._discard(connection)
            raise RedisTimeoutError("timed out") from None
        except BaseException:
            self._discard(connection)
            raise
        if type(answer) is not bytes or self._made >= self._most:
            self._give_back(connection, [answer])
        else:
            # Nobody waits for it.
            self._idle.append(connection)
        return answer

    def close(self) -> None:
        """Closes what is idle; what is in use goes on."""
        while self._idle:
            try:
                self._discard(self._idle.pop())
            except IndexError:
                return

    def start_afresh(self) -> None:
        """In a forked child: lets go of the parent's connections, which stay open there."""
        self._freed = threading.Condition()
        self.close()
        self._made = 0

    def _take(self, deadline: float | None, *, wait: bool = True) -> Any:
        """One to be used until the deadline; MaxConnectionsError if none is free in time."""
        try:
            connection = self._idle.pop()
        except IndexError:
            return self._make(deadline, wait)
        # A server that went away has closed it: better known before a charge is sent.
        while connection.watch.poll(0):
            self._discard(connection)
            connection = self._make(deadline, wait)
        connection.deadline = deadline
        return connection

    def _make(self, deadline: float | None, wait: bool) -> Any:
        with self._freed:
            while True:
                patience: float | None = 0.0
                if wait:
                    patience = None if deadline is None else deadline - time.monotonic()
                if not self._freed.wait_for(
                    lambda: bool(self._idle) or self._made < self._most, patience
                ):
                    raise MaxConnectionsError("all connections are in use")
                try:
                    connection = self._idle.pop()
                except IndexError:
                    # There was none, or another has taken it: that needs no lock.
                    if self._made < self._most:
                        self._made += 1
                        break
                else:
                    connection.deadline = deadline
                    return connection
        connection = None
        try:
            connection = self._find(deadline).sync()
            connection.deadline = deadline
            connection.connect()
        except BaseException:
            self._discard(connection)
            raise
        return connection

    def _give_back(self, connection: Any, answers: list[Any]) -> None:
        for answer in answers:
            if isinstance(answer, Exception) and is_outage(answer):
                # Another server may have taken its place.
                self._discard(connection)
                return
        self._idle.append(connection)
        if self._made >= self._most:
            with self._freed:
                self._freed.notify()

    def _discard(self, connection: Any) -> None:
        if connection is not None:
            connection.disconnect()
        with self._freed:
            self._made -= 1
            self._freed.notify()


def ask_once(link: Link, payload: bytes, deadline: float | None) -> Any:
    """The reply to one command, on a connection of its own."""
    connection = link.sync()
    connection.deadline = deadline
    try:
        connection.connect()
        connection.send_packed_command((payload,), check_health=False)
        return _read(connection)
    finally:
        connection.disconnect()


def _read(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error
