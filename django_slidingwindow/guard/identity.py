"""Which identifier a request counts against.

| axis | identifier |
|---|---|
| `ip` | the client's address, IPv6 by its network |
| `user` | the user's primary key; without a user as the profile's `anonymous` says |
| `user_or_ip` | the user's primary key, else the address |
| `session` | a keyed hash of the session's id; without a session that exists as `anonymous` says |
| `endpoint` | the view's name in the URLconf, or its route, and the code behind it |
| `global` | the same for all |
| `header:X-API-Key` | a keyed hash of the header |
| any other, `tenant` first | what the function in IDENTITIES answers |

Axes joined by "+" count each combination. A part that is None skips the profile.
"""

from __future__ import annotations

import hashlib
import hmac
import sys
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from django.core.exceptions import ImproperlyConfigured
from django.utils.functional import LazyObject, empty
from django.utils.module_loading import import_string

from ..conf import NAME, conf, on_change
from ..core.keys import join_identifiers
from ..registry import near
from .credentials import meta_key, one_spelling
from .proxies import canonical_ip, counted_client
from .user_code import Ask, both_forms, in_thread

if TYPE_CHECKING:
    from django.http import HttpRequest

BUILT_IN = ("ip", "user", "user_or_ip", "session", "endpoint", "global")
HEADER = "header:"
EVERYBODY = "all"
"""The identifier of the axis `global`."""

# Axes that count the address of somebody who is nobody, and how they write it.
_PERSONAL = ("user", "user_or_ip", "session")
_ADDRESS = "ip:"
_SIGNED_COOKIES = "django.contrib.sessions.backends.signed_cookies"

Find: TypeAlias = "Callable[[HttpRequest], str | None]"
"""Returns the identifier of a request; None if it is not counted."""


class Resolver(NamedTuple):
    """How one part of an axis finds the identifier of a request."""

    read: Callable[..., str | None]
    """A function of the request and of what was loaded, if anything has to be."""
    load: Callable[[HttpRequest], Any] | None = None
    """It may block."""
    aload: Callable[[HttpRequest], Awaitable[Any]] | None = None


@cache
def has_spellings(axis: str) -> bool:
    """Whether `canonical` may change an identifier of the axis."""
    return axis == "ip" or axis in _PERSONAL or axis.startswith(HEADER) or "+" in axis


def canonical(axis: str, identifier: str) -> str:
    """Return an identifier as requests have it: one spelling of an address, hashed secrets."""
    if axis == "ip":
        return canonical_ip(identifier)
    if axis in _PERSONAL and identifier.startswith(_ADDRESS):
        return _ADDRESS + canonical_ip(identifier.removeprefix(_ADDRESS))
    if axis == "session":
        return keyed_hash(identifier)
    if axis.startswith(HEADER):
        return keyed_hash(one_spelling(meta_key(axis.removeprefix(HEADER)), identifier))
    if "+" in axis:
        axes, parts = axis.split("+"), _split_identifiers(identifier)
        if len(axes) == len(parts):
            return join_identifiers(list(map(canonical, axes, parts)))
    return identifier


def _split_identifiers(joined: str) -> list[str]:
    return [part.replace("%2B", "+").replace("%25", "%") for part in joined.split("+")]


def keyed_hash(secret: str) -> str:
    """Return what stands for a secret in keys and logs."""
    digest = hmac.digest(conf.hash_key, secret.encode("utf-8", "surrogatepass"), hashlib.sha256)
    return digest.hex()[:32]


def identify(
    resolvers: Sequence[Resolver], request: HttpRequest
) -> Generator[Ask, Any, str | None]:
    """Return the identifier, as a flow; None to skip. Raises what a resolver raises."""
    parts = []
    for read, load, aload in resolvers:
        if load is None or aload is None:
            value = read(request)
        else:
            value = read(request, (yield Ask(load, aload, (request,))))
        if value is None:
            return None
        parts.append(value)
    return parts[0] if len(parts) == 1 else join_identifiers(parts)


@cache
def resolvers(axis: str, anonymous: str = "ip") -> tuple[Resolver, ...]:
    """Return a resolver for each part of the axis; ImproperlyConfigured for an unknown one."""
    return tuple(_resolver(part, anonymous) for part in axis.split("+"))


def finder(axis: str, anonymous: str) -> tuple[Find, bool]:
    """Return `identify` as one function for sync code, and whether it may block."""
    parts = resolvers(axis, anonymous)
    finds = [part.read if part.load is None else _with_load(part.read, part.load) for part in parts]
    blocks = any(part.load is not None for part in parts)
    return finds[0] if len(finds) == 1 else partial(_find_all, finds), blocks


def _with_load(read: Callable[..., str | None], load: Callable[[HttpRequest], Any]) -> Find:
    def find(request: HttpRequest) -> str | None:
        return read(request, load(request))

    return find


def _find_all(finds: Sequence[Find], request: HttpRequest) -> str | None:
    parts = []
    for find in finds:
        value = find(request)
        if value is None:
            return None
        parts.append(value)
    return join_identifiers(parts)


def _resolver(axis: str, anonymous: str) -> Resolver:
    own = conf.identities.get(axis)
    if own is not None:
        function = import_string(own) if isinstance(own, str) else own
        return Resolver(
            partial(_own, axis) if has_spellings(axis) else _text, *both_forms(function)
        )
    if axis.startswith(HEADER):
        return Resolver(partial(_header, meta_key(axis.removeprefix(HEADER))))
    if axis in ("user", "user_or_ip"):
        return Resolver(partial(_user, axis == "user" and anonymous == "skip"), *_USER)
    if axis == "session":
        return Resolver(partial(_session, anonymous == "skip"), _load_session, _aload_session)
    if axis not in _QUICK:
        raise ImproperlyConfigured(
            f"{NAME}['IDENTITIES'] has no {axis!r}, and a profile counts by it: "
            + near(axis, {*BUILT_IN, *conf.identities})
        )
    return Resolver(_QUICK[axis])


_ip = counted_client


def _endpoint(request: HttpRequest) -> str | None:
    """Return what the URLconf found, not the path, which a client can vary without end.

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


_QUICK: dict[str, Find] = {"ip": _ip, "endpoint": _endpoint, "global": _global}


def _header(key: str, request: HttpRequest) -> str | None:
    value = one_spelling(key, request.META.get(key) or "")
    return keyed_hash(value) if value else None


def _text(request: HttpRequest, value: Any) -> str | None:
    """Return what a function of the project answers."""
    return None if value is None else str(value)


def _own(axis: str, request: HttpRequest, value: Any) -> str | None:
    """Do the same for an axis that has the name of a built-in one."""
    return None if value is None else canonical(axis, str(value))


def _user(skip: bool, request: HttpRequest, user: Any) -> str | None:
    if user is not None and user.is_authenticated:
        name = str(user.pk)
        # A name of the user's own choice must not reach an address's window.
        return f"user:{name}" if name.startswith((_ADDRESS, "user:")) else name
    return None if skip else _ADDRESS + _ip(request)


def ask_user(request: HttpRequest) -> Ask:
    """Return the request's user, or None: loaded if need be, and never on an event loop."""
    return Ask(*_USER, (request,))


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


_USER = _load_user, _aload_user


def _session(skip: bool, request: HttpRequest, key: str | None) -> str | None:
    if key:
        return keyed_hash(key)
    return None if skip else _ADDRESS + _ip(request)


def _load_session(request: HttpRequest) -> str | None:
    """Return the key of a session that the server keeps, or None.

    Anybody can invent a key, and some engines keep it, but they have no data for it. Loads the
    session, as its first use in the view would.
    """
    session = _session_of(request)
    return session.session_key if session is not None and session.keys() else None


async def _aload_session(request: HttpRequest) -> str | None:
    session = _session_of(request)
    return session.session_key if session is not None and await session.akeys() else None


def _session_of(request: HttpRequest) -> Any:
    """Return the request's session; None if its key is no identity.

    In a signed cookie the key is all of the session's data, and changes with the data. A client
    may keep every cookie that it was ever given, and each of them stays valid.
    """
    session = getattr(request, "session", None)
    # Imported by the middleware where the project has chosen it.
    cookies = sys.modules.get(_SIGNED_COOKIES)
    return None if cookies is not None and isinstance(session, cookies.SessionStore) else session


on_change(resolvers.cache_clear)
