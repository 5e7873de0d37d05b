"""Check the axes of profiles: whether these settings can identify clients on them."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.checks import CheckMessage

from ..guard.identity import BUILT_IN, names_header
from ..policies import Profile
from ..registry import near
from . import catalog
from .callables import accepts, load, name_of
from .problem import Problem
from .project import Project

_SESSION_MIDDLEWARE = "django.contrib.sessions.middleware.SessionMiddleware"
_USER_MIDDLEWARE = "django.contrib.auth.middleware.AuthenticationMiddleware"
# Modules of session stores that keep sessions on the server. They have no data for an id that they
# did not issue.
_SERVER_SIDE = {f"django.contrib.sessions.backends.{name}" for name in ("db", "cache", "file")}


def parts(profile: Profile) -> set[str]:
    """Return the single axes of a profile, and the axes that they fall back to.

    "ip+endpoint" has the axes "ip" and "endpoint".
    """
    axes = set(profile.axis.split("+"))
    if "user_or_ip" in axes:
        axes |= {"user", "ip"}
    if axes & {"user", "session"} and profile.anonymous == "ip":
        axes.add("ip")
    return axes


def check_axes(project: Project) -> Iterator[CheckMessage]:
    own = project.conf.identities
    for profile in project.profiles():
        for axis in sorted(set(profile.axis.split("+")) - set(own)):
            if axis == "tenant":
                yield catalog.NO_TENANT(name=profile.name)
            elif axis not in BUILT_IN and not names_header(axis):
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
    yield from _check_middleware(project, "session", _SESSION_MIDDLEWARE, catalog.NO_SESSIONS)


def check_session_engine(project: Project) -> Iterator[CheckMessage]:
    engine = project.session_engine
    store, problem = load(f"{engine}.SessionStore")
    if problem is not None or "session" in project.conf.identities:
        return  # Django itself reports an engine that cannot be imported
    if not any(base.__module__ in _SERVER_SIDE for base in store.__mro__):
        for profile in project.profiles():
            if "session" in parts(profile):
                yield catalog.NO_SESSION_KEYS(name=profile.name, engine=engine)


def check_users(project: Project) -> Iterator[CheckMessage]:
    yield from _check_middleware(project, "user", _USER_MIDDLEWARE, catalog.NO_USERS)


def _check_middleware(
    project: Project, axis: str, path: str, problem: Problem
) -> Iterator[CheckMessage]:
    """Report profiles that count by an axis, if its middleware is missing."""
    if axis in project.conf.identities or project.middleware_like(path):
        return
    for profile in project.profiles():
        if axis in parts(profile):
            yield problem(name=profile.name)
