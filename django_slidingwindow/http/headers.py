"""The rate-limit fields of responses. No other module writes them.

`draft` is draft-ietf-httpapi-ratelimit-headers-11, in structured fields (RFC 9651);
`legacy` is what drafts 00 to 06 had; `x` is the older habit. Seconds are rounded up,
so a client that waits that long gets in.

Fields are written where Django keeps them, by their names in lower case: its own way there
encodes each name and value to see whether it may, which takes longer than all the rest that is
done for a response here, and ours are plain ASCII.
"""

from __future__ import annotations

import base64
import hmac
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from ..conf import conf, on_change
from ..core.caching import BoundedCache
from ..core.ranking import strictest
from ..decisions import Decision, Verdict
from ..guard.state import STATE, RequestState
from ..policies import Policy
from .policy_names import describe, names_of

if TYPE_CHECKING:
    from ..core.windows import WindowTemplate

STYLES = ("draft", "legacy", "x")

_POLICY, _LEFT = "RateLimit-Policy", "RateLimit"
_POLICY_KEY, _LEFT_KEY = _POLICY.lower(), _LEFT.lower()
_PREFIXES = {"legacy": "RateLimit-", "x": "X-RateLimit-"}
_ENDS = ("Limit", "Remaining", "Reset")
_SHOWN = "_rate_limit_shown"
_PARTITION_KEY_BYTES = 12
_NO_STORE = "Cache-Control", "no-store"

_Fields: TypeAlias = "dict[str, tuple[str, str]]"
"""Names and values of fields, by the names in lower case: what Django keeps of a response."""


def client_seconds(outcome: Decision | Verdict) -> int | None:
    """Return the seconds that a client reads in Retry-After, `t` and Reset, rounded up.

    After a refusal: until a retry can pass, at least 1; None if none can, or if nobody knows when.
    Otherwise: until the oldest hit leaves the window.
    """
    if outcome.allowed:
        return math.ceil(outcome.reset_after)
    retry = outcome.retry_after
    if retry:
        return math.ceil(retry)
    return None if retry is None or waits_for_slot(outcome) else 1


def waits_for_slot(refusal: Decision | Verdict) -> bool:
    """Return whether a refused request can pass when a request in flight ends, at any time."""
    return refusal.retry_after == 0.0 and refusal.policy is not None and refusal.policy.inflight


def show(response: HttpResponseBase, request: HttpRequest) -> None:
    """Add the fields of what was decided about a request, if anything was.

    Those that the view has set itself stay.
    """
    state: RequestState | None = getattr(request, STATE, None)
    if state is None:
        return
    # In place what `decisions` does for most requests (`python -m benchmarks views`).
    only = state[0].decision
    decisions = (only,) if len(state) == 1 and only is not None else state.decisions
    shown = getattr(response, _SHOWN, None)
    if not decisions or shown == decisions:
        # By the decorator, and nothing was decided since.
        return
    fields = _fields(decisions)
    stored = response.headers._store
    if stored.keys().isdisjoint(fields):
        stored.update(fields)
    else:
        before = {} if shown is None else _fields(shown)
        for key, field in fields.items():
            if key not in stored or stored[key] == before.get(key):
                stored[key] = field
    response._rate_limit_shown = decisions  # type: ignore[attr-defined]


def refuse(response: HttpResponseBase, seconds: int | None) -> None:
    """Add what every refusal has: how long to wait, if that helps, and that nobody keeps it.

    What the response has of that stays.
    """
    stored = response.headers._store
    stored.setdefault("cache-control", _NO_STORE)
    if seconds is not None:
        stored.setdefault("retry-after", ("Retry-After", str(seconds)))


def field_values(decisions: Sequence[Decision]) -> dict[str, str]:
    """Return the fields by name; none where no limit was applied or HEADERS is empty."""
    return dict(_fields(decisions).values())


def _fields(decisions: Sequence[Decision]) -> _Fields:
    """Return the fields of decisions. Other responses may have the same: they are only read."""
    if len(decisions) == 1:
        # In less time, for most responses (`python -m benchmarks views`).
        decision = decisions[0]
        answer = decision.answer
        windows = answer[1]
        if windows is not None:
            template = windows.template
            prepared = _prepared.get(template) or _prepare(template)
            if type(prepared) is _Form:
                # Its limit may be this process's share.
                form = prepared if template.rules is answer[2] else _form(decision)
                return form.fields(decision)
            if type(prepared) is _Several and decision.allowed and template.rules is answer[2]:
                return _several_fields(prepared, decision, answer[3])
    # Clients do not see what an observing profile counts.
    verdicts = [v for decision in decisions for v in decision.verdicts if not v.observed]
    if not verdicts:
        return {}
    tightest: Decision | Verdict = decisions[0]
    if len(decisions) > 1:
        verdicts = _once(verdicts)
        tightest = strictest(verdicts)
    if tightest.policy is not None and tightest.policy.inflight:
        # The older fields have no unit, so they show rates alone.
        tightest = strictest([v for v in verdicts if not v.policy.inflight] or verdicts)
    form = _form(tightest)
    fields = form.fields(tightest)
    if form.quoted is not None and (form.keyed or len(verdicts) > 1):
        return fields | _draft_fields(verdicts, form.keyed)
    return fields


class _Form:
    """The fields of one policy, but for what is left of it."""

    __slots__ = ("fixed", "keyed", "older", "policy", "quoted", "timed")

    def __init__(self, profile: str, policy: Policy, limit: int) -> None:
        self.policy = policy
        self.timed = not policy.inflight
        """Whether anybody knows when something is left again."""
        self.keyed = conf.headers_partition_key
        """Whether the draft's fields have a hash of the identifier as well."""
        self.quoted: str | None = None
        """The name; None where the draft's fields are not wanted."""
        self.fixed: _Fields = {}
        self.older: list[tuple[str, str, str, str]] = []
        """The older fields for what is left, and for when: in lower case and as they are."""
        for style in conf.headers:
            if style == "draft":
                ((_, self.quoted, text),) = describe([(profile, policy, limit)])
                self.fixed[_POLICY_KEY] = _POLICY, text
            elif style in _PREFIXES and not policy.inflight:
                name, remaining, reset = (_PREFIXES[style] + end for end in _ENDS)
                self.fixed[name.lower()] = name, str(limit)
                self.older.append((remaining.lower(), remaining, reset.lower(), reset))

    def fields(self, outcome: Decision | Verdict) -> _Fields:
        """Return all of them, with what is left now. They are only read."""
        key = self, outcome.remaining, client_seconds(outcome)
        found = _kept.get(key)
        return _kept.keep(key, self._write(*key[1:])) if found is None else found

    def _write(self, remaining: int, seconds: int | None) -> _Fields:
        fields = self.fixed.copy()
        left, wait = str(remaining), None if seconds is None else str(seconds)
        if self.quoted is not None:
            timed = wait is not None and self.timed
            text = f"{self.quoted};r={left};t={wait}" if timed else f"{self.quoted};r={left}"
            fields[_LEFT_KEY] = _LEFT, text
        for key, name, reset_key, reset in self.older:
            fields[key] = name, left
            if wait is not None:
                fields[reset_key] = reset, wait
        return fields


# Many responses have the same number of hits and of seconds left, and in a flood of refusals nearly
# all of them. Each takes less than a kilobyte.
_kept: BoundedCache[tuple[_Form, int, int | None], _Fields] = BoundedCache(2_048)


# By the id of a policy, which is kept so that the id stays its own: to hash it takes longer.
_forms: BoundedCache[tuple[str, int, int], _Form] = BoundedCache(1_024)


def _form(outcome: Decision | Verdict) -> _Form:
    """Return the fields of a policy, made once: they rarely change between responses."""
    policy = outcome.policy
    assert policy is not None  # without a policy there are no fields
    key = outcome.profile, id(policy), outcome.limit
    found = _forms.get(key)
    if found is None:
        found = _forms.keep(key, _Form(outcome.profile, policy, outcome.limit))
    return found


class _Several(NamedTuple):
    """The draft's fields of several policies, but for what is left of them."""

    names: list[str]  # quoted
    described: tuple[str, str]
    """The field that describes the policies."""


_UNPREPARED = "the verdicts say what the fields are"
_prepared: BoundedCache[WindowTemplate, _Form | _Several | str] = BoundedCache(1_024)


def _prepare(template: WindowTemplate) -> _Form | _Several | str:
    policies = [(profile, policy, policy.limit) for profile, policy in template.named]
    mixed = len(policies) > 1 and any(policy.inflight for _, policy, _ in policies)
    if template.observes or conf.headers_partition_key or mixed:
        return _prepared.keep(template, _UNPREPARED)
    if len(policies) == 1:
        return _prepared.keep(template, _Form(*policies[0]))
    named = describe(policies)
    described = _POLICY, ", ".join([text for _, _, text in named])
    return _prepared.keep(template, _Several([quoted for _, quoted, _ in named], described))


def _several_fields(prepared: _Several, decision: Decision, reply: Sequence[int]) -> _Fields:
    """Return the fields of a decision that admits, by the store's reply."""
    form = _form(decision)
    fields = form.fields(decision)
    if form.quoted is None:
        return fields
    left = [
        f"{name};r={remaining};t={-(-reset // 1_000_000)}"
        for name, remaining, reset in zip(prepared.names, reply[3::4], reply[5::4], strict=True)
    ]
    return {**fields, _POLICY_KEY: prepared.described, _LEFT_KEY: (_LEFT, ", ".join(left))}


def violated(decision: Decision) -> list[str]:
    """Return the policies that refused, named as in the fields."""
    verdicts = [verdict for verdict in decision.verdicts if not verdict.observed]
    return [
        name
        for (name, _, _), verdict in zip(names_of(verdicts), verdicts, strict=True)
        if not verdict.allowed
    ]


def _draft_fields(verdicts: Sequence[Verdict], keyed: bool) -> _Fields:
    """Return what the policies are, and what is left of each."""
    policies: list[str] = []
    left: list[str] = []
    for (_, quoted, policy), verdict in zip(names_of(verdicts), verdicts, strict=True):
        key = f";pk=:{_partition_key(verdict.key)}:" if keyed else ""
        seconds = None if verdict.policy.inflight else client_seconds(verdict)
        wait = "" if seconds is None else f";t={seconds}"
        policies += [policy + key]
        left += [f"{quoted};r={verdict.remaining}{wait}{key}"]
    return {_POLICY_KEY: (_POLICY, ", ".join(policies)), _LEFT_KEY: (_LEFT, ", ".join(left))}


def _partition_key(key: str) -> str:
    """Return a keyed hash of the window's identifier, never the identifier itself."""
    owner = key.partition("}")[0]
    digest = hmac.digest(conf.hash_key, f"pk:{owner}".encode(), "sha256")
    return base64.b64encode(digest[:_PARTITION_KEY_BYTES]).decode()


def _once(verdicts: list[Verdict]) -> list[Verdict]:
    """Return one verdict for each policy: the tightest, where a request met a policy twice."""
    found: dict[tuple[str, Policy], Verdict] = {}
    for verdict in verdicts:
        policy = verdict.profile, verdict.policy
        found[policy] = strictest([found.get(policy, verdict), verdict])
    return [*found.values()]


on_change(_forms.clear)
on_change(_kept.clear)
on_change(_prepared.clear)
