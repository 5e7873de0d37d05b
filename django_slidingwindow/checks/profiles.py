"""Check that profiles are valid, and that views and throttles only name existing ones."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.checks import CheckMessage

from ..core.tiers import Tiers
from ..policies import (
    NO_COUNTER_LEASE,
    NO_DEFERRED_PENALTY,
    NO_INFLIGHT_DEFERRED,
    NO_INFLIGHT_LEASE,
    NO_LEASE_PENALTY,
)
from ..registry import near, profile_problems
from . import catalog
from .callables import accepts, name_of
from .problem import Problem
from .project import Project, named_by

# Problems of a profile that have an id of their own.
_OWN_IDS: dict[str, Problem] = {
    NO_COUNTER_LEASE: catalog.COUNTER_LEASE,
    NO_DEFERRED_PENALTY: catalog.PENALTY_WITH,
    NO_LEASE_PENALTY: catalog.PENALTY_WITH,
    NO_INFLIGHT_LEASE: catalog.INFLIGHT_NOT_ASKED,
    NO_INFLIGHT_DEFERRED: catalog.INFLIGHT_NOT_ASKED,
}


def check_profiles(project: Project) -> Iterator[CheckMessage]:
    for name, config in project.configs.items():
        for path, problem in profile_problems(name, config):
            yield _OWN_IDS.get(problem, catalog.BAD_PROFILE)(path=path, problem=problem)


def check_limits(project: Project) -> Iterator[CheckMessage]:
    for profile in project.profiles():
        limit_for = profile.limit_for
        if isinstance(limit_for, Tiers):
            if not accepts(limit_for.tier, "identifier", "request"):
                yield catalog.TIER_SIGNATURE(name=profile.name, function=name_of(limit_for.tier))
        elif limit_for is not None and not accepts(limit_for, "identifier", "request"):
            yield catalog.LIMIT_SIGNATURE(name=profile.name, function=name_of(limit_for))


def check_usages(project: Project) -> Iterator[CheckMessage]:
    for usage in project.usages:
        for name in named_by(usage):
            if name not in project.configs:
                yield catalog.UNKNOWN_IN_CODE(
                    view=usage.view, name=name, near=near(name, project.configs)
                )


def check_choices(project: Project) -> Iterator[CheckMessage]:
    for usage in project.usages:
        if callable(usage.profiles) and not accepts(usage.profiles, "request"):
            yield catalog.CHOICE_SIGNATURE(view=usage.view, function=name_of(usage.profiles))
