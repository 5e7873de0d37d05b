"""The application that gunicorn serves: the views of one contender, with many clients."""

from __future__ import annotations

import itertools
import os
from typing import Any

import django
from django.core.handlers.wsgi import WSGIHandler
from django.test import override_settings

from .contenders.base import ALLOWED, CASES, view_contenders
from .requests import addresses

django.setup()
_contender = next(found for found in view_contenders() if found.slug == os.environ["BENCH_VIEW"])
_case = next(case for case in CASES if case.name == os.environ["BENCH_CASE"])
with override_settings(MIDDLEWARE=_contender.middleware, **_contender.settings(_case)):
    _handler = WSGIHandler()
# wrk has one address. Each request gets the next of many addresses, or always the same one.
_clients = itertools.cycle(addresses(5_000 if _case is ALLOWED else 1))


def application(environ: dict[str, Any], start_response: Any) -> Any:
    environ["REMOTE_ADDR"] = next(_clients)
    return _handler(environ, start_response)
