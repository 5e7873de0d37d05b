"""A connection as an exchange uses it: bytes out, replies in, by a deadline."""

from __future__ import annotations

import math
import os
import socket
from time import monotonic
from typing import Any

from redis.connection import DefaultParser
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import InvalidResponse
from redis.utils import HIREDIS_AVAILABLE

from .watching import watch

# Seconds that a call gets once more when its time is up: this process may have been held up
# (by other threads, or by other greenlets), and not the server.
_GRACE = 0.02
# Seconds by which a read may end too late, so that the time-out need not be set again each time.
SLACK = 0.001
# Bytes that are read at once: the reply to a check is shorter.
CHUNK = 512
# Bytes that always find room in the buffers of a connection on which nothing is under way.
SHORT = 4_096
INCOMPLETE = object()


class Channel:
    """A connected socket, and what is left of a call's time.

    redis-py's time-outs hold for each step of connecting and for each read; this
    one holds for all of them together, however the bytes drip and whatever signals come.

    What an exchange looks at lies close together here, and not among the forty attributes of
    redis-py's connection.
    """

    __slots__ = (
        "_extended",
        "deadline",
        "descriptor",
        "parser",
        "raw",
        "reader",
        "timeout",
        "watch",
    )

    raw: socket.socket
    descriptor: int | None
    """The socket as the system knows it, if that can be written to: not with TLS.

    Python's own `send` asks for room first, by another call of the system.
    """
    parser: Any
    """That of redis-py's connection."""
    reader: Any
    """Of hiredis; None where redis-py's parser reads."""
    watch: Any
    """Says whether there is something to read."""

    def __init__(self, deadline: float) -> None:
        """`deadline` by the monotonic clock; set anew for each call. Infinite for no limit."""
        self.deadline = deadline
        self.timeout = math.nan
        """The socket's own time-out, if `bound` has set one."""
        # The deadline of a call that was late once.
        self._extended: float | None = None

    def open(self, raw: socket.socket, parser: Any) -> None:
        """Use a socket that redis-py has connected, and its parser."""
        self.raw = raw
        self.timeout = math.nan
        self.watch = watch(raw)
        is_plain = os.name == "posix" and type(raw) is socket.socket
        self.descriptor = raw.fileno() if is_plain else None
        self.parser = parser
        self.reader = _reader_like(parser)

    def left(self) -> float | None:
        """Return the seconds that the next step may take; raise TimeoutError if time is up.

        A call whose time is up gets `_GRACE` seconds once, for a reply that has come
        while this process was held up.
        """
        deadline = self.deadline
        if deadline == math.inf:
            return None
        now = monotonic()
        if now < deadline:
            return deadline - now
        if deadline == self._extended:
            raise TimeoutError("time is up")
        self.deadline = self._extended = now + _GRACE
        return _GRACE

    def bound(self) -> None:
        """Let the socket's next call end by the deadline, or `SLACK` seconds later."""
        left = self.left()
        if left is None or not -SLACK < self.timeout - left < SLACK:
            self.raw.settimeout(left)
            self.timeout = math.nan if left is None else left

    def send(self, payload: bytes) -> None:
        """Send a payload by the deadline, without redis-py's health checks."""
        sent = 0
        while sent < len(payload):
            self.bound()
            sent += self.raw.send(payload[sent:])

    def receive(self, replies: int, answer: Any = INCOMPLETE) -> list[Any]:
        """Read this number of replies by the deadline. A server's error is returned, not raised.

        `answer` is what the reader has said already, if it was asked.
        """
        if self.reader is None:
            read = self.parser.read_response
            return [read() for _ in range(replies)]
        answers = []
        while True:
            while answer is INCOMPLETE:
                self.bound()
                data = self.raw.recv(CHUNK)
                if not data:
                    raise RedisConnectionError("the server closed the connection")
                self.reader.feed(data)
                answer = self.reader.gets()
            if isinstance(answer, RedisConnectionError):
                # The server takes no commands, so redis-py too gives up the connection.
                raise answer
            answers.append(answer)
            if len(answers) == replies:
                return answers
            answer = self.reader.gets()


class BoundedSocket:
    """The socket as redis-py uses it: each call ends by the channel's deadline."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def sendall(self, payload: bytes) -> None:
        self._channel.send(payload)

    def recv(self, *arguments: Any) -> bytes:
        raw = self._channel.raw
        self._channel.bound()
        return raw.recv(*arguments)

    def recv_into(self, *arguments: Any) -> int:
        raw = self._channel.raw
        self._channel.bound()
        return raw.recv_into(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel.raw, name)


def _reader_like(parser: Any) -> Any:
    """Return a reader like that of redis-py's parser; None if that is not the one by hiredis."""
    if not (HIREDIS_AVAILABLE and isinstance(parser, DefaultParser)):
        return None
    import hiredis

    return hiredis.Reader(
        protocolError=InvalidResponse, replyError=parser.parse_error, notEnoughData=INCOMPLETE
    )
