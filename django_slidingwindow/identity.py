"""Whom a request counts against."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress

from .conf import conf


def canonical(axis: str, identifier: str) -> str:
    """An identifier as requests have it: one spelling for an address, a hash for a secret."""
    if axis == "ip":
        return canonical_ip(identifier)
    if axis.startswith("header:"):
        return keyed_hash(identifier)
    return identifier


def canonical_ip(text: str) -> str:
    """An address in one spelling, IPv6 by its network; text that is no address as it is."""
    try:
        address = ipaddress.ip_address(text.strip().partition("%")[0])
    except ValueError:
        return text
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None:
        address = mapped
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((address, conf.ipv6_prefix), strict=False))


def keyed_hash(secret: str) -> str:
    """What stands for a secret in keys and logs."""
    return hmac.new(conf.hash_key, secret.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:32]
