"""The address of the client, with as much of a forwarding header as can be believed.

Each proxy appends the address that it saw, so the header is read from the right, and
only as long as trusted proxies wrote it. What stands further left anybody can claim.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import cache
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured

from ..conf import NAME, conf, on_change
from ..core.caching import BoundedCache
from .addresses import LONGEST, Address, Network, counted, is_usual_ipv4, pack_address
from .forwarded import forwarded_for

if TYPE_CHECKING:
    from django.http import HttpRequest

UNIX = "unix"
"""In TRUSTED_PROXIES: a proxy that connects by a unix socket, and so has no address."""
X_FORWARDED_FOR, FORWARDED = HEADERS = ("x-forwarded-for", "forwarded")

logger = logging.getLogger("django_slidingwindow")

_META = {name: "HTTP_" + name.upper().replace("-", "_") for name in HEADERS}

_warned = False


class UnknownClientError(Exception):
    """The request came without an address, and nobody said that this is right."""


def parse_network(value: Any, setting: str) -> Network:
    """Return a network of the settings."""
    try:
        return ip_network(value)
    except ValueError as error:
        raise ImproperlyConfigured(f"{NAME}['{setting}'] has {value!r}: {error}.") from error


class Hop:
    """A client or proxy that a request has passed."""

    __slots__ = ("_address", "_packed", "counted", "trusted")

    def __init__(self, packed: bytes | None, counted: str, trusted: bool = False) -> None:
        """`packed` is the address; None for a unix socket."""
        self._packed = packed
        self._address: Address | None = None
        self.counted = counted
        """The address as one client has it, however many addresses that client has."""
        self.trusted = trusted
        """Whether what it wrote into the forwarding header is believed."""

    @property
    def address(self) -> Address | None:
        """The address, made when it is first asked for; None for a unix socket."""
        if self._address is None and self._packed is not None:
            self._address = ip_address(self._packed)
        return self._address


class _Trust:
    """Which proxies are trusted, and which header they write."""

    __slots__ = ("header", "networks", "nobody", "unix")

    def __init__(self, header: str, proxies: Sequence[str]) -> None:
        networks = [value for value in proxies if value != UNIX]
        self.header = header
        self.networks = [parse_network(value, "TRUSTED_PROXIES") for value in networks]
        self.unix = UNIX in proxies
        self.nobody = not proxies


@cache
def _trust() -> _Trust:
    header = conf.forwarded_header.lower()
    if header not in HEADERS:
        raise ImproperlyConfigured(
            f"{NAME}['FORWARDED_HEADER'] is {conf.forwarded_header!r}: "
            f"use one of {', '.join(HEADERS)}."
        )
    return _Trust(header, conf.trusted_proxies)


class _Hops(BoundedCache[str, "Hop | None"]):
    """A cache of parsed hops by their text; None for text that is not an address.

    When it is full, it is emptied: parsing a hop again costs a few microseconds.
    """

    def __missing__(self, text: str) -> Hop | None:
        hop = _read_hop(text)
        return self.keep(text, hop) if len(text) <= LONGEST else hop


_hops = _Hops(16_384)
_UNIX_SOCKET = Hop(None, UNIX, trusted=True)


def _read_hop(text: str) -> Hop | None:
    packed = pack_address(text)
    if packed is None:
        return None
    hop = Hop(packed, counted(packed, conf.ipv6_prefix))
    for network in _trust().networks:
        if hop.address in network:
            hop.trusted = True
            break
    return hop


class _Counted(BoundedCache[str, "str | None"]):
    """A cache of addresses as they are counted, by their text; None for another text.

    Most callers need no more than that, and a hop takes longer to make.
    """

    def __missing__(self, text: str) -> str | None:
        if is_usual_ipv4(text):
            return self.keep(text, text)
        hop = _hops[text]
        return None if hop is None else self.keep(text, hop.counted)


_counted = _Counted(16_384)


def canonical_ip(text: str) -> str:
    """Return an address in one spelling, IPv6 by its network; any other text stays as it is."""
    known = _counted[text]
    return text if known is None else known


def client_address(request: HttpRequest) -> Address | str:
    """Return the client's address; "unix" for a trusted unix socket that names no client."""
    return client_of(request).address or UNIX


def counted_client(request: HttpRequest) -> str:
    """Return the client's address as one client has it, however many addresses that client has."""
    meta = request.META
    if _trust().nobody and (
        _warned or not ("HTTP_X_FORWARDED_FOR" in meta or "HTTP_FORWARDED" in meta)
    ):
        # In place what `client_of` finds out (`python -m benchmarks.compare`).
        known = _counted[meta.get("REMOTE_ADDR", "")]
        if known is not None:
            return known
    return client_of(request).counted


def client_of(request: HttpRequest, passed: list[tuple[str, Hop | None]] | None = None) -> Hop:
    """Return who sent the request; a trusted unix socket itself if it names nobody.

    Where a proxy wrote something that is not an address, the proxy itself is the client:
    many share its limit then, but nobody escapes one. Raises UnknownClientError for a
    request that has no address at all. `passed` gets every hop that was looked at, the nearest
    first, with its text; None for a text that is not an address.
    """
    meta = request.META
    trust = _trust()
    peer = meta.get("REMOTE_ADDR", "")
    client = _hops[peer]
    if trust.nobody:
        if not _warned and ("HTTP_X_FORWARDED_FOR" in meta or "HTTP_FORWARDED" in meta):
            _warn_of_forwarding()
    elif trust.unix and not peer:
        client = _UNIX_SOCKET
    if passed is not None:
        passed.append((peer, client))
    if client is not None and client.trusted:
        for text, hop in _written(meta.get(_META[trust.header], ""), trust.header):
            if passed is not None:
                passed.append((text, hop))
            if hop is None:
                break
            client = hop
            if not hop.trusted:
                break
    if client is None:
        raise UnknownClientError(
            f"the request came from {peer!r}, which is not an address. If the server listens on a "
            f"unix socket, add '{UNIX}' to {NAME}['TRUSTED_PROXIES'] and let the proxy "
            "in front of it set the forwarding header."
        )
    return client


def _written(header: str, kind: str) -> Iterator[tuple[str, Hop | None]]:
    """Yield what the proxies wrote, the nearest first; None for a text without address."""
    if not header:
        return
    entries = forwarded_for(header) if kind == FORWARDED else reversed(header.split(","))
    for entry in entries:
        text = entry.strip()
        yield text, _hops[text]


def _warn_of_forwarding() -> None:
    global _warned
    _warned = True
    logger.warning(
        "A request has a forwarding header, and %s['TRUSTED_PROXIES'] is empty: the header "
        "is ignored. Behind a proxy, all clients share one limit: add the proxy to the setting. "
        "Without a proxy, ignore this message. It is logged once per process.",
        NAME,
    )


on_change(_trust.cache_clear)
on_change(_hops.clear)
on_change(_counted.clear)
