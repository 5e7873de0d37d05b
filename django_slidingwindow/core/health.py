"""Whether the store's nodes answer: asks their breakers, and reports to them how calls went."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from ..decisions import Decision
from ..exceptions import StoreError
from ..stores.protocol import Batch, Call, Store
from .breaker import CLOSED, Breakers
from .listening import ALWAYS, Listeners
from .nearness import NEVER, Nearness

# Seconds for calls that no request waits for, unless a check may take longer. Enough to log in with
# TLS and to ask a server 300 ms away.
_PATIENCE = 2.0

Asked: TypeAlias = "Call | Batch"
"""What a flow yields, to be answered by the store."""


class Sent(NamedTuple):
    """What became of charges that no request waits for, in hits."""

    charged: int
    over: int
    """Of those, hits in charges that the store would have refused."""
    lost: int
    """Hits that the store was not charged, or perhaps not."""
    seconds: float
    error: StoreError | None


class Callbacks(NamedTuple):
    """What a limiter calls. They must not raise: nothing they do may fail a request."""

    checked: Callable[[Decision, float | None, StoreError | None], None] | None = None
    """Called with every decision, the seconds that the store took if it was asked, and the
    error if it has failed."""
    listeners: Listeners = ALWAYS
    """While it has no receivers, `checked` is not called and no time is taken."""
    degraded: Callable[[StoreError], None] | None = None
    """Called when the store goes away."""
    recovered: Callable[[float], None] | None = None
    """Called when the store is back, with the seconds that it was away."""
    leased: Callable[[str, int, int, int], None] | None = None
    """Called when a lease has ended: profile, and the units granted, used and given back."""
    freed: Callable[[Decision, str, int], None] | None = None
    """Called when slots were given back: the decision that took them, their key and number."""
    failed: Callable[[StoreError], None] | None = None
    """Called when the store answers, but not this check, so that the fallback has decided it."""
    sent: Callable[[Sent], None] | None = None
    """Called when charges of deferred profiles were sent, or could not be."""
    near: Nearness = NEVER
    """Asked which charges have crossed a share of a limit."""


class Health:
    """The breakers of a store's nodes."""

    def __init__(
        self,
        store: Store,
        *,
        callbacks: Callbacks,
        recovered: Callable[[], None],
        budget: float | None,
    ) -> None:
        """`budget`: seconds that a check may take."""
        self.breakers = Breakers()
        self._store = store
        self._callbacks = callbacks
        self._recovered = recovered
        self._patience = max(_PATIENCE, budget or 0.0)

    def all_closed(self, nodes: Sequence[str]) -> bool:
        """Whether no breaker of these nodes is open.

        What only looks asks this, and not for a permit to probe: a server that cannot write may
        answer it.
        """
        return all(self.breakers.of(node).state == CLOSED for node in nodes)

    def answered(self, node: str) -> None:
        """Report that a node has answered a call that charges."""
        seconds = self.breakers.succeeded(node, self._store.nodes)
        if seconds is not None:
            self._recovered()
            if self._callbacks.recovered is not None:
                self._callbacks.recovered(seconds)

    def unanswered(self, node: str, error: BaseException, *, charges: bool) -> None:
        """Report that a call has ended with an error. An error of the call proves the node well."""
        if not isinstance(error, StoreError):
            self.breakers.abandoned([node])
        elif error.outage:
            open_now = self.breakers.failed(node, error.incident)
            if open_now:
                # Idle connections may lead to a server that hangs, though another has taken its
                # place by now. Each of them would cost a probe.
                self._store.close(node)
            if open_now == 1 and self._callbacks.degraded is not None:
                self._callbacks.degraded(error)
        elif charges:
            self.answered(node)

    def failed(self, error: StoreError) -> None:
        """Report that the fallback decides a check that the store could not answer."""
        if not error.outage and self._callbacks.failed is not None:
            self._callbacks.failed(error)

    def look(self, node: str, call: Call) -> Generator[Asked, Any, Any]:
        """Return the answer to a call that charges nothing."""
        try:
            return (yield call)
        except BaseException as error:
            self.unanswered(node, error, charges=False)
            raise

    def ask_all(
        self, nodes: Sequence[str], batch: Batch, *, charges: bool
    ) -> Generator[Asked, Any, None]:
        """Fill a batch with the answers of several nodes."""
        try:
            yield batch
        except BaseException as error:
            for node in set(nodes):
                self.unanswered(node, error, charges=charges)
            raise
        self._report(nodes, batch.answers, charges=charges)

    def run_many(self, calls: Sequence[Call], nodes: Sequence[str], *, charges: bool) -> list[Any]:
        """Return the answers or errors of calls to these nodes, which no request waits for."""
        if charges and self.breakers.open:
            # They are sent anyway, so they are the probe if one is due.
            for node in set(nodes):
                self.breakers.permit([node])
        try:
            answers = self._store.run_many(calls, self._patience)
        except StoreError as error:
            answers = [error] * len(calls)
        self._report(nodes, answers, charges=charges)
        return answers

    def _report(self, nodes: Sequence[str], answers: Sequence[Any], *, charges: bool) -> None:
        for node, answer in _worst(nodes, answers).items():
            if isinstance(answer, StoreError):
                self.unanswered(node, answer, charges=charges)
            elif charges:
                self.answered(node)


def _worst(nodes: Sequence[str], answers: Sequence[Any]) -> Mapping[str, Any]:
    """Return one answer of each node: an outage if there is any."""
    found: dict[str, Any] = {}
    for node, answer in zip(nodes, answers, strict=True):
        if node not in found or (isinstance(answer, StoreError) and answer.outage):
            found[node] = answer
    return found
