"""From a refusal to a row of the log: what is counted together, and under which names."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from datetime import timezone as datetime_timezone
from hashlib import blake2b
from typing import Any, NamedTuple

from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from ..conf import conf
from ..core.keys import parse_key
from ..decisions import Decision, Verdict
from ..guard.identity import keyed_hash
from ..guard.proxies import UnknownClientError, client_address
from ..models import Rejection
from ..policies import Policy
from ..registry import registry
from .text import printable

METHODS = frozenset("GET HEAD POST PUT PATCH DELETE OPTIONS TRACE CONNECT".split())
OTHER_METHOD = "other"
OVERFLOW = "overflow"
"""The reason of the row that collects a profile's refusals beyond LOG_ROWS_PER_MINUTE."""
_LENGTHS = {field.name: field.max_length for field in Rejection._meta.concrete_fields}


class Group(NamedTuple):
    """Refusals that are counted together: one row."""

    minute: int
    """Minutes since the epoch."""
    profile: str
    policy: Policy | None
    key: str
    """Empty where no window was looked at."""
    view: str
    method: str
    reason: str
    source: str


@dataclass(slots=True)
class Tally:
    """What a group has seen. Time stamps in seconds since the epoch."""

    hits: int
    first: float
    last: float
    retry_after: float | None
    """The longest; None if waiting cannot help."""
    client: str = ""
    user_agent: str = ""

    def add(self, other: Tally) -> None:
        """Takes in what another has seen of the same group."""
        self.hits += other.hits
        self.first = min(self.first, other.first)
        if other.last >= self.last:
            self.last, self.client, self.user_agent = other.last, other.client, other.user_agent
        if self.retry_after is not None:
            longer = other.retry_after is None or other.retry_after > self.retry_after
            self.retry_after = other.retry_after if longer else self.retry_after


def refusals(request: Any, decision: Decision, now: float) -> list[tuple[Group, Tally]]:
    """What is logged of a decision: the policy that refused, or those that would have."""
    client, user_agent = _client(request) if conf.log_client else ("", "")
    match = getattr(request, "resolver_match", None)
    view = "" if match is None else match.route or match.view_name or ""
    method = getattr(request, "method", None) or ""
    if method not in METHODS and method:
        # A client may invent methods: each would be a row.
        method = OTHER_METHOD
    refused: Sequence[Decision | Verdict] = (decision,)
    if decision.allowed:
        refused = [
            verdict for verdict in decision.verdicts if verdict.observed and not verdict.allowed
        ]
    minute, reason, source = int(now // 60), decision.reason, decision.source
    # One refusal is one hit, though several policies may have refused.
    return [
        (
            Group(minute, told.profile, told.policy, told.key, view, method, reason, source),
            Tally(1, now, now, told.retry_after, client, user_agent),
        )
        for told in refused
    ]


def _client(request: Any) -> tuple[str, str]:
    try:
        address = str(client_address(request))
    except UnknownClientError:
        address = ""
    # Cut here and not when it is written: thousands of rows may wait.
    return address, request.META.get("HTTP_USER_AGENT", "")[: _LENGTHS["user_agent"]]


def overflow(group: Group) -> Group:
    """Return the group that collects what this minute has no more rows for, by profile."""
    return group._replace(policy=None, key="", view="", method="", reason=OVERFLOW, source="")


def row_of(group: Group, tally: Tally) -> Rejection:
    """The row, not saved, that stands for a group."""
    axis, identifier, scope = _whom(group)
    policy = group.policy
    return Rejection(
        minute=_moment(group.minute * 60),
        digest=_digest(group, axis, identifier, scope),
        profile=column(group.profile, "profile"),
        limit=None if policy is None else policy.limit,
        window=None if policy is None else policy.window,
        algorithm="" if policy is None else policy.algorithm,
        axis=column(axis, "axis"),
        identifier=identifier,
        scope=column(scope, "scope"),
        view=column(group.view, "view"),
        method=group.method,
        reason=group.reason,
        source=group.source,
        hits=tally.hits,
        first_at=_moment(tally.first),
        last_at=_moment(tally.last),
        retry_after=tally.retry_after,
        client=column(tally.client, "client"),
        user_agent=column(tally.user_agent, "user_agent"),
    )


def logged_identifier(identifier: str) -> str:
    """An identifier as the log holds it."""
    if conf.log_identifiers == "hash" and identifier:
        return keyed_hash(identifier)
    return column(identifier, "identifier")


def column(text: str, name: str) -> str:
    """Return the text as the log holds it in this column: printable, and cut to its length."""
    return printable(text)[: _LENGTHS[name]]


def _whom(group: Group) -> tuple[str, str, str]:
    parts = parse_key(group.key, conf.prefix)
    if parts is not None:
        return parts.axis, logged_identifier(parts.identifier), parts.scope
    try:
        profile = registry.get(group.profile)
    except ImproperlyConfigured:
        return "", "", ""
    return profile.axis, "", profile.scope


def _digest(group: Group, *whom: str) -> uuid.UUID:
    """Of what the row says of whom, not of the key: that may hold what is to be hashed."""
    text = repr((*whom, *group._replace(minute=0, key="")))
    # With a version: MariaDB takes no other.
    return uuid.UUID(bytes=blake2b(text.encode(), digest_size=16).digest(), version=5)


def _moment(stamp: float) -> datetime:
    """A time stamp as the project's databases want it: naive without USE_TZ."""
    moment = datetime.fromtimestamp(stamp, datetime_timezone.utc)
    if timezone.is_naive(timezone.now()):
        return timezone.make_naive(moment, timezone.get_default_timezone())
    return moment
