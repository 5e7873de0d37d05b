"""Search for an identifier in the log, complete or by its prefix."""

from __future__ import annotations

from typing import Any

from ..guard.proxies import canonical_ip
from ..models import RejectionQuerySet
from ..rejections.rows import logged_identifier
from ..rejections.text import printable

WILDCARD = "*"


def search(rows: RejectionQuerySet, text: str) -> Any:
    """Return the rows of an identifier, or of a prefix if the text ends in "*"."""
    text = text.strip()
    if text.endswith(WILDCARD):
        return rows.beginning(printable(text[: -len(WILDCARD)]))
    # The text as typed, and the text and its canonical address as the log stores them.
    spellings = {text, *map(logged_identifier, (text, canonical_ip(text)))}
    if len(spellings) == 1:
        # With one value, the index returns the rows in the order of the list.
        return rows.filter(identifier=spellings.pop())
    return rows.filter(identifier__in=sorted(spellings))
