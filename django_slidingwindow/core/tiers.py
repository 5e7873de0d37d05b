"""Tiers: a map from the plan of an identifier to its rates."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..policies import IN_FLIGHT, Profile
from ..rates import parse_rate

if TYPE_CHECKING:
    from django.http import HttpRequest

logger = logging.getLogger("django_slidingwindow")

DEFAULT = "default"
"""The tier of identifiers whose tier is unknown."""
# Unknown names that are logged; a function may return any number of them.
_MOST_LOGGED = 100


class Tiers:
    """The `limit_for` of a profile with tiers."""

    def __init__(
        self,
        rates: Mapping[str, tuple[str, ...] | None],
        tier: Callable[[str, HttpRequest | None], Any],
    ) -> None:
        """`rates` by tier, None for no limit. `tier` returns the tier of an identifier."""
        self.rates = rates
        self.tier = tier
        self._logged: set[str] = set()

    def __call__(self, identifier: str, request: HttpRequest | None) -> tuple[str, ...] | None:
        name = self.tier(identifier, request)
        if isinstance(name, str) and name in self.rates:
            return self.rates[name]
        return self.rates[self._instead(name)]

    @property
    def strictest(self) -> str:
        """The tier that admits the fewest requests in the long run."""
        return min(self.rates, key=lambda name: _admitted(self.rates[name]))

    def _instead(self, unknown: object) -> str:
        """Return the tier for an unknown name, and log each unknown name once."""
        instead = DEFAULT if DEFAULT in self.rates else self.strictest
        text = repr(unknown)[:100]
        if text not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(text)
            logger.error("unknown rate-limit tier %s: the tier %r applies", text, instead)
        return instead


def _admitted(rates: tuple[str, ...] | None) -> tuple[float, int]:
    """Return the hits per second in the long run, and the smallest limit."""
    if rates is None:
        return float("inf"), 0
    parsed = [parse_rate(rate) for rate in rates]
    return min(limit / window for limit, window in parsed), min(limit for limit, _ in parsed)


def windows_of(profile: Profile) -> tuple[float, ...] | None:
    """Return the windows of a profile in seconds; None if a function returns the rates.

    `IN_FLIGHT` stands for the limit on requests in flight.
    """
    if profile.limit_for is None:
        found = {IN_FLIGHT if one.inflight else one.window for one in profile.policies}
    elif isinstance(profile.limit_for, Tiers):
        tiers = profile.limit_for.rates.values()
        found = {parse_rate(rate)[1] for rates in tiers for rate in rates or ()}
        found |= {IN_FLIGHT} if profile.inflight else set()
    else:
        return None
    return tuple(sorted(found))
