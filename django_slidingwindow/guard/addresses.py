"""Addresses in all their spellings, and which of them are one client.

Addresses are packed: 4 bytes for IPv4, 16 for IPv6. Where a client's address is new to the process,
its request waits until the address is read, and `ipaddress` takes two to five times as long.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from socket import AF_INET, AF_INET6, inet_ntoa, inet_ntop, inet_pton
from typing import TypeAlias

Address: TypeAlias = "IPv4Address | IPv6Address"
Network: TypeAlias = "IPv4Network | IPv6Network"

LONGEST = 128
"""Characters: an address has at most 45, and some are left for port and zone."""

_MAPPED = bytes(10) + b"\xff\xff"
_NAT64 = b"\x00\x64\xff\x9b" + bytes(8)
_TEREDO = b"\x20\x01\x00\x00"
_SIX_TO_FOUR = b"\x20\x02"
# A 6to4 site has a /48, and so 65,536 networks of /64.
_SIX_TO_FOUR_PREFIX = 48


def is_usual_ipv4(text: str) -> bool:
    """Whether a text is an IPv4 address as the system writes it.

    The system may read other spellings too, for example octal numbers, which other tools take for
    decimal ones.
    """
    if ":" in text:
        return False
    try:
        return inet_ntoa(inet_pton(AF_INET, text)) == text
    except (OSError, ValueError):
        return False


def pack_address(text: str) -> bytes | None:
    """Return the address in a text, with or without brackets, port and zone; None if it is none."""
    if len(text) > LONGEST:
        return None
    if is_usual_ipv4(text):
        return inet_pton(AF_INET, text)
    packed = _pack_usual_ipv6(text) or _pack_unusual(text.strip())
    return packed if packed is None or len(packed) == 4 else _unwrapped(packed)


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


def _unwrapped(packed: bytes) -> bytes:
    """Return the IPv4 address inside an IPv6 one: mapped, or by a translator's prefix.

    A dual-stack socket shows its IPv4 peers as mapped addresses. A translator (NAT64) shows those
    of the internet by a prefix that it must not use for private ones (RFC 6052, 3.1), so a private
    address behind that prefix is not the one that the settings mean.
    """
    start, inside = packed[:12], packed[12:]
    if start == _MAPPED or (start == _NAT64 and IPv4Address(inside).is_global):
        return inside
    return packed


def counted(packed: bytes, ipv6_prefix: int) -> str:
    """Return the address as one client has it, however many addresses that client has."""
    if len(packed) == 4:
        return inet_ntoa(packed)
    if packed.startswith(_TEREDO):
        # Clients of one Teredo server share its /64; the client's own address comes later, with
        # all bits inverted.
        return f"teredo:{inet_ntoa(bytes([255 - byte for byte in packed[12:]]))}"
    if packed.startswith(_SIX_TO_FOUR):
        ipv6_prefix = min(ipv6_prefix, _SIX_TO_FOUR_PREFIX)
    host_bits = 128 - ipv6_prefix
    network = int.from_bytes(packed, "big") >> host_bits << host_bits
    # Not `inet_ntop`: keys are spelled alike on all systems.
    return f"{IPv6Address(network)}/{ipv6_prefix}"
