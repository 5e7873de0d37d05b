"""Named profiles: the built-in ones, the project's, and those that apps register."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

from .conf import NAME, conf
from .policies import ANONYMOUS, FALLBACKS, MODES, Policy, Profile, parse_window

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
    names = sorted(known)
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
        return
    if "window" in config and given != ["limit"]:
        yield f"{path}['window']", "goes with limit; a rate has its window in it."
    if given == ["rates"] and (
        not isinstance(config["rates"], (list, tuple)) or not config["rates"]
    ):
        yield f"{path}['rates']", 'must be a list of rates, such as ["5/m", "20/h"].'
        return
    if given == ["limit"] and "window" not in config:
        yield path, "a limit needs a window, such as 60 or '1m'."
        return
    try:
        _limits(config)
    except (ValueError, ImportError) as error:
        yield f"{path}[{given[0]!r}]", str(error)


def _limits(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a profile that says how much."""
    counting = {key: config[key] for key in ("algorithm", "resolution") if key in config}
    if "limit" in config:
        limit, window = config["limit"], parse_window(config["window"])
        if not callable(limit) and not isinstance(limit, str):
            policy = Policy(limit=limit, window=window, **counting)
            return {"policies": (policy,)}
        found = {"limit_for": _callable(limit), "window": window}
    elif "rates" in config:
        return {"policies": tuple(Policy.parse(rate, **counting) for rate in config["rates"])}
    elif callable(config["rate"]) or _is_path(config["rate"]):
        found = {"limit_for": _callable(config["rate"])}
    else:
        return {"policies": (Policy.parse(config["rate"], **counting),)}
    # Made once here, so that a wrong algorithm is found before the first request.
    Policy(limit=0, window=1, **counting)
    return found | counting


def _is_path(value: object) -> bool:
    return isinstance(value, str) and "." in value and "/" not in value


def _callable(value: Any) -> Any:
    found = import_string(value) if isinstance(value, str) else value
    if not callable(found):
        raise ValueError(f"{value!r} is no callable (identifier, request) -> rate.")
    return found


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

    def get(self, name: str) -> Profile:
        """The profile of that name; ImproperlyConfigured if there is none or it is wrong."""
        profile = self._profiles.get(name)
        if profile is None:
            config = self.configs().get(name)
            if config is None:
                raise ImproperlyConfigured(
                    f"unknown rate-limit profile {name!r}: {near(str(name), self.configs())}"
                )
            profile = self._profiles[name] = read_profile(name, config)
        return profile

    def configs(self) -> dict[str, Any]:
        """What is configured under each name: the project's wins over registered, over built in."""
        return {**BUILT_IN, **self._registered, **conf.profiles}

    def register(self, name: str, profile: Profile | Mapping[str, Any]) -> Profile:
        """Adds an app's own profile, which the project's settings may replace by name."""
        read = read_profile(name, profile)
        with self._lock:
            self._registered[name] = profile
            self._profiles.pop(name, None)
        return read

    def unregister(self, name: str) -> None:
        """Takes a registered profile away again."""
        with self._lock:
            if self._registered.pop(name, None) is None:
                raise ImproperlyConfigured(
                    f"no profile {name!r} was registered: {near(name, self._registered)}"
                )
            self._profiles.pop(name, None)

    def reset(self) -> None:
        """Forgets what was read from the settings; what was registered stays."""
        self._profiles.clear()


registry = Registry()
register = registry.register
unregister = registry.unregister


def _reset(*, setting: str, **kwargs: Any) -> None:
    if setting == NAME:
        registry.reset()


setting_changed.connect(_reset, dispatch_uid=f"{__name__}.reset")
