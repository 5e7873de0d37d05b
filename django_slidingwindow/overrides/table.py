"""Read the table of overrides into a snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import router

from ..core.keys import escape_shortened
from ..decisions import LIMIT
from ..exceptions import PolicyError
from ..guard.override import Override as Active
from ..guard.override_snapshot import ACTIONS, ProfileOverrides, Snapshot
from ..models import Override, OverrideVersion
from ..registry import registry
from ..rejections.rows import stamp_of
from .validation import parse_limits, spellings

_COLUMNS = ("profile", "identifier", "action", "limit", "until")


def database() -> str:
    """Return the alias of the overrides' database, as the project's routers choose it."""
    return router.db_for_write(Override)


def read_version(using: str) -> Any:
    """Return a value that differs after each change of an override."""
    return OverrideVersion.objects.using(using).values_list("token", flat=True).first()


def read_snapshot(using: str) -> Snapshot:
    """Return a snapshot of all overrides that have not ended."""
    rows = Override.objects.using(using).in_force().order_by("-id").values_list(*_COLUMNS)
    return snapshot_of(rows)


def snapshot_of(rows: Iterable[tuple[str, str, str, str, datetime | None]]) -> Snapshot:
    """Return the snapshot of rows, the newest first. Rows that are not valid are left out."""
    snapshot = Snapshot()
    for name, stored, action, limit, until in rows:
        if action not in ACTIONS:
            continue
        try:
            profile = registry.get(name)
            limits = parse_limits(limit) if action == LIMIT else ()
        except (ImproperlyConfigured, PolicyError):
            continue
        snapshot.size += 1
        active = Active(action, limits, None if until is None else stamp_of(until))
        overrides = snapshot.setdefault(name, ProfileOverrides())
        if not stored:
            overrides.everybody += (active,)
            continue
        for identifier in spellings(profile, stored):
            overrides[identifier] = (*overrides.get(identifier, ()), active)
            overrides.shortened |= escape_shortened(identifier) is not None
    return snapshot
