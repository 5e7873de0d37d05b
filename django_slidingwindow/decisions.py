"""The decision of a check. Its durations are in seconds; it has no timestamps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

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
ONLY_OBSERVED = (OBSERVED, OBSERVED_PENALTY)  # in the log: these requests were admitted

# Sources of a decision.
REDIS = "redis"
LOCAL = "local"
SHIELD = "shield"
LEASE = "lease"  # admitted by hits that this process had leased
DEFERRED = "deferred"  # decided by this process, before the store is charged
ALLOW = "allow"
OVERRIDE = "override"  # decided by an override, without looking at a window
# DENY is a source as well.

# `limit` and `remaining` of a decision without a limit: a number, so that comparisons work.
NO_LIMIT = 2**63 - 1


class Verdict(NamedTuple):
    """The result of one policy."""

    profile: str
    policy: Policy
    key: str
    """The window's key in the store."""
    allowed: bool
    observed: bool
    """Whether the profile only observes, so that a refusal by this policy has no effect."""
    limit: int
    """The limit that was applied. In the local fallback, it is less than the policy's."""
    remaining: int
    """Hits left after this request."""
    retry_after: float | None
    """Seconds until a request of this cost would pass; 0.0 when allowed, None for never. Also 0.0
    if it waits for a request in flight: nobody knows when that ends."""
    reset_after: float
    """Seconds until the oldest counted hit leaves the window; 0.0 if there is none. For requests in
    flight: until the oldest one expires."""
    blocked: bool = False
    """Whether a penalty blocks the identifier."""


class Charge(NamedTuple):
    """The hits that one key was charged."""

    key: str
    policy: Policy
    cost: int


class Receipt:
    """The charges of a check, so that they can be given back once."""

    __slots__ = ("_unused", "local", "parts")

    def __init__(
        self,
        parts: tuple[tuple[tuple[Charge, ...], Any], ...],
        *,
        local: bool,
        unused: list[bool] | None = None,
    ) -> None:
        """`parts`: charges that were made together, and their time by the store's clock (or an
        object that will have it).

        Receipts that share `unused` can be used once among them. `list.pop` is atomic, so that this
        needs no lock.
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
    def used(self) -> bool:
        """Whether the charges, or a part of them, were given back."""
        return not self._unused

    @property
    def holds_slots(self) -> bool:
        """Whether there are slots to give back."""
        return bool(self._unused and self.slots)

    @property
    def slots(self) -> set[str]:
        """The keys of the windows that count requests in flight."""
        every = (charge for charges, _ in self.parts for charge in charges)
        return {charge.key for charge in every if charge.policy.inflight}

    def part(self, keys: set[str]) -> Receipt:
        """Return a separate receipt for the charges of some keys."""
        parts = (
            (tuple(charge for charge in charges if charge.key in keys), stamp)
            for charges, stamp in self.parts
        )
        return Receipt(tuple(part for part in parts if part[0]), local=self.local)


class Answer(Protocol):
    """The basis of a decision. It makes `verdicts` and `receipt` when they are read."""

    @property
    def windows(self) -> Any:
        """The windows that were checked, a `WindowSet`; None if that is unknown."""
        ...

    @property
    def rules(self) -> tuple[Any, ...]:
        """The `WindowRule` that was applied to each window. It may differ from the configured one:
        the fallback applies a share of the limit."""
        ...

    @property
    def fields(self) -> tuple[int, ...] | None:
        """The fields of the store's reply; None if no reply says exactly this."""
        ...

    @property
    def verdicts(self) -> tuple[Verdict, ...]: ...

    @property
    def receipt(self) -> Receipt | None: ...


class _GivenAnswer(NamedTuple):
    """The verdicts and the receipt of a decision that was created with them."""

    verdicts: tuple[Verdict, ...]
    receipt: Receipt | None
    windows: None = None
    rules: tuple[Any, ...] = ()
    fields: None = None


class _Fields(NamedTuple):
    allowed: bool
    profile: str
    policy: Policy | None
    """The policy that decided; None if no policy did."""
    limit: int
    remaining: int
    """Hits left after this request."""
    retry_after: float | None
    """Seconds until a request of this cost would pass; 0.0 when allowed, None for never. Also 0.0
    if it waits for a request in flight: nobody knows when that ends."""
    reset_after: float
    """Seconds until the oldest counted hit leaves the window."""
    reason: str
    source: str
    key: str
    """The key of the window that decided. DENY and BLOCK check no window: the key of one that would
    have been checked. "" if there is none."""
    answer: Answer
    """Makes the verdicts and the receipt on first access: that takes longer than the rest of a
    check, and few callers need them."""


class Decision(_Fields):
    """Whether a request is admitted, and the policy that decided.

    This is a tuple, which is created in a tenth of the time of a frozen dataclass
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
        return _with_answer((*decided, reason, source, key), verdicts, receipt)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The result of each policy that was checked."""
        found: tuple[Verdict, ...] = self._from_answer("verdicts")
        return found

    @property
    def receipt(self) -> Receipt | None:
        """What `refund` gives back; None if nothing was charged."""
        found: Receipt | None = self._from_answer("receipt")
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
        # Without the rest of `answer`, such as windows, which a copy does not need.
        return _with_answer, (self[:-1], self.verdicts, self.receipt)

    def _from_answer(self, name: str) -> Any:
        cached = self.__dict__
        if name not in cached:
            cached[name] = getattr(self.answer, name)
        return cached[name]


def _with_answer(
    fields: tuple[Any, ...], verdicts: tuple[Verdict, ...], receipt: Receipt | None
) -> Decision:
    """Return a decision of all fields except `answer`, and of its verdicts and receipt."""
    return new_decision(Decision, (*fields, _GivenAnswer(verdicts, receipt)))


new_decision: Callable[[type[Decision], tuple[Any, ...]], Decision] = tuple.__new__
"""Creates a decision from a tuple of all its fields."""
