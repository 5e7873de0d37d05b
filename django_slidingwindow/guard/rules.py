"""The setting RULES: the profiles that count a request, by its path, method and view."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured

from ..conf import NAME, conf, on_change
from ..registry import near
from .requirements import Requirement, methods_from

if TYPE_CHECKING:
    from django.http import HttpRequest

KEYS = frozenset({"path", "methods", "name", "namespace", "profiles"})


class Rule:
    """A rule of the settings. A request must match all of its conditions."""

    __slots__ = ("names", "namespaces", "path", "requirement")

    def __init__(
        self,
        *,
        requirement: Requirement,
        path: re.Pattern[str] | None,
        names: frozenset[str] | None,
        namespaces: tuple[str, ...] | None,
    ) -> None:
        self.requirement = requirement
        self.path = path
        """Searched in `request.path_info`, which begins with a slash."""
        self.names = names
        """View names with their namespaces, such as "shop:order"."""
        self.namespaces = namespaces
        """Namespaces, each followed by ":". They include the namespaces nested in them."""

    def mismatch(self, request: HttpRequest) -> str:
        """Return the condition that the request does not meet: "path", "name" or "namespace".

        Return "" if path and view match. The requirement checks the method.
        """
        if self.path is not None:
            path = request.path_info
            if "\n" in path:
                # A client could avoid a rule by a newline: `.` does not match it, and `$` matches
                # before it.
                path = path.replace("\n", "\r")
            if not self.path.search(path):
                return "path"
        if self.names is None and self.namespaces is None:
            return ""
        match = request.resolver_match
        if self.names is not None and (match is None or match.view_name not in self.names):
            return "name"
        if self.namespaces is None:
            return ""
        if match is None or not f"{match.namespace}:".startswith(self.namespaces):
            return "namespace"
        return ""


def requirements_for(request: HttpRequest) -> tuple[Requirement, ...]:
    """Return the requirements of all rules that match, not only of the first."""
    return tuple([rule.requirement for rule in rules() if not rule.mismatch(request)])


@cache
def rules() -> tuple[Rule, ...]:
    """Return the parsed setting RULES."""
    return tuple(read_rule(number, rule) for number, rule in enumerate(conf.rules))


def read_rule(number: int, config: Any) -> Rule:
    """Return the rule that a dict of the settings describes."""
    for path, problem in rule_problems(number, config):
        raise ImproperlyConfigured(f"{path}: {problem}")
    profiles, methods = _texts(config["profiles"]), methods_from(config.get("methods"))
    namespaces = _texts(config.get("namespace"))
    names = _texts(config.get("name"))
    return Rule(
        requirement=Requirement(profiles or (), methods=methods, origin=f"RULES[{number}]"),
        path=re.compile(config["path"]) if "path" in config else None,
        names=None if names is None else frozenset(names),
        namespaces=None if namespaces is None else tuple(f"{name}:" for name in namespaces),
    )


def rule_problems(number: int, config: Any) -> Iterator[tuple[str, str]]:
    """Yield everything that is wrong with the dict of a rule, as (path, problem)."""
    path = f"{NAME}['RULES'][{number}]"
    if not isinstance(config, Mapping):
        yield path, f"must be a dict, not {type(config).__name__}."
        return
    for key in config:
        if key not in KEYS:
            yield f"{path}[{key!r}]", f"unknown key: {near(str(key), KEYS)}"
    if not config.get("profiles"):
        yield path, "needs the key profiles, with at least one name."
    for key in ("profiles", "methods", "name", "namespace"):
        if key in config and not _are_texts(config[key]) and (key != "profiles" or config[key]):
            yield f"{path}[{key!r}]", "must be a string or a list of strings."
    if _are_texts(config.get("methods")):
        try:
            methods_from(config["methods"])
        except ValueError as error:
            yield f"{path}['methods']", f"{error}."
    try:
        # A pattern of bytes can be compiled, but not searched in a path.
        re.compile(config.get("path", "")).search("")
    except (re.error, OverflowError, TypeError) as error:
        yield f"{path}['path']", f"is not a valid regular expression: {error}."


def _texts(value: str | Iterable[str] | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    return (value,) if isinstance(value, str) else tuple(value)


def _are_texts(value: Any) -> bool:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, (list, tuple, set, frozenset)):
        return False
    return bool(values) and all(isinstance(item, str) and item for item in values)


on_change(rules.cache_clear)
