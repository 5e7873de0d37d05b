"""Find the address of the client, by the trusted part of a forwarding header.

Each proxy appends the address of its peer, so the header is read from the right, and only as long
as trusted proxies wrote it. Anybody can make up what stands further left.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured

from ..conf import NAME, conf, on_change
from ..core.caching import BoundedCache
from .addresses import (
    MAX_LENGTH,
    Address,
    Network,
    counted_address,
    is_usual_ipv4,
    pack_address,
    read_network,
)
from .forwarded import forwarded_for

if TYPE_CHECKING:
    from django.http import HttpRequest

UNIX = "unix"
"""An entry of TRUSTED_PROXIES: a proxy that connects by a unix socket, and so has no address."""
X_FORWARDED_FOR, FORWARDED = HEADERS = ("x-forwarded-for", "forwarded")

logger = logging.getLogger("django_slidingwindow")

_META_KEYS = {name: "HTTP_" + name.upper().replace("-", "_") for name in HEADERS}

_warned = False


class UnknownClientError(Exception):
    """The request has no address, and TRUSTED_PROXIES does not have "unix"."""


def parse_network(value: Any, setting: str) -> Network:
    """Return the network that an entry of a setting names."""
    try:
        return read_network(value)
    except ValueError as error:
        raise ImproperlyConfigured(f"{NAME}['{setting}'] has {value!r}: {error}.") from error


class Hop:
    """The client of a request, or a proxy that the request has passed."""

    __slots__ = ("_address", "_packed", "counted", "trusted")

    def __init__(self, packed: bytes | None, counted: str, trusted: bool = False) -> None:
        """`packed` is the address; None for a unix socket."""
        self._packed = packed
        self._address: Address | None = None
        self.counted = counted
        """The address or network that stands for one client; see `counted_address`."""
        self.trusted = trusted
        """Whether its entries in the forwarding header are trusted."""

    @property
    def address(self) -> Address | None:
        """The address, created on first access; None for a unix socket."""
        if self._address is None and self._packed is not None:
            self._address = ip_address(self._packed)
        return self._address


class _Trust:
    """The trusted proxies, and the header that they write."""

    __slots__ = ("header", "is_empty", "networks", "unix")

    def __init__(self, header: str, proxies: Sequence[str]) -> None:
        networks = [value for value in proxies if value != UNIX]
        self.header = header
        self.networks = [parse_network(value, "TRUSTED_PROXIES") for value in networks]
        self.unix = UNIX in proxies
        self.is_empty = not proxies


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
    """A cache of parsed hops, by their text; None for a text that is not an address.

    When the cache is full, it is cleared: parsing a hop again takes a few microseconds.
    """

    def __missing__(self, text: str) -> Hop | None:
        hop = _parse_hop(text)
        return self.keep(text, hop) if len(text) <= MAX_LENGTH else hop


_hops = _Hops(16_384)
_UNIX_SOCKET = Hop(None, UNIX, trusted=True)


def _parse_hop(text: str) -> Hop | None:
    packed = pack_address(text)
    if packed is None:
        return None
    hop = Hop(packed, counted_address(packed, conf.ipv6_prefix))
    for network in _trust().networks:
        if hop.address in network:
            hop.trusted = True
            break
    return hop


class _CountedAddresses(BoundedCache[str, "str | None"]):
    """A cache of counted addresses, by their text; None for a text that is not an address.

    Most requests need the counted address alone, and a hop takes longer to create.
    """

    def __missing__(self, text: str) -> str | None:
        if is_usual_ipv4(text):
            return self.keep(text, text)
        hop = _hops[text]
        return None if hop is None else self.keep(text, hop.counted)


_counted_addresses = _CountedAddresses(16_384)


def canonical_ip(text: str) -> str:
    """Return the counted address for an address in any spelling; any other text unchanged."""
    address = _counted_addresses[text]
    return text if address is None else address


def client_address(request: HttpRequest) -> Address | str:
    """Return the client's address; "unix" for a trusted unix socket that names no client."""
    return client_of(request).address or UNIX


def counted_client(request: HttpRequest) -> str:
    """Return the address or network that stands for the client; see `counted_address`."""
    meta = request.META
    if _trust().is_empty and (
        _warned or not ("HTTP_X_FORWARDED_FOR" in meta or "HTTP_FORWARDED" in meta)
    ):
        # Inlined from `client_of` (`python -m benchmarks.compare`).
        address = _counted_addresses[meta.get("REMOTE_ADDR", "")]
        if address is not None:
            return address
    return client_of(request).counted


def client_of(request: HttpRequest, passed: list[tuple[str, Hop | None]] | None = None) -> Hop:
    """Return the client that sent the request.

    If a trusted proxy or unix socket names no client, or something that is not an address, it is
    itself the client: many requests share its limit then, but none escapes a limit. Raise
    UnknownClientError for a request without any address. `passed` gets text and hop of each entry
    that was read, the nearest first; the hop is None if the text is not an address.
    """
    meta = request.META
    trust = _trust()
    peer = meta.get("REMOTE_ADDR", "")
    client = _hops[peer]
    if trust.is_empty:
        if not _warned and ("HTTP_X_FORWARDED_FOR" in meta or "HTTP_FORWARDED" in meta):
            _warn_of_ignored_header()
    elif trust.unix and not peer:
        client = _UNIX_SOCKET
    if passed is not None:
        passed.append((peer, client))
    if client is not None and client.trusted:
        for text, hop in _forwarded_hops(meta.get(_META_KEYS[trust.header], ""), trust.header):
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


def _forwarded_hops(header: str, kind: str) -> Iterator[tuple[str, Hop | None]]:
    """Yield the entries of a forwarding header, the nearest first, each as text and hop."""
    if not header:
        return
    entries = forwarded_for(header) if kind == FORWARDED else reversed(header.split(","))
    for entry in entries:
        text = entry.strip()
        yield text, _hops[text]


def _warn_of_ignored_header() -> None:
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
on_change(_counted_addresses.clear)
