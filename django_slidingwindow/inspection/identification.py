"""Explain to operators how the client and the identifiers of a request were found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..conf import conf
from ..guard.credentials import meta_key
from ..guard.identity import HEADER, load_user
from ..guard.proxies import HEADERS, Hop, UnknownClientError, client_of
from ..profiles.user_code import path_of

if TYPE_CHECKING:
    from django.http import HttpRequest

    from ..policies import Profile

REMOTE_ADDR = "REMOTE_ADDR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """A hop that was examined to find the client."""

    where: str
    """REMOTE_ADDR, or the name of the forwarding header."""
    text: str
    trusted: bool
    """Whether the hop is a trusted proxy, so that the addresses it has written are believed."""
    valid: bool
    """Whether the text is an address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """The client that sent the request."""

    address: str | None
    """None if it is unknown."""
    counted: str | None
    """The address as the axis `ip` counts it."""
    passed: tuple[Passed, ...]
    """The nearest hop first; the client is the last valid one."""
    why: str


def client(request: HttpRequest) -> Client:
    """Return the client of a request, and the hops between the client and the server."""
    examined: list[tuple[str, Hop | None]] = []
    header = conf.forwarded_header
    try:
        found: Hop | None = client_of(request, examined)
    except UnknownClientError:
        found = None
    passed = tuple(
        Passed(
            where=header if number else REMOTE_ADDR,
            text=text,
            trusted=hop is not None and hop.trusted,
            valid=hop is not None,
        )
        for number, (text, hop) in enumerate(examined)
    )
    return Client(
        address=None if found is None else str(found.address or found.counted),
        counted=None if found is None else found.counted,
        passed=passed,
        why=_why(request, passed, header),
    )


def _why(request: HttpRequest, passed: tuple[Passed, ...], header: str) -> str:
    first, last = passed[0], passed[-1]
    if not first.trusted:
        sent = [name for name in HEADERS if name in request.headers]
        if not first.valid and not sent:
            return "REMOTE_ADDR is not an address"
        if not sent:
            return "REMOTE_ADDR; no forwarding header was sent"
        problem = "TRUSTED_PROXIES is empty"
        if conf.trusted_proxies:
            problem = f"{first.text or 'a unix socket'} is not in TRUSTED_PROXIES"
        return f"{sent[0]} is ignored, because {problem}"
    if len(passed) == 1:
        return f"REMOTE_ADDR is a trusted proxy, and it sent no {header}: it is the client itself"
    if not last.valid:
        return (
            f"{header} has {last.text!r}, which is not an address: the proxy itself is the client"
        )
    if last.trusted:
        return f"{header} names trusted proxies only: the leftmost is the client"
    return f"{header} was written by a trusted proxy; the first hop that is not one is the client"


def how_found(profile: Profile, request: HttpRequest, given: Mapping[str, str]) -> tuple[str, ...]:
    """Return how the identifier was found, as a text for each part of the profile's axis."""
    return tuple([_how(part, profile, request, given) for part in profile.axis.split("+")])


def _how(part: str, profile: Profile, request: HttpRequest, given: Mapping[str, str]) -> str:
    if part in given:
        return f"{part}: given"
    own: Any = conf.identities.get(part)
    if own is not None:
        return f"{part}: IDENTITIES, {own if isinstance(own, str) else path_of(own)}"
    if part.startswith(HEADER):
        name = part.removeprefix(HEADER)
        sent = "" if request.META.get(meta_key(name)) else ", which was not sent"
        return f"{part}: a keyed hash of the header{sent}"
    if part in ("user", "user_or_ip"):
        user = load_user(request)
        if user is not None and user.is_authenticated:
            return f"{part}: the primary key of the user"
        return f"{part}: no user, so {_for_anonymous(part, profile)}"
    if part == "session":
        return f"{part}: a made-up request has no session, so {_for_anonymous(part, profile)}"
    if part == "endpoint":
        found = request.resolver_match is not None
        return f"{part}: the view" if found else f"{part}: no view has this path"
    return f"{part}: the address of the client" if part == "ip" else f"{part}: the same for all"


def _for_anonymous(part: str, profile: Profile) -> str:
    skipped = part != "user_or_ip" and profile.anonymous == "skip"
    return "the profile does not count it" if skipped else "the address of the client"
