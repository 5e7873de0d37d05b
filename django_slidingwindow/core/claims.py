"""What a request asks of its profiles."""

from __future__ import annotations

from typing import NamedTuple

from ..policies import Policy, Profile


class Claim(NamedTuple):
    """What a request asks of one profile."""

    profile: Profile
    identifier: str
    policies: tuple[Policy, ...]
    """The profile's policies for this identifier; none means no limit."""
    cost: int = 1
