"""What a check answers. Durations in seconds, never time stamps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from .policies import Policy

# Reasons of a decision.
ALLOWED = "allowed"
UNLIMITED = "unlimited"  # no policy counts this identifier
OBSERVED = "observe"  # admitted, though an observing profile would have refused
LIMIT = "limit"
FALLBACK = "fallback"  # refused by this process's own windows while the store is away
DENY = "deny"  # refused because the store is away
IDENTITY_ERROR = "identity_error"  # the identifier could not be found

# Sources of a decision.
REDIS = "redis"
LOCAL = "local"
SHIELD = "shield"
ALLOW = "allow"
# DENY names a source as well.

# `limit` and `remaining` of a decision without a limit, so that comparisons hold.
NO_LIMIT = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
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
    """Seconds until a request of this cost would pass; 0.0 when allowed, None for never."""
    reset_after: float
    """Seconds until the oldest counted hit leaves; 0.0 where there is none."""


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
        parts: tuple[tuple[tuple[Charge, ...], int], ...],
        *,
        local: bool,
        unused: list[bool] | None = None,
    ) -> None:
        """`parts`: charges that were made together, and the store's clock then.

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


class _Late:
    """A base that makes some fields when somebody first looks at them."""

    __slots__ = ("_answer", "key")

    key: str
    """Of the window that decided; empty where no window was looked at."""
    _answer: tuple[Any, ...]
    """A function and its arguments: what it makes of them has these fields as attributes."""


def _make_late(late: _Late, name: str) -> Any:
    if name == "key":
        value: Any = _deciding_key(cast("Decision", late))
    elif name in ("verdicts", "receipt"):
        make, *arguments = late._answer
        value = getattr(make(*arguments), name)
    else:
        raise AttributeError(name)
    object.__setattr__(late, name, value)
    return value


def _deciding_key(decision: Decision) -> str:
    for verdict in decision.verdicts:
        if (
            verdict.profile == decision.profile
            and verdict.policy == decision.policy
            and verdict.allowed == decision.allowed
        ):
            return verdict.key
    return ""


# Python looks here for what a constructor has left out. Not written as a method, by which type
# checkers would think that there is every attribute.
_Late.__getattr__ = _make_late  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(_Late):
    """The answer to a request, and the policy that decided it."""

    allowed: bool
    profile: str
    policy: Policy | None
    """The policy that decided; None where no policy counts."""
    limit: int
    remaining: int
    """Hits left after this request."""
    retry_after: float | None
    """Seconds until a request of this cost would pass; 0.0 when allowed, None for never."""
    reset_after: float
    """Seconds until the oldest counted hit leaves."""
    reason: str
    source: str
    verdicts: tuple[Verdict, ...] = ()
    """One for each policy looked at."""
    receipt: Receipt | None = field(default=None, repr=False, compare=False)
    """What `refund` gives back; None if nothing was charged."""


# A frozen dataclass sets each field by its name, which would be a third of a check's time in
# Python (`python -m benchmarks library`). So a class of the same layout that is not frozen is
# filled, and then becomes the other.
class _VerdictDraft:
    __slots__ = Verdict.__slots__


class _DecisionDraft(_Late):
    __slots__ = Decision.__slots__


draft_verdict = cast("Callable[[], Any]", _VerdictDraft)
"""Makes a verdict without fields, which becomes one by its class when all are set."""


def make_decision(
    allowed: bool,
    profile: str,
    policy: Policy | None,
    limit: int,
    remaining: int,
    retry_after: float | None,
    reset_after: float,
    reason: str,
    source: str,
    key: str,
    answer: tuple[Any, ...],
) -> Decision:
    """Return a decision; `answer` makes its verdicts and its receipt once they are looked at."""
    decision: Any = _DecisionDraft()
    decision.allowed = allowed
    decision.profile = profile
    decision.policy = policy
    decision.limit = limit
    decision.remaining = remaining
    decision.retry_after = retry_after
    decision.reset_after = reset_after
    decision.reason = reason
    decision.source = source
    decision.key = key
    decision._answer = answer
    decision.__class__ = Decision
    made: Decision = decision
    return made
