"""The checks of `manage.py check`, which need only the settings and the code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured

from ..conf import conf
from . import aliases, axes, catalog, edges, leases, penalties, profiles, rules, values
from .project import Project

DICT_CHECKS: tuple[Callable[[Mapping[str, Any]], Iterator[CheckMessage]], ...] = (
    values.check_keys,
    values.check_values,
    values.check_hash_key,
)
PROJECT_CHECKS: tuple[Callable[[Project], Iterator[CheckMessage]], ...] = (
    aliases.check_alias,
    profiles.check_profiles,
    profiles.check_limits,
    profiles.check_usages,
    profiles.check_choices,
    leases.check_leases,
    leases.check_shared_leases,
    penalties.check_penalties,
    penalties.check_shared_penalties,
    rules.check_rules,
    rules.check_rule_profiles,
    rules.check_rule_views,
    axes.check_axes,
    axes.check_resolvers,
    axes.check_sessions,
    axes.check_session_engine,
    axes.check_users,
    edges.check_proxies,
    edges.check_trust,
    edges.check_exemptions,
    edges.check_exempt_proxies,
    edges.check_response,
    edges.check_middleware_once,
    edges.check_rules_read,
    edges.check_async_operations,
)


def check_all() -> list[CheckMessage]:
    """Return the messages of all static checks."""
    try:
        user = conf.user
    except ImproperlyConfigured:
        return [catalog.NOT_A_DICT()]
    project = Project.read(user)
    messages = [message for check in DICT_CHECKS for message in check(user)]
    return messages + [message for check in PROJECT_CHECKS for message in check(project)]
