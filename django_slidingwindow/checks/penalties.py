"""Check that penalties make sense."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.checks import CheckMessage

from ..policies import Policy
from . import catalog
from .project import Project

# Axes on which all clients have the same identifier.
_COMMON_AXES = {"global", "endpoint"}


def check_penalties(project: Project) -> Iterator[CheckMessage]:
    for profile in project.profiles():
        if profile.penalty is not None and _COMMON_AXES.issuperset(profile.axis.split("+")):
            yield catalog.COMMON_PENALTY(name=profile.name, axis=profile.axis)


def check_shared_penalties(project: Project) -> Iterator[CheckMessage]:
    """Report profiles that share a penalty and describe it differently.

    Profiles of one axis and scope share penalties that count refusals for the same time.
    """
    seen: dict[tuple[str, str, float], tuple[str, Policy]] = {}
    for profile in project.profiles():
        penalty = profile.penalty
        if penalty is not None:
            shared = profile.axis, profile.scope, penalty.window
            other, theirs = seen.setdefault(shared, (profile.name, penalty))
            if theirs != penalty:
                yield catalog.MIXED_PENALTIES(name=other, other=profile.name)
