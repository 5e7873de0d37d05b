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
from collections.abc import Awaitable, Callable, Sequence
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
from .user_code import call, in_thread

if TYPE_CHECKING:
    from django.http import HttpRequest

BUILT_IN = ("ip", "user", "user_or_ip", "session", "endpoint", "global")
HEADER = "header:"
EVERYBODY = "all"
"""The identifier of the axis `global`."""

# Axes that fall back to the client address for anonymous requests, and the prefix of such
# identifiers.
_PERSONAL = ("user", "user_or_ip", "session")
_ADDRESS = "ip:"
_SIGNED_COOKIES = "django.contrib.sessions.backends.signed_cookies"

Find: TypeAlias = "Callable[[HttpRequest], str | None]"
"""Returns the identifier of a request; None if it is not counted."""


class Resolver(NamedTuple):
    """How one part of an axis finds the identifier of a request."""

    find: Find
    prepare: Callable[[HttpRequest], Awaitable[None]] | None = None
    """Loads what `find` needs, so that it does not block an event loop after that."""
    blocks: bool = False
    """Whether `find` may block all the same: it is a function of the project."""


@cache
def spelling(axis: str) -> Callable[[str], str] | None:
    """Return what does `canonical` for identifiers of the axis; None if it changes none of them."""
    if axis == "ip":
        return canonical_ip
    if axis in _PERSONAL or axis.startswith(HEADER) or "+" in axis:
        return partial(canonical, axis)
    return None


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


@cache
def resolver(axis: str, anonymous: str = "ip") -> Resolver:
    """Return the resolver of an axis; ImproperlyConfigured for an unknown one."""
    parts = [_resolver(part, anonymous) for part in axis.split("+")]
    if len(parts) == 1:
        return parts[0]
    prepares = [part.prepare for part in parts if part.prepare is not None]

    async def prepare(request: HttpRequest) -> None:
        for each in prepares:
            await each(request)

    return Resolver(
        partial(find_all, [part.find for part in parts]),
        prepare if prepares else None,
        any(part.blocks for part in parts),
    )


def find_all(finds: Sequence[Find], request: HttpRequest) -> str | None:
    """Return one identifier made of several; None if one of them is None."""
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
        return Resolver(partial(_own, function, spelling(axis)), blocks=True)
    if axis.startswith(HEADER):
        return Resolver(partial(_header, meta_key(axis.removeprefix(HEADER))))
    if axis in ("user", "user_or_ip"):
        skip = axis == "user" and anonymous == "skip"
        return Resolver(partial(_user, skip), _prepare_user)
    if axis == "session":
        return Resolver(partial(_session, anonymous == "skip"), _prepare_session)
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


def _own(
    function: Callable[..., Any], spell: Callable[[str], str] | None, request: HttpRequest
) -> str | None:
    """Return what a function of the project answers.

    `spell` for an axis that has the name of a built-in one.
    """
    value = call(function, request)
    if value is None:
        return None
    return str(value) if spell is None else spell(str(value))


def _user(skip: bool, request: HttpRequest) -> str | None:
    user = load_user(request)
    if user is not None and user.is_authenticated:
        name = str(user.pk)
        # A name of the user's own choice must not reach an address's window.
        return f"user:{name}" if name.startswith((_ADDRESS, "user:")) else name
    return None if skip else _ADDRESS + _ip(request)


def load_user(request: HttpRequest) -> Any:
    """Return the request's user, or None; it is loaded if need be, which may block."""
    return getattr(request, "user", None)


async def _prepare_user(request: HttpRequest) -> None:
    user: Any = getattr(request, "user", None)
    # `request.user` loads when it is first looked at, which an event loop must not wait for.
    if isinstance(user, LazyObject) and user._wrapped is empty:
        if hasattr(request, "auser"):
            request.user = await request.auser()
        else:
            await in_thread(bool, user)


def _session(skip: bool, request: HttpRequest) -> str | None:
    """Return a hash of the key of a session that the server keeps.

    Anybody can invent a key, and some engines keep it, but they have no data for it. Loads the
    session, as its first use in the view would.
    """
    session = _session_of(request)
    if session is not None and session.keys() and session.session_key:
        return keyed_hash(session.session_key)
    return None if skip else _ADDRESS + _ip(request)


async def _prepare_session(request: HttpRequest) -> None:
    session = _session_of(request)
    if session is not None:
        await session.akeys()


def _session_of(request: HttpRequest) -> Any:
    """Return the request's session; None if its key does not identify a client.

    In a signed cookie the key is all of the session's data, and changes with the data. A client
    may keep every cookie that it was ever given, and each of them stays valid.
    """
    session = getattr(request, "session", None)
    # Imported by the middleware where the project has chosen it.
    cookies = sys.modules.get(_SIGNED_COOKIES)
    return None if cookies is not None and isinstance(session, cookies.SessionStore) else session


on_change(resolver.cache_clear)
