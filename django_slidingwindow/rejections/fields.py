"""A text column that compares by code points on every database."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper

# SQLite and Oracle compare by code points by default.
_COLLATIONS = {"postgresql": "C", "mysql": "utf8mb4_bin"}


class ExactTextField(models.CharField):  # type: ignore[type-arg]
    """Text with a case-sensitive index that can also find prefixes.

    With the collation of a language, MySQL would treat ACME and acme as equal, and PostgreSQL
    could not use the index to find a prefix.
    """

    def db_parameters(self, connection: BaseDatabaseWrapper) -> Any:
        parameters: Any = super().db_parameters(connection)
        parameters["collation"] = _COLLATIONS.get(connection.vendor)
        return parameters


def text_after(prefix: str) -> str | None:
    """Return the smallest text that sorts after all texts with this prefix; None if none does."""
    for end in range(len(prefix), 0, -1):
        following = ord(prefix[end - 1]) + 1
        if following == 0xD800:  # surrogates cannot be encoded
            following = 0xE000
        if following <= 0x10FFFF:
            return prefix[: end - 1] + chr(following)
    return None
