"""A text column that compares by code points on every database."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

# SQLite and Oracle compare so by default.
_COLLATIONS = {"postgresql": "C", "mysql": "utf8mb4_bin"}


class ExactTextField(models.CharField):  # type: ignore[type-arg]
    """Text whose index tells upper from lower case and finds all that begins alike.

    Under a language's collation MySQL takes ACME for acme, and PostgreSQL's index
    cannot find a beginning.
    """

    def db_parameters(self, connection: BaseDatabaseWrapper) -> Any:
        parameters: Any = super().db_parameters(connection)
        parameters["collation"] = _COLLATIONS.get(connection.vendor)
        return parameters


def text_after(beginning: str) -> str | None:
    """The smallest text above all that begins so; None if there is none."""
    for end in range(len(beginning), 0, -1):
        following = ord(beginning[end - 1]) + 1
        if following == 0xD800:  # surrogates are no text
            following = 0xE000
        if following <= 0x10FFFF:
            return beginning[: end - 1] + chr(following)
    return None
