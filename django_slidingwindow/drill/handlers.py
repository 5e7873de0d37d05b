"""Requests through Django's own handlers, with the project's middleware, in this process."""

from __future__ import annotations

import asyncio
import io
import sys
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler

from ..inspection.sample_request import wsgi_headers

_PORT = 443


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request without a body. It uses HTTPS, because many sites only redirect plain HTTP."""

    method: str
    path: str
    """With its query string, percent-encoded."""
    host: str
    ip: str = "127.0.0.1"
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def fields(self) -> list[tuple[str, str]]:
        """All header fields; their names are in lower case."""
        given = [(name.lower(), text) for name, text in self.headers]
        return given if "host" in dict(given) else [("host", self.host), *given]


class Wsgi:
    """Django's WSGI handler."""

    def __init__(self) -> None:
        self._handler: Any = WSGIHandler()

    def send(self, call: Call) -> int:
        """Read the whole response and return its status."""
        statuses: list[str] = []
        response = self._handler(
            _environ(call), lambda status, headers, exc_info=None: statuses.append(status)
        )
        try:
            for _ in response:
                pass
        finally:
            response.close()
        return int(statuses[0].split()[0])


class Asgi:
    """Django's ASGI handler."""

    def __init__(self) -> None:
        self._handler = ASGIHandler()

    async def send(self, call: Call) -> int:
        """Read the whole response and return its status."""
        incoming = [{"type": "http.request", "body": b"", "more_body": False}]
        statuses: list[int] = []

        async def receive() -> Any:
            if not incoming:
                # The client stays connected. The handler cancels this wait after its response.
                await asyncio.Event().wait()
            return incoming.pop()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        await self._handler(_scope(call), receive, send)
        return statuses[0]


def _environ(call: Call) -> dict[str, Any]:
    path, _, query = call.path.partition("?")
    return {
        "REQUEST_METHOD": call.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": query,
        "SERVER_NAME": call.host,
        "SERVER_PORT": str(_PORT),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": call.ip,
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "https",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        **wsgi_headers(call.fields),
    }


def _scope(call: Call) -> dict[str, Any]:
    path, _, query = call.path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": call.method,
        "path": unquote_to_bytes(path).decode("utf-8", "replace"),
        "raw_path": path.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "scheme": "https",
        "headers": [(name.encode("latin-1"), text.encode("latin-1")) for name, text in call.fields],
        "client": [call.ip, 0],
        "server": [call.host, _PORT],
    }
