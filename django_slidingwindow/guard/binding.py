"""Prepare requirements for one limiter and one edition of the registry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from ..core.caching import BoundedCache
from ..policies import Profile
from ..registry import registry
from .exemptions import exemptions
from .identity import Find, resolver
from .requirements import Requirements

if TYPE_CHECKING:
    from django.http import HttpRequest

    from ..core.limiter import Limiter
    from ..core.windows import WindowTemplate

# Sizes of caches. A project needs fewer entries: only costs chosen by a function, and methods that
# clients make up, can fill them.
_MAX_PROFILES, _MAX_METHODS = 1_024, 64


class BoundProfile(NamedTuple):
    """A profile with everything that does not depend on the request."""

    profile: Profile
    find: Find
    """Returns the identifier of a request."""
    cost: int
    template: WindowTemplate | None
    """None if a function chooses the limit."""
    prepare: Callable[[HttpRequest], Awaitable[None]] | None
    """Loads what `find` needs, without blocking the event loop."""
    blocks: bool
    """Whether a function of the project, which may block, finds the identifier or the limit."""


class BoundProfiles(NamedTuple):
    """The profiles that count requests of one method."""

    profiles: tuple[BoundProfile, ...]
    prepares: tuple[Callable[[HttpRequest], Awaitable[None]], ...]
    """The functions that load what the profiles need."""
    blocks: bool
    """Whether one of the profiles may block."""


class _ProfilesByMethod(BoundedCache["str | None", BoundProfiles]):
    """The profiles that count requests, by the method of the request."""

    def __init__(self, bind: Callable[[str | None], tuple[BoundProfile, ...]]) -> None:
        super().__init__(_MAX_METHODS)
        self._bind = bind

    def __missing__(self, method: str | None) -> BoundProfiles:
        profiles = self._bind(method)
        prepares = tuple(bound.prepare for bound in profiles if bound.prepare is not None)
        blocks = any(bound.blocks for bound in profiles)
        return self.keep(method, BoundProfiles(profiles, prepares, blocks))


class Binding:
    """Requirements, and the profiles that they name."""

    def __init__(self, requirements: Requirements, limiter: Limiter) -> None:
        self.limiter = limiter
        # Read before the profiles: if they change meanwhile, this binding is out of date.
        self.edition = registry.edition
        self.exempt = exemptions()
        self.asks_functions = any(
            not isinstance(each.profiles, tuple) or not isinstance(each.cost, int)
            for each in requirements
        )
        """Whether functions choose profiles or costs. They are called at each request."""
        self.by_method = _ProfilesByMethod(self.bind)
        """The profiles that count requests, by method; not for use if `asks_functions`. Reading it
        raises the error of a wrong profile, so first make sure that the request is not exempt."""
        self.requirements = requirements
        self._profiles: BoundedCache[tuple[str, int], BoundProfile] = BoundedCache(_MAX_PROFILES)

    def bind(self, method: str | None) -> tuple[BoundProfile, ...]:
        """Return the profiles that count requests of a method, each at the highest of its costs.

        Callers use `by_method`, which keeps them.
        """
        costs: dict[str, int] = {}
        for names, cost, methods, _ in self.requirements:
            if methods is None or method in methods:
                assert isinstance(names, tuple)
                assert isinstance(cost, int)
                for name in names:
                    costs[name] = max(cost, costs.get(name, 0))
        return tuple([self.profile(name, cost) for name, cost in costs.items()])

    def profile(self, name: str, cost: int) -> BoundProfile:
        """Return the profile of this name, bound for requests of this cost."""
        found = self._profiles.get((name, cost))
        if found is None:
            profile = registry.get(name)
            template = None
            if profile.limit_for is None:
                template = self.limiter.template(profile, profile.policies, cost)
            find, prepare, find_blocks = resolver(profile.axis, profile.anonymous)
            blocks = find_blocks or template is None
            bound = BoundProfile(profile, find, cost, template, prepare, blocks)
            found = self._profiles.keep((name, cost), bound)
        return found

    async def prepare(self, request: HttpRequest) -> bool:
        """Load what `resolve` needs, without blocking the event loop.

        Return whether `resolve` may block all the same, so that it must run in a thread.
        """
        if self.asks_functions or (self.exempt is not None and self.exempt.blocks):
            return True
        if self.exempt is not None and self.exempt.covers(request):
            return False
        try:
            _, prepares, blocks = self.by_method[request.method]
            if blocks:
                return True
            for prepare in prepares:
                await prepare(request)
        except Exception:  # noqa: BLE001 -- `resolve` raises it again, and handles it
            return True
        return False


def bind(requirements: Requirements, limiter: Limiter) -> Binding:
    """Return the binding of requirements, which they keep until limiter or registry change."""
    binding: Binding | None = requirements.binding
    if binding is None or binding.limiter is not limiter or binding.edition is not registry.edition:
        binding = requirements.binding = Binding(requirements, limiter)
    return binding
