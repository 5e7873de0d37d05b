"""Find the identifier of a request, which depends on the axis of a profile.

| axis | identifier |
|---|---|
| `ip` | the client's address, for IPv6 its network |
| `user` | the user's primary key; for anonymous users see below |
| `user_or_ip` | the user's primary key, or else the address |
| `session` | a keyed hash of the session's key; without a stored session see below |
| `endpoint` | the view's name in the URLconf, or its route, and the dotted path of its code |
| `global` | the same for all requests |
| `header:X-API-Key` | a keyed hash of the header |
| any other, for example `tenant` | what the function in IDENTITIES returns |

A request without user or session is counted by its address, or not at all: the profile's
`anonymous` chooses. Axes joined by "+" count each combination. If one of them has no identifier,
the profile does not count the request.
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
from django.utils.translation import get_language_from_path

from ..conf import NAME, conf, on_change
from ..core.keys import join_identifiers
from ..profiles.user_code import in_thread, synchronous
from ..registry import near
from .credentials import is_token, meta_key, one_spelling
from .proxies import canonical_ip, counted_client

if TYPE_CHECKING:
    from django.http import HttpRequest
    from django.urls import ResolverMatch

BUILT_IN = ("ip", "user", "user_or_ip", "session", "endpoint", "global")
HEADER = "header:"
EVERYBODY = "all"
"""The identifier of the axis `global`."""

# Axes that fall back to the client address for anonymous requests, and the prefix of such
# identifiers.
_PERSONAL_AXES = ("user", "user_or_ip", "session")
_ADDRESS_PREFIX = "ip:"
_SIGNED_COOKIES = "django.contrib.sessions.backends.signed_cookies"
_AUTHENTICATION = "django.contrib.auth.middleware"

Find: TypeAlias = "Callable[[HttpRequest], str | None]"
"""Returns the identifier of a request; None if the request is not counted."""


class Resolver(NamedTuple):
    """How an axis finds the identifier of a request."""

    find: Find
    prepare: Callable[[HttpRequest], Awaitable[None]] | None = None
    """Loads what `find` needs, so that `find` does not block the event loop."""
    blocks: bool = False
    """Whether `find` calls a function of the project, which may block."""


@cache
def spelling(axis: str) -> Callable[[str], str] | None:
    """Return `canonical` for one axis; None if it would return identifiers unchanged."""
    if axis == "ip":
        return canonical_ip
    if axis in _PERSONAL_AXES or axis.startswith(HEADER) or "+" in axis:
        return partial(canonical, axis)
    return None


def canonical(axis: str, identifier: str) -> str:
    """Return the identifier that `find` returns: one spelling of an address, a hash of a secret."""
    if axis == "ip":
        return canonical_ip(identifier)
    if axis in _PERSONAL_AXES and identifier.startswith(_ADDRESS_PREFIX):
        return _ADDRESS_PREFIX + canonical_ip(identifier.removeprefix(_ADDRESS_PREFIX))
    if axis == "session":
        return keyed_hash(identifier)
    if axis.startswith(HEADER):
        return keyed_hash(one_spelling(meta_key(axis.removeprefix(HEADER)), identifier))
    return by_part(canonical, axis, identifier) if "+" in axis else identifier


def by_part(change: Callable[[str, str], str], axis: str, identifier: str) -> str:
    """Return an identifier of several axes with each part changed by `change(axis, part)`.

    Return it unchanged if its parts do not match the axes, for example because it is shortened.
    """
    axes, parts = axis.split("+"), _split_identifiers(identifier)
    if len(axes) != len(parts):
        return identifier
    return join_identifiers(list(map(change, axes, parts)))


def _split_identifiers(joined: str) -> list[str]:
    return [part.replace("%2B", "+").replace("%25", "%") for part in joined.split("+")]


def keyed_hash(secret: str) -> str:
    """Return the hash that keys and logs have in place of a secret."""
    digest = hmac.digest(conf.hash_key, secret.encode("utf-8", "surrogatepass"), hashlib.sha256)
    return digest.hex()[:32]


@cache
def resolver(axis: str, anonymous: str = "ip") -> Resolver:
    """Return the resolver of an axis; raise ImproperlyConfigured if the axis is unknown."""
    parts = [_single_resolver(part, anonymous) for part in axis.split("+")]
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
    """Return the identifiers of several axes joined to one; None if one of them is None."""
    parts = []
    for find in finds:
        value = find(request)
        if value is None:
            return None
        parts.append(value)
    return join_identifiers(parts)


def _single_resolver(axis: str, anonymous: str) -> Resolver:
    own = conf.identities.get(axis)
    if own is not None:
        function = import_string(own) if isinstance(own, str) else own
        return Resolver(partial(_call_own, synchronous(function), spelling(axis)), blocks=True)
    if names_header(axis):
        return Resolver(partial(_header, meta_key(axis.removeprefix(HEADER))))
    if axis in ("user", "user_or_ip"):
        skip = axis == "user" and anonymous == "skip"
        return Resolver(partial(_user, skip), _prepare_user)
    if axis == "session":
        return Resolver(partial(_session, anonymous == "skip"), _prepare_session)
    if axis not in _SIMPLE_AXES:
        raise ImproperlyConfigured(
            f"{NAME}['IDENTITIES'] has no {axis!r}, and a profile counts by it: "
            + near(axis, {*BUILT_IN, *conf.identities})
        )
    return Resolver(_SIMPLE_AXES[axis])


def names_header(axis: str) -> bool:
    """Whether an axis is a header, with a name that a header can have."""
    return axis.startswith(HEADER) and is_token(axis.removeprefix(HEADER).strip())


def _endpoint(request: HttpRequest) -> str | None:
    """Return the match of the URLconf. Not the path, which a client can vary without end.

    Two views may share a name, and one view may have many routes, for languages or formats. So the
    identifier is the name, or the route if there is no name, with the dotted path of the view.
    """
    match = request.resolver_match
    if match is None:
        return None
    name = match.view_name if match.url_name else _route(match)
    return f"{name}@{match._func_path}"


def _route(match: ResolverMatch) -> str:
    """Return the route without the language that `i18n_patterns` puts in front of it."""
    language, _, rest = match.route.partition("/")
    return rest if language == get_language_from_path(f"/{language}/") else match.route


def _global(request: HttpRequest) -> str:
    return EVERYBODY


_SIMPLE_AXES: dict[str, Find] = {"ip": counted_client, "endpoint": _endpoint, "global": _global}


def _header(key: str, request: HttpRequest) -> str | None:
    value = one_spelling(key, request.META.get(key) or "")
    return keyed_hash(value) if value else None


def _call_own(
    function: Callable[..., Any], spell: Callable[[str], str] | None, request: HttpRequest
) -> str | None:
    """Return the identifier that a function of the project returns.

    `spell` is given if the function replaces a built-in axis.
    """
    value = function(request)
    if value is None:
        return None
    return str(value) if spell is None else spell(str(value))


def _user(skip: bool, request: HttpRequest) -> str | None:
    user = load_user(request)
    if user is not None and user.is_authenticated:
        name = str(user.pk)
        # Users may choose a primary key that looks like an address. It must not have its window.
        return f"user:{name}" if name.startswith((_ADDRESS_PREFIX, "user:")) else name
    return None if skip else _ADDRESS_PREFIX + counted_client(request)


def load_user(request: HttpRequest) -> Any:
    """Return the request's user, or None. Looking at the user may block: Django loads it then."""
    return getattr(request, "user", None)


async def _prepare_user(request: HttpRequest) -> None:
    user: Any = getattr(request, "user", None)
    # Django loads `request.user` when it is first looked at, which would block the event loop.
    if isinstance(user, LazyObject) and user._wrapped is empty:
        # `auser` loads the user of the session. Another middleware may have set another user since,
        # for example the one of a token.
        if getattr(vars(user).get("_setupfunc"), "__module__", "") == _AUTHENTICATION:
            request.user = await request.auser()
        else:
            await in_thread(bool, user)


def _session(skip: bool, request: HttpRequest) -> str | None:
    """Return a hash of the key of a session that the server has stored.

    This loads the session, as its first use in the view would. A key alone is not enough: anybody
    can invent one, and some engines accept it, but they have no data for it.
    """
    session = _session_of(request)
    if session is not None and session.keys() and session.session_key:
        return keyed_hash(session.session_key)
    return None if skip else _ADDRESS_PREFIX + counted_client(request)


async def _prepare_session(request: HttpRequest) -> None:
    session = _session_of(request)
    if session is not None:
        await session.akeys()


def _session_of(request: HttpRequest) -> Any:
    """Return the request's session; None if its key does not identify a client.

    In a signed cookie, the key is all of the session's data, and changes with the data. A client
    may keep every cookie that it was ever given, and each of them stays valid.
    """
    session = getattr(request, "session", None)
    # Django's middleware has imported the engine if the project uses it.
    cookies = sys.modules.get(_SIGNED_COOKIES)
    return None if cookies is not None and isinstance(session, cookies.SessionStore) else session


on_change(resolver.cache_clear)
