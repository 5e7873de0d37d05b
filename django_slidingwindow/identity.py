"""Whom a request counts against.

| axis | identifier |
|---|---|
| `ip` | the client's address, IPv6 by its network |
| `user` | the user's primary key; without a user as the profile's `anonymous` says |
| `user_or_ip` | the user's primary key, else the address |
| `session` | a keyed hash of the session's id; without a session as `anonymous` says |
| `endpoint` | the view's name in the URLconf, or its route, and the code behind it |
| `global` | the same for all |
| `header:X-API-Key` | a keyed hash of the header |
| any other, `tenant` first | what the function in IDENTITIES answers |

Axes joined by "+" count each combination. A part that is None skips the profile.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Generator
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.functional import LazyObject, empty
from django.utils.module_loading import import_string

from .callables import Ask, asks, in_thread
from .conf import NAME, conf
from .keys import join_identifiers
from .proxies import canonical_ip, counted_client
from .registry import near

if TYPE_CHECKING:
    from django.http import HttpRequest

BUILT_IN = ("ip", "user", "user_or_ip", "session", "endpoint", "global")
HEADER = "header:"
EVERYBODY = "all"
"""The identifier of the axis `global`."""

# Axes that count the address of somebody who is nobody, and how they write it.
_PERSONAL = ("user", "user_or_ip", "session")
_ADDRESS = "ip:"

Resolvers: TypeAlias = "tuple[tuple[Callable[[HttpRequest], Any], bool], ...]"
"""Functions of the request, and whether each is a flow, which asks, or answers at once."""
Identity: TypeAlias = "Generator[Ask, Any, str | None]"


@cache
def has_spellings(axis: str) -> bool:
    """Whether `canonical` may change an identifier of the axis."""
    return axis == "ip" or axis in _PERSONAL or axis.startswith(HEADER) or "+" in axis


def canonical(axis: str, identifier: str) -> str:
    """An identifier as requests have it: one spelling for an address, a hash for a secret."""
    if axis == "ip":
        return canonical_ip(identifier)
    if axis in _PERSONAL and identifier.startswith(_ADDRESS):
        return _ADDRESS + canonical_ip(identifier.removeprefix(_ADDRESS))
    if axis == "session" or axis.startswith(HEADER):
        return keyed_hash(identifier)
    if "+" in axis:
        axes, parts = axis.split("+"), _split_identifiers(identifier)
        if len(axes) == len(parts):
            return join_identifiers(list(map(canonical, axes, parts)))
    return identifier


def _split_identifiers(joined: str) -> list[str]:
    return [part.replace("%2B", "+").replace("%25", "%") for part in joined.split("+")]


def keyed_hash(secret: str) -> str:
    """What stands for a secret in keys and logs."""
    digest = hmac.digest(conf.hash_key, secret.encode("utf-8", "surrogatepass"), hashlib.sha256)
    return digest.hex()[:32]


def identify(resolvers: Resolvers, request: HttpRequest) -> Identity:
    """The flow that finds the identifier; None to skip. Raises what a resolver raises."""
    parts = []
    for resolver, blocks in resolvers:
        value = (yield from resolver(request)) if blocks else resolver(request)
        if value is None:
            return None
        parts.append(value)
    return parts[0] if len(parts) == 1 else join_identifiers(parts)


@cache
def resolvers(axis: str, anonymous: str = "ip") -> Resolvers:
    """A resolver for each part of the axis; ImproperlyConfigured for an unknown one."""
    return tuple(_resolver(part, anonymous) for part in axis.split("+"))


@cache
def quick_resolver(axis: str, anonymous: str) -> Callable[[HttpRequest], Any] | None:
    """The one function that answers at once; None where there are several, or one asks."""
    (resolver, blocks), *others = resolvers(axis, anonymous)
    return None if blocks or others else resolver


def _resolver(axis: str, anonymous: str) -> tuple[Callable[..., Any], bool]:
    own = conf.identities.get(axis)
    if own is not None:
        function = import_string(own) if isinstance(own, str) else own
        return partial(_own, axis, asks(function)), True
    if axis.startswith(HEADER):
        return partial(_header, meta_key(axis.removeprefix(HEADER))), False
    if axis in ("user", "user_or_ip"):
        return partial(_user, axis == "user" and anonymous == "skip"), True
    if axis == "session":
        return partial(_session, anonymous == "skip"), True
    if axis not in _QUICK:
        raise ImproperlyConfigured(
            f"{NAME}['IDENTITIES'] has no {axis!r}, and a profile counts by it: "
            + near(axis, {*BUILT_IN, *conf.identities})
        )
    return _QUICK[axis], False


_ip = counted_client


def _endpoint(request: HttpRequest) -> str | None:
    """What the URLconf found, not the path, which a client can vary without end.

    A name alone may stand for two views, and a route alone for one of a view's many
    languages or formats.
    """
    match = request.resolver_match
    if match is None:
        return None
    name = match.view_name if match.url_name else match.route
    return f"{name}@{match._func_path}"


def _global(request: HttpRequest) -> str:
    return EVERYBODY


_Quick: TypeAlias = "Callable[[HttpRequest], str | None]"
_QUICK: dict[str, _Quick] = {"ip": _ip, "endpoint": _endpoint, "global": _global}


def meta_key(header: str) -> str:
    """Where a request keeps the header."""
    name = header.strip().upper().replace("-", "_")
    return name if name in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{name}"


def _header(key: str, request: HttpRequest) -> str | None:
    value = request.META.get(key)
    return keyed_hash(value) if value else None


def _own(axis: str, asked: Callable[..., Ask], request: HttpRequest) -> Identity:
    value = yield asked(request)
    return None if value is None else canonical(axis, str(value))


def _user(skip: bool, request: HttpRequest) -> Identity:
    user = yield ask_user(request)
    if user is not None and user.is_authenticated:
        name = str(user.pk)
        # A name of the user's own choice must not reach an address's window.
        return f"user:{name}" if name.startswith((_ADDRESS, "user:")) else name
    return None if skip else _ADDRESS + _ip(request)


def ask_user(request: HttpRequest) -> Ask:
    """The request's user, or None: loaded if need be, and never on an event loop."""
    return Ask(_load_user, _aload_user, (request,))


def _load_user(request: HttpRequest) -> Any:
    return getattr(request, "user", None)


async def _aload_user(request: HttpRequest) -> Any:
    user: Any = getattr(request, "user", None)
    # `request.user` loads when it is first looked at, which an event loop must not wait for.
    if isinstance(user, LazyObject) and user._wrapped is empty:
        if hasattr(request, "auser"):
            return await request.auser()
        await in_thread(bool, user)
    return user


def _session(skip: bool, request: HttpRequest) -> Identity:
    key = yield Ask(_load_session, _aload_session, (request,))
    if key:
        return keyed_hash(key)
    return None if skip else _ADDRESS + _ip(request)


def _load_session(request: HttpRequest) -> str | None:
    """The key of a session that exists: anybody can invent one that does not."""
    session = getattr(request, "session", None)
    if session is None:
        return None
    session.get("")  # loads it
    key: str | None = session.session_key
    return key


async def _aload_session(request: HttpRequest) -> str | None:
    session = getattr(request, "session", None)
    if session is None:
        return None
    await session.aget("")
    key: str | None = session.session_key
    return key


def _reset(*, setting: str, **kwargs: Any) -> None:
    if setting == NAME:
        resolvers.cache_clear()
        quick_resolver.cache_clear()


setting_changed.connect(_reset, dispatch_uid=f"{__name__}.reset")
