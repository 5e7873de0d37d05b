"""Demands prepared for one limiter and one edition of the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from django.core.exceptions import ImproperlyConfigured

from ..core.claims import Claim
from ..policies import Profile
from ..registry import registry
from .exemptions import Exemptions, exemptions
from .identity import Find, finder
from .requirements import Demands

if TYPE_CHECKING:
    from ..core.limiter import Limiter
    from ..core.windows import Form

_Step: TypeAlias = "tuple[str, Find, Form]"
_Question: TypeAlias = "tuple[Profile, Find, int]"


class Binding:
    """What can be prepared for a set of demands before any request comes."""

    __slots__ = (
        "blocks",
        "edition",
        "exempt",
        "form",
        "limiter",
        "methods",
        "questions",
        "steps",
    )

    def __init__(
        self,
        limiter: Limiter,
        edition: object,
        *,
        blocks: bool = False,
        methods: frozenset[str] | None = None,
        exempt: Exemptions | None = None,
    ) -> None:
        self.limiter = limiter
        self.edition = edition  # of the registry
        self.blocks = blocks  # whether finding the identifiers or the limits may block
        self.methods = methods  # those that are counted; None for all
        self.exempt = exempt  # clients that are not counted, by address
        # For each profile: its name, how to find the identifier, and the form of its windows.
        self.steps: tuple[_Step, ...] = ()
        # Of all the windows together; None where functions say the limits.
        self.form: Form | None = None
        # Where functions say the limits: profile, how to find the identifier, cost.
        self.questions: tuple[_Question, ...] = ()


def bind(demands: Demands, limiter: Limiter) -> Binding:
    # Before the profiles are read: they may change meanwhile.
    edition = registry.edition
    unknown = Binding(limiter, edition)
    costs: dict[str, int] = {}
    exempt = exemptions()
    known = exempt is None or exempt.by_address
    methods = demands[0].methods
    for demand in demands:
        names, cost = demand.profiles, demand.cost
        if demand.methods != methods or not isinstance(names, tuple):
            return unknown
        for name in names:
            if isinstance(cost, int):
                costs[name] = max(cost, costs.get(name, 0))
            else:
                costs[name], known = 0, False
    if not known:
        return unknown
    questions: list[_Question] = []
    blocks = asks = False
    for name, units in costs.items():
        try:
            profile = registry.get(name)
            find, may_block = finder(profile.axis, profile.anonymous)
        except ImproperlyConfigured:
            # Who is exempt must not meet an error of the others' profiles.
            return unknown
        asks = asks or profile.limit_for is not None
        blocks = blocks or may_block or asks
        questions.append((profile, find, units))
    ready = Binding(limiter, edition, blocks=blocks, methods=methods, exempt=exempt)
    if asks:
        ready.questions = tuple(questions)
    else:
        ready.steps = tuple(
            (profile.name, find, limiter.form(Claim(profile, "", profile.policies, units)))
            for profile, find, units in questions
        )
        ready.form = limiter.join(tuple(form for _, _, form in ready.steps))
    return ready
