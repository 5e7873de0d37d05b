"""Turn refusals into rows of the rejection log: group them, count them, and fill the columns.

`usage_rows` does the same for admitted requests.
"""

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
from ..core.keys import is_shortened, parse_key
from ..decisions import BLOCK, OBSERVED_PENALTY, Decision, Verdict
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
    """The values shared by all refusals that are counted in one row."""

    minute: int
    """Minutes since the epoch."""
    profile: str
    policy: Policy | None
    key: str
    """The key of the window; empty if no window was checked."""
    view: str
    method: str
    reason: str
    source: str

    def overflow(self) -> Group:
        """Return the group that collects a profile's refusals beyond LOG_ROWS_PER_MINUTE."""
        return self._replace(policy=None, key="", view="", method="", reason=OVERFLOW, source="")

    def row(self, tally: Tally) -> Rejection:
        """Return the unsaved row."""
        axis, identifier, scope = self._identity()
        policy = self.policy
        # A block has no policy.
        override = BLOCK if self.reason == BLOCK else ""
        # Without the key: it may contain an identifier that the log must only store as a hash.
        group = self._replace(minute=0, key="")
        digest = digest_of((*ends_of(self.key), identifier, is_shortened(self.key), *group))
        return Rejection(
            minute=moment(self.minute * 60),
            digest=digest,
            profile=column(self.profile, "profile"),
            limit=None if policy is None else policy.limit,
            window=None if policy is None else policy.window,
            algorithm="" if policy is None else policy.algorithm,
            override=override if policy is None else policy.override,
            axis=column(axis, "axis"),
            identifier=identifier,
            scope=column(scope, "scope"),
            view=column(self.view, "view"),
            method=self.method,
            reason=self.reason,
            source=self.source,
            hits=tally.hits,
            first_at=moment(tally.first),
            last_at=moment(tally.last),
            retry_after=tally.retry_after,
            client=column(tally.client, "client"),
            user_agent=column(tally.user_agent, "user_agent"),
        )

    def _identity(self) -> tuple[str, str, str]:
        """Return axis, identifier and scope; empty where they are not known."""
        # The key's own prefix: the setting may have changed since the refusal.
        prefix = self.key.partition(":{")[0].rpartition(":")[0]
        parts = parse_key(self.key, prefix)
        if parts is not None:
            return parts.axis, logged_identifier(parts.identifier), parts.scope
        try:
            profile = registry.get(self.profile)
        except ImproperlyConfigured:
            return "", "", ""
        return profile.axis, "", profile.scope


@dataclass(slots=True)
class Tally:
    """The counts of a group. Timestamps are seconds since the epoch."""

    hits: int
    first: float
    last: float
    retry_after: float | None
    """The longest wait in seconds; None if waiting cannot help."""
    client: str = ""
    user_agent: str = ""

    def add(self, other: Tally) -> None:
        """Add another tally of the same group."""
        self.hits += other.hits
        self.first = min(self.first, other.first)
        if other.last >= self.last:
            self.last, self.client, self.user_agent = other.last, other.client, other.user_agent
        if self.retry_after is not None:
            longer = other.retry_after is None or other.retry_after > self.retry_after
            self.retry_after = other.retry_after if longer else self.retry_after


def refusals(request: Any, decision: Decision, now: float) -> list[tuple[Group, Tally]]:
    """Return what to log for a decision: its refusal, or each refusal in observe mode."""
    client, user_agent = _client(request) if conf.log_client and request is not None else ("", "")
    method = getattr(request, "method", None) or ""
    if method and method not in METHODS:
        # A client can invent methods, and each one would get its own rows.
        method = OTHER_METHOD
    # A refusal is one hit, even if several policies have refused.
    refused: Sequence[Decision | Verdict] = (decision,)
    if decision.allowed:
        refused = [
            verdict for verdict in decision.verdicts if verdict.observed and not verdict.allowed
        ]
    minute, view = int(now // 60), view_of(request)
    return [
        (
            Group(
                minute=minute,
                profile=one.profile,
                policy=one.policy,
                key=one.key,
                view=view,
                method=method,
                reason=_refusal_reason(decision, one),
                source=decision.source,
            ),
            Tally(1, now, now, one.retry_after, client, user_agent),
        )
        for one in refused
    ]


def _refusal_reason(decision: Decision, refused: Decision | Verdict) -> str:
    """Return why a decision, or one of its observed verdicts, is a refusal."""
    if isinstance(refused, Verdict) and refused.blocked:
        return OBSERVED_PENALTY
    return decision.reason


def view_of(request: Any) -> str:
    """Return the route of a request's view; empty if it has none."""
    match = getattr(request, "resolver_match", None)
    return "" if match is None else match.route or match.view_name or ""


def _client(request: Any) -> tuple[str, str]:
    """Return the address and the user agent of the client; empty if unknown."""
    try:
        address = str(client_address(request))
    except UnknownClientError:
        address = ""
    # Cut here, and not when the row is written: thousands of rows may wait in memory.
    return address, request.META.get("HTTP_USER_AGENT", "")[: _LENGTHS["user_agent"]]


def logged_identifier(identifier: str) -> str:
    """Return an identifier as the log stores it: printable and shortened, or hashed."""
    if conf.log_identifiers == "hash" and identifier:
        return keyed_hash(identifier)
    return column(identifier, "identifier")


def logged_spellings(text: str, canonical: str) -> list[str]:
    """Return how the log may store an identifier: as the text, or as requests with it are stored.

    `canonical` is the one spelling that requests have.
    """
    found = {logged_identifier(text), logged_identifier(canonical)}
    # No row has a NUL, and PostgreSQL raises an error for it.
    return sorted(found if "\0" in text else found | {text})


def column(text: str, name: str) -> str:
    """Return a text as a column of the log stores it: printable, and cut to the column's length."""
    return printable(text)[: _LENGTHS[name]]


def ends_of(key: str) -> tuple[str, str]:
    """Return the parts of a key, or of its beginning, before and after the identifier."""
    return key.partition("{")[0], key.rpartition("}")[2]


def digest_of(values: tuple[object, ...]) -> uuid.UUID:
    """Return a hash of the values that identify a row, except the minute."""
    # MariaDB only accepts UUIDs with a version.
    return uuid.UUID(bytes=blake2b(repr(values).encode(), digest_size=16).digest(), version=5)


def moment(stamp: float) -> datetime:
    """Return a Unix timestamp as the database expects it: aware with USE_TZ, otherwise naive."""
    found = datetime.fromtimestamp(stamp, datetime_timezone.utc)
    if timezone.is_naive(timezone.now()):
        return timezone.make_naive(found, timezone.get_default_timezone())
    return found


def stamp_of(time: datetime) -> float:
    """Return a time from the database as a Unix timestamp: the opposite of `moment`."""
    if timezone.is_naive(time):
        # Not `time.timestamp()` alone, which fails for the last day of the year 9999. Nor the
        # current time zone: the database does not follow the one that a view activates.
        time = timezone.make_aware(time, timezone.get_default_timezone())
    return time.timestamp()
