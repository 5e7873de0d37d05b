"""The windows of a check: their keys, and the rule that applies to each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ..algorithms.timing import EXACT
from ..policies import LOG_ALL, OBSERVE, Policy, Profile
from ..stores.protocol import WindowRule, WindowRules
from .caching import BoundedCache
from .keys import escape, is_plain, key_ends, suffix

if TYPE_CHECKING:
    from ..decisions import Decision

# Most projects have one for each profile.
MAX_TEMPLATES = 4096
# Makes a named tuple without its Python constructor (`python -m benchmarks library`).
_new_tuple = tuple.__new__


class ProfileCheck(NamedTuple):
    """A profile, the identifier to count, and the cost."""

    profile: Profile
    identifier: str
    policies: tuple[Policy, ...]
    """The profile's policies for this identifier; empty for no limit."""
    cost: int = 1


Logged: TypeAlias = "tuple[Profile, int | None]"
"""A profile whose admitted requests are logged, and the position of its first window; None if it
has no window."""


def logged(profile: Profile, position: int | None) -> tuple[Logged, ...]:
    """Return the profile with the position of its first window, if its admissions are logged."""
    return ((profile, position),) if profile.log == LOG_ALL else ()


class WindowTemplate:
    """The part of a set of windows that does not depend on the identifier.

    Each template is made once and compared by identity, which is fast.
    """

    __slots__ = (
        "before",
        "decide",
        "deferred",
        "ending",
        "endings",
        "exact",
        "inflight",
        "joined",
        "leased",
        "logged",
        "may_share",
        "name",
        "named",
        "observes",
        "parts",
        "penalties",
        "plain",
        "profiles",
        "rules",
        "shares",
        "shown",
        "single",
    )

    def __init__(
        self,
        rules: tuple[WindowRule, ...],
        profiles: tuple[Profile, ...],
        *,
        name: str,
        before: str = "",
        endings: tuple[str, ...] = (),
        joined: bool = False,
        may_share: bool = False,
        shares: bool = False,
        deferred: tuple[int, ...] | None = None,
        decide: Callable[[], Decision] | None = None,
        logged: tuple[Logged, ...] = (),
    ) -> None:
        """A key is `before`, the identifier, and one of the `endings`.

        `name` is the name of the first profile. `joined`: the windows belong to several profiles,
        so the keys may be in several cluster slots. `may_share`: two windows may have the same key.
        `shares`: two windows have the same key, so nothing is leased. `deferred` has the positions
        of windows that are charged after the decision; None for those of deferred profiles.
        `decide` makes the decision of a template without windows; None means no limit. `logged`:
        profiles whose admitted requests are logged.
        """
        self.rules = WindowRules(rules)
        self.profiles = profiles
        # The profile and policy that a decision about a window names.
        self.named = [
            (profile.name, rule.policy) for profile, rule in zip(profiles, rules, strict=True)
        ]
        self.name = name
        self.before = before
        self.endings = endings
        # The ending of the only window, which is all that most profiles have.
        self.ending = endings[0] if len(endings) == 1 else None
        self.joined = joined
        self.may_share = may_share
        self.shares = shares
        self.decide = decide
        self.logged = logged
        # The positions of windows from which units are leased.
        self.leased: tuple[int, ...] = ()
        if not shares and len(set(endings)) == len(endings):
            self.leased = tuple(
                [i for i, rule in enumerate(rules) if rule.policy.lease >= rule.cost > 0]
            )
        # The positions of windows that are charged after the decision.
        if deferred is None:
            deferred = tuple([i for i, profile in enumerate(profiles) if profile.deferred])
        self.deferred = deferred
        # The positions of penalties, and of the other windows, which decisions show.
        self.penalties = tuple([i for i, rule in enumerate(rules) if rule.watches])
        self.shown = tuple([i for i, rule in enumerate(rules) if not rule.watches])
        # Whether it takes slots of requests in flight, which have to be given back.
        self.inflight = any(rule.policy.inflight and rule.cost for rule in rules)
        # Whether a check is one plain call to the store, as most checks are.
        self.plain = bool(rules) and not (
            joined or self.leased or self.deferred or self.penalties or self.inflight
        )
        # Templates of some of the windows, by their positions.
        self.parts: dict[tuple[int, ...], WindowTemplate] = {}
        self.observes = any(rule.observed for rule in rules)
        # Whether there is one window, which is enforced: then the decision says everything.
        self.single = len(rules) == 1 and not self.observes
        # Whether a refusal is certain to hold until its `retry_after`.
        self.exact = not self.observes and not any(
            rule.count_rejected or rule.policy.algorithm not in EXACT
            for rule in rules
            if not rule.watches
        )

    def windows(self, identifier: str) -> WindowSet:
        """Return the windows of an identifier."""
        if is_plain(identifier) is None:
            identifier = escape(identifier)
        ending = self.ending
        if ending is not None:
            return _new_tuple(WindowSet, (self, (f"{self.before}{identifier}{ending}",)))
        stem = self.before + identifier
        return WindowSet(self, tuple([stem + ending for ending in self.endings]))

    def part(self, positions: Sequence[int]) -> WindowTemplate:
        """Return the template of the windows at these positions."""
        rules, profiles, key = self.rules, self.profiles, tuple(positions)
        found = self.parts.get(key)
        if found is None:
            found = self.parts[key] = WindowTemplate(
                tuple([rules[i] for i in key]),
                tuple([profiles[i] for i in key]),
                name=self.name,
                joined=self.joined,
                shares=self.shares,
                deferred=tuple([at for at, i in enumerate(key) if i in self.deferred]),
            )
        return found

    def with_costs(self, costs: Sequence[int]) -> WindowTemplate:
        """Return the template of the same windows with other costs, for a peek."""
        return WindowTemplate(
            tuple([rule._replace(cost=cost) for rule, cost in zip(self.rules, costs, strict=True)]),
            self.profiles,
            name=self.name,
            joined=self.joined,
        )


class WindowSet(NamedTuple):
    """The windows of a check."""

    template: WindowTemplate
    keys: tuple[str, ...]

    def part(self, positions: Sequence[int]) -> WindowSet:
        """Return the windows at these positions."""
        return WindowSet(self.template.part(positions), tuple(self.keys[i] for i in positions))


class WindowCache:
    """Makes each template once. All keys have the same prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        # By the ids of profile and policies, and the cost. The values keep both alive, so that no
        # other object can get the same id.
        self._templates: BoundedCache[
            tuple[int, int, int], tuple[Profile, tuple[Policy, ...], WindowTemplate]
        ] = BoundedCache(MAX_TEMPLATES)
        self._joined: BoundedCache[tuple[WindowTemplate, ...], WindowTemplate] = BoundedCache(
            MAX_TEMPLATES
        )

    def windows(self, checks: Sequence[ProfileCheck]) -> WindowSet:
        """Return the windows of several profiles, each with its identifier."""
        return self.join(
            [
                self.template(profile, policies, cost).windows(identifier)
                for profile, identifier, policies, cost in checks
            ]
        )

    def template(self, profile: Profile, policies: tuple[Policy, ...], cost: int) -> WindowTemplate:
        """Return the template of one profile's windows."""
        key = id(profile), id(policies), cost
        found = self._templates.get(key)
        if found is None:
            template = _template(self._prefix, profile, policies, cost)
            found = self._templates.keep(key, (profile, policies, template))
        return found[2]

    def join(self, sets: Sequence[WindowSet]) -> WindowSet:
        """Return several sets of windows as one."""
        if len(sets) == 1:
            return sets[0]
        templates = tuple([windows.template for windows in sets])
        keys = tuple([key for windows in sets for key in windows.keys])
        joined = self._joined.get(templates)
        if joined is None:
            joined = self._joined.keep(templates, _join(templates))
        if joined.may_share and len(set(keys)) < len(keys):
            joined = _with_shared_costs(joined, tuple([keys.index(key) for key in keys]))
        return WindowSet(joined, keys)


@lru_cache(maxsize=MAX_TEMPLATES)
def _template(
    prefix: str, profile: Profile, policies: tuple[Policy, ...], cost: int
) -> WindowTemplate:
    before, after = key_ends(prefix, profile.axis, profile.scope)
    observed = profile.mode == OBSERVE
    rules = [WindowRule(policy, cost, observed, profile.count_rejected) for policy in policies]
    if profile.penalty is not None and policies:
        rules.append(WindowRule(profile.penalty, cost, observed, watches=len(policies)))
    return WindowTemplate(
        tuple(rules),
        (profile,) * len(rules),
        name=profile.name,
        before=before,
        endings=tuple(after + suffix(rule.policy) for rule in rules),
        logged=logged(profile, 0 if policies else None),
    )


def _join(templates: tuple[WindowTemplate, ...]) -> WindowTemplate:
    ends = [(template.before, ending) for template in templates for ending in template.endings]
    found: list[Logged] = []
    first = 0
    for template in templates:
        found += [(profile, None if at is None else first + at) for profile, at in template.logged]
        first += len(template.rules)
    return WindowTemplate(
        tuple(rule for template in templates for rule in template.rules),
        tuple(profile for template in templates for profile in template.profiles),
        name=templates[0].name if templates else "",
        joined=True,
        may_share=len(set(ends)) < len(ends),
        decide=next((template.decide for template in templates if template.decide), None),
        logged=tuple(found),
    )


@lru_cache(maxsize=MAX_TEMPLATES)
def _with_shared_costs(template: WindowTemplate, firsts: tuple[int, ...]) -> WindowTemplate:
    """Return a template in which windows with the same key have the same cost: the highest.

    Such windows share their hits. If one of them is charged at once, all of them are. `firsts` has,
    for each window, the position of the first one with its key.
    """
    most: dict[int, int] = {}
    for first, rule in zip(firsts, template.rules, strict=True):
        most[first] = max(most.get(first, 0), rule.cost)
    at_once = {first for i, first in enumerate(firsts) if i not in template.deferred}
    return WindowTemplate(
        tuple(
            rule._replace(cost=most[first])
            for first, rule in zip(firsts, template.rules, strict=True)
        ),
        template.profiles,
        name=template.name,
        joined=True,
        shares=True,
        deferred=tuple([i for i in template.deferred if firsts[i] not in at_once]),
        logged=template.logged,
    )
