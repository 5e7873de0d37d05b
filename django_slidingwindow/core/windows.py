"""Which windows a check looks at: their keys, and what it asks of each."""

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

# As many as there are profiles, for most projects.
MAX_TEMPLATES = 4096
# Makes a named tuple without a call of its Python constructor, once per check.
_new_tuple = tuple.__new__


class ProfileCheck(NamedTuple):
    """What a request asks of one profile."""

    profile: Profile
    identifier: str
    policies: tuple[Policy, ...]
    """The profile's policies for this identifier; none means no limit."""
    cost: int = 1


Logged: TypeAlias = "tuple[Profile, int | None]"
"""A profile whose admitted requests are logged, and the position of its first window; None if no
policy counts the identifier."""


def logged(profile: Profile, position: int | None) -> tuple[Logged, ...]:
    """Return the profile and its position if its admitted requests are logged."""
    return ((profile, position),) if profile.log == LOG_ALL else ()


class WindowTemplate:
    """Windows without the identifier that they belong to.

    It is made once and compared by identity, so that a check need not look at all that it is
    made of.
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
        decide: Callable[[], Decision] | None = None,
        logged: tuple[Logged, ...] = (),
    ) -> None:
        """A key is `before`, the identifier, and one of the `endings`.

        `name` is that of the first profile. `joined`: of several profiles, so that the keys may
        lie apart in a cluster. `may_share`: two of the windows may have the same key. `shares`:
        two of them have, so that nothing is taken ahead. `decide` makes the decision of a template
        without windows; None for one without a limit. `logged`: profiles whose admitted requests
        are logged.
        """
        self.rules = WindowRules(rules)
        self.profiles = profiles
        # What the decision about a window names.
        self.named = [
            (profile.name, rule.policy) for profile, rule in zip(profiles, rules, strict=True)
        ]
        self.name = name
        self.before = before
        self.endings = endings
        # The only one, as most profiles have.
        self.ending = endings[0] if len(endings) == 1 else None
        self.joined = joined
        self.may_share = may_share
        self.decide = decide
        self.logged = logged
        # The positions of windows from which units are taken ahead.
        self.leased: tuple[int, ...] = ()
        if not shares and len(set(endings)) == len(endings):
            self.leased = tuple(
                [i for i, rule in enumerate(rules) if rule.policy.lease >= rule.cost > 0]
            )
        # The positions of windows that are charged after the request was decided.
        self.deferred = tuple([i for i, profile in enumerate(profiles) if profile.deferred])
        # The positions of penalties, and of the other windows, which a decision is about.
        self.penalties = tuple([i for i, rule in enumerate(rules) if rule.watches])
        self.shown = tuple([i for i, rule in enumerate(rules) if not rule.watches])
        # Whether it takes slots, which have to be given back.
        self.inflight = any(rule.policy.inflight and rule.cost for rule in rules)
        # One profile's windows, as most checks look at: one call of the store holds them.
        self.plain = bool(rules) and not (
            joined or self.leased or self.deferred or self.penalties or self.inflight
        )
        # Templates of some of the windows, by their positions.
        self.parts: dict[tuple[int, ...], WindowTemplate] = {}
        self.observes = any(rule.observed for rule in rules)
        # One window, which is enforced: the decision says all there is to say about it.
        self.single = len(rules) == 1 and not self.observes
        # Whether a refusal holds until its time, whatever else happens.
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
                tuple([rules[i] for i in key]), tuple([profiles[i] for i in key]), name=self.name
            )
        return found

    def with_costs(self, costs: Sequence[int]) -> WindowTemplate:
        """Return the template of the same windows at other costs, for a look at them."""
        return WindowTemplate(
            tuple([rule._replace(cost=cost) for rule, cost in zip(self.rules, costs, strict=True)]),
            self.profiles,
            name=self.name,
            joined=self.joined,
        )


class WindowSet(NamedTuple):
    """The windows that a check looks at."""

    template: WindowTemplate
    keys: tuple[str, ...]

    def part(self, positions: Sequence[int]) -> WindowSet:
        """Return the windows at these positions."""
        return WindowSet(self.template.part(positions), tuple(self.keys[i] for i in positions))


class WindowCache:
    """Makes templates, each once. All keys have one prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        # By the ids of a profile and of its policies, which are kept so that the ids stay their
        # own, and by cost.
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
    """Let windows with the same key cost the same: the most that one of them asks for.

    They share their hits. `firsts` has for each window the position of the first with its key.
    """
    most: dict[int, int] = {}
    for first, rule in zip(firsts, template.rules, strict=True):
        most[first] = max(most.get(first, 0), rule.cost)
    return WindowTemplate(
        tuple(
            rule._replace(cost=most[first])
            for first, rule in zip(firsts, template.rules, strict=True)
        ),
        template.profiles,
        name=template.name,
        joined=True,
        shares=True,
        logged=template.logged,
    )
