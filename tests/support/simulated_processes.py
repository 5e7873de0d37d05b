"""Limiters that simulate processes: they share one Redis and a clock that the test moves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from django_slidingwindow.core.limiter import Limiter
from django_slidingwindow.core.windows import ProfileCheck
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.policies import Policy, Profile
from django_slidingwindow.stores.protocol import PATIENCE, Evaluate
from django_slidingwindow.stores.redis import RedisStore
from tests.support.clock import START, Clock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_slidingwindow.core.windows import WindowSet
    from django_slidingwindow.stores.protocol import Call, Reply, WindowRules


class Store(RedisStore):
    """A store that records its calls, and that can fail or be slow.

    With `split`, each identifier is in a cluster slot of its own.
    """

    def __init__(self, clock: Clock, *, split: bool = False) -> None:
        super().__init__("default", clock=clock)
        self.clock = clock
        self.split = split
        self.calls: list[Call] = []
        self.fails: Callable[[Call], BaseException | None] = lambda call: None
        self.meanwhile: Callable[[], object] = lambda: None
        """Called after a charge, before its reply arrives."""
        self.delay = 0
        """Microseconds from here to Redis, and from Redis back."""
        self.trips = 0
        """How often `run_many` was called."""
        self.charged_at = 0
        """The time at which the last call reached Redis."""

    def run(self, call: Call) -> Any:
        self.calls.append(call)
        error = self.fails(call)
        if error is not None:
            raise error
        self.clock.now += self.delay
        self.charged_at = self.clock.now
        answer = super().run(call)
        self.clock.now += self.delay
        if isinstance(call, Evaluate):
            self.meanwhile()
        return answer

    def charge(self, keys: tuple[str, ...], rules: WindowRules) -> Reply:
        reply: Reply = self.run(Evaluate(keys, rules, writes=True))
        return reply

    async def arun(self, call: Call) -> Any:
        await asyncio.sleep(0)
        return self.run(call)

    def run_together(self, calls: Sequence[Call]) -> list[Any]:
        answers: list[Any] = []
        for call in calls:
            try:
                answers.append(self.run(call))
            except StoreError as error:
                answers.append(error)
        return answers

    def run_many(self, calls: Sequence[Call], within: float = PATIENCE) -> list[Any]:
        self.trips += 1
        return self.run_together(calls)

    def groups(self, keys: tuple[str, ...]) -> list[list[int]] | None:
        nodes = [self.node(key) for key in keys]
        if len(set(nodes)) == 1:
            return None
        return [[i for i, of in enumerate(nodes) if of == node] for node in dict.fromkeys(nodes)]

    def node(self, key: str) -> str:
        return key.partition("{")[2].partition("}")[0] if self.split else ""

    @property
    def commands(self) -> int:
        """The number of calls since this property was last read."""
        calls, self.calls = len(self.calls), []
        return calls


class Site:
    """Simulated processes that share a clock."""

    def __init__(self, now: int = START, *, split: bool = False) -> None:
        self.clock = Clock(now)
        self.split = split
        self.limiters: list[Limiter] = []

    def process(self, **options: Any) -> Limiter:
        limiter = Limiter(
            Store(self.clock, split=self.split),
            clock=lambda: self.clock.now / 1_000_000,
            background=False,
            **options,
        )
        self.limiters.append(limiter)
        return limiter

    def wait(self, seconds: float) -> None:
        self.clock.now += round(seconds * 1_000_000)

    def close(self) -> None:
        for limiter in self.limiters:
            limiter.store.close()


def leased(
    limit: int = 1_000,
    window: float = 60,
    lease: int = 50,
    *,
    name: str = "leased",
    lease_seconds: float = 0,
    algorithm: str = "compact",
    **options: Any,
) -> Profile:
    policy = Policy(
        limit=limit, window=window, algorithm=algorithm, lease=lease, lease_seconds=lease_seconds
    )
    return Profile(name=name, axis="tenant", policies=(policy,), **options)


def windows(
    limiter: Limiter, *profiles: Profile, names: Sequence[str] = (), cost: int = 1
) -> WindowSet:
    """Return the windows of the profiles. Those without an identifier in `names` get "acme"."""
    given = [*names, *["acme"] * (len(profiles) - len(names))]
    return limiter.windows(
        [
            ProfileCheck(profile, name, profile.policies, cost)
            for profile, name in zip(profiles, given, strict=True)
        ]
    )


def stored(limiter: Limiter, profile: Profile, name: str = "acme") -> int:
    """Return how many hits Redis counts, including unused units of leases."""
    template, keys = windows(limiter, profile, names=[name], cost=0)
    reply = limiter.store.run(Evaluate(keys, template.rules, writes=False))
    return int(profile.policies[0].limit - reply.remaining[0])
