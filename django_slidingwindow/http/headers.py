"""Write the rate-limit fields of responses. No other module writes them.

`draft` is draft-ietf-httpapi-ratelimit-headers-11, in structured fields (RFC 9651); `legacy` has
the fields of drafts 00 to 06; `x` has the older `X-RateLimit-` fields. Seconds are rounded up, so
that a client that waits for that long is admitted.

Fields are written directly into Django's private dict of headers, whose keys are in lower case.
Django's public interface encodes each name and value to validate it. That takes longer than
everything else here, and is not needed: these fields are plain ASCII.
"""

from __future__ import annotations

import base64
import hmac
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..conf import conf, on_change
from ..core.caching import BoundedCache
from ..core.ranking import strictest
from ..decisions import Decision, Verdict
from ..guard.state import STATE, RequestState
from ..policies import Policy
from ..stores.protocol import Reply
from .policy_names import describe, names_of

if TYPE_CHECKING:
    from ..core.windows import WindowTemplate

STYLES = ("draft", "legacy", "x")

_POLICY, _REMAINING = "RateLimit-Policy", "RateLimit"
_POLICY_KEY, _REMAINING_KEY = _POLICY.lower(), _REMAINING.lower()
_PREFIXES = {"legacy": "RateLimit-", "x": "X-RateLimit-"}
_SUFFIXES = ("Limit", "Remaining", "Reset")
_PARTITION_KEY_BYTES = 12
_NO_STORE = "Cache-Control", "no-store"

_Fields: TypeAlias = "dict[str, tuple[str, str]]"
"""Pairs of name and value, by the name in lower case, as in Django's dict of headers."""


def client_seconds(outcome: Decision | Verdict) -> int | None:
    """Return the seconds for Retry-After, `t` and Reset, rounded up.

    For a refusal: until a retry can pass, at least 1; None if it never can, or if the time is
    unknown. For an admission: until the oldest hit leaves the window.
    """
    if outcome.allowed:
        return math.ceil(outcome.reset_after)
    retry = outcome.retry_after
    if retry:
        return math.ceil(retry)
    return None if retry is None or waits_for_slot(outcome) else 1


def waits_for_slot(refusal: Decision | Verdict) -> bool:
    """Whether a refused request can pass as soon as a request in flight ends."""
    return refusal.retry_after == 0.0 and refusal.policy is not None and refusal.policy.inflight


def show(response: HttpResponseBase, request: HttpRequest) -> None:
    """Add the fields of a request's decisions to its response.

    Fields that the view has set itself stay.
    """
    state: RequestState | None = getattr(request, STATE, None)
    if state is None:
        return
    # Inlined from `state.decisions` for most requests (`python -m benchmarks views`).
    only = state[0].decision
    decisions = (only,) if len(state) == 1 and only is not None else state.decisions
    if not decisions:
        return
    fields = _fields(decisions)
    stored = response.headers._store
    if stored.keys().isdisjoint(fields):
        stored.update(fields)
    elif not fields.items() <= stored.items():
        # A decorator inside may have added the fields of earlier decisions, or of the same ones
        # before a refund.
        earlier = [
            _fields(these[:count])
            for these in (decisions, *state.before_refunds)
            for count in range(1, len(these) + 1)
        ]
        for key, field in fields.items():
            if key not in stored or any(stored[key] == before.get(key) for before in earlier):
                stored[key] = field


def refuse(response: HttpResponseBase, seconds: int | None) -> None:
    """Add Cache-Control, and Retry-After if the seconds are known, to the response of a refusal.

    Fields that the response already has stay.
    """
    stored = response.headers._store
    stored.setdefault("cache-control", _NO_STORE)
    if seconds is not None:
        stored.setdefault("retry-after", ("Retry-After", str(seconds)))


def field_values(decisions: Sequence[Decision]) -> dict[str, str]:
    """Return the fields by name; none if no limit was applied or HEADERS is empty."""
    return dict(_fields(decisions).values())


def _fields(decisions: Sequence[Decision]) -> _Fields:
    """Return the fields of decisions. Other responses may share this dict: do not change it."""
    if len(decisions) == 1:
        decision = decisions[0]
        answer = decision.answer
        windows = answer.windows
        if windows is not None and windows.template.single:
            # Most responses. Many of them have the same fields; in a flood of refusals, nearly all.
            # The limit is part of the key, because the fallback applies a share of it.
            seconds = client_seconds(decision)
            key = windows.template, decision.limit, decision.remaining, seconds
            found = _single_window_fields.get(key)
            if found is None and not conf.headers_partition_key:
                fields = _policy_fields(decision).fields(decision.remaining, seconds)
                found = _single_window_fields.keep(key, fields)
            if found is not None:
                return found
        elif windows is not None and decision.allowed:
            several = _several_policies(windows.template)
            if several is not None and windows.template.rules is answer.rules and answer.fields:
                return _several_fields(several, decision, Reply(answer.fields))
    # Observing profiles are not shown to clients.
    verdicts = [v for decision in decisions for v in decision.verdicts if not v.observed]
    if not verdicts:
        return {}
    tightest: Decision | Verdict = decisions[0]
    if len(decisions) > 1:
        verdicts = _one_per_policy(verdicts)
        tightest = strictest(verdicts)
    if tightest.policy is not None and tightest.policy.inflight:
        # The older fields have no unit, so they show rates only.
        tightest = strictest([v for v in verdicts if not v.policy.inflight] or verdicts)
    policy_fields = _policy_fields(tightest)
    fields = policy_fields.fields(tightest.remaining, client_seconds(tightest))
    if policy_fields.quoted is not None and (conf.headers_partition_key or len(verdicts) > 1):
        fields |= _draft_fields(verdicts)
    return fields


# The fields of decisions about one window, by template, limit, remaining hits and seconds. An entry
# takes less than a kilobyte.
_single_window_fields: BoundedCache[tuple[WindowTemplate, int, int, int | None], _Fields]
_single_window_fields = BoundedCache(2_048)


class _PolicyFields:
    """The fields of one policy, without the remaining hits and seconds."""

    __slots__ = ("fixed", "older", "policy", "quoted", "timed")

    def __init__(self, profile: str, policy: Policy, limit: int) -> None:
        self.policy = policy
        self.timed = not policy.inflight
        """Whether the time of the next free hit is known."""
        self.quoted: str | None = None
        """The quoted name of the policy; None if HEADERS does not have "draft"."""
        self.fixed: _Fields = {}
        """The fields that are the same in all responses."""
        self.older: list[tuple[str, str, str, str]] = []
        """The names of the older fields for remaining and reset, each in lower case and as sent."""
        for style in conf.headers:
            if style == "draft":
                ((_, self.quoted, text),) = describe([(profile, policy, limit)])
                self.fixed[_POLICY_KEY] = _POLICY, text
            elif style in _PREFIXES and not policy.inflight:
                name, remaining, reset = (_PREFIXES[style] + end for end in _SUFFIXES)
                self.fixed[name.lower()] = name, str(limit)
                self.older.append((remaining.lower(), remaining, reset.lower(), reset))

    def fields(self, remaining: int, seconds: int | None) -> _Fields:
        """Return all fields, with the remaining hits and the `client_seconds`."""
        fields = self.fixed.copy()
        left, wait = str(remaining), None if seconds is None else str(seconds)
        if self.quoted is not None:
            timed = wait is not None and self.timed
            text = f"{self.quoted};r={left};t={wait}" if timed else f"{self.quoted};r={left}"
            fields[_REMAINING_KEY] = _REMAINING, text
        for key, name, reset_key, reset in self.older:
            fields[key] = name, left
            if wait is not None:
                fields[reset_key] = reset, wait
        return fields


# By profile, id of the policy (its hash takes longer) and limit. The value keeps the policy alive,
# so that the id is not reused.
_fields_of_policies: BoundedCache[tuple[str, int, int], _PolicyFields] = BoundedCache(1_024)


def _policy_fields(outcome: Decision | Verdict) -> _PolicyFields:
    """Return the fields of the policy of a decision or verdict. They are prepared once."""
    policy = outcome.policy
    assert policy is not None  # without a policy there are no fields
    key = outcome.profile, id(policy), outcome.limit
    found = _fields_of_policies.get(key)
    if found is None:
        prepared = _PolicyFields(outcome.profile, policy, outcome.limit)
        found = _fields_of_policies.keep(key, prepared)
    return found


class _SeveralPolicies(NamedTuple):
    """The draft's fields of several policies, without the remaining hits and seconds."""

    names: list[str]
    """The quoted names of the policies."""
    field: tuple[str, str]
    """Name and value of the field RateLimit-Policy."""


@lru_cache(maxsize=1_024)
def _several_policies(template: WindowTemplate) -> _SeveralPolicies | None:
    """Return the prepared fields of a template; None if they have to be made from the verdicts."""
    policies = [(profile, policy, policy.limit) for profile, policy in template.named]
    mixed = any(policy.inflight for _, policy, _ in policies)
    if template.observes or conf.headers_partition_key or mixed:
        return None
    named = describe(policies)
    field = _POLICY, ", ".join([text for _, _, text in named])
    return _SeveralPolicies([quoted for _, quoted, _ in named], field)


def _several_fields(several: _SeveralPolicies, decision: Decision, reply: Reply) -> _Fields:
    """Return the fields of an admission, with the numbers of the store's reply."""
    policy_fields = _policy_fields(decision)
    fields = policy_fields.fields(decision.remaining, client_seconds(decision))
    if policy_fields.quoted is not None:
        left = [
            f"{name};r={remaining};t={-(-reset // 1_000_000)}"
            for name, remaining, reset in zip(
                several.names, reply.remaining, reply.resets, strict=True
            )
        ]
        fields[_POLICY_KEY] = several.field
        fields[_REMAINING_KEY] = _REMAINING, ", ".join(left)
    return fields


def violated(decision: Decision) -> list[str]:
    """Return the names of the policies that refused, as in the fields."""
    verdicts = [verdict for verdict in decision.verdicts if not verdict.observed]
    return [
        name
        for (name, _, _), verdict in zip(names_of(verdicts), verdicts, strict=True)
        if not verdict.allowed
    ]


def _draft_fields(verdicts: Sequence[Verdict]) -> _Fields:
    """Return the fields of the draft for any verdicts."""
    keyed = conf.headers_partition_key
    policies: list[str] = []
    left: list[str] = []
    for (_, quoted, policy), verdict in zip(names_of(verdicts), verdicts, strict=True):
        key = f";pk=:{_partition_key(verdict.key)}:" if keyed else ""
        seconds = None if verdict.policy.inflight else client_seconds(verdict)
        wait = "" if seconds is None else f";t={seconds}"
        policies += [policy + key]
        left += [f"{quoted};r={verdict.remaining}{wait}{key}"]
    return {
        _POLICY_KEY: (_POLICY, ", ".join(policies)),
        _REMAINING_KEY: (_REMAINING, ", ".join(left)),
    }


def _partition_key(key: str) -> str:
    """Return a keyed hash of the window's identifier, never the identifier itself."""
    owner = key.partition("}")[0]
    digest = hmac.digest(conf.hash_key, f"pk:{owner}".encode(), "sha256")
    return base64.b64encode(digest[:_PARTITION_KEY_BYTES]).decode()


def _one_per_policy(verdicts: list[Verdict]) -> list[Verdict]:
    """Return one verdict for each policy: the strictest, if a request was checked twice."""
    found: dict[tuple[str, Policy], Verdict] = {}
    for verdict in verdicts:
        policy = verdict.profile, verdict.policy
        found[policy] = strictest([found.get(policy, verdict), verdict])
    return [*found.values()]


on_change(_fields_of_policies.clear)
on_change(_single_window_fields.clear)
on_change(_several_policies.cache_clear)
