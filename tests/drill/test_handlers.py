"""Requests through Django's own handlers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path

from django_slidingwindow.drill.handlers import Asgi, Call, Wsgi

seen: list[dict[str, Any]] = []
closed: list[str] = []


def show(request: HttpRequest, name: str) -> HttpResponse:
    seen.append(
        {
            "url": request.build_absolute_uri(),
            "name": name,
            "query": request.GET["q"],
            "method": request.method,
            "ip": request.META["REMOTE_ADDR"],
            "key": request.headers["X-API-Key"],
            "type": request.content_type,
            "body": request.body,
        }
    )
    return JsonResponse({}, status=202)


def stream(request: HttpRequest) -> StreamingHttpResponse:
    def parts() -> Any:
        yield b"one"
        closed.append("read to its end")

    async def aparts() -> Any:
        for part in parts():
            yield part

    return StreamingHttpResponse(aparts() if isinstance(request, ASGIRequest) else parts())


urlpatterns = [path("café/<name>/", show), path("stream/", stream)]
pytestmark = [pytest.mark.urls(__name__), pytest.mark.django_db]


@pytest.fixture(params=["wsgi", "asgi"])
def send(request: pytest.FixtureRequest) -> Any:
    if request.param == "wsgi":
        return Wsgi().send
    return lambda call: asyncio.run(Asgi().send(call))


def test_view_gets_the_whole_request(send: Any, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["shop.example"]
    settings.SECURE_SSL_REDIRECT = True
    settings.MIDDLEWARE = ["django.middleware.security.SecurityMiddleware"]
    seen.clear()
    call = Call(
        method="DELETE",
        path="/caf%C3%A9/a%20b/?q=%C3%A9",
        host="shop.example",
        ip="203.0.113.9",
        headers=(("X-API-Key", "a"), ("Content-Type", "text/plain"), ("x-api-key", "b")),
    )
    assert send(call) == 202
    assert seen == [
        {
            "url": "https://shop.example/caf%C3%A9/a%20b/?q=%C3%A9",
            "name": "a b",
            "query": "é",
            "method": "DELETE",
            "ip": "203.0.113.9",
            "key": "a,b",
            "type": "text/plain",
            "body": b"",
        }
    ]


def test_given_host_replaces_the_default(send: Any, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["shop.example"]
    seen.clear()
    headers = (("Host", "shop.example"), ("X-API-Key", "secret"))
    call = Call(method="GET", path="/caf%C3%A9/a/?q=1", host="localhost", headers=headers)
    assert send(call) == 202
    assert seen[0]["url"] == "https://shop.example/caf%C3%A9/a/?q=1"


def test_response_is_read_to_its_end(send: Any, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["localhost"]
    closed.clear()
    assert send(Call(method="GET", path="/stream/", host="localhost")) == 200
    assert closed == ["read to its end"]


def test_handler_returns_a_status_when_the_view_fails(send: Any, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["localhost"]
    call = Call(method="GET", path="/caf%C3%A9/x/", host="localhost")
    assert send(call) == 500
    assert send(Call(method="GET", path="/elsewhere/", host="localhost")) == 404
