"""Keep the refusals of a test run out of the project's real database.

Rows are written by another thread, outside of the transaction of a TestCase. This may happen
after the test database was deleted, when its alias means the real one again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core import mail
from django.db import connections


def testing() -> bool:
    """Return whether Django's test environment is set up."""
    # Not `hasattr`: this runs for each refusal, and a missing name costs an exception.
    return "outbox" in vars(mail)


class Sandbox:
    """Remember which test the waiting refusals belong to, and which database it uses."""

    def __init__(self) -> None:
        self._database: Any = None
        self._transaction: object = None

    def holds(self, alias: str, forget: Callable[[], object]) -> bool:
        """Return whether the refusal waits for `flush()`: the transaction of a TestCase is open.

        Call `forget` if the waiting refusals belong to another test.
        """
        self._database = _database(alias)
        blocks: list[Any] = connections[alias].atomic_blocks
        own = [block for block in blocks if block._from_testcase]
        transaction = own[-1] if own else None
        if transaction is not self._transaction:
            self._transaction = transaction
            forget()
        return transaction is not None

    def permits(self, alias: str) -> bool:
        """Return whether the database is still the one that the refusals belong to."""
        return self._database is None or self._database == _database(alias)


def _database(alias: str) -> Any:
    return connections.settings[alias]["NAME"]
