"""The values of a comparison: setups, questions, answers, contenders and cells."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

ADMITTED, REFUSED = "admitted", "refused"
GOOD, BAD, ABSENT = "good", "bad", "not offered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A limit that a contender applies."""

    limit: int
    window: int
    """Seconds."""
    shared: bool = False
    """Whether all clients share one window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a contender is configured in one process."""

    redis: str
    """The URL of the server."""
    rates: tuple[Rate, ...]
    tuned: bool = False
    """Whether to set short time-outs and fail-open, if the contender has such settings."""
    patient: bool = False
    """Whether to wait for a slow server, because a busy machine is not an outage."""
    proxy: str = ""
    """The address of a proxy that is trusted."""
    clock: float = 0.0
    """Seconds that the host's clock is ahead."""
    asynchronous: bool = False

    @property
    def rate(self) -> Rate:
        """The first or only rate."""
        return self.rates[0]


class Question(NamedTuple):
    """One request."""

    client: str
    """The address that the connection comes from."""
    forwarded: str = ""
    """The value of X-Forwarded-For; empty for none."""
    at: float = 0.0
    """When to ask, by the monotonic clock; a time in the past means now."""
    tell: bool = False
    """Whether a refusal says how long to wait."""


class Answer(NamedTuple):
    """The outcome of one request."""

    outcome: str
    """Admitted, refused, or the error."""
    retry_after: float | None = None
    """Seconds to wait, as the answer says."""
    sent: float = 0.0
    """When the question was asked, by the monotonic clock."""
    received: float = 0.0
    """When the answer came."""


Ask = Callable[[Question], Answer]
AsyncAsk = Callable[[Question], Awaitable[Answer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A limiter, and how to configure it.

    The functions are called in the contender's own process, so they import its modules there.
    """

    name: str
    module: str
    """The module that has to be installed."""
    make: Callable[[Setup], Ask]
    make_async: Callable[[Setup], AsyncAsk] | None = None
    settings: Callable[[Setup], dict[str, Any]] = lambda setup: {}
    """Django settings that it needs."""
    is_library: bool = False
    """Whether it is called directly, without requests."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """Scenarios that it does not offer, and why."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The result of one contender in one scenario."""

    mark: str
    """Good, bad or not offered."""
    text: str
    """A number or a few words."""
    values: dict[str, float] = field(default_factory=dict)
    """The numbers that were measured."""


class ContenderError(Exception):
    """A contender raised an error. The text is the name of that error."""


def count_admitted(answers: Iterable[Answer]) -> int:
    """Return how many were admitted; raise `ContenderError` if an answer is an error."""
    outcomes = [answer.outcome for answer in answers]
    for outcome in outcomes:
        if outcome not in (ADMITTED, REFUSED):
            raise ContenderError(outcome)
    return outcomes.count(ADMITTED)


def judged(is_good: bool, text: str, **values: float) -> Cell:
    """Return a cell that is good or bad."""
    return Cell(GOOD if is_good else BAD, text, values)
