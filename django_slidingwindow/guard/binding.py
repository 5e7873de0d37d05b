"""Requirements prepared for one limiter and one edition of the registry."""

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

# More than a project has; only costs chosen by a function, and methods that clients make up, can
# fill them.
_MAX_PROFILES, _MAX_METHODS = 1_024, 64


class BoundProfile(NamedTuple):
    """A profile with all that is known before a request comes."""

    profile: Profile
    find: Find
    """Returns the identifier of a request."""
    cost: int
    template: WindowTemplate | None
    """None if a function says the limit."""
    prepare: Callable[[HttpRequest], Awaitable[None]] | None
    """Loads what `find` needs without blocking."""
    blocks: bool
    """Whether functions of the project find identifier or limit, which may block."""


class _ByMethod(BoundedCache["str | None", tuple[BoundProfile, ...]]):
    """What counts requests of a method."""

    def __init__(self, bind: Callable[[str | None], tuple[BoundProfile, ...]]) -> None:
        super().__init__(_MAX_METHODS)
        self._bind = bind

    def __missing__(self, method: str | None) -> tuple[BoundProfile, ...]:
        return self.keep(method, self._bind(method))


class Binding:
    """Requirements with their profiles looked up."""

    def __init__(self, requirements: Requirements, limiter: Limiter) -> None:
        self.limiter = limiter
        # Before the profiles are read: they may change meanwhile.
        self.edition = registry.edition
        self.exempt = exemptions()
        self.asks = any(
            not isinstance(each.profiles, tuple) or not isinstance(each.cost, int)
            for each in requirements
        )
        """Whether functions choose profiles or costs, so that they are asked at each request."""
        self.by_method = _ByMethod(self.bind)
        """What counts requests of a method, where no functions choose. Not to be asked before a
        request was found not to be exempt, which must not meet the error of a wrong profile."""
        self.requirements = requirements
        self._profiles: BoundedCache[tuple[str, int], BoundProfile] = BoundedCache(_MAX_PROFILES)

    def bind(self, method: str | None) -> tuple[BoundProfile, ...]:
        """Return what counts requests of a method; `by_method` keeps it."""
        costs: dict[str, int] = {}
        for names, cost, methods, _ in self.requirements:
            if methods is None or method in methods:
                assert isinstance(names, tuple)
                assert isinstance(cost, int)
                for name in names:
                    costs[name] = max(cost, costs.get(name, 0))
        return tuple([self.profile(name, cost) for name, cost in costs.items()])

    def profile(self, name: str, cost: int) -> BoundProfile:
        """Return the profile of a name at a cost."""
        found = self._profiles.get((name, cost))
        if found is None:
            profile = registry.get(name)
            template = None
            if profile.limit_for is None:
                template = self.limiter.template(profile, profile.policies, cost)
            find, prepare, own = resolver(profile.axis, profile.anonymous)
            blocks = own or template is None
            bound = BoundProfile(profile, find, cost, template, prepare, blocks)
            found = self._profiles.keep((name, cost), bound)
        return found

    async def prepare(self, request: HttpRequest) -> bool:
        """Load what resolving needs without blocking; return whether it may block all the same."""
        if self.asks or (self.exempt is not None and self.exempt.blocks):
            return True
        if self.exempt is not None and self.exempt.covers(request):
            return False
        try:
            profiles = self.by_method[request.method]
            if any(bound.blocks for bound in profiles):
                return True
            for bound in profiles:
                if bound.prepare is not None:
                    await bound.prepare(request)
        except Exception:  # noqa: BLE001 -- resolving meets it too, and handles it
            return True
        return False


def bind(requirements: Requirements, limiter: Limiter) -> Binding:
    """Return the binding of requirements, which they keep while it holds."""
    binding: Binding | None = requirements.binding
    if binding is None or binding.limiter is not limiter or binding.edition is not registry.edition:
        binding = requirements.binding = Binding(requirements, limiter)
    return binding
