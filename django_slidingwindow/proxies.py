"""The address of the client, with as much of a forwarding header as can be believed.

Each proxy appends the address that it saw, so the header is read from the right, and
only as long as trusted proxies wrote it. What stands further left anybody can claim.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Any, TypeAlias

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from .conf import NAME, conf

if TYPE_CHECKING:
    from django.http import HttpRequest

Address: TypeAlias = "IPv4Address | IPv6Address"
Network: TypeAlias = "IPv4Network | IPv6Network"

UNIX = "unix"
"""In TRUSTED_PROXIES: whoever connects by a unix socket, and so has no address."""
X_FORWARDED_FOR, FORWARDED = HEADERS = ("x-forwarded-for", "forwarded")

logger = logging.getLogger("django_slidingwindow")

_META = {name: "HTTP_" + name.upper().replace("-", "_") for name in HEADERS}
_NAT64 = IPv6Network("64:ff9b::/96")
# The longest text of an address is 45 characters; some are left for port and zone.
_LONGEST = 128
_BRACKETS = re.compile(r"\[([^\[\]]*)\](?::[^:]*)?")
_FOR = re.compile(r'(?:^|;)\s*for\s*=\s*(?:"([^"]*)"|([^\s;"]*))\s*(?=;|$)', re.IGNORECASE)

_warned = False


class UnknownClientError(Exception):
    """The request came without an address, and nobody said that this is right."""


def parse_address(text: str) -> Address | None:
    """The address in any spelling, with or without brackets, port and zone; None if it is none."""
    return _parse_address(text) if len(text) <= _LONGEST else None


@lru_cache(maxsize=4096)
def _parse_address(text: str) -> Address | None:
    text = text.strip()
    bracketed = _BRACKETS.fullmatch(text)
    if bracketed is not None:
        text = bracketed[1]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return unwrapped(address)


def unwrapped(address: Address) -> Address:
    """The IPv4 address that stands in an IPv6 one: mapped, or by a translator's prefix."""
    if address.version == 4:
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def parse_network(value: Any, setting: str) -> Network:
    """A network of the settings."""
    try:
        return ip_network(value)
    except ValueError as error:
        raise ImproperlyConfigured(f"{NAME}['{setting}'] has {value!r}: {error}.") from error


@dataclass(frozen=True, slots=True)
class _Trust:
    """Whose word is believed, and where it is written."""

    networks: tuple[Network, ...]
    unix: bool
    header: str
    nobody: bool

    def trusts(self, address: Address) -> bool:
        return any(address in network for network in self.networks)


@cache
def _trust() -> _Trust:
    header = conf.forwarded_header.lower()
    if header not in HEADERS:
        raise ImproperlyConfigured(
            f"{NAME}['FORWARDED_HEADER'] is {conf.forwarded_header!r}: "
            f"allowed is one of {', '.join(HEADERS)}."
        )
    proxies = list(conf.trusted_proxies)
    networks = [value for value in proxies if value != UNIX]
    return _Trust(
        networks=tuple(parse_network(value, "TRUSTED_PROXIES") for value in networks),
        unix=UNIX in proxies,
        header=header,
        nobody=not proxies,
    )


def client_address(request: HttpRequest) -> Address | str:
    """The client's address; "unix" for a trusted unix socket that names no client.

    Where a proxy wrote something that is no address, the proxy itself is the client:
    many share its limit then, but nobody escapes one. Raises UnknownClientError for a
    request that has no address at all.
    """
    meta = request.META
    trust = _trust()
    peer = meta.get("REMOTE_ADDR", "")
    client = parse_address(peer)
    if trust.nobody:
        if not _warned:
            _warn_of_forwarding(meta)
    elif (trust.unix and not peer) or (client is not None and trust.trusts(client)):
        for hop in _hops(meta.get(_META[trust.header], ""), trust.header):
            if hop is None:
                break
            client = hop
            if not trust.trusts(hop):
                break
    if client is not None:
        return client
    if trust.unix and not peer:
        return UNIX
    raise UnknownClientError(
        f"the request came from {peer!r}, which is no address. If the server listens on a "
        f"unix socket, add '{UNIX}' to {NAME}['TRUSTED_PROXIES'] and let the proxy "
        "in front of it set the forwarding header."
    )


def _hops(header: str, kind: str) -> Iterator[Address | None]:
    """What the proxies wrote, the nearest first; None for what is no address."""
    if not header:
        return
    for entry in reversed(header.split(",")):
        # A quote that a client left open must not swallow what a proxy appended,
        # so commas separate even between quotes; an address has none.
        yield parse_address(_for(entry) if kind == FORWARDED else entry)


def _for(element: str) -> str:
    """The node that sent the request, from an element of `Forwarded` (RFC 7239)."""
    found = _FOR.findall(element)
    return found[0][0] or found[0][1] if len(found) == 1 else ""


def _warn_of_forwarding(meta: dict[str, Any]) -> None:
    global _warned
    if "HTTP_X_FORWARDED_FOR" in meta or "HTTP_FORWARDED" in meta:
        _warned = True
        logger.warning(
            "A request has a forwarding header, and %s['TRUSTED_PROXIES'] is empty: the header "
            "is ignored. Behind a proxy all clients then share the proxy's limit: name the proxy. "
            "Without one, write TRUSTED_PROXIES = [] and ignore this. It is said once a process.",
            NAME,
        )


def _reset(*, setting: str, **kwargs: Any) -> None:
    if setting == NAME:
        _trust.cache_clear()


setting_changed.connect(_reset, dispatch_uid=f"{__name__}.reset")
