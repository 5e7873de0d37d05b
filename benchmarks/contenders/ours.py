"""This app: each of its algorithms, with and without the shield."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django_slidingwindow import limits
from django_slidingwindow.core.limiter import Limiter
from django_slidingwindow.core.windows import ProfileCheck, WindowSet
from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.guard.limiter_factory import CALLBACKS
from django_slidingwindow.registry import registry
from django_slidingwindow.stores.factory import store_of

from .base import (
    ALLOWED,
    BY_CLIENT,
    DEFERRED,
    LEASED,
    OURS,
    TENANT,
    UNLEASED,
    UNSHIELDED,
    AsyncCheck,
    Case,
    Check,
    Contender,
    ViewContender,
)

MIDDLEWARE = "django_slidingwindow.middleware.RateLimitMiddleware"


def _contender(algorithm: str) -> Contender:
    def make(case: Case) -> Check:
        profile = f"{case.name}_{algorithm}"

        def check(identifier: str) -> bool:
            return limits.check(profile, identifier).allowed

        return check

    def make_async(case: Case) -> AsyncCheck:
        profile = f"{case.name}_{algorithm}"

        async def check(identifier: str) -> bool:
            return (await limits.acheck(profile, identifier)).allowed

        return check

    name = OURS if algorithm == "compact" else f"ours, {algorithm}"
    return Contender(name, make, make_async)


def _unshielded(name: str, prefix: str, transport: str) -> Contender:
    def limiter_of(case: Case) -> tuple[Limiter, Callable[[str], WindowSet]]:
        store = store_of("default", transport=transport, budget=30.0)
        # With its own keys, because those of the shielded contender fill up meanwhile.
        limiter = Limiter(store, prefix=prefix, callbacks=CALLBACKS)
        profile = registry.get(f"{case.name}_compact")
        return limiter, lambda identifier: limiter.windows(
            [ProfileCheck(profile, identifier, profile.policies)]
        )

    def make(case: Case) -> Check:
        limiter, windows = limiter_of(case)
        return lambda identifier: limiter.charge(windows(identifier)).allowed

    def make_async(case: Case) -> AsyncCheck:
        limiter, windows = limiter_of(case)

        async def check(identifier: str) -> bool:
            return (await limiter.acharge(windows(identifier))).allowed

        return check

    return Contender(name, make, make_async)


def decorated(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    return rate_limit(f"{case.name}_decorator")(view)


def decorated_async(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    return rate_limit(f"{case.name}_async")(view)


def by_middleware(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    return view


def three(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    return rate_limit("three_0", "three_1", "three_2")(view)


def unleased(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    return rate_limit(f"{case.name}_unleased_view")(view)


def leased(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    return rate_limit(f"{case.name}_leased_view")(view)


def deferred(case: Case, view: Callable[..., Any]) -> Callable[..., Any]:
    return rate_limit(f"{case.name}_deferred_view")(view)


CONTENDERS = [
    _contender("compact"),
    _unshielded(UNSHIELDED, "bare", "direct"),
    _unshielded(BY_CLIENT, "client", "client"),
    _contender("log"),
    _contender("buckets"),
    _contender("counter"),
]
DECORATOR = "**ours, decorator**"
VIEWS = [
    ViewContender("ours-decorator", DECORATOR, decorated, base="bare"),
    ViewContender(
        "ours-middleware",
        "ours, middleware",
        by_middleware,
        middleware=(MIDDLEWARE,),
        base="bare",
    ),
    ViewContender(
        "ours-three", "ours, decorator, three profiles", three, base="bare", cases=(ALLOWED,)
    ),
    ViewContender("ours-unleased", UNLEASED, unleased, base="bare", cases=(TENANT,)),
    ViewContender("ours-leased", LEASED, leased, base="bare", cases=(TENANT,)),
    ViewContender("ours-deferred", DEFERRED, deferred, base="bare", cases=(TENANT,)),
    ViewContender("ours-async", DECORATOR, decorated_async, base="bare-async", is_async=True),
]
