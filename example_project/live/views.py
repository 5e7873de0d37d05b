"""The page at /, and the views that it calls."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.http import require_POST

from django_slidingwindow import limits
from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.exceptions import StoreError

from . import plug as plugs
from . import profiles

# Commands that the page suggests. {host} is the address of the page.
CALLS = (
    ("A public page, by address", "curl -i {host}/status/"),
    (
        "A tenant on the free plan",
        'curl -i -H "X-API-Key: demo-key-of-acme" {host}/api/orders/',
    ),
    (
        "One who pays, an async view",
        'curl -i -H "X-API-Key: demo-key-of-globex" {host}/api/rates/',
    ),
    (
        "Django REST framework",
        'curl -i -H "X-API-Key: demo-key-of-acme" {host}/api/customers/',
    ),
    ("django-ninja", 'curl -i -H "X-API-Key: demo-key-of-acme" {host}/api/v2/parcels'),
    (
        "A job that waits for the quota of an upstream",
        'curl -i -X POST -H "X-API-Key: demo-key-of-globex" {host}/api/reports/',
    ),
    ("A login that counts failures alone", "curl -i -d username=eve {host}/api/login/"),
)


@ensure_csrf_cookie
def page(request: HttpRequest) -> HttpResponse:
    context = {
        "algorithms": profiles.ALGORITHMS,
        "limits": profiles.LIMITS,
        "at_once": profiles.AT_ONCE,
        "costs": range(1, profiles.MAX_COST + 1),
        "server": plugs.server,
        "calls": [
            (means, command.format(host=request.build_absolute_uri("/").rstrip("/")))
            for means, command in CALLS
        ],
    }
    return render(request, "live/page.html", context)


@rate_limit(profile=profiles.chosen, cost=profiles.cost)
async def hit(request: HttpRequest) -> JsonResponse:
    """Answer the buttons of the page. This takes a while if requests in flight are limited."""
    if profiles.limits_in_flight(request):
        await asyncio.sleep(profiles.SECONDS)
    return JsonResponse({"hello": "world"})


@require_POST
def reset(request: HttpRequest) -> HttpResponse:
    """Reset the windows of this client."""
    for name in profiles.configs():
        # Redis may be stopped. It is empty after its next start anyway.
        with suppress(StoreError):
            limits.reset(name, request.META["REMOTE_ADDR"])
    return HttpResponse(status=204)


@require_POST
def plug(request: HttpRequest) -> JsonResponse:
    """Stop the embedded Redis, or start it again."""
    if plugs.server is None:
        raise Http404("Redis is not embedded")
    if request.POST.get("on") == "true":
        plugs.server.start()
    else:
        plugs.server.stop()
    return JsonResponse({"running": plugs.server.running})
