"""Delete old rows of the rejection log, in batches that hold locks only for a short time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from django.db import connections
from django.db.models import QuerySet
from django.utils import timezone

from ..conf import conf
from ..models import Rejection
from .writer import log_alias

BATCH = 10_000


def cutoff(days: float | None = None) -> datetime:
    """Return the time before which rows are too old. `days` defaults to LOG_DAYS."""
    return timezone.now() - timedelta(days=conf.log_days if days is None else days)


def count_old(before: datetime) -> int:
    """Return how many rows a purge would delete. Reads that part of the index on `minute`."""
    return Rejection.objects.using(log_alias()).filter(minute__lt=before).count()


def old_rows(alias: str, before: datetime) -> QuerySet[Rejection, tuple[int, datetime]]:
    """Return primary key and minute of the rows that are too old, in the order of the index."""
    # Order by `minute` only. With `id` as well, PostgreSQL would sort all rows of a minute for
    # each batch in it.
    old = Rejection.objects.using(alias).filter(minute__lt=before).order_by("minute")
    return old.values_list("id", "minute")


def purge(
    before: datetime,
    *,
    batch: int = BATCH,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Delete the rows before this time, the oldest first, and return how many were deleted.

    Each batch is one statement in its own transaction and is found through the index on
    `minute`. Deleted batches stay deleted if a later one fails, and new rows never wait.
    """
    alias = log_alias()
    old = following = old_rows(alias, before)
    most = connections[alias].features.max_query_params
    size = batch if most is None else min(batch, most)
    deleted = 0
    while True:
        rows = list(following[:size])
        if not rows:
            return deleted
        found, _ = Rejection.objects.using(alias).filter(id__in=[row[0] for row in rows]).delete()
        deleted += found
        # Continue from here: deleted rows stay in the index until the database cleans it up.
        following = old.filter(minute__gte=rows[-1][1])
        if progress is not None:
            progress(deleted)
