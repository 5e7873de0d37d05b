"""How an identifier is looked for in the log: whole, or by its beginning."""

from __future__ import annotations

from typing import Any

from ..guard.proxies import canonical_ip
from ..models import RejectionQuerySet
from ..rejections.rows import logged_identifier
from ..rejections.text import printable

ANYTHING = "*"


def search(rows: RejectionQuerySet, text: str) -> Any:
    """Rows of the identifier; of all that begin so, if the text ends in "*"."""
    text = text.strip()
    if text.endswith(ANYTHING):
        return rows.beginning(printable(text[: -len(ANYTHING)]))
    # As it is typed, as requests have it, and as the log has it.
    spellings = {text, *map(logged_identifier, (text, canonical_ip(text)))}
    if len(spellings) == 1:
        # The index gives these in the order of the list.
        return rows.filter(identifier=spellings.pop())
    return rows.filter(identifier__in=sorted(spellings))
