"""Parse addresses in all their spellings, and group the addresses of one client.

Addresses are packed: 4 bytes for IPv4, 16 for IPv6. A client's first request waits while its
address is parsed, and `ipaddress` would take two to five times as long as `socket`.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from socket import AF_INET, AF_INET6, inet_ntoa, inet_ntop, inet_pton
from typing import Any, TypeAlias

Address: TypeAlias = "IPv4Address | IPv6Address"
Network: TypeAlias = "IPv4Network | IPv6Network"

MAX_LENGTH = 128
"""The longest text that is parsed. An address has at most 45 characters; a port and a zone may
follow."""

_MAPPED = bytes(10) + b"\xff\xff"
_MAPPED_BITS = 8 * len(_MAPPED)
_NAT64 = b"\x00\x64\xff\x9b" + bytes(8)
_TEREDO = b"\x20\x01\x00\x00"
_SIX_TO_FOUR = b"\x20\x02"
# A 6to4 site has a /48, and so 65,536 networks of /64.
_SIX_TO_FOUR_PREFIX = 48


def is_usual_ipv4(text: str) -> bool:
    """Whether a text is an IPv4 address as the system writes it.

    The system may parse other spellings too. Octal numbers, for example, are decimal numbers to
    other tools.
    """
    if ":" in text:
        return False
    try:
        return inet_ntoa(inet_pton(AF_INET, text)) == text
    except (OSError, ValueError):
        return False


def pack_address(text: str) -> bytes | None:
    """Return the address in a text; None if the text is not an address.

    The text may have brackets, a port and a zone.
    """
    if len(text) > MAX_LENGTH:
        return None
    if is_usual_ipv4(text):
        return inet_pton(AF_INET, text)
    packed = _pack_usual_ipv6(text) or _pack_unusual(text.strip())
    return packed if packed is None or len(packed) == 4 else _unwrap_ipv4(packed)


def _pack_usual_ipv6(text: str) -> bytes | None:
    try:
        packed = inet_pton(AF_INET6, text)
    except (OSError, ValueError):
        return None
    return packed if inet_ntop(AF_INET6, packed) == text else None


def _pack_unusual(text: str) -> bytes | None:
    if text.startswith("["):
        text, bracket, port = text[1:].partition("]")
        if not bracket or (port and (port[0] != ":" or port.count(":") > 1)):
            return None
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return ip_address(text.partition("%")[0]).packed
    except ValueError:
        return None


def _unwrap_ipv4(packed: bytes) -> bytes:
    """Return the IPv4 address inside an IPv6 address, or the address itself if it has none.

    A dual-stack socket shows its IPv4 peers as mapped addresses. A translator (NAT64) puts a prefix
    in front of public IPv4 addresses. It must not do so with private ones (RFC 6052, 3.1), so a
    private address behind that prefix is not the private address that the settings mean.
    """
    start, inside = packed[:12], packed[12:]
    if start == _MAPPED or (start == _NAT64 and IPv4Address(inside).is_global):
        return inside
    return packed


def read_network(value: Any) -> Network:
    """Return the network that a setting names. Raise ValueError if it does not name one.

    A network of mapped addresses becomes the IPv4 network inside, as the addresses in it do.
    """
    network = ip_network(value)
    packed = network.network_address.packed
    if network.prefixlen >= _MAPPED_BITS and packed.startswith(_MAPPED):
        return IPv4Network((packed[len(_MAPPED) :], network.prefixlen - _MAPPED_BITS))
    return network


def counted_address(packed: bytes, ipv6_prefix: int) -> str:
    """Return the address or network that stands for one client, who may have many addresses."""
    if len(packed) == 4:
        return inet_ntoa(packed)
    if packed.startswith(_TEREDO):
        # Clients of one Teredo server share its /64. The last four bytes are the client's own
        # address, with all bits inverted.
        return f"teredo:{inet_ntoa(bytes([255 - byte for byte in packed[12:]]))}"
    if packed.startswith(_SIX_TO_FOUR):
        ipv6_prefix = min(ipv6_prefix, _SIX_TO_FOUR_PREFIX)
    host_bits = 128 - ipv6_prefix
    network = int.from_bytes(packed, "big") >> host_bits << host_bits
    # Not `inet_ntop`, whose spelling depends on the system: keys must be the same everywhere.
    return f"{IPv6Address(network)}/{ipv6_prefix}"
