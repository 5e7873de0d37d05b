"""Checks of profiles with a penalty.

Refusals that the shield answers count as well. The shield keeps them, and they are sent with the
next call about their identifier.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias

from ..decisions import Decision
from ..exceptions import StoreError
from ..stores.protocol import Evaluate, Reply, Store, WindowRule
from .health import Asked, Health
from .outcomes import Outcomes
from .penalties import decide
from .shield import Shield
from .waiting import Ask
from .windows import WindowSet

Flow: TypeAlias = "Generator[Asked | Ask, Any, Decision]"


class Penalizer:
    """Charges windows with penalties, and reports the refusals that the shield has answered."""

    def __init__(self, store: Store, outcomes: Outcomes, health: Health, shield: Shield) -> None:
        self._store = store
        self._outcomes = outcomes
        self._health = health
        self._shield = shield

    def charge(self, windows: WindowSet) -> Flow:
        """Charge windows in one call, which reports as well."""
        template, keys = windows
        start, forgotten = self._outcomes.begin(), self._shield.forgotten
        rules = self._reporting(windows)
        try:
            reply: Reply = yield Evaluate(keys, rules, True)
        except BaseException as error:  # noqa: BLE001 -- raised again unless it is a StoreError
            return self._outcomes.unanswered(windows, error, start, keys[0])
        decision = decide(windows, template.rules, reply, self._store.source)
        return self._outcomes.answered(windows, decision, start, forgotten, keys[0])

    def report_before(self, windows: WindowSet) -> Flow | None:
        """Return a flow that reports in calls of its own, and then charges; None if it need not.

        For checks that take more than one call to the store.
        """
        template, keys = windows
        # What comes beside deferred windows is a check of its own.
        if template.deferred or not self._shield.has_unreported(keys):
            return None
        apart = template.leased or (template.joined and self._store.groups(keys))
        return self._report(windows) if apart else None

    def _report(self, windows: WindowSet) -> Flow:
        for key, rule in zip(windows.keys, self._reporting(windows), strict=True):
            if rule.unreported:
                call = Evaluate((key,), (rule._replace(cost=0, watches=0),), True)
                try:
                    yield from self._health.look(self._store.node(key), call)
                except StoreError:
                    # It may have run, so it is not sent again.
                    continue
        decision: Decision = yield Ask(windows)
        return decision

    def _reporting(self, windows: WindowSet) -> tuple[WindowRule, ...]:
        """Return the rules with what is to be reported, which is not kept any longer."""
        template, keys = windows
        rules = template.rules
        if not self._shield.has_unreported(keys):
            return rules
        found = list(rules)
        for i in template.penalties:
            found[i] = rules[i]._replace(unreported=self._shield.take_unreported(keys[i]))
        return tuple(found)
