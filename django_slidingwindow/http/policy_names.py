"""How the rate-limit fields name and describe policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias
from urllib.parse import quote

from ..core.caching import BoundedCache
from ..decisions import Verdict
from ..policies import Policy

Named: TypeAlias = "tuple[str, str, str]"
"""Of a policy its name, the name quoted, and the text that describes it."""

# What a structured-field string may hold, but for "%", which escapes the rest.
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")

# By the ids of policies, which are kept so that the ids stay their own: to hash them takes longer.
_known: BoundedCache[tuple[tuple[str, int, int], ...], tuple[list[Named], list[Policy]]]
_known = BoundedCache(1_024)


def names_of(verdicts: Sequence[Verdict]) -> list[Named]:
    """Return names and texts of policies, made once: they rarely change between responses."""
    key = tuple([(verdict.profile, id(verdict.policy), verdict.limit) for verdict in verdicts])
    found = _known.get(key)
    if found is None:
        named = describe([(verdict.profile, verdict.policy, verdict.limit) for verdict in verdicts])
        found = _known.keep(key, (named, [verdict.policy for verdict in verdicts]))
    return found[0]


def describe(policies: Sequence[tuple[str, Policy, int]]) -> list[Named]:
    """Return names and texts of policies, given their profiles and the applied limits."""
    counts = Counter(profile for profile, _, _ in policies)
    named: dict[str, Named] = {}
    for profile, policy, limit in policies:
        name = profile if counts[profile] == 1 else f"{profile}:{_ending(policy)}"
        number = 1
        unique = name
        while unique in named:
            number += 1
            unique = f"{name}:{number}"
        quoted = _quoted(unique)
        named[unique] = unique, quoted, f"{quoted};q={limit}{_unit(policy)}"
    return list(named.values())


def _ending(policy: Policy) -> str:
    """Return what tells a policy from the others of its profile."""
    return "inflight" if policy.inflight else f"{policy.window_text}s"


def _unit(policy: Policy) -> str:
    """Return the parameters that say what is counted. Requests in flight have no window."""
    if policy.inflight:
        return ';qu="concurrent-requests"'
    return f";w={policy.window:.0f}" if policy.window.is_integer() else ""


def _quoted(name: str) -> str:
    """Return the name as a structured-field string, which is ASCII."""
    text = quote(name, safe=_PRINTABLE, errors="surrogatepass")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
