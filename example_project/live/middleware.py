"""Headers for the page, beside those of the app: the source of a decision, and its time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from django_slidingwindow.limits import get_limiter


@sync_and_async_middleware
def tell_source(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    if iscoroutinefunction(get_response):

        async def middleware(request: HttpRequest) -> Any:
            return _with_source(request, await get_response(request))
    else:

        def middleware(request: HttpRequest) -> Any:
            return _with_source(request, get_response(request))

    return middleware


def _with_source(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    decision = getattr(request, "rate_limit", None)
    if decision is not None and request.path == "/live/hit/":
        response["X-Demo-Source"] = decision.source
        response["X-Demo-Breaker"] = get_limiter().breaker.state
        response["X-Demo-Time"] = str(time.time_ns() // 1_000_000)
    return response
