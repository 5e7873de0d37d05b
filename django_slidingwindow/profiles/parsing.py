"""Turn the dict of a profile into the fields of a `Profile`, and find its problems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..core.tiers import Tiers
from ..exceptions import Text
from ..policies import DEFAULT_HOLD, NO_COUNTER_LEASE, Policy, no_penalty_with, slots_policies
from .keys import IN_POLICIES, POLICIES, PROFILE_KEYS, TIER
from .values import HOLD, INFLIGHT, inflight_problems


def config_problems(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the problems of the known keys of a profile's dict, as (path, problem)."""
    for key in PROFILE_KEYS.values():
        if key.required or key.name in config:
            for below, problem in key.problems(config.get(key.name)):
                yield f"[{key.name!r}]{below}", problem
    given = [
        key.name for key in PROFILE_KEYS.values() if key.field == POLICIES and key.name in config
    ]
    if len(given) > 1 or (not given and INFLIGHT not in config):
        found = ", ".join(given) or "-"
        yield (
            "",
            Text("needs exactly one of limit, rate, rates and tiers; found: {found}", found=found),
        )
    elif given == ["limit"] and "window" not in config:
        yield "", Text("limit needs a window, such as 60 or '1m'.")
    elif given != ["limit"] and "window" in config:
        yield "['window']", Text("is only for limit: a rate includes its window.")
    if ("tiers" in config) != (TIER in config):
        yield "", Text("tiers and tier need each other.")
    if config.get("algorithm") == "counter" and config.get("lease"):
        yield "['lease']", NO_COUNTER_LEASE
    if "penalty" in config:
        for problem in no_penalty_with(config.get("mode"), config.get("lease")):
            yield "['penalty']", problem
    yield from inflight_problems(config)


def profile_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the `Profile` that a dict without problems describes."""
    fields = {
        key.field: key.value(config[key.name])
        for key in PROFILE_KEYS.values()
        if key.name in config
    }
    rates = fields.pop(POLICIES, ())
    if TIER in fields:
        rates = Tiers(rates, fields.pop(TIER))
    if callable(rates):
        return {**fields, "limit_for": rates}
    shared = {name: fields.pop(name) for name in IN_POLICIES if name in fields}
    policies = tuple(Policy(**{**shared, **rate}) for rate in rates)
    slots = slots_policies(fields.pop(INFLIGHT, 0), fields.pop(HOLD, DEFAULT_HOLD))
    return {**fields, POLICIES: (*policies, *slots)}
