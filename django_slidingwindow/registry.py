"""Named profiles: the built-in ones, the project's, and those that apps register."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from .conf import NAME, conf
from .exceptions import PolicyError
from .policies import (
    ANONYMOUS,
    FALLBACKS,
    MODES,
    Policy,
    Profile,
    parse_limit,
    parse_rate,
    parse_window,
)

BUILT_IN: Mapping[str, Mapping[str, Any]] = {
    "ip_public": {"axis": "ip", "limit": 120, "window": 60},
    "tenant_free": {"axis": "tenant", "rate": "100/d"},
    "tenant_paid": {"axis": "tenant", "rate": "10000/d"},
    "endpoint_expensive": {"axis": "endpoint", "rate": "30/m"},
    "endpoint_lightweight": {"axis": "endpoint", "rate": "300/m"},
}
KEYS = frozenset(
    "axis limit window rate rates algorithm resolution scope mode count_rejected"
    " fallback anonymous".split()
)
_CHOICES = {"mode": MODES, "fallback": FALLBACKS, "anonymous": ANONYMOUS}


def near(name: str, known: Iterable[str]) -> str:
    """A hint at what was meant, ready to end a sentence."""
    names = sorted(map(str, known))
    matches = difflib.get_close_matches(name, names, n=3)
    if matches:
        return "did you mean " + " or ".join(repr(match) for match in matches) + "?"
    return f"known are: {', '.join(names) or 'none'}."


def read_profile(name: str, config: Any) -> Profile:
    """The profile that a dict in the settings describes."""
    for path, problem in profile_problems(name, config):
        raise ImproperlyConfigured(f"{path}: {problem}")
    return _build(name, config)


def profile_problems(name: Any, config: Any) -> Iterator[tuple[str, str]]:
    """Everything that is wrong with a profile's dict, as (path, problem)."""
    path = f"{NAME}['PROFILES'][{name!r}]"
    if not isinstance(name, str) or not name:
        yield path, "a profile's name is text."
        return
    if isinstance(config, Profile):
        if config.name != name:
            yield path, f"is the profile {config.name!r}, of another name."
        return
    if not isinstance(config, Mapping):
        yield path, f"a profile is a dict, not {type(config).__name__}."
        return
    for key in config:
        if key not in KEYS:
            yield f"{path}[{key!r}]", f"unknown key: {near(str(key), KEYS)}"
    axis = config.get("axis")
    if not isinstance(axis, str) or not axis:
        yield path, "an axis is needed: ip, user, tenant, endpoint, global or one of your own."
    for key, choices in _CHOICES.items():
        if key in config and config[key] not in choices:
            yield f"{path}[{key!r}]", f"{config[key]!r} is not one of {', '.join(choices)}."
    if not isinstance(config.get("count_rejected", False), bool):
        yield f"{path}['count_rejected']", "must be True or False."
    scope = config.get("scope", name)
    if not isinstance(scope, str) or not scope:
        yield f"{path}['scope']", "must be text."
    yield from _limit_problems(path, config)


def _limit_problems(path: str, config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    given = [key for key in ("limit", "rate", "rates") if key in config]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        yield path, f"needs one of limit (with window), rate or rates; found {found}."
    elif given == ["limit"] and "window" not in config:
        yield path, "a limit needs a window, such as 60 or '1m'."
    elif given != ["limit"] and "window" in config:
        yield f"{path}['window']", "goes with limit; a rate has its window in it."
    for key, read in _READERS.items():
        if key in config:
            yield from _problems(f"{path}[{key!r}]", read, config[key])
    if "rates" in config:
        rates = config["rates"]
        if not isinstance(rates, (list, tuple)) or not rates:
            yield f"{path}['rates']", 'must be a list of rates, such as ["5/m", "20/h"].'
            return
        for i, rate in enumerate(rates):
            yield from _problems(f"{path}['rates'][{i}]", parse_rate, rate)


def _problems(path: str, read: Callable[[Any], Any], value: Any) -> Iterator[tuple[str, str]]:
    try:
        read(value)
    except (ValueError, ImportError) as error:
        yield path, str(error)


def _read_limit(value: Any) -> Any:
    """A number of hits, or the callable that gives it."""
    if callable(value):
        return value
    if isinstance(value, str):
        if not _is_path(value):
            raise PolicyError(
                f"limit {value!r} is neither a whole number nor the dotted path of a callable"
            )
        return _imported(value)
    return parse_limit(value)


def _read_rate(value: Any) -> Any:
    """Limit and window, or the callable that gives them."""
    if callable(value):
        return value
    if isinstance(value, str) and _is_path(value):
        return _imported(value)
    return parse_rate(value)


def _is_path(text: str) -> bool:
    """Whether it can be the dotted path of something in a module."""
    return "." in text and all(name.isidentifier() for name in text.split("."))


def _imported(path: str) -> Any:
    found = import_string(path)
    if not callable(found):
        raise PolicyError(f"{path!r} is no callable (identifier, request) -> rate")
    return found


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "limit": _read_limit,
    "window": parse_window,
    "rate": _read_rate,
    "algorithm": lambda value: Policy(limit=0, window=1, algorithm=value),
    "resolution": lambda value: Policy(limit=0, window=1, resolution=value),
}


def _limits(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a profile that says how much."""
    counting = {key: config[key] for key in ("algorithm", "resolution") if key in config}
    if "rates" in config:
        return {"policies": tuple(Policy.parse(rate, **counting) for rate in config["rates"])}
    if "limit" in config:
        limit, window = _read_limit(config["limit"]), parse_window(config["window"])
        if callable(limit):
            return {"limit_for": limit, "window": window, **counting}
    else:
        rate = _read_rate(config["rate"])
        if callable(rate):
            return {"limit_for": rate, **counting}
        limit, window = rate
    return {"policies": (Policy(limit=limit, window=window, **counting),)}


def _build(name: str, config: Any) -> Profile:
    if isinstance(config, Profile):
        return config
    fields = ("axis", "scope", "mode", "count_rejected", "fallback", "anonymous")
    rest = {key: config[key] for key in fields if key in config}
    return Profile(name=name, **rest, **_limits(config))


class Registry:
    """Profiles by name; read when first asked for, and again after the settings change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._profiles: dict[str, Profile] = {}
        self._registered: dict[str, Any] = {}
        self.edition = object()
        """Another one whenever a profile may have changed."""

    def get(self, name: str) -> Profile:
        """The profile of that name; ImproperlyConfigured if there is none or it is wrong."""
        profiles = self._profiles
        profile = profiles.get(name)
        if profile is None:
            config = self.configs().get(name)
            if config is None:
                raise ImproperlyConfigured(
                    f"unknown rate-limit profile {name!r}: {near(str(name), self.configs())}"
                )
            # Into the dict from above: whoever replaced it meanwhile has newer settings.
            profile = profiles[name] = read_profile(name, config)
        return profile

    def configs(self) -> dict[str, Any]:
        """What is configured under each name: the project's wins over registered, over built in."""
        return {**BUILT_IN, **self._registered, **conf.profiles}

    def register(self, name: str, profile: Profile | Mapping[str, Any]) -> Profile:
        """Adds an app's own profile, which the project's settings may replace by name."""
        read = read_profile(name, profile)
        with self._lock:
            self._registered[name] = profile
            self.reset()
        return read

    def unregister(self, name: str) -> None:
        """Takes a registered profile away again."""
        with self._lock:
            if self._registered.pop(name, None) is None:
                raise ImproperlyConfigured(
                    f"no profile {name!r} was registered: {near(name, self._registered)}"
                )
            self.reset()

    def reset(self) -> None:
        """Forgets what was read from the settings; what was registered stays."""
        self._profiles, self.edition = {}, object()


registry = Registry()
register = registry.register
unregister = registry.unregister


def _reset(*, setting: str, **kwargs: Any) -> None:
    if setting == NAME:
        registry.reset()


setting_changed.connect(_reset, dispatch_uid=f"{__name__}.reset")
