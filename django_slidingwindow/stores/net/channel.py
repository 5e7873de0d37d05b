"""The part of a connection that an exchange uses: send bytes and read replies, by a deadline."""

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

from .readiness import watch

# Extra seconds that a call gets once after its deadline. The reply may have come in time while
# other threads or greenlets kept this process busy.
_GRACE = 0.02
# Seconds by which a read may end late. It saves setting the socket's time-out for every read.
SLACK = 0.001
# Bytes to read at once. The reply to a check is shorter.
CHUNK = 512
# A payload of at most this many bytes fits into the send buffer of an idle connection.
SHORT = 4_096
# The reader returns this while a reply is not complete.
INCOMPLETE = object()


class Channel:
    """A connected socket, and the deadline of the current call.

    redis-py's time-outs apply to each step of connecting and to each read. The deadline applies to
    all of them together, even if the bytes arrive slowly or signals interrupt a read.

    The attributes that an exchange needs are here, close together in memory, rather than among the
    forty attributes of redis-py's connection.
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
    """The socket's file descriptor, to write to it directly; None with TLS.

    It saves a system call: Python's `send` first waits until the socket is writable.
    """
    parser: Any
    """The parser of redis-py's connection."""
    reader: Any
    """A reader of hiredis; None if redis-py's parser reads the replies."""
    watch: Any
    """A poll object that says whether there is something to read."""

    def __init__(self, deadline: float) -> None:
        """`deadline` is a time of the monotonic clock, infinite for no limit. Each call sets it."""
        self.deadline = deadline
        self.timeout = math.nan
        """The socket's time-out, if `bound` has set one; otherwise NaN."""
        # The deadline after it was extended by `_GRACE`.
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
        """Return the seconds until the deadline; None for no limit.

        After the deadline, return `_GRACE` once for each call, then raise TimeoutError.
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
        """Set the socket's time-out, so that its next call ends at most `SLACK` seconds late."""
        left = self.left()
        if left is None or not -SLACK < self.timeout - left < SLACK:
            self.raw.settimeout(left)
            self.timeout = math.nan if left is None else left

    def send(self, payload: bytes) -> None:
        """Send a payload by the deadline."""
        sent = 0
        while sent < len(payload):
            self.bound()
            sent += self.raw.send(payload[sent:])

    def receive(self, replies: int, answer: Any = INCOMPLETE) -> list[Any]:
        """Read a number of replies by the deadline. A server's error is returned, not raised.

        `answer` is the reader's result so far, if the caller has used the reader already.
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
                # The server accepts no commands. redis-py closes the connection too in this case.
                raise answer
            answers.append(answer)
            if len(answers) == replies:
                return answers
            answer = self.reader.gets()


class BoundedSocket:
    """A socket for redis-py, whose calls end by the channel's deadline."""

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
    """Return a reader with the settings of redis-py's hiredis parser; None for other parsers."""
    if not (HIREDIS_AVAILABLE and isinstance(parser, DefaultParser)):
        return None
    import hiredis

    return hiredis.Reader(
        protocolError=InvalidResponse, replyError=parser.parse_error, notEnoughData=INCOMPLETE
    )
