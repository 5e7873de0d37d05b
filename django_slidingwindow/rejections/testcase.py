"""What keeps the refusals of a test run in the tests' own database.

Rows are written by another thread, outside of a TestCase's transaction, and perhaps
after the test database is gone and its name means the real one again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core import mail
from django.db import connections


def testing() -> bool:
    """Whether Django's test environment is set up."""
    # Not `hasattr`: this is asked at each refusal, and an answer of no takes an exception.
    return "outbox" in vars(mail)


class Sandbox:
    """Knows the test whose refusals wait, and the database that it runs on."""

    def __init__(self) -> None:
        self._database: Any = None
        self._transaction: object = None

    def holds(self, alias: str, forget: Callable[[], object]) -> bool:
        """Whether the refusal waits for `flush()`, since a TestCase's transaction is open.

        Calls `forget` when what waits belongs to another test.
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
        """Whether the database is still the one that the refusals belong to."""
        return self._database is None or self._database == _database(alias)


def _database(alias: str) -> Any:
    return connections.settings[alias]["NAME"]
