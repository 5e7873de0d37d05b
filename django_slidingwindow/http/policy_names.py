"""Name and describe policies for the rate-limit fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias
from urllib.parse import quote

from ..core.caching import BoundedCache
from ..decisions import Verdict
from ..policies import Policy

Named: TypeAlias = "tuple[str, str, str]"
"""The name of a policy, the quoted name, and the description that begins with the quoted name."""

# The characters of a structured-field string, without "%", which escapes all others.
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")

# By the ids of the policies, because their hashes take longer. The values keep the policies alive,
# so that no id is reused.
_descriptions: BoundedCache[tuple[tuple[str, int, int], ...], tuple[list[Named], list[Policy]]]
_descriptions = BoundedCache(1_024)


def names_of(verdicts: Sequence[Verdict]) -> list[Named]:
    """Do what `describe` does for the policies of verdicts, once for many responses."""
    key = tuple([(verdict.profile, id(verdict.policy), verdict.limit) for verdict in verdicts])
    found = _descriptions.get(key)
    if found is None:
        named = describe([(verdict.profile, verdict.policy, verdict.limit) for verdict in verdicts])
        found = _descriptions.keep(key, (named, [verdict.policy for verdict in verdicts]))
    return found[0]


def describe(policies: Sequence[tuple[str, Policy, int]]) -> list[Named]:
    """Return names and descriptions of policies, each given with its profile and applied limit."""
    counts = Counter(profile for profile, _, _ in policies)
    named: dict[str, Named] = {}
    for profile, policy, limit in policies:
        name = profile if counts[profile] == 1 else f"{profile}:{_suffix(policy)}"
        number = 1
        unique = name
        while unique in named:
            number += 1
            unique = f"{name}:{number}"
        quoted = _quoted(unique)
        named[unique] = unique, quoted, f"{quoted};q={limit}{_unit(policy)}"
    return list(named.values())


def _suffix(policy: Policy) -> str:
    """Return the end of a policy's name: it differs among the policies of a profile."""
    return "inflight" if policy.inflight else f"{policy.window_text}s"


def _unit(policy: Policy) -> str:
    """Return the parameters for the window, or for the unit of a limit on requests in flight."""
    if policy.inflight:
        return ';qu="concurrent-requests"'
    return f";w={policy.window:.0f}" if policy.window.is_integer() else ""


def _quoted(name: str) -> str:
    """Return the name as a structured-field string, which must be ASCII."""
    text = quote(name, safe=_PRINTABLE, errors="surrogatepass")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
