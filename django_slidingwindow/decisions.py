"""What a check answers. Durations in seconds, never time stamps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .policies import Policy

# Reasons of a decision.
ALLOWED = "allowed"
UNLIMITED = "unlimited"  # no policy counts this identifier
OBSERVED = "observe"  # admitted, though an observing profile would have refused
LIMIT = "limit"
FALLBACK = "fallback"  # refused by this process's own windows while the store is away
DENY = "deny"  # refused because the store is away
IDENTITY_ERROR = "identity_error"  # the identifier could not be found
EXEMPT = "exempt"  # an override exempts the identifier
BLOCK = "block"  # refused by an override
PENALTY = "penalty"  # refused because of too many refusals before
OBSERVED_PENALTY = "observe_penalty"  # of a verdict, in log and metrics: PENALTY, but observed

# Sources of a decision.
REDIS = "redis"
LOCAL = "local"
SHIELD = "shield"
LEASE = "lease"  # admitted by hits that this process had taken ahead
DEFERRED = "deferred"  # by what this process knows; the charge follows
ALLOW = "allow"
OVERRIDE = "override"  # decided by an override, without looking at a window
# DENY names a source as well.

# `limit` and `remaining` of a decision without a limit, so that comparisons hold.
NO_LIMIT = 2**63 - 1


class Verdict(NamedTuple):
    """What one policy says of the request."""

    profile: str
    policy: Policy
    key: str
    """The window's key in the store."""
    allowed: bool
    observed: bool
    """Of an observing profile: a refusal does not count."""
    limit: int
    """The limit that was applied: less than the policy's in the local fallback."""
    remaining: int
    """Hits left after this request."""
    retry_after: float | None
    """Seconds until a request of this cost would pass; 0.0 when allowed, None for never. Also 0.0
    if it waits for a request in flight: nobody knows when that ends."""
    reset_after: float
    """Seconds until the oldest counted hit leaves; 0.0 where there is none. For requests in flight:
    until the oldest one has to end at the latest."""
    blocked: bool = False
    """Whether a penalty blocks the identifier."""


class Charge(NamedTuple):
    """The hits that one key was charged."""

    key: str
    policy: Policy
    cost: int


class Receipt:
    """What was charged and when by the store's clock, so that it can be given back once."""

    __slots__ = ("_unused", "local", "parts")

    def __init__(
        self,
        parts: tuple[tuple[tuple[Charge, ...], Any], ...],
        *,
        local: bool,
        unused: list[bool] | None = None,
    ) -> None:
        """`parts`: charges that were made together, and the store's clock then, or what will
        know it.

        Receipts that share `unused` are one: using it up is an atomic step, without a lock.
        """
        self.parts = parts
        self.local = local
        self._unused = [True] if unused is None else unused

    def use(self) -> bool:
        """Return True for the first caller only."""
        try:
            return self._unused.pop()
        except IndexError:
            return False

    @property
    def holds_slots(self) -> bool:
        """Whether slots of requests in flight are to be given back."""
        return bool(self._unused and self.slots)

    @property
    def slots(self) -> set[str]:
        """The keys of requests in flight."""
        every = (charge for charges, _ in self.parts for charge in charges)
        return {charge.key for charge in every if charge.policy.inflight}

    def part(self, keys: set[str]) -> Receipt:
        """Return a receipt of its own for what some keys were charged."""
        parts = (
            (tuple(charge for charge in charges if charge.key in keys), stamp)
            for charges, stamp in self.parts
        )
        return Receipt(tuple(part for part in parts if part[0]), local=self.local)


class Known(NamedTuple):
    """What a decision was made of, if its verdicts and its receipt are known."""

    windows: None
    rules: None
    verdicts: tuple[Verdict, ...]
    receipt: Receipt | None


class _Fields(NamedTuple):
    allowed: bool
    profile: str
    policy: Policy | None
    """The policy that decided; None where no policy counts."""
    limit: int
    remaining: int
    """Hits left after this request."""
    retry_after: float | None
    """Seconds until a request of this cost would pass; 0.0 when allowed, None for never. Also 0.0
    if it waits for a request in flight: nobody knows when that ends."""
    reset_after: float
    """Seconds until the oldest counted hit leaves."""
    reason: str
    source: str
    key: str
    """Of the window that decided; empty where no window was looked at."""
    answer: tuple[Any, ...]
    """What the decision was made of: a function and its arguments, which begin with the windows and
    their rules. It returns what `verdicts` and `receipt` are read from: few look at them, and
    making them takes longer than the rest of a check."""


class Decision(_Fields):
    """The answer to a request, and the policy that decided it.

    Its fields are a tuple's, which is made in a tenth of the time that a frozen dataclass takes
    (`python -m benchmarks library`).
    """

    def __new__(  # noqa: PYI034 -- nothing is derived from it
        cls,
        *,
        allowed: bool,
        profile: str,
        policy: Policy | None,
        limit: int,
        remaining: int,
        retry_after: float | None,
        reset_after: float,
        reason: str,
        source: str,
        key: str = "",
        verdicts: tuple[Verdict, ...] = (),
        receipt: Receipt | None = None,
    ) -> Decision:
        for verdict in verdicts if not key else ():
            if (verdict.profile, verdict.policy, verdict.allowed) == (profile, policy, allowed):
                key = verdict.key
                break
        decided = (allowed, profile, policy, limit, remaining, retry_after, reset_after)
        return _known((*decided, reason, source, key), verdicts, receipt)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """One for each policy looked at."""
        found: tuple[Verdict, ...] = self._made("verdicts")
        return found

    @property
    def receipt(self) -> Receipt | None:
        """What `refund` gives back; None if nothing was charged."""
        found: Receipt | None = self._made("receipt")
        return found

    @property
    def override(self) -> str:
        """The action of the override that applies: "limit", "exempt", "observe", "block" or ""."""
        if self.policy is not None:
            return self.policy.override
        return self.reason if self.source == OVERRIDE else ""

    def replace(self, **changes: Any) -> Decision:
        """Return the same decision with other fields."""
        fields = {**self._asdict(), "receipt": self.receipt}
        if "verdicts" in changes:
            del fields["key"]
        return Decision(**{**fields, **changes})

    def _asdict(self) -> dict[str, Any]:
        return {**dict(zip(self._fields[:-1], self, strict=False)), "verdicts": self.verdicts}

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Decision)
            and self[:-1] == other[:-1]
            and self.verdicts == other.verdicts
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[:-1])

    def __repr__(self) -> str:
        fields = [f"{name}={value!r}" for name, value in self._asdict().items()]
        return f"Decision({', '.join(fields)})"

    def __reduce__(self) -> tuple[Any, ...]:
        # What it was made of stays here: a copy needs no windows.
        return _known, (self[:-1], self.verdicts, self.receipt)

    def _made(self, name: str) -> Any:
        made = self.__dict__
        if name not in made:
            make, *arguments = self.answer
            made[name] = getattr(make(*arguments), name)
        return made[name]


def _known(
    fields: tuple[Any, ...], verdicts: tuple[Verdict, ...], receipt: Receipt | None
) -> Decision:
    return new_decision(Decision, (*fields, (Known, None, None, verdicts, receipt)))


new_decision: Callable[[type[Decision], tuple[Any, ...]], Decision] = tuple.__new__
"""Makes a decision of a tuple of all its fields."""
