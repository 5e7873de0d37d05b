"""The expected replies of a store with penalties, by brute force: lists of refusals and blocks.

Written from the definition, not from the code. A request is a refusal if a window of its profile
refuses it. More than `limit` refusals within `window` are an offence: the refusals are deleted, and
the profile is blocked for a step. The n-th offence uses the n-th step, and further offences use the
last step. While a profile is blocked, its windows refuse all requests with a cost, store nothing
and count no refusal. All offences are deleted when the last block ended at least the last step and
one window ago.

Refusals that are reported later count at the time when they came, unless a block ended after that.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from django_slidingwindow.algorithms.penalties import Penalty
from django_slidingwindow.stores.protocol import Evaluate
from tests.support.oracle import Oracle

if TYPE_CHECKING:
    from collections.abc import Callable

    from django_slidingwindow.stores.protocol import Call, WindowRule


class History(NamedTuple):
    """The refusals and blocks of one identifier."""

    refusals: list[int]
    blocks: list[int]
    """When each block ends."""

    def seen(self, penalty: Penalty, now: int) -> History:
        """Return the history at `now`, with times capped if the clock has stepped back."""
        steps = penalty.steps_us
        blocks = [
            min(ends, now + steps[min(number, len(steps) - 1)])
            for number, ends in enumerate(self.blocks)
        ]
        if blocks and blocks[-1] + steps[-1] + penalty.window_us <= now:
            blocks = []
        refusals = [min(stamp, now) for stamp in self.refusals]
        return History([at for at in refusals if at + penalty.window_us > now], blocks)

    def ahead(self, penalty: Penalty, now: int) -> bool:
        """Whether the clock has stepped back behind a stored time."""
        seen = self.seen(penalty, now)
        return any(stamp > now for stamp in self.refusals) or (
            bool(seen.blocks) and seen.blocks[-1] < self.blocks[-1]
        )

    def more(self, penalty: Penalty, now: int, stamps: list[int]) -> History:
        """Return the history with further refusals, and with the block that they cause, if any."""
        refusals = sorted(self.refusals + stamps)
        if len(refusals) <= penalty.limit:
            return History(refusals, self.blocks)
        step = penalty.steps_us[min(len(self.blocks), len(penalty.steps) - 1)]
        return History([], [*self.blocks, now + step])

    def left(self, now: int) -> int:
        """Return how long the block still lasts."""
        return max(0, self.blocks[-1] - now) if self.blocks else 0


class PenaltyOracle(Oracle):
    """An oracle whose rules may be penalties. Windows with penalties must not share keys."""

    def __init__(self, clock: Callable[[], int], *, exact: bool) -> None:
        super().__init__(clock, exact=exact)
        self.histories: dict[str, History] = {}

    def run(self, call: Call) -> list[int]:
        if isinstance(call, Evaluate):
            return self.evaluate(call)
        assert not hasattr(call, "charges")
        gone = sum(self.histories.pop(key, None) is not None for key in call.keys)
        return [super().run(call)[0] + gone]

    def evaluate(self, call: Evaluate) -> list[int]:
        now = self.clock()
        found: dict[int, History] = {}
        before: dict[int, History] = {}
        changed: set[int] = set()
        over: dict[int, int] = {}
        for i, (key, rule) in enumerate(zip(call.keys, call.rules, strict=True)):
            if isinstance(rule.policy, Penalty):
                stored = self.histories.get(key, History([], []))
                found[i] = before[i] = stored.seen(rule.policy, now)
                if stored.ahead(rule.policy, now):
                    changed.add(i)
                found[i] = self.reported(found[i], rule, now)
                over |= dict.fromkeys(range(i - rule.watches, i), i)
        blocked = {j for j, i in over.items() if found[i].left(now) and call.rules[j].cost}
        windows = [i for i in range(len(call.keys)) if i not in found]
        full = {
            i: call.rules[i].cost > 0
            and call.rules[i].cost + self.count(call.rules[i].policy, self.seen(call, i), now)
            > call.rules[i].policy.limit
            for i in windows
        }
        for i, history in found.items():
            if not history.left(now) and any(over.get(j) == i and full[j] for j in windows):
                found[i] = history.more(_penalty(call.rules[i]), now, [now])
        rows = self.windows_without_penalties(call, windows, blocked)
        for j, i in over.items():
            left = found[i].left(now)
            if j in blocked:
                retry = self.retry(call.rules[j], self.seen(call, j), now) if full[j] else 0
            else:
                retry = rows[j][2]
            enforced = call.rules[j].cost > 0 and not call.rules[j].observed
            if left and (j in blocked or full[j] or enforced):
                rows[j] = [0, 0, retry if retry < 0 else max(retry, left), rows[j][3]]
        for i, history in found.items():
            rows[i] = self.row(_penalty(call.rules[i]), history, now)
            # Expired times stay stored until the next write, and count if the clock steps back.
            if call.writes and (i in changed or history != before[i]):
                self.histories[call.keys[i]] = history
        # A window in observe mode is charged by the request that starts a block, if it has room.
        admitted = all(rows[i][0] or call.rules[i].observed for i in windows)
        return [int(admitted), now, *[field for i in sorted(rows) for field in rows[i]]]

    def reported(self, history: History, rule: WindowRule, now: int) -> History:
        penalty = _penalty(rule)
        if history.left(now):
            return history
        last = history.blocks[-1] if history.blocks else 0
        stamps = [now - age for age in rule.unreported]
        late = [at for at in stamps if at >= last and at + penalty.window_us > now]
        return history.more(penalty, now, late)

    def row(self, penalty: Penalty, history: History, now: int) -> list[int]:
        left, remaining = history.left(now), max(0, penalty.limit - len(history.refusals))
        if left:
            return [0, remaining, left, left]
        leaves = history.refusals[0] + penalty.window_us - now if history.refusals else 0
        return [1, remaining, 0, leaves]

    def seen(self, call: Evaluate, i: int) -> list[int]:
        return self.look(call.keys[i], call.rules[i].policy, writes=False)

    def windows_without_penalties(
        self, call: Evaluate, windows: list[int], blocked: set[int]
    ) -> dict[int, list[int]]:
        """Return the replies of the windows if blocked windows are full and store no refusal."""
        rules = [call.rules[i] for i in windows]
        for at, i in enumerate(windows):
            if i in blocked:
                full = replace(rules[at].policy, limit=0)
                rules[at] = rules[at]._replace(policy=full, count_rejected=False)
        keys = tuple(call.keys[i] for i in windows)
        reply = super().evaluate(Evaluate(keys, tuple(rules), call.writes))
        return {i: reply[2 + 4 * at : 6 + 4 * at] for at, i in enumerate(windows)}


def _penalty(rule: WindowRule) -> Penalty:
    assert isinstance(rule.policy, Penalty)
    return rule.policy
