"""What responses tell of limits: the one place that writes the rate-limit fields.

`draft` is draft-ietf-httpapi-ratelimit-headers-11, in structured fields (RFC 9651);
`legacy` is what drafts 00 to 06 had; `x` is the older habit. Seconds are rounded up,
so a client that waits as long as it is told gets in.
"""

from __future__ import annotations

import base64
import hmac
import math
import operator
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias
from urllib.parse import quote

from django.http.response import HttpResponseBase

from .conf import conf
from .decisions import Decision, Verdict
from .policies import Policy

STYLES = ("draft", "legacy", "x")

_SINGLE = {
    style: tuple(f"{prefix}{what}" for what in ("Limit", "Remaining", "Reset"))
    for style, prefix in (("legacy", "RateLimit-"), ("x", "X-RateLimit-"))
}
# What a structured-field string may hold, but for "%", which escapes the rest.
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_WRITTEN = "_rate_limit_fields"
_PARTITION_KEY_BYTES = 12

_NOTHING: tuple[None, dict[str, str]] = (None, {})

_Line: TypeAlias = "tuple[str, Policy, int]"


def apply(response: HttpResponseBase, decisions: Sequence[Decision]) -> None:
    """Adds the fields of a request's decisions; those that the view has set itself stay."""
    told, before = getattr(response, _WRITTEN, _NOTHING)
    if told == decisions:
        # By the decorator, and nothing was decided since.
        return
    fields = field_values(decisions)
    stored = _stored(response)
    for name, value in tuple(fields.items()):
        key = name.lower()
        known = stored.get(key)
        if known is None or known[1] == before.get(name):
            stored[key] = name, value
        else:
            del fields[name]
    setattr(response, _WRITTEN, (decisions, fields))


def add(response: HttpResponseBase, name: str, value: str) -> None:
    """Adds a field of plain ASCII, unless the response has it."""
    _stored(response).setdefault(name.lower(), (name, value))


def _stored(response: HttpResponseBase) -> dict[str, tuple[str, str]]:
    """Where Django keeps the fields by their names in lower case.

    Its own way there encodes each name and each value to see whether it may, which takes
    longer than all the rest that is done for a response here; ours are plain ASCII.
    """
    stored: dict[str, tuple[str, str]] = response.headers._store
    return stored


def field_values(decisions: Iterable[Decision]) -> dict[str, str]:
    """The fields by name; none where no limit was applied or the setting HEADERS is empty."""
    fields: dict[str, str] = {}
    # What an observing profile says is no business of the client's.
    verdicts = [v for decision in decisions for v in decision.verdicts if not v.observed]
    if not verdicts:
        return fields
    for style in conf.headers:
        if style == "draft":
            told = _told(tuple([(v.profile, v.policy, v.limit) for v in verdicts]))
            fields["RateLimit-Policy"] = told.field
            fields["RateLimit"] = ", ".join(map(_left, told.quoted, verdicts))
            if conf.headers_partition_key:
                _add_partition_keys(fields, told, verdicts)
        elif style in _SINGLE:
            limit, remaining, reset = _SINGLE[style]
            verdict = verdicts[0] if len(verdicts) == 1 else _tightest(verdicts)
            seconds = _seconds(verdict)
            fields[limit] = str(verdict.limit)
            fields[remaining] = str(verdict.remaining)
            if seconds is not None:
                fields[reset] = str(seconds)
    return fields


def retry_after(decision: Decision) -> int | None:
    """Whole seconds to wait after a refusal; None where waiting cannot help."""
    if decision.allowed or decision.retry_after is None:
        return None
    return max(1, math.ceil(decision.retry_after))


def violated(decision: Decision) -> list[str]:
    """The policies that refused, named as in the fields."""
    verdicts = [verdict for verdict in decision.verdicts if not verdict.observed]
    names = _told(tuple([(v.profile, v.policy, v.limit) for v in verdicts])).names
    return [name for name, verdict in zip(names, verdicts, strict=True) if not verdict.allowed]


def _seconds(verdict: Verdict) -> int | None:
    """When the quota grows, or after a refusal suffices; None for never."""
    if verdict.allowed:
        return math.ceil(verdict.reset_after)
    return None if verdict.retry_after is None else max(1, math.ceil(verdict.retry_after))


def _left(name: str, verdict: Verdict) -> str:
    """What is left of a policy."""
    seconds = _seconds(verdict)
    if seconds is None:
        return f"{name};r={verdict.remaining}"
    return f"{name};r={verdict.remaining};t={seconds}"


def _add_partition_keys(fields: dict[str, str], told: _Told, verdicts: list[Verdict]) -> None:
    keys = [f";pk=:{_partition_key(verdict.key)}:" for verdict in verdicts]
    fields["RateLimit-Policy"] = ", ".join(map(operator.add, told.policies, keys))
    left = map(_left, told.quoted, verdicts)
    fields["RateLimit"] = ", ".join(map(operator.add, left, keys))


class _Told(NamedTuple):
    """What is said of some policies, whatever is left of them."""

    names: tuple[str, ...]
    quoted: tuple[str, ...]
    policies: tuple[str, ...]
    field: str


@lru_cache(maxsize=1024)
def _told(lines: tuple[_Line, ...]) -> _Told:
    """It rarely changes from one response to the next."""
    counts = Counter(profile for profile, _, _ in lines)
    names: dict[str, str] = {}
    policies = []
    for profile, policy, limit in lines:
        name = profile if counts[profile] == 1 else f"{profile}:{policy.window_text}s"
        number = 1
        unique = name
        while unique in names:
            number += 1
            unique = f"{name}:{number}"
        names[unique] = _quoted(unique)
        window = f";w={policy.window:.0f}" if policy.window.is_integer() else ""
        policies.append(f"{names[unique]};q={limit}{window}")
    return _Told(tuple(names), tuple(names.values()), tuple(policies), ", ".join(policies))


def _quoted(name: str) -> str:
    """The name as a structured-field string, which is ASCII."""
    text = quote(name, safe=_PRINTABLE, errors="surrogatepass")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _partition_key(key: str) -> str:
    """A keyed hash of whom the window counts, never the identifier itself."""
    whom = key.partition("}")[0]
    digest = hmac.digest(conf.hash_key, f"pk:{whom}".encode(), "sha256")
    return base64.b64encode(digest[:_PARTITION_KEY_BYTES]).decode()


def _tightest(verdicts: list[Verdict]) -> Verdict:
    """The refusal that lasts longest, else the policy with the least remaining."""

    def rank(verdict: Verdict) -> tuple[bool, float, float]:
        if verdict.allowed:
            return True, verdict.remaining, -verdict.reset_after
        wait = math.inf if verdict.retry_after is None else verdict.retry_after
        return False, -wait, verdict.remaining

    return min(verdicts, key=rank)
