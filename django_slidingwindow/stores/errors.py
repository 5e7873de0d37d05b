"""Turn replies and errors of a server into results and StoreErrors, and recognize outages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from redis.exceptions import (
    AskError,
    ClusterError,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ..exceptions import StoreError
from .commands import unpack
from .protocol import GrantingReply

# redis-py has a class for some of these errors. If a script causes one, older servers mention
# it only in the text.
_OUTAGES = (
    OSError,
    RedisConnectionError,
    RedisTimeoutError,
    ReadOnlyError,
    OutOfMemoryError,
    NoPermissionError,
    ClusterError,
    MasterDownError,
)
_CANNOT_WRITE = re.compile(
    r"\b(READONLY|OOM|LOADING|CLUSTERDOWN|MASTERDOWN|BUSY|NOPERM|MISCONF|NOREPLICAS"
    # NOPERM inside a script, in the words of Redis and of Valkey.
    r"|The user executing the script can't|ACL failure in script)\b"
)


Failure = TypeVar("Failure", bound=Exception)


def of_incident(error: Failure, incident: int) -> Failure:
    """Mark an error with the number of its incident, the loss of a connection, and return it."""
    error.incident = incident  # type: ignore[attr-defined]
    return error


@contextmanager
def connecting(*failures: type[Exception]) -> Iterator[None]:
    """Within this context, a connection is made. If that fails, raise an error of an outage.

    A server may refuse the login or the database with any error. Without a connection no call can
    succeed. `failures` are further errors of the attempt. All others may come from a handler of
    signals, such as Celery's SoftTimeLimitExceeded, and are not changed.
    """
    try:
        yield
    except _OUTAGES:
        raise
    except Exception as error:
        if not isinstance(error, (RedisError, *failures)):
            raise
        text = f"could not connect ({type(error).__name__}: {error})"
        raise RedisConnectionError(text) from error


def is_outage(error: Exception) -> bool:
    """Whether an error means that no call can succeed now, not only the call that failed."""
    return isinstance(error, _OUTAGES) or _CANNOT_WRITE.search(str(error)) is not None


def store_error(error: Exception) -> StoreError:
    """Return the StoreError for an error of redis-py or of the network."""
    # A redirection that nobody follows: the alias is configured for a single server, but names a
    # node of a cluster. AskError is the base class of MovedError.
    outage = is_outage(error) or isinstance(error, AskError)
    incident = getattr(error, "incident", None)
    return StoreError(f"{type(error).__name__}: {error}", outage=outage, incident=incident)


def checked(reply: Any) -> Any:
    """Return the result of a call from the server's reply; raise StoreError for an error."""
    if type(reply) is bytes:
        return unpack(reply)
    if isinstance(reply, Exception):
        raise store_error(reply) from reply
    if not isinstance(reply, list):
        return [reply]
    if reply and type(reply[0]) is bytes:
        granting = GrantingReply(unpack(reply[0]))
        granting.granted = tuple(reply[1:])
        return granting
    return reply


def checked_or_error(reply: Any) -> Any:
    """Do what `checked` does, but return the StoreError instead of raising it."""
    try:
        return checked(reply)
    except StoreError as error:
        return error
