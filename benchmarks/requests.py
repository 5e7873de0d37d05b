"""Requests as a server passes them to Django."""

from __future__ import annotations

import io
from typing import Any

_ENVIRON = {
    "REQUEST_METHOD": "GET",
    "SCRIPT_NAME": "",
    "QUERY_STRING": "",
    "SERVER_NAME": "example.com",
    "SERVER_PORT": "80",
    "SERVER_PROTOCOL": "HTTP/1.1",
    "HTTP_HOST": "example.com",
    "HTTP_ACCEPT": "*/*",
    "HTTP_USER_AGENT": "benchmark",
    "wsgi.version": (1, 0),
    "wsgi.url_scheme": "http",
    "wsgi.errors": io.StringIO(),
    "wsgi.multithread": False,
    "wsgi.multiprocess": False,
    "wsgi.run_once": False,
}


def environ(path: str, client: str) -> dict[str, Any]:
    """Return a WSGI request."""
    return {**_ENVIRON, "PATH_INFO": path, "REMOTE_ADDR": client, "wsgi.input": io.BytesIO()}


def scope(path: str, client: str) -> dict[str, Any]:
    """Return an ASGI request."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"example.com"), (b"accept", b"*/*")],
        "client": (client, 40_000),
        "server": ("example.com", 80),
    }


def addresses(count: int) -> list[str]:
    """Return the addresses of different clients."""
    return [f"10.0.{number // 250}.{number % 250 + 1}" for number in range(count)]
