"""Users that Django loads when a request first needs them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from django.contrib.auth.middleware import AuthenticationMiddleware
from django.http import HttpRequest, HttpResponse


def set_lazy_user(request: HttpRequest, load: Callable[[], Awaitable[Any]]) -> None:
    """Set `request.user` as Django's middleware does. `load` replaces `request.auser`.

    Only `load` can load the user: code that blocks fails, because there is no session.
    """
    request.session = None  # type: ignore[assignment]
    AuthenticationMiddleware(lambda request: HttpResponse()).process_request(request)
    request.auser = load
