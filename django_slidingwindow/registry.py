"""Profiles by name: built-in ones, those of the settings, and those that apps register."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from .conf import NAME, conf, on_change
from .exceptions import Text
from .policies import Profile

BUILT_IN: Mapping[str, Mapping[str, Any]] = {
    "ip_public": {"axis": "ip", "limit": 120, "window": 60},
    "tenant_free": {"axis": "tenant", "rate": "100/d"},
    "tenant_paid": {"axis": "tenant", "rate": "10000/d"},
    "endpoint_expensive": {"axis": "endpoint", "rate": "30/m"},
    "endpoint_lightweight": {"axis": "endpoint", "rate": "300/m"},
}


def near(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that lists the known names: similar ones, or else all."""
    names = sorted(map(str, known))
    matches = difflib.get_close_matches(name, names, n=3)
    if matches:
        *others, last = map(repr, matches)
        meant = Text("{names} or {last}", names=", ".join(others), last=last) if others else last
        return Text("did you mean {names}?", names=meant)
    if not names:
        return Text("none is defined.")
    return Text("the known names are {names}.", names=", ".join(names))


def read_profile(name: str, config: Any) -> Profile:
    """Return the profile that a dict in the settings describes.

    Raise ImproperlyConfigured with its first problem.
    """
    # Imported late, because many processes that start Django never check a limit.
    from .profiles.parsing import profile_fields

    for path, problem in profile_problems(name, config):
        raise ImproperlyConfigured(f"{path}: {problem}")
    return config if isinstance(config, Profile) else Profile(name=name, **profile_fields(config))


def profile_problems(name: Any, config: Any) -> Iterator[tuple[str, str]]:
    """Yield every problem of a profile's dict, as (path, problem)."""
    path = f"{NAME}['PROFILES'][{name!r}]"
    if not isinstance(name, str) or not name:
        yield path, Text("the name of a profile must be a string that is not empty.")
        return
    if isinstance(config, Profile):
        if config.name != name:
            yield path, Text("is a Profile with another name, {name!r}.", name=config.name)
        return
    if not isinstance(config, Mapping):
        yield path, Text("must be a dict, not {type}.", type=type(config).__name__)
        return
    from .profiles.keys import PROFILE_KEYS
    from .profiles.parsing import config_problems

    for key in config:
        if key not in PROFILE_KEYS:
            hint = near(str(key), PROFILE_KEYS)
            yield f"{path}[{key!r}]", Text("unknown key: {hint}", hint=hint)
    for below, problem in config_problems(config):
        yield path + below, problem


class Registry:
    """Profiles by name. A profile is built at its first use, and again after a setting changes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._profiles: dict[str, Profile] = {}
        self._registered: dict[str, Any] = {}
        self.edition = object()
        """A new object whenever a profile may have changed."""

    def get(self, name: str) -> Profile:
        """Return the profile; raise ImproperlyConfigured if it does not exist or is wrong."""
        profiles = self._profiles
        profile = profiles.get(name)
        if profile is None:
            configs = self.configs()
            if name not in configs:
                raise ImproperlyConfigured(
                    f"unknown rate-limit profile {name!r}: {near(str(name), configs)}"
                )
            # Not into `self._profiles`: if `reset` has replaced it meanwhile, this profile is old.
            profile = profiles[name] = read_profile(name, configs[name])
        return profile

    def configs(self) -> dict[str, Any]:
        """Return all profiles by name, as they are written.

        The settings replace registered profiles, which replace built-in ones.
        """
        return {**BUILT_IN, **self._registered, **conf.profiles}

    def register(self, name: str, profile: Profile | Mapping[str, Any]) -> Profile:
        """Add a profile of an app, and return it. The settings may replace it by name."""
        built = read_profile(name, profile)
        with self._lock:
            self._registered[name] = profile
            self.reset()
        return built

    def unregister(self, name: str) -> None:
        """Remove a registered profile."""
        with self._lock:
            if self._registered.pop(name, None) is None:
                raise ImproperlyConfigured(
                    f"profile {name!r} is not registered: {near(name, self._registered)}"
                )
            self.reset()

    def reset(self) -> None:
        """Build all profiles again at their next use. Registered profiles stay registered."""
        self._profiles, self.edition = {}, object()


registry = Registry()
register = registry.register
unregister = registry.unregister

on_change(registry.reset)
