"""The limits that a replay tries."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ..policies import Policy, Profile, rates_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One set of policies that a request must pass together."""

    label: str
    """The rates as they were given, or those of the profile."""
    policies: tuple[Policy, ...]
    count_rejected: bool = False
    profile: str | None = None
    """The name of the profile that has these policies; None for `--try`."""


def parse_try(
    text: str, *, algorithm: str = "compact", resolution: int = 60, count_rejected: bool = False
) -> Candidate:
    """Return the candidate of rates such as "60/m,500/h"; raise PolicyError if a rate is wrong."""
    rates = [rate.strip() for rate in text.split(",")]
    return Candidate(
        label=",".join(rates),
        policies=tuple(
            Policy.parse(rate, algorithm=algorithm, resolution=resolution) for rate in rates
        ),
        count_rejected=count_rejected,
    )


def from_profile(profile: Profile) -> Candidate:
    """Return the candidate of a profile's own rates. Logs do not say when a request ended."""
    rates = rates_of(profile.policies)
    return Candidate(
        label=",".join(policy.label for policy in rates),
        policies=rates,
        count_rejected=profile.count_rejected,
        profile=profile.name,
    )


def parse_share(text: str) -> Fraction:
    """Return the share that a text such as "0.1%" names; raise ValueError for other texts."""
    number, sign, rest = text.partition("%")
    try:
        share = Fraction(number.strip()) / 100
    except (ValueError, ZeroDivisionError):
        share = Fraction(-1)
    if not sign or rest or not 0 <= share <= 1:
        raise ValueError(f"{text!r} is not a share such as 0.1%")
    return share
