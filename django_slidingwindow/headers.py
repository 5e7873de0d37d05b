"""What responses tell of limits: the one place that writes the rate-limit fields.

`draft` is draft-ietf-httpapi-ratelimit-headers-11, in structured fields (RFC 9651);
`legacy` is what drafts 00 to 06 had; `x` is the older habit. Seconds are rounded up,
so a client that waits as long as it is told gets in.
"""

from __future__ import annotations

import base64
import hmac
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TypeAlias
from urllib.parse import quote

from django.http.response import HttpResponseBase

from .conf import conf
from .decisions import Decision, Verdict
from .policies import Policy

STYLES = ("draft", "legacy", "x")

_PREFIXES = {"legacy": "RateLimit-", "x": "X-RateLimit-"}
# What a structured-field string may hold, but for "%", which escapes the rest.
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_WRITTEN = "_rate_limit_fields"
_PARTITION_KEY_BYTES = 12

_Line: TypeAlias = "tuple[str, Policy, int]"


def apply(response: HttpResponseBase, decisions: Sequence[Decision]) -> None:
    """Adds the fields of a request's decisions; those that the view has set itself stay."""
    fields = field_values(decisions)
    if not fields:
        return
    headers = response.headers
    # The decorator may have written what the middleware, which knows more, writes again.
    written: dict[str, str] = vars(response).setdefault(_WRITTEN, {})
    # Looked up once: Django raises and catches an error for each that is not there.
    present = {name.lower() for name in headers}
    for name, value in fields.items():
        if name.lower() not in present or headers[name] == written.get(name):
            headers[name] = written[name] = value


def field_values(decisions: Iterable[Decision]) -> dict[str, str]:
    """The fields by name; none where no limit was applied or the setting HEADERS is empty."""
    styles = conf.headers
    verdicts = _shown(decisions) if styles else []
    if not verdicts:
        return {}
    fields: dict[str, str] = {}
    for style in styles:
        if style == "draft":
            fields |= _draft_fields(verdicts)
        elif style in _PREFIXES:
            fields |= _single_fields(_PREFIXES[style], _tightest(verdicts))
    return fields


def retry_after(decision: Decision) -> int | None:
    """Whole seconds to wait after a refusal; None where waiting cannot help."""
    if decision.allowed or decision.retry_after is None:
        return None
    return max(1, math.ceil(decision.retry_after))


def violated(decision: Decision) -> list[str]:
    """The policies that refused, named as in the fields."""
    verdicts = _shown([decision])
    names, _ = _policy_field(_lines(verdicts))
    return [name for name, verdict in zip(names, verdicts, strict=True) if not verdict.allowed]


def _shown(decisions: Iterable[Decision]) -> list[Verdict]:
    """What an observing profile says is no business of the client's."""
    return [
        verdict for decision in decisions for verdict in decision.verdicts if not verdict.observed
    ]


def _lines(verdicts: list[Verdict]) -> tuple[_Line, ...]:
    return tuple((verdict.profile, verdict.policy, verdict.limit) for verdict in verdicts)


def _seconds(verdict: Verdict) -> int | None:
    """When the quota grows, or after a refusal suffices; None for never."""
    if verdict.allowed:
        return math.ceil(verdict.reset_after)
    return None if verdict.retry_after is None else max(1, math.ceil(verdict.retry_after))


def _draft_fields(verdicts: list[Verdict]) -> dict[str, str]:
    names, policies = _policy_field(_lines(verdicts))
    keys = [""] * len(verdicts)
    if conf.headers_partition_key:
        keys = [f";pk=:{_partition_key(verdict.key)}:" for verdict in verdicts]
    limits = []
    for name, verdict, key in zip(names, verdicts, keys, strict=True):
        seconds = _seconds(verdict)
        time = "" if seconds is None else f";t={seconds}"
        limits.append(f"{_quoted(name)};r={verdict.remaining}{time}{key}")
    return {
        "RateLimit-Policy": ", ".join(
            policy + key for policy, key in zip(policies, keys, strict=True)
        ),
        "RateLimit": ", ".join(limits),
    }


@lru_cache(maxsize=1024)
def _policy_field(lines: tuple[_Line, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Name and text of each policy; they rarely change from one response to the next."""
    counts = Counter(profile for profile, _, _ in lines)
    names: dict[str, None] = {}
    policies = []
    for profile, policy, limit in lines:
        name = profile if counts[profile] == 1 else f"{profile}:{policy.window_text}s"
        number = 1
        unique = name
        while unique in names:
            number += 1
            unique = f"{name}:{number}"
        names[unique] = None
        window = f";w={policy.window:.0f}" if policy.window.is_integer() else ""
        policies.append(f"{_quoted(unique)};q={limit}{window}")
    return tuple(names), tuple(policies)


@lru_cache(maxsize=1024)
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


def _single_fields(prefix: str, verdict: Verdict) -> dict[str, str]:
    fields = {
        f"{prefix}Limit": str(verdict.limit),
        f"{prefix}Remaining": str(verdict.remaining),
    }
    seconds = _seconds(verdict)
    if seconds is not None:
        fields[f"{prefix}Reset"] = str(seconds)
    return fields
