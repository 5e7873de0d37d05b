"""The middleware's rules: right in themselves, and naming what exists."""

from __future__ import annotations

from collections.abc import Iterator

from django.core.checks import CheckMessage
from django.urls import URLPattern, URLResolver, get_resolver

from ..conf import NAME
from ..registry import near
from ..rules import rule_problems
from . import catalog
from .project import Project, profiles_of


def check_rules(project: Project) -> Iterator[CheckMessage]:
    for number, config in enumerate(project.conf.rules):
        for path, problem in rule_problems(number, config):
            yield catalog.BAD_RULE(path=path, problem=problem)


def check_rule_profiles(project: Project) -> Iterator[CheckMessage]:
    for number, rule in project.rules():
        path = f"{NAME}['RULES'][{number}]['profiles']"
        for name in profiles_of(rule):
            if name not in project.configs:
                yield catalog.UNKNOWN_IN_RULE(
                    path=path, name=name, near=near(name, project.configs)
                )


def check_rule_views(project: Project) -> Iterator[CheckMessage]:
    rules = [(number, rule) for number, rule in project.rules() if rule.names or rule.namespaces]
    if not rules:
        return
    try:
        names = set(_view_names(get_resolver(), ()))
    except Exception:  # noqa: BLE001 -- Django itself tells of a URLconf that cannot be imported
        return
    namespaces = {name.rpartition(":")[0] for name in names}
    namespaces = {parent for name in namespaces for parent in _with_parents(name)}
    for number, rule in rules:
        for key, known, named in (
            ("name", names, rule.names or ()),
            ("namespace", namespaces, [name.rstrip(":") for name in rule.namespaces or ()]),
        ):
            path = f"{NAME}['RULES'][{number}][{key!r}]"
            for name in sorted(named):
                if name not in known:
                    yield catalog.UNKNOWN_URL(path=path, name=name, near=near(name, known))


def _view_names(resolver: URLResolver, namespaces: tuple[str, ...]) -> Iterator[str]:
    """The names of all views, with their namespaces; a view without a name has an empty one."""
    for pattern in resolver.url_patterns:
        if isinstance(pattern, URLResolver):
            inner = (*namespaces, pattern.namespace) if pattern.namespace else namespaces
            yield from _view_names(pattern, inner)
        elif isinstance(pattern, URLPattern):
            yield ":".join([*namespaces, pattern.name or ""])


def _with_parents(namespace: str) -> Iterator[str]:
    parts = namespace.split(":")
    yield from (":".join(parts[:end]) for end in range(1, len(parts) + 1))
