"""The values that `explain` returns: the limits that would apply to a request, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .identification import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleState:
    """A rule of the middleware, and whether it applies."""

    rule: str
    profiles: tuple[str, ...]
    applies: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowState:
    """One window as it would be after the request. Times are in seconds."""

    key: str
    limit: int
    window: float
    algorithm: str
    allowed: bool | None
    """None if the window could not be read because Redis is away."""
    observed: bool
    """Whether the profile only observes, so that the window refuses nothing."""
    remaining: int | None
    retry_after: float | None
    reset_after: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileState:
    """A profile at one place, and whether it would count the request there."""

    profile: str
    place: str
    origin: str
    """The rule or the line of code that requires the profile."""
    counts: bool
    why: str
    axis: str = ""
    mode: str = ""
    identifier: str | None = None
    found_by: tuple[str, ...] = ()
    """How the identifier of each part of the axis was found."""
    cost: int = 0
    override: str = ""
    windows: tuple[WindowState, ...] = ()


@dataclass(slots=True, kw_only=True)
class Explanation:
    """The limits that would apply to a request, and their decision."""

    method: str
    path: str
    view: str | None
    """The dotted path of the view; None if the URL leads to no view."""
    client: Client
    exempt: str
    """The entry of EXEMPT that covers the request; empty if there is none."""
    rules: list[RuleState] = field(default_factory=list)
    profiles: list[ProfileState] = field(default_factory=list)
    decision: dict[str, Any] | None = None
    """The refusal, or the strictest admission; None if no profile counts the request."""
    refused: bool = False
    unknown: list[str] = field(default_factory=list)
    """Sentences about what only the real request can show."""
