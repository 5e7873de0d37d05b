"""The windows that claims mean."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ..algorithms.timing import EXACT
from ..policies import OBSERVE, Policy, Profile
from ..stores.protocol import Line, Lines
from .caching import BoundedCache
from .claims import Claim
from .keys import escape, is_plain, key_ends, suffix

# Forms that are kept at most: as many as there are profiles, for most projects.
MAX_FORMS = 4096


class Form:
    """What is known of windows before it is known whose they are.

    It is made once and compared by identity, so that a check need not look at all
    that it is made of.
    """

    __slots__ = (
        "after",
        "afters",
        "alone",
        "before",
        "exact",
        "joined",
        "limits",
        "lines",
        "named",
        "profiles",
    )

    def __init__(
        self,
        lines: tuple[Line, ...],
        profiles: tuple[Profile, ...],
        before: str = "",
        afters: tuple[str, ...] = (),
    ) -> None:
        """Keys are `before`, the identifier, and one of `afters`."""
        self.lines = Lines(lines)
        self.profiles = profiles
        # What a decision of a window names.
        self.named = [
            (profile.name, line.policy) for profile, line in zip(profiles, lines, strict=True)
        ]
        self.before = before
        self.afters = afters
        # Of several claims, so that the keys may lie apart.
        self.joined = not afters
        # Where there is one window, as for most profiles.
        self.after = afters[0] if len(afters) == 1 else None
        # One window, which is enforced: its answer is all that there is to tell.
        self.alone = len(lines) == 1 and not lines[0].observed
        # None if some of them observe, or have no limit to take a share of.
        self.limits = (
            None
            if any(line.observed or not line.policy.limit for line in lines)
            else tuple([line.policy.limit for line in lines])
        )
        # Whether a refusal holds until its time, whatever else happens.
        self.exact = not any(
            line.observed or line.count_rejected or line.policy.algorithm not in EXACT
            for line in lines
        )

    def keys(self, identifier: str) -> tuple[str, ...]:
        stem = self.before + (identifier if is_plain(identifier) else escape(identifier))
        if self.after is not None:
            return (stem + self.after,)
        return tuple([stem + after for after in self.afters])

    def part(self, positions: Sequence[int]) -> Form:
        """The windows at these positions."""
        lines, profiles = self.lines, self.profiles
        return Form(tuple(lines[i] for i in positions), tuple(profiles[i] for i in positions))


class Plan(NamedTuple):
    """The windows that a check looks at."""

    form: Form
    keys: tuple[str, ...]

    def part(self, positions: Sequence[int]) -> Plan:
        """The windows at these positions."""
        return Plan(self.form.part(positions), tuple(self.keys[i] for i in positions))


class Planner:
    """Plans of claims, with one prefix for all keys."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        # By the ids of a profile and of its policies, which are kept so that the ids stay their
        # own, and by cost.
        self._forms: BoundedCache[
            tuple[int, int, int], tuple[Profile, tuple[Policy, ...], Form]
        ] = BoundedCache(MAX_FORMS)
        self._joined: BoundedCache[tuple[Form, ...], Form] = BoundedCache(MAX_FORMS)
        # Whether windows of these forms are surely not the same.
        self._apart: BoundedCache[tuple[Form, ...], bool] = BoundedCache(MAX_FORMS)

    def plan(self, claims: Sequence[Claim]) -> Plan:
        if len(claims) == 1:
            form = self.form(claims[0])
            return Plan(form, form.keys(claims[0].identifier))
        forms = tuple([self.form(claim) for claim in claims])
        found: list[str] = []
        for form, claim in zip(forms, claims, strict=True):
            found += form.keys(claim.identifier)
        keys = tuple(found)
        joined = self._join(forms)
        if len(set(keys)) < len(keys):
            joined = _with_shared_costs(joined, tuple([keys.index(key) for key in keys]))
        return Plan(joined, keys)

    def form(self, claim: Claim) -> Form:
        """What is known of a claim's windows, whoever makes it."""
        profile, _, policies, cost = claim
        key = id(profile), id(policies), cost
        found = self._forms.get(key)
        if found is None:
            form = _form(self._prefix, profile, policies, cost)
            found = self._forms.keep(key, (profile, policies, form))
        return found[2]

    def join(self, forms: tuple[Form, ...]) -> Form | None:
        """The form of windows that are looked at together.

        None where there are none, and where two may be the same, if whom they count is.
        """
        apart = self._apart.get(forms)
        if apart is None:
            ends = [(form.before, after) for form in forms for after in form.afters]
            apart = self._apart.keep(forms, 0 < len(ends) == len(set(ends)))
        if not apart:
            return None
        return forms[0] if len(forms) == 1 else self._join(forms)

    def _join(self, forms: tuple[Form, ...]) -> Form:
        found = self._joined.get(forms)
        if found is None:
            lines = tuple(line for form in forms for line in form.lines)
            profiles = tuple(profile for form in forms for profile in form.profiles)
            found = self._joined.keep(forms, Form(lines, profiles))
        return found


@lru_cache(maxsize=MAX_FORMS)
def _form(prefix: str, profile: Profile, policies: tuple[Policy, ...], cost: int) -> Form:
    before, after = key_ends(prefix, profile.axis, profile.scope)
    observed = profile.mode == OBSERVE
    return Form(
        tuple(Line(policy, cost, observed, profile.count_rejected) for policy in policies),
        (profile,) * len(policies),
        before,
        tuple(after + suffix(policy) for policy in policies),
    )


@lru_cache(maxsize=MAX_FORMS)
def _with_shared_costs(form: Form, firsts: tuple[int, ...]) -> Form:
    """Windows that share a key share their hits: a request costs them the most it asks.

    `firsts` has for each window the position of the first with the same key.
    """
    most: dict[int, int] = {}
    for first, line in zip(firsts, form.lines, strict=True):
        most[first] = max(most.get(first, 0), line.cost)
    return Form(
        tuple(
            line._replace(cost=most[first]) for first, line in zip(firsts, form.lines, strict=True)
        ),
        form.profiles,
    )
