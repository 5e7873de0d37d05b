"""Search the log for an identifier, or for the identifiers with a prefix."""

from __future__ import annotations

from typing import Any

from ..guard.proxies import canonical_ip
from ..models import RejectionQuerySet
from ..rejections.rows import logged_spellings
from ..rejections.text import printable, restored

WILDCARD = "*"


def search(rows: RejectionQuerySet, text: str) -> Any:
    """Return the rows of an identifier, or of all with a prefix if the text ends in "*"."""
    text = text.strip()
    if text.endswith(WILDCARD):
        return rows.with_prefix(printable(restored(text[: -len(WILDCARD)])))
    spellings = logged_spellings(text, canonical_ip(text))
    if len(spellings) == 1:
        # With one value, the index returns the rows in the order of the list.
        return rows.filter(identifier=spellings[0])
    return rows.filter(identifier__in=spellings)
