"""Whom profiles count: can a request tell, with these settings?"""

from __future__ import annotations

from collections.abc import Iterator

from django.core.checks import CheckMessage

from ..identity import BUILT_IN, HEADER
from ..policies import Profile
from ..registry import near
from . import catalog
from .callables import accepts, found, name_of
from .project import Project

_SESSIONS = "django.contrib.sessions.middleware.SessionMiddleware"
_USERS = "django.contrib.auth.middleware.AuthenticationMiddleware"


def parts(profile: Profile) -> set[str]:
    """The single axes that a profile looks at: both of ip+endpoint, and what it falls back to."""
    single = set(profile.axis.split("+"))
    if "user_or_ip" in single:
        single |= {"user", "ip"}
    if single & {"user", "session"} and profile.anonymous == "ip":
        single.add("ip")
    return single


def check_axes(project: Project) -> Iterator[CheckMessage]:
    own = project.conf.identities
    for profile in project.profiles():
        for axis in sorted(set(profile.axis.split("+")) - set(own)):
            if axis == "tenant":
                yield catalog.NO_TENANT(name=profile.name)
            elif axis not in BUILT_IN and not axis.startswith(HEADER):
                known = {*BUILT_IN, "tenant", *own}
                yield catalog.UNKNOWN_AXIS(name=profile.name, axis=axis, near=near(axis, known))


def check_resolvers(project: Project) -> Iterator[CheckMessage]:
    for axis, value in project.conf.identities.items():
        path = f"SLIDING_WINDOW['IDENTITIES'][{axis!r}]"
        function, error = found(value)
        if error is not None:
            yield catalog.NO_RESOLVER(path=path, error=error)
        elif not accepts(function, "request"):
            yield catalog.RESOLVER_SIGNATURE(path=path, function=name_of(function))


def check_sessions(project: Project) -> Iterator[CheckMessage]:
    yield from _check_middleware(project, "session", _SESSIONS, catalog.NO_SESSIONS)


def check_users(project: Project) -> Iterator[CheckMessage]:
    yield from _check_middleware(project, "user", _USERS, catalog.NO_USERS)


def _check_middleware(
    project: Project, axis: str, path: str, problem: catalog.Problem
) -> Iterator[CheckMessage]:
    if axis in project.conf.identities or project.middleware_like(path):
        return
    for profile in project.profiles():
        if axis in parts(profile):
            yield problem(name=profile.name)
