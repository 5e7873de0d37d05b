"""Requests that nobody has sent, to find out what limits would say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from io import BytesIO
from typing import Any
from urllib.parse import unquote_to_bytes

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.core.handlers.wsgi import WSGIRequest
from django.http import HttpRequest
from django.urls import Resolver404, resolve
from django.utils import translation

_METHOD = re.compile(r"[A-Za-z!#$%&'*+.^_`|~-]+")
# Servers drop names with an underscore, which would otherwise pass for a hyphen.
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^`|~-]+")
_PLAIN = ("CONTENT_TYPE", "CONTENT_LENGTH")


def request_of(
    method: str, path: str, *, ip: str, headers: Iterable[tuple[str, str]] = (), user: Any = None
) -> HttpRequest:
    """Return a request as the view gets it, with `ip` as the peer of the connection.

    Raise ValueError if there cannot be such a request.
    """
    if not _METHOD.fullmatch(method):
        raise ValueError(f"{method!r} is not a method such as GET.")
    if not path.startswith("/"):
        raise ValueError(f"the path must begin with a slash, and {path!r} does not.")
    place, _, query = path.partition("?")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method.upper(),
        "PATH_INFO": unquote_to_bytes(place).decode("latin-1"),
        "QUERY_STRING": query,
        "SCRIPT_NAME": "",
        "REMOTE_ADDR": ip,
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.url_scheme": "http",
        "wsgi.input": BytesIO(),
    }
    environ.update(_fields(headers))
    request = WSGIRequest(environ)
    if user is not None:
        request.user = user
    try:
        # As LocaleMiddleware does it, for paths that begin with a language.
        with translation.override(_language(request.path_info)):
            request.resolver_match = resolve(request.path_info)
    except Resolver404:
        request.resolver_match = None
    return request


def _language(path: str) -> str | None:
    return translation.get_language_from_path(path) or translation.get_language()


def _fields(headers: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Return headers as WSGI has them; a repeated one is joined."""
    found: dict[str, str] = {}
    for name, value in headers:
        key = name.upper().replace("-", "_")
        key = key if key in _PLAIN else f"HTTP_{key}"
        found[key] = f"{found[key]},{value}" if key in found else value
    return found


def parse_header(text: str) -> tuple[str, str]:
    """Return name and value of "Name: value"; ValueError for anything else."""
    name, colon, value = text.partition(":")
    if not colon or not _NAME.fullmatch(name):
        raise ValueError(f"{text!r} is not a header such as X-API-Key:abc")
    return name, value.strip()


def find_user(name: str | None) -> Any:
    """Return the user with this primary key, or this name; without one, an anonymous user.

    None if the project has no users. Raise ValueError if there is no such user.
    """
    if not apps.is_installed("django.contrib.auth"):
        if name is not None:
            raise ValueError("this project has no users: django.contrib.auth is not installed.")
        return None
    if name is None:
        # Its module cannot be imported where django.contrib.auth is not installed.
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
