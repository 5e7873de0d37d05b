"""Make, list and end overrides, for `manage.py slidingwindow`."""

from __future__ import annotations

import getpass
from datetime import MAXYEAR, datetime, timedelta
from datetime import timezone as zones
from typing import Any

from django.utils import timezone
from django.utils.dateparse import parse_datetime

from ..models import Override, OverrideQuerySet
from ..rates import parse_window
from ..registry import registry
from .table import database
from .validation import stored_identifier


def make(**fields: Any) -> Override:
    """Save an override and return it. Raise ValidationError if it is not valid."""
    override = Override(created_by=login_name(), **fields)
    override.full_clean()
    override.save(using=database())
    return override


def login_name() -> str:
    """Return the name of the system user who runs this process; empty if the user has none."""
    try:
        return getpass.getuser()[:150]
    except (ImportError, KeyError, OSError):
        # A container may run with the number of a user that does not exist.
        return ""


def listed(*, ended: bool = False) -> OverrideQuerySet:
    """Return the overrides in force, the newest first; with `ended` also those that have ended."""
    rows = Override.objects.using(database())
    return rows.all() if ended else rows.in_force()


def end_all(profile: str, identifier: str) -> list[Override]:
    """End and return the overrides in force for an identifier; if it is empty, those for all."""
    known = registry.get(profile)
    stored = stored_identifier(known, identifier)
    # Code may have saved another spelling, which is in force as well.
    overrides = [
        override
        for override in listed().filter(profile=profile)
        if stored_identifier(known, override.identifier) == stored
    ]
    for override in overrides:
        override.end()
    return overrides


def record(override: Override) -> dict[str, Any]:
    """Return an override as a dict for JSON."""
    return {
        "id": override.pk,
        "profile": override.profile,
        "identifier": override.identifier,
        "action": override.action,
        "limit": override.limit,
        "until": None if override.until is None else override.until.isoformat(timespec="seconds"),
        "in_force": override.in_force,
        "note": override.note,
        "created_by": override.created_by,
        "created_at": override.created_at.isoformat(timespec="seconds"),
    }


def parse_until(text: str) -> datetime:
    """Return the time that "+2h" or ISO 8601 names.

    Raise ValueError if it is neither, or if an override cannot end then.
    """
    now = timezone.now()
    if text.startswith("+"):
        return now + timedelta(seconds=parse_window(text[1:]))
    try:
        moment = parse_moment(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a duration such as +2h nor a time") from None
    if moment <= now:
        raise ValueError(f"{text!r} has passed")
    if moment.year == MAXYEAR:
        # In some time zones its last day is in the year 10000, which Python cannot show.
        raise ValueError(f"{text!r} is too late: leave it out if the override does not end")
    return moment


def parse_moment(text: str) -> datetime:
    """Return the time that ISO 8601 names: aware in UTC, or naive without USE_TZ.

    Raise ValueError if it is not a time, or not one that databases can store.
    """
    moment = parse_datetime(text)
    if moment is None:
        raise ValueError(f"{text!r} is not a time")
    try:
        if timezone.is_naive(moment):
            moment = timezone.make_aware(moment)
        # Databases store UTC, in which a time of the year 1 may not exist.
        moment = moment.astimezone(zones.utc)
        return timezone.make_naive(moment) if timezone.is_naive(timezone.now()) else moment
    except OverflowError as error:
        raise ValueError(f"{text!r} is out of range") from error
