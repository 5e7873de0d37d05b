"""Check that leases make sense."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.checks import CheckMessage

from ..policies import Policy
from . import catalog
from .project import Project

# A lease saves round trips if the limit is at least this many times the hits that all processes
# together may hold.
_MIN_LIMIT_FACTOR = 20
# The longest lease that is reasonable, as a share of the window.
_MAX_LEASE_SHARE = 0.1


def check_leases(project: Project) -> Iterator[CheckMessage]:
    processes = project.conf.fallback_processes
    for profile in project.profiles():
        for policy in profile.policies:
            if policy.limit < _MIN_LIMIT_FACTOR * policy.lease * processes:
                yield catalog.LARGE_LEASE(
                    name=profile.name,
                    lease=policy.lease,
                    processes=processes,
                    limit=policy.limit,
                )
            if policy.lease_seconds > _MAX_LEASE_SHARE * policy.window:
                yield catalog.LONG_LEASE(
                    name=profile.name, seconds=policy.lease_seconds, window=policy.window_text
                )


def check_shared_leases(project: Project) -> Iterator[CheckMessage]:
    """Report profiles that share a window and lease for different times.

    Profiles of one axis and scope share windows of the same algorithm and length.
    """
    seen: dict[tuple[str, str, str, float], tuple[str, Policy]] = {}
    for profile in project.profiles():
        for policy in profile.policies:
            window = profile.axis, profile.scope, policy.algorithm, policy.window
            other, theirs = seen.setdefault(window, (profile.name, policy))
            if theirs.lease_seconds != policy.lease_seconds:
                yield catalog.MIXED_LEASES(name=other, other=profile.name)
