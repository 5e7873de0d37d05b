"""Check that the rules of the middleware are valid and only name existing profiles and views."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from django.core.checks import CheckMessage

from ..conf import NAME
from ..guard.rules import rule_problems
from ..registry import near
from . import catalog
from .project import Project, profiles_of
from .views import view_names


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
    names = view_names()
    if names is None:
        return
    namespaces = {parent for name in names for parent in _namespaces(name)}
    for number, rule in rules:
        for key, existing, named in (
            ("name", names, rule.names or ()),
            ("namespace", namespaces, [name.rstrip(":") for name in rule.namespaces or ()]),
        ):
            path = f"{NAME}['RULES'][{number}][{key!r}]"
            for name in sorted(named):
                if name not in existing:
                    yield catalog.UNKNOWN_URL(path=path, name=name, near=near(name, existing))


def _namespaces(name: str) -> Iterator[str]:
    """Return the namespaces of a view: "a" and "a:b" for "a:b:index"."""
    namespace = name.rpartition(":")[0]
    return accumulate(namespace.split(":"), "{}:{}".format)
