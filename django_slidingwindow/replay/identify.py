"""Which identifier a line of a log counts for."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..conf import conf
from ..guard.proxies import canonical_ip
from ..policies import Profile
from .formats import Fields, Names, value_of
from .logged import LoggedRequests
from .readers import Identify

IP = "ip"
FIELD, REGEX = "field:", "regex:"


def identify_by(text: str, names: Names) -> Identify:
    """Return what `ip`, `field:NAME` or `regex:PATTERN` says; ValueError for anything else."""
    if text == IP:
        return by_ip(names)
    if text.startswith(FIELD) and text != FIELD:
        name = text.removeprefix(FIELD)
        return lambda line, fields: value_of(fields, name)
    if text.startswith(REGEX) and text != REGEX:
        return _by_pattern(text.removeprefix(REGEX))
    raise ValueError(f"{text!r} is not one of ip, field:NAME and regex:PATTERN")


def by_ip(names: Names) -> Identify:
    """Count by address: IPv6 by its network, and behind TRUSTED_PROXIES by what they forwarded."""
    if conf.trusted_proxies:
        return LoggedRequests(names).identify("ip")

    def identify(line: str, fields: Fields) -> str | None:
        address = names.find(fields, "ip")
        return None if address is None else canonical_ip(address)

    return identify


def by_profile(profile: Profile, names: Names) -> Identify:
    """Count by a profile's axis, as far as a log can tell; ValueError if it cannot."""
    if profile.axis == IP:
        return by_ip(names)
    if "session" in profile.axis.split("+"):
        raise ValueError(
            f"profile {profile.name!r} counts by {profile.axis}, and a log has no sessions: "
            "say with --identify what stands for it"
        )
    return LoggedRequests(names).identify(profile.axis, profile.anonymous)


def _by_pattern(pattern: str) -> Identify:
    try:
        search = re.compile(pattern).search
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error

    def identify(line: str, fields: Fields) -> str | None:
        match = search(line)
        if match is None:
            return None
        # The first group, or all of it where there is none.
        return match[1] if match.re.groups else match[0]

    return identify


def applying(profile: Profile, names: Names) -> Callable[[int, Fields], bool]:
    """Return a filter: the project's rules and decorated views apply the profile."""
    requests = LoggedRequests(names)
    return lambda stamp, fields: requests.applies(profile.name, fields)
