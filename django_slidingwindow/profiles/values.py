"""What the values of a profile's keys mean: each function returns one, or raises PolicyError."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from django.utils.module_loading import import_string

from ..algorithms.penalties import Penalty
from ..exceptions import PolicyError, Text, text_of
from ..policies import (
    ALGORITHMS,
    DEFERRED,
    NO_INFLIGHT_DEFERRED,
    NO_INFLIGHT_LEASE,
    SLOTS,
    Policy,
)
from ..rates import parse_limit, parse_rate, parse_window

INFLIGHT, HOLD = "inflight", "hold"
"""The keys that make the policy for requests in flight."""
# A penalty keeps a stamp of each refusal, and is packed with each of its steps.
MAX_REFUSALS, MAX_STEPS = 1_000, 20


def string_value(problem: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise PolicyError(problem)
        return value

    return read


def read_bool(value: Any) -> bool:
    if value is not True and value is not False:
        raise PolicyError("must be True or False.")
    return value


def one_of(choices: tuple[str, ...]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in choices:
            names = ", ".join(choices)
            raise PolicyError("{value!r} is not one of {names}.", value=value, names=names)
        return str(value)

    return read


def read_limit(value: Any) -> Any:
    """Return the rates without their window, or the function that returns them."""
    if callable(value):
        return value
    if isinstance(value, str):
        if not _is_path(value):
            raise PolicyError(
                "limit {value!r} is neither a whole number nor the dotted path of a function.",
                value=value,
            )
        return _imported(value)
    return ({"limit": parse_limit(value)},)


def read_rate(value: Any) -> Any:
    """Return the rates, or the function that returns them."""
    if callable(value):
        return value
    if isinstance(value, str) and _is_path(value):
        return _imported(value)
    return (rate_fields(value),)


def read_rates(value: Any) -> Any:
    if not isinstance(value, (list, tuple)) or not value:
        raise PolicyError('must be a list of rates, such as ["5/m", "20/h"].')
    return value


def rate_fields(value: Any) -> dict[str, Any]:
    limit, window = parse_rate(value)
    return {"limit": limit, "window": window}


def in_policy(name: str) -> Callable[[Any], Any]:
    return lambda value: getattr(Policy(limit=0, window=1, **{name: value}), name)


def read_algorithm(value: Any) -> str:
    """Return an algorithm of rates; that of requests in flight has a key of its own."""
    found: str = in_policy("algorithm")(value)
    if found == SLOTS:
        names = ", ".join(ALGORITHMS)
        raise PolicyError("algorithm {name!r} is not one of {names}.", name=found, names=names)
    return found


def _is_path(text: str) -> bool:
    """Return whether it can be the dotted path of something in a module."""
    return "." in text and all(name.isidentifier() for name in text.split("."))


def _imported(path: str) -> Any:
    try:
        found = import_string(path)
    except ImportError as error:
        raise PolicyError(str(error)) from error
    if not callable(found):
        raise PolicyError(
            "{path!r} is not a function that takes (identifier, request) and returns a rate.",
            path=path,
        )
    return found


def read_tiers(value: Any) -> dict[str, tuple[str, ...] | None]:
    """Return the rates of each tier; None for no limit."""
    if not isinstance(value, Mapping) or not value:
        raise PolicyError("must be a dict with the rates of each tier.")
    found: dict[str, tuple[str, ...] | None] = {}
    for name, rates in value.items():
        if not isinstance(name, str) or not name:
            raise PolicyError("the name of a tier must be a string, not {name!r}.", name=name)
        found[name] = None
        if rates is None:
            continue
        try:
            found[name] = tuple(read_rates([rates] if isinstance(rates, str) else rates))
            for one in found[name] or ():
                parse_rate(one)
        except ValueError as error:
            problem = text_of(error)
            raise PolicyError("tier {name!r}: {problem}", name=name, problem=problem) from None
    return found


def read_function(value: Any) -> Any:
    """Return a function, or the one that a dotted path names."""
    if callable(value):
        return value
    if isinstance(value, str) and _is_path(value):
        return _imported(value)
    raise PolicyError("{value!r} is neither a function nor the dotted path of one.", value=value)


def penalty_problems(value: Any) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a penalty, as (path below it, problem)."""
    if not isinstance(value, Mapping):
        yield "", Text('must be a dict such as {"after": "3/10m", "steps": ["1m", "10m", "1d"]}.')
        return
    for name in value.keys() - {"after", "steps"}:
        yield f"[{name!r}]", Text("is unknown: a penalty has after and steps.")
    try:
        refusals, _ = parse_rate(value.get("after"))
        if refusals > MAX_REFUSALS:
            yield "['after']", Text("tolerates at most {most:,} refusals.", most=MAX_REFUSALS)
    except ValueError as error:
        yield "['after']", text_of(error)
    steps = value.get("steps")
    if not isinstance(steps, (list, tuple)) or not 1 <= len(steps) <= MAX_STEPS:
        yield (
            "['steps']",
            Text('must be a list of 1 to {most} durations, such as ["1m", "10m"].', most=MAX_STEPS),
        )
        return
    before = 0.0
    for i, step in enumerate(steps):
        try:
            seconds = parse_window(step)
        except ValueError as error:
            yield f"['steps'][{i}]", text_of(error)
            continue
        if seconds < before:
            yield f"['steps'][{i}]", Text("must not be shorter than the step before.")
        before = seconds


def read_penalty(value: Any) -> Penalty:
    for path, problem in penalty_problems(value):
        raise PolicyError("{path}: {problem}", path=f"penalty{path}", problem=problem)
    limit, window = parse_rate(value["after"])
    return Penalty(limit=limit, window=window, steps=tuple(map(parse_window, value["steps"])))


def inflight_problems(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with the keys beside `inflight`, as (path, problem)."""
    if INFLIGHT not in config:
        if HOLD in config:
            yield "['hold']", Text("is only for inflight: it ends the slots of dead processes.")
        return
    if config.get("lease"):
        yield "['lease']", NO_INFLIGHT_LEASE
    if config.get("mode") == DEFERRED:
        yield "['mode']", NO_INFLIGHT_DEFERRED
