"""Make up requests, to find out which limits would apply to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from io import BytesIO
from typing import Any
from urllib.parse import unquote_to_bytes

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest
from django.urls import Resolver404, ResolverMatch, resolve
from django.utils import translation
from django.utils.encoding import iri_to_uri

from ..guard.credentials import is_token

_WITHOUT_PREFIX = ("CONTENT_TYPE", "CONTENT_LENGTH")


def request_of(
    method: str, path: str, *, ip: str, headers: Iterable[tuple[str, str]] = (), user: Any = None
) -> HttpRequest:
    """Return a request as the view would get it, with `ip` as the peer of the connection.

    Raise ValueError if no such request is possible.
    """
    if not is_token(method):
        raise ValueError(f"{method!r} is not a method such as GET.")
    if not path.startswith("/"):
        raise ValueError(f"the path must begin with a slash, and {path!r} does not.")
    path_info, _, query = iri_to_uri(path).partition("?")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method.upper(),
        "PATH_INFO": unquote_to_bytes(path_info).decode("latin-1"),
        "QUERY_STRING": query,
        "SCRIPT_NAME": "",
        "REMOTE_ADDR": ip,
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(),
    }
    environ.update(wsgi_headers(headers))
    request = WSGIRequest(environ)
    if user is not None:
        request.user = user
    request.resolver_match = match_of(request.path_info)
    return request


def match_of(path: str) -> ResolverMatch | None:
    """Return the view of a path and its arguments; None if no view has this path."""
    # LocaleMiddleware does the same for paths that begin with a language code.
    language = translation.get_language_from_path(path) or translation.get_language()
    try:
        with translation.override(language):
            return resolve(path)
    except Resolver404:
        return None


def wsgi_headers(headers: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Return headers by their WSGI names. The values of a repeated header are joined."""
    found = {}
    for name, value in merged(headers):
        key = name.upper().replace("-", "_")
        found[key if key in _WITHOUT_PREFIX else f"HTTP_{key}"] = value
    return found


def merged(headers: Iterable[tuple[str, str]]) -> Collection[tuple[str, str]]:
    """Return each header once, whatever the case of its name, with its values joined."""
    found: dict[str, tuple[str, str]] = {}
    for name, value in headers:
        first, before = found.get(name.lower(), (name, None))
        found[name.lower()] = first, value if before is None else f"{before},{value}"
    return found.values()


def find_user(name: str | None) -> Any:
    """Return the user with this primary key or user name, or an anonymous user if `name` is None.

    Return None if the project has no users. Raise ValueError if the user does not exist.
    """
    if not apps.is_installed("django.contrib.auth"):
        if name is not None:
            raise ValueError("this project has no users: django.contrib.auth is not installed.")
        return None
    if name is None:
        # This module can be imported only if django.contrib.auth is installed.
        from django.contrib.auth.models import AnonymousUser

        return AnonymousUser()
    users: Any = get_user_model()._default_manager
    try:
        return users.get(pk=name)
    except (ObjectDoesNotExist, ValueError, ValidationError):
        pass
    try:
        return users.get_by_natural_key(name)
    except ObjectDoesNotExist:
        raise ValueError(f"there is no user with the key or the name {name!r}.") from None
