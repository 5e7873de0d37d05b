"""Keep the rows of a test run out of the project's real database.

Another thread writes the rows, outside of the transaction of a TestCase. It may do so after the
test database was deleted, when the alias refers to the real database again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core import mail
from django.db import connections


def testing() -> bool:
    """Return whether Django's test environment is set up."""
    # Faster than `hasattr`, which raises and catches an exception if the name is missing. This runs
    # for each request that is logged.
    return "outbox" in vars(mail)


class Sandbox:
    """Remember which test the waiting rows belong to, and which database it uses."""

    def __init__(self) -> None:
        self._database_name: Any = None
        self._transaction: object = None

    def holds(self, alias: str, discard: Callable[[], object]) -> bool:
        """Return whether rows must wait for `flush()`: the transaction of a TestCase is open.

        Call `discard` if the waiting rows belong to another test.
        """
        self._database_name = _database_name(alias)
        blocks: list[Any] = connections[alias].atomic_blocks
        of_testcase = [block for block in blocks if block._from_testcase]
        transaction = of_testcase[-1] if of_testcase else None
        if transaction is not self._transaction:
            self._transaction = transaction
            discard()
        return transaction is not None

    def permits(self, alias: str) -> bool:
        """Return whether the alias still refers to the database that the rows belong to."""
        return self._database_name is None or self._database_name == _database_name(alias)


def _database_name(alias: str) -> Any:
    return connections.settings[alias]["NAME"]
