"""The health of the store: reports the result of each call to the breaker of its node."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeAlias

from ..exceptions import StoreError
from ..stores.protocol import Batch, Call, Store
from .breaker import CLOSED, Breakers
from .callbacks import Callbacks

# Time limit in seconds for calls that no request waits for, unless that of a check is longer. It is
# enough for a TLS login and a call to a server that is 300 ms away.
_PATIENCE = 2.0

StoreCall: TypeAlias = "Call | Batch"
"""What a flow yields for the store to answer."""


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
        """`budget`: seconds that a check may take.

        `recovered` is called when an outage ends with a charge.
        """
        self.breakers = Breakers()
        self._store = store
        self._callbacks = callbacks
        self._recovered = recovered
        self._patience = max(_PATIENCE, budget or 0.0)

    def all_closed(self, nodes: Sequence[str]) -> bool:
        """Whether no breaker of these nodes is open.

        Calls that only read use this and never probe: a server that cannot write may still answer
        them, and that proves nothing about charges.
        """
        return all(self.breakers.of(node).state == CLOSED for node in nodes)

    def answered(self, node: str, *, charged: bool) -> None:
        """Report that a node has answered a call that charges.

        `charged`: whether it did charge. A server that cannot write, because its disk is full for
        example, still refuses. After that, the fallback goes on where it was.
        """
        seconds = self.breakers.succeeded(node, self._store.nodes)
        if seconds is not None:
            if charged:
                self._recovered()
            if self._callbacks.recovered is not None:
                self._callbacks.recovered(seconds)

    def unanswered(self, node: str, error: BaseException, *, charges: bool) -> None:
        """Report that a call failed. An error that is not an outage proves that the node works."""
        if not isinstance(error, StoreError):
            self.breakers.abandoned([node])
        elif error.outage:
            open_now = self.breakers.failed(node, error.incident)
            if open_now:
                # Idle connections may lead to a server that hangs and that another server has
                # replaced. Each of them would make one probe fail.
                self._store.close(node)
            if open_now == 1 and self._callbacks.degraded is not None:
                self._callbacks.degraded(error)
        elif charges:
            self.answered(node, charged=False)

    def failed(self, error: StoreError) -> None:
        """Report that the fallback decides a check because the store failed."""
        if not error.outage and self._callbacks.failed is not None:
            self._callbacks.failed(error)

    def look(self, node: str, call: Call) -> Generator[StoreCall, Any, Any]:
        """Return the answer to a call that charges nothing."""
        try:
            return (yield call)
        except BaseException as error:
            self.unanswered(node, error, charges=False)
            raise

    def ask_all(
        self, nodes: Sequence[str], batch: Batch, *, charges: bool
    ) -> Generator[StoreCall, Any, None]:
        """Fill a batch with the answers of several nodes."""
        try:
            yield batch
        except BaseException as error:
            for node in set(nodes):
                self.unanswered(node, error, charges=charges)
            raise
        self._report(nodes, batch.answers, charges=charges)

    def run_many(self, calls: Sequence[Call], nodes: Sequence[str], *, charges: bool) -> list[Any]:
        """Return the answer or error of each call. For calls that no request waits for."""
        if charges and self.breakers.open:
            # The calls are sent in any case: if a probe is due, they are the probe.
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
                self.answered(node, charged=True)


def _worst(nodes: Sequence[str], answers: Sequence[Any]) -> Mapping[str, Any]:
    """Return one answer for each node: an outage, if there is one."""
    found: dict[str, Any] = {}
    for node, answer in zip(nodes, answers, strict=True):
        if node not in found or (isinstance(answer, StoreError) and answer.outage):
            found[node] = answer
    return found
