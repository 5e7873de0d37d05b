"""Check proxies, exemptions, the project's own response, and the middleware."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from django.core.checks import CheckMessage
from django.urls import get_resolver

from ..guard.addresses import read_network
from ..guard.exemptions import STAFF
from ..guard.installation import MIDDLEWARE
from ..guard.proxies import UNIX
from . import catalog
from .callables import accepts, load
from .project import Project
from .views import view_names


def check_proxies(project: Project) -> Iterator[CheckMessage]:
    for value in project.conf.trusted_proxies:
        problem = _network_problem(value)
        if problem is not None and value != UNIX:
            yield catalog.BAD_PROXY(value=value, problem=problem)


def check_trust(project: Project) -> Iterator[CheckMessage]:
    for value in _networks(project.conf.trusted_proxies):
        if read_network(value).prefixlen == 0:
            yield catalog.TRUSTS_ALL(value=value)


def check_exemptions(project: Project) -> Iterator[CheckMessage]:
    for value in project.conf.exempt:
        problem = None if value == STAFF else _network_problem(value)
        if problem is not None and (callable(value) or _is_path(value)):
            function, problem = load(value)
            if problem is None and not accepts(function, "request"):
                problem = "cannot be called with (request)."
        if problem is not None:
            yield catalog.BAD_EXEMPTION(value=value, problem=problem)


def check_exempt_proxies(project: Project) -> Iterator[CheckMessage]:
    for value in _networks(project.conf.exempt):
        for proxy in _networks(project.conf.trusted_proxies):
            if read_network(value).overlaps(read_network(proxy)):
                yield catalog.EXEMPT_PROXY(value=value, proxy=proxy)


def check_response(project: Project) -> Iterator[CheckMessage]:
    value = project.conf.response
    if value is None:
        return
    function, problem = load(value)
    if problem is None and not accepts(function, "request", "decision"):
        problem = "cannot be called with (request, decision)."
    if problem is not None:
        yield catalog.BAD_RESPONSE(value=value, problem=problem)


def check_middleware_once(project: Project) -> Iterator[CheckMessage]:
    count = project.middleware_like(MIDDLEWARE)
    if count > 1:
        yield catalog.MIDDLEWARE_TWICE(count=count)


def check_rules_read(project: Project) -> Iterator[CheckMessage]:
    if project.conf.rules and not project.middleware_like(MIDDLEWARE):
        yield catalog.RULES_WITHOUT_MIDDLEWARE()


def check_async_operations(project: Project) -> Iterator[CheckMessage]:
    # Not imported here, because django-ninja may not be installed. Views that use it import it.
    ninja = sys.modules.get("django_slidingwindow.contrib.ninja")
    if ninja is None or project.middleware_like(MIDDLEWARE) or view_names() is None:
        return
    for name in ninja.uncharged_operations(get_resolver().url_patterns):
        yield catalog.UNCHARGED_OPERATION(name=name)


def _networks(values: Iterable[Any]) -> list[str]:
    """Return the values that are valid networks."""
    return [value for value in values if _network_problem(value) is None]


def _network_problem(value: Any) -> str | None:
    if not isinstance(value, str):
        return f"{type(value).__name__} is not a network."
    try:
        read_network(value)
    except ValueError as error:
        return f"{error}."
    return None


def _is_path(value: Any) -> bool:
    """Return whether a value looks like a dotted path, not like a misspelled address."""
    return isinstance(value, str) and all(part.isidentifier() for part in value.split("."))
