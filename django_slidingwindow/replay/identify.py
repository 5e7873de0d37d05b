"""Find the identifier that a line of a log counts for."""

from __future__ import annotations

from ..conf import conf
from ..guard.proxies import canonical_ip
from ..policies import Profile
from .filters import Filter, compiled
from .formats import Fields, Names, value_of
from .log_requests import LoggedRequests
from .readers import Identify

IP = "ip"
FIELD, REGEX = "field:", "regex:"


def identify_by(text: str, names: Names) -> Identify:
    """Count by `ip`, `field:NAME` or `regex:PATTERN`; raise ValueError for any other text."""
    if text == IP:
        return by_ip(names)
    if text.startswith(FIELD) and text != FIELD:
        name = text.removeprefix(FIELD)
        return lambda line, fields: value_of(fields, name)
    if text.startswith(REGEX) and text != REGEX:
        return _by_pattern(text.removeprefix(REGEX))
    raise ValueError(f"{text!r} is not one of ip, field:NAME and regex:PATTERN")


def by_ip(names: Names) -> Identify:
    """Count by address: IPv6 by its network, behind TRUSTED_PROXIES the one that they forwarded."""
    if conf.trusted_proxies:
        return LoggedRequests(names).identify("ip")

    def identify(line: str, fields: Fields) -> str | None:
        address = names.find(fields, "ip")
        return None if address is None else canonical_ip(address)

    return identify


def by_profile(profile: Profile, names: Names) -> Identify:
    """Count by a profile's axis; raise ValueError if it needs sessions, which logs do not have."""
    if profile.axis == IP:
        return by_ip(names)
    if "session" in profile.axis.split("+"):
        raise ValueError(
            f"profile {profile.name!r} counts by {profile.axis}, and a log has no sessions: "
            "say with --identify what stands for it"
        )
    return LoggedRequests(names).identify(profile.axis, profile.anonymous)


def _by_pattern(pattern: str) -> Identify:
    search = compiled(pattern).search

    def identify(line: str, fields: Fields) -> str | None:
        match = search(line)
        if match is None:
            return None
        # The first group, or the whole match if the pattern has no group.
        return match[1] if match.re.groups else match[0]

    return identify


def by_rules(profile: Profile, names: Names) -> Filter:
    """Keep requests to which the project's rules or decorated views apply the profile."""
    requests = LoggedRequests(names)
    return lambda stamp, fields: requests.applies(profile.name, fields)
