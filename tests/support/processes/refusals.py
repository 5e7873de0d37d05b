"""A process that refuses requests, logs the refusals and exits.

Run as `python -m tests.support.processes.refusals <JSON>`. The JSON holds `databases` (the default
entry of DATABASES), `way` (a key of `WAYS`), and `first` and `count`: which refusals to make.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import sys
from typing import Any

from django.conf import settings

KEYS = 1_000
VIEWS = ("one/", "two/")


def main(argument: str) -> None:
    import django

    from tests import settings as base

    job = json.loads(argument)
    values = {name: getattr(base, name) for name in dir(base) if name.isupper()}
    values |= {
        "DATABASES": {"default": job["databases"]},
        "ROOT_URLCONF": "tests.support.processes.refusals",
        "ALLOWED_HOSTS": ["*"],
        "SLIDING_WINDOW": {
            **base.SLIDING_WINDOW,
            "PROFILES": {"closed": {"axis": "ip", "rate": "0/m"}},
        },
    }
    settings.configure(**values)
    django.setup()
    WAYS[job["way"]](job["first"], job["count"])


def addresses(first: int, count: int) -> list[str]:
    return [f"10.0.{i % KEYS // 250}.{i % 250}" for i in range(first, first + count)]


def record(first: int, count: int) -> None:
    """Send the signal of a refusal, without a request through Django."""
    from django_slidingwindow.signals import report_refusal
    from tests.support.rejection_factories import refusal, request, verdict

    asked = request()
    decisions = {address: refusal(verdict(address)) for address in addresses(0, KEYS)}
    for address in addresses(first, count):
        report_refusal(asked, decisions[address])


def wsgi(first: int, count: int) -> None:
    from django.core.wsgi import get_wsgi_application
    from django.test import RequestFactory

    application = get_wsgi_application()
    for i, address in enumerate(addresses(first, count)):
        request = RequestFactory().get("/" + VIEWS[i % 2], REMOTE_ADDR=address)
        status: list[str] = []
        body = application(request.environ, lambda line, headers, into=status: into.append(line))
        assert status[0].startswith("429"), status
        body.close()


def asgi(first: int, count: int) -> None:
    from django.core.asgi import get_asgi_application

    application = get_asgi_application()

    async def request(address: str, path: str) -> None:
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/" + path,
            "query_string": b"",
            "headers": [(b"host", b"testserver")],
            "client": [address, 1],
        }
        sent: list[Any] = []
        coming = iter([{"type": "http.request", "body": b""}])

        async def receive() -> Any:
            for message in coming:
                return message
            return await asyncio.Event().wait()  # the client does not disconnect

        async def send(message: Any) -> None:
            sent.append(message)

        await application(scope, receive, send)
        assert sent[0]["status"] == 429, sent

    async def all_of_them() -> None:
        for i, address in enumerate(addresses(first, count)):
            await request(address, VIEWS[i % 2])

    asyncio.run(all_of_them())


def fork(first: int, count: int) -> None:
    """Record half before a fork, then a quarter each in the parent and in the child."""
    record(first, count // 2)
    child = os.fork()
    record(first + count // 2, count // 4)
    if child == 0:
        sys.exit(0)  # as a worker of a web server does
    assert os.waitpid(child, 0)[1] == 0


def worker(first: int, count: int) -> None:
    """Record in a child of multiprocessing, which exits without running atexit handlers."""
    child = multiprocessing.get_context("fork").Process(target=record, args=(first, count))
    child.start()
    child.join()
    assert child.exitcode == 0


WAYS = {"record": record, "wsgi": wsgi, "asgi": asgi, "fork": fork, "worker": worker}

if __name__ == "__main__":
    main(sys.argv[1])
else:
    from django.http import HttpRequest, HttpResponse
    from django.urls import path

    from django_slidingwindow.decorators import rate_limit

    @rate_limit("closed")
    def view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    @rate_limit("closed")
    async def async_view(request: HttpRequest) -> HttpResponse:
        return HttpResponse()

    urlpatterns = [path("one/", view), path("two/", async_view)]
