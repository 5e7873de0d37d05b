"""Which errors of a server mean that it cannot answer anybody now."""

from __future__ import annotations

import re
from typing import Any, TypeVar

from redis.exceptions import (
    AskError,
    ClusterError,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from ..exceptions import StoreError
from .commands import unpack
from .protocol import GrantingReply

# redis-py has classes for some; within a script, older servers only say it in the text.
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
    # NOPERM within a script, as Redis and Valkey say it.
    r"|The user executing the script can't|ACL failure in script)\b"
)


Failure = TypeVar("Failure", bound=Exception)


def of_incident(error: Failure, incident: int) -> Failure:
    """Mark an error with the number of the lost connection that caused it, and return it."""
    error.incident = incident  # type: ignore[attr-defined]
    return error


def is_outage(error: Exception) -> bool:
    """Whether the server as a whole cannot write now, whatever the call."""
    return isinstance(error, _OUTAGES) or _CANNOT_WRITE.search(str(error)) is not None


def store_error(error: Exception) -> StoreError:
    """Return the one error that leaves a store."""
    # A redirection that nobody follows (AskError is MovedError's base): the alias names
    # a node of a cluster, and not the cluster.
    outage = is_outage(error) or isinstance(error, AskError)
    incident = getattr(error, "incident", None)
    return StoreError(f"{type(error).__name__}: {error}", outage=outage, incident=incident)


def checked(reply: Any) -> Any:
    """Return a server's reply as the answer to a call; raise StoreError if it is an error."""
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
    """Return what `checked` returns or raises."""
    try:
        return checked(reply)
    except StoreError as error:
        return error
