"""What a check answers. Durations in seconds, never time stamps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Any, NamedTuple, TypeVar

from .policies import Policy

Value = TypeVar("Value")

# Reasons of a decision.
ALLOWED = "allowed"
UNLIMITED = "unlimited"  # no policy counts this identifier
OBSERVED = "observe"  # admitted, though an observing profile would have refused
LIMIT = "limit"
FALLBACK = "fallback"  # refused by this process's own windows while the store is away
DENY = "deny"  # refused because the store is away
IDENTITY_ERROR = "identity_error"  # whom to count could not be told

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

    def __init__(self, parts: tuple[tuple[tuple[Charge, ...], int], ...], *, local: bool) -> None:
        """`parts`: charges that were made together, and the store's clock then."""
        self.parts = parts
        self.local = local
        # To take the last element away is atomic, and needs no lock for each check.
        self._unused = [True]

    def use(self) -> bool:
        """True for the first caller only."""
        try:
            return self._unused.pop()
        except IndexError:
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
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


def _quick(frozen: type[Value]) -> Callable[..., Value]:
    """A constructor that takes all the fields of a frozen dataclass by position.

    A frozen one sets each field by its name, which would be a third of a check's time
    in Python. Here a mutable twin of the same layout is filled and becomes the other.
    """
    names = [(each.name, "object") for each in fields(frozen)]  # type: ignore[arg-type]
    twin: Any = make_dataclass(
        frozen.__name__, names, slots=True, repr=False, eq=False, match_args=False
    )

    def make(*values: object) -> Value:
        made = twin(*values)
        made.__class__ = frozen
        return made  # type: ignore[no-any-return]

    return make


new_verdict = _quick(Verdict)
new_decision = _quick(Decision)
