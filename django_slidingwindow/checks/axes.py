"""Check the axes of profiles: whether these settings can identify clients on them."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.checks import CheckMessage

from ..guard.identity import BUILT_IN, HEADER
from ..policies import Profile
from ..registry import near
from . import catalog
from .callables import accepts, load, name_of
from .problem import Problem
from .project import Project

_SESSIONS = "django.contrib.sessions.middleware.SessionMiddleware"
_ENGINES = "django.contrib.sessions.backends."
_ON_THE_SERVER = {f"{_ENGINES}{name}" for name in ("db", "cache", "file")}
"""The modules of the session stores that have no data for an id that they did not issue."""
_USERS = "django.contrib.auth.middleware.AuthenticationMiddleware"


def parts(profile: Profile) -> set[str]:
    """Return the single axes of a profile: "ip" and "endpoint" of "ip+endpoint", and fallbacks."""
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
        function, error = load(value)
        if error is not None:
            yield catalog.NO_RESOLVER(path=path, error=error)
        elif not accepts(function, "request"):
            yield catalog.RESOLVER_SIGNATURE(path=path, function=name_of(function))


def check_sessions(project: Project) -> Iterator[CheckMessage]:
    yield from _check_middleware(project, "session", _SESSIONS, catalog.NO_SESSIONS)


def check_session_engine(project: Project) -> Iterator[CheckMessage]:
    engine = project.session_engine
    store, problem = load(f"{engine}.SessionStore")
    if problem is not None or "session" in project.conf.identities:
        return  # Django itself reports an engine that cannot be imported
    if not any(base.__module__ in _ON_THE_SERVER for base in store.__mro__):
        for profile in project.profiles():
            if "session" in parts(profile):
                yield catalog.NO_SESSION_KEYS(name=profile.name, engine=engine)


def check_users(project: Project) -> Iterator[CheckMessage]:
    yield from _check_middleware(project, "user", _USERS, catalog.NO_USERS)


def _check_middleware(
    project: Project, axis: str, path: str, problem: Problem
) -> Iterator[CheckMessage]:
    if axis in project.conf.identities or project.middleware_like(path):
        return
    for profile in project.profiles():
        if axis in parts(profile):
            yield problem(name=profile.name)
