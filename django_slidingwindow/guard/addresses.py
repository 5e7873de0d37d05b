"""Addresses in all their spellings, and which of them are one client."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from socket import AF_INET, inet_ntoa, inet_pton
from typing import TypeAlias

Address: TypeAlias = "IPv4Address | IPv6Address"
Network: TypeAlias = "IPv4Network | IPv6Network"

LONGEST = 128
"""Characters: an address has at most 45, and some are left for port and zone."""

_NAT64 = 0x0064_FF9B << 96
_LOW_32 = 0xFFFF_FFFF
# A 6to4 site has a /48, and so 65,536 networks of /64.
_SIX_TO_FOUR_PREFIX = 48


def parse_address(text: str) -> Address | None:
    """Return the address in a text, with or without brackets, port and zone; None if it is none."""
    if len(text) > LONGEST:
        return None
    return _plain_ipv4(text) or _parse_address(text.strip())


def _plain_ipv4(text: str) -> IPv4Address | None:
    """Return an address in the usual spelling, in a quarter of the time."""
    try:
        packed = inet_pton(AF_INET, text)
    except (OSError, ValueError):
        return None
    # Some systems take octal numbers, and other tools read these as decimal ones.
    return IPv4Address(packed) if inet_ntoa(packed) == text else None


def _parse_address(text: str) -> Address | None:
    if text.startswith("["):
        text, bracket, port = text[1:].partition("]")
        if not bracket or (port and (port[0] != ":" or port.count(":") > 1)):
            return None
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return _unwrapped(address)


def _unwrapped(address: Address) -> Address:
    """Return the IPv4 address inside an IPv6 one: mapped, or by a translator's prefix.

    A dual-stack socket shows its IPv4 peers as mapped addresses. A translator (NAT64) shows those
    of the internet by a prefix that it must not use for private ones (RFC 6052, 3.1), so a private
    address behind that prefix is not the one that the settings mean.
    """
    if address.version == 4:
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    number = int(address)
    inside = IPv4Address(number & _LOW_32)
    return inside if number & ~_LOW_32 == _NAT64 and inside.is_global else address


def counted(address: Address, ipv6_prefix: int) -> str:
    """Return the address as one client has it, however many addresses that client has."""
    if address.version == 4:
        return str(address)
    if address.teredo is not None:
        # Clients of one Teredo server share its /64; the client's own address comes later.
        return f"teredo:{address.teredo[1]}"
    if address.sixtofour is not None:
        ipv6_prefix = min(ipv6_prefix, _SIX_TO_FOUR_PREFIX)
    return str(IPv6Network((int(address), ipv6_prefix), strict=False))
