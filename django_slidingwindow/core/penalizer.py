"""Checks of profiles with a penalty.

A penalty also counts the refusals that the shield answers. The shield remembers them, and the next
call for the same identifier reports them to the store.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias

from ..decisions import Decision
from ..exceptions import StoreError
from ..stores.protocol import Evaluate, Reply, Store, WindowRule
from .health import Health, StoreCall
from .near_limit import NearLimit
from .outcomes import Outcomes
from .penalty_decisions import decide
from .shield import Shield
from .waiting_lines import Ask
from .windows import WindowSet

Flow: TypeAlias = "Generator[StoreCall | Ask, Any, Decision]"


class Penalizer:
    """Charges windows with penalties, and reports refusals that the shield answered."""

    def __init__(
        self, store: Store, outcomes: Outcomes, health: Health, shield: Shield, near: NearLimit
    ) -> None:
        self._store = store
        self._outcomes = outcomes
        self._health = health
        self._shield = shield
        self._near = near

    def charge(self, windows: WindowSet) -> Flow:
        """Charge windows and report refusals in one call."""
        template, keys = windows
        start, forgotten = self._outcomes.begin(), self._shield.forgotten
        rules = self._reporting(windows)
        try:
            reply: Reply = yield Evaluate(keys, rules, True)
        except BaseException as error:  # noqa: BLE001 -- raised again unless it is a StoreError
            return self._outcomes.unanswered(windows, error, start, keys[0])
        if self._near.listeners.receivers:
            self._near.charged(windows, reply)
        decision = decide(windows, template.rules, reply, self._store.source)
        return self._outcomes.answered(windows, decision, start, forgotten, keys[0])

    def report_before(self, windows: WindowSet) -> Flow | None:
        """Return a flow that reports refusals first and then charges; None if `charge` can do both.

        For checks that need several calls to the store.
        """
        template, keys = windows
        # The windows beside deferred ones are checked separately.
        if template.deferred or not self._shield.has_unreported(keys):
            return None
        apart = template.leased or (template.joined and self._store.groups(keys))
        return self._report(windows) if apart else None

    def _report(self, windows: WindowSet) -> Flow:
        start = self._outcomes.begin()
        for key, rule in zip(windows.keys, self._reporting(windows), strict=True):
            if rule.unreported:
                call = Evaluate((key,), (rule._replace(cost=0, watches=0),), True)
                try:
                    yield from self._health.look(self._store.node(key), call)
                except StoreError as error:
                    # The call may have run, so it is not sent again.
                    if error.outage:
                        # It may have used up the time of the check.
                        return self._outcomes.without_store(windows, start, error)
        decision: Decision = yield Ask(windows)
        return decision

    def _reporting(self, windows: WindowSet) -> tuple[WindowRule, ...]:
        """Take the refusals to report from the shield; return the rules that contain them."""
        template, keys = windows
        rules = template.rules
        if not self._shield.has_unreported(keys):
            return rules
        found = list(rules)
        for i in template.penalties:
            found[i] = rules[i]._replace(unreported=self._shield.take_unreported(keys[i]))
        return tuple(found)
