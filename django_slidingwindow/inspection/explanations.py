"""What is known about a request's limits before it is sent: values for people and programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .identifying import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleState:
    """A rule of the middleware, and whether it applies."""

    rule: str
    profiles: tuple[str, ...]
    applies: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowState:
    """One window as the request would leave it. Times are in seconds."""

    key: str
    limit: int
    window: float
    algorithm: str
    allowed: bool | None
    """None if it was not looked at, because Redis is away."""
    observed: bool
    """Whether a refusal does not count."""
    remaining: int | None
    retry_after: float | None
    reset_after: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileState:
    """A profile at one place, and whether it would count the request there."""

    profile: str
    place: str
    origin: str
    """The rule, or the line of code."""
    counts: bool
    why: str
    axis: str = ""
    mode: str = ""
    identifier: str | None = None
    found_by: tuple[str, ...] = ()
    cost: int = 0
    override: str = ""
    windows: tuple[WindowState, ...] = ()


@dataclass(slots=True, kw_only=True)
class Explanation:
    """What limits would say about a request."""

    method: str
    path: str
    view: str | None
    """Its dotted path; None if no view has this path."""
    client: Client
    exempt: str
    """The entry of EXEMPT that covers the request."""
    rules: list[RuleState] = field(default_factory=list)
    profiles: list[ProfileState] = field(default_factory=list)
    decision: dict[str, Any] | None = None
    """The refusal, or the strictest of the admissions; None if nothing counts the request."""
    refused: bool = False
    unknown: list[str] = field(default_factory=list)
    """What cannot be known without the real request."""
