"""Make requests from the lines of a log, for the project's own rules, views and identities."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

from django.http import HttpRequest
from django.urls import ResolverMatch

from ..conf import conf
from ..core.caching import BoundedCache
from ..guard.exemptions import Exemptions, exemptions
from ..guard.identity import resolver
from ..guard.proxies import FORWARDED
from ..guard.requirements import is_exempt, requirements_of
from ..guard.rules import requirements_for
from ..inspection.sample_request import match_of
from .formats import Fields, Names
from .readers import Identify

_HEADER_PREFIX = "http_"


class LoggedRequests:
    """Makes requests with the data of a log line: address, user, path, method and headers."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._matches: BoundedCache[str, ResolverMatch | None] = BoundedCache(16_384)

    def identify(self, axis: str, anonymous: str = "ip") -> Identify:
        """Return a function that finds the identifier as a check does, or None if that fails."""
        find = resolver(axis, anonymous).find

        def identify(line: str, fields: Fields) -> str | None:
            try:
                return find(self.request(fields))
            except Exception:  # noqa: BLE001 -- the project's own code
                return None

        return identify

    def applies(self, profile: str, fields: Fields) -> bool:
        """Whether the middleware would charge the profile for this request.

        Functions that choose profiles or exempt requests are not asked: a log may lack what they
        read.
        """
        request = self.request(fields)
        exempt = exemptions()
        if exempt is not None and Exemptions(exempt.networks, (), False).covers(request):
            return False
        match = request.resolver_match
        if match is None:
            found = requirements_for(request)
        else:
            rules = () if is_exempt(match.func) else requirements_for(request)
            found = (*rules, *requirements_of(match.func))
        return any(
            isinstance(requirement.profiles, tuple)
            and profile in requirement.profiles
            and requirement.covers(request)
            for requirement in found
        )

    def request(self, fields: Fields) -> HttpRequest:
        """Return a request with everything that the line has."""
        find = self._names.find
        method, path = self._names.request_line(fields)
        request = HttpRequest()
        request.method = (method or "GET").upper()
        request.path = request.path_info = unquote((path or "/").partition("?")[0])
        request.META = {
            name.upper(): value
            for name, value in fields.items()
            if name.startswith(_HEADER_PREFIX) and isinstance(value, str) and value != "-"
        }
        request.META["REMOTE_ADDR"] = find(fields, "ip") or ""
        forwarded = find(fields, "forwarded")
        if forwarded is not None:
            name = "FORWARDED" if conf.forwarded_header.lower() == FORWARDED else "X_FORWARDED_FOR"
            request.META[f"HTTP_{name}"] = forwarded
        user = find(fields, "user")
        request_user: Any = SimpleNamespace(is_authenticated=user is not None, pk=user)
        request.user = request_user
        request.resolver_match = self._match(request.path_info)
        return request

    def _match(self, path: str) -> ResolverMatch | None:
        if path in self._matches:
            return self._matches[path]
        return self._matches.keep(path, match_of(path))
