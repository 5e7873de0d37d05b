"""Finds the charge that crosses a share of a limit.

The reply to a charge says how many hits are left. With the cost, that tells how many were left
before. The store makes one charge after the other, so exactly one process sees the crossing. Leased
hits count from the call that takes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..decisions import Verdict
from ..stores.protocol import Ahead, Fields, Reply, WindowReply, WindowRule
from .listeners import ALWAYS, NOBODY, Listeners
from .windows import WindowSet


class NearLimit:
    """Calls a function with each window that a charge brings near its limit."""

    def __init__(
        self,
        share: Callable[[], float | None],
        crossed: Callable[[Verdict], None],
        listeners: Listeners = ALWAYS,
    ) -> None:
        """`share` returns the share of a limit, at most 1; None or 0 switches this off."""
        self._share = share
        self._crossed = crossed
        self.listeners = listeners
        """While it has no receivers, callers skip the methods below."""

    def charged(self, windows: WindowSet, fields: Fields, ahead: Sequence[Ahead] = ()) -> None:
        """Check the windows of a call that charges. `ahead`: what the call leased."""
        reply = fields if isinstance(fields, Reply) else Reply(fields)
        if not reply.admitted:
            return
        template, keys = windows
        for i in template.shown:
            self.window(
                template.named[i][0],
                keys[i],
                template.rules[i],
                reply.window(i),
                granted=reply.granted[i] if reply.granted else 0,
                returned=ahead[i].returned if ahead else 0,
            )

    def window(
        self,
        profile: str,
        key: str,
        rule: WindowRule,
        reply: WindowReply,
        *,
        granted: int = 0,
        returned: int = 0,
    ) -> None:
        """Check one window that was charged.

        `granted` units were leased, which the reply counts as left; `returned` units were given
        back by the same call.
        """
        share, (policy, cost) = self._share(), rule[:2]
        if not share or not cost or not reply.admits:
            return
        after = policy.limit - reply.remaining + granted
        before = after - cost - granted + returned
        # Rounded, because in floating point 0.07 * 100 is a little more than 7.
        threshold = math.ceil(round(share * policy.limit, 6))
        if before < threshold <= after:
            self._crossed(
                Verdict(
                    profile,
                    policy,
                    key,
                    True,
                    rule.observed,
                    policy.limit,
                    reply.remaining,
                    0.0,
                    reply.reset / 1_000_000,
                )
            )


NEVER = NearLimit(lambda: None, lambda verdict: None, NOBODY)
