"""Factory of rows of the usage log."""

from __future__ import annotations

import uuid
from typing import Any

from django.utils import timezone

from django_slidingwindow.models import Usage


def usage_row(**values: Any) -> Usage:
    """Return an unsaved row of the profile `api`. Its default cost is one per hit."""
    fields: dict[str, Any] = {
        "minute": timezone.now().replace(second=0, microsecond=0),
        "digest": uuid.uuid4(),
        "profile": "api",
        "identifier": "acme",
        "view": "api/orders/",
        "hits": 1,
        **values,
    }
    return Usage(**{"cost": fields["hits"], **fields})
