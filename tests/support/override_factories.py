"""Overrides in memory, put in force without the database."""

from __future__ import annotations

from typing import Any

from django_slidingwindow.guard import override_snapshot
from django_slidingwindow.guard.override import Override
from django_slidingwindow.guard.override_snapshot import ProfileOverrides, Snapshot

ADDRESS = "203.0.113.9"


def put(profile: str = "one", identifier: str = ADDRESS, **override: Any) -> None:
    """Add an override to those that are in force."""
    snapshot = override_snapshot.current or Snapshot()
    known = snapshot.setdefault(profile, ProfileOverrides())
    if identifier:
        known[identifier] = (Override(**override), *known.get(identifier, ()))
    else:
        known.everybody = (Override(**override), *known.everybody)
    override_snapshot.publish(snapshot)


def limited(*limits: tuple[int, float | None]) -> dict[str, Any]:
    """Return the fields of an override that sets limits, each with its window in seconds."""
    return {"action": "limit", "limits": limits}
