"""The target of a load test, and whether it belongs to this project."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from django.http.request import validate_host
from django.utils.encoding import iri_to_uri

PORTS = {"http": 80, "https": 443}


class TargetError(ValueError):
    """A load test cannot use this URL."""


@dataclass(frozen=True, slots=True)
class Target:
    """The URL that requests are sent to."""

    scheme: str
    host: str
    port: int
    path: str
    """With its query string."""

    @classmethod
    def of(cls, url: str) -> Target:
        """Return the target of a URL; raise TargetError if it is not the URL of a site."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise TargetError(f"{url!r} is not an address: {error}.") from error
        if parts.scheme not in PORTS or not parts.hostname:
            raise TargetError(f"{url!r} is not an address such as http://127.0.0.1:8000/api/.")
        if parts.username is not None or parts.password is not None:
            raise TargetError("The address has a user: use --header 'Authorization: ...'.")
        path = parts.path or "/"
        if parts.query:
            path += f"?{parts.query}"
        return cls(parts.scheme, parts.hostname, port or PORTS[parts.scheme], iri_to_uri(path))

    def is_own(self, allowed_hosts: Sequence[str]) -> bool:
        """Whether the host is this one or is named in ALLOWED_HOSTS, where `*` does not count."""
        named = [pattern for pattern in allowed_hosts if pattern != "*"]
        return self._is_loopback() or validate_host(self.host, named)

    def _is_loopback(self) -> bool:
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost" or self.host.endswith(".localhost")
