"""Ends the rejection log at an age, in batches that hold no lock for long."""

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
    """The minute before which rows are too old; `days` is LOG_DAYS unless told."""
    return timezone.now() - timedelta(days=conf.log_days if days is None else days)


def count_old(before: datetime) -> int:
    """How many rows a purge would delete; reads that part of the index on `minute`."""
    return Rejection.objects.using(log_alias()).filter(minute__lt=before).count()


def old_rows(alias: str, before: datetime) -> QuerySet[Rejection, tuple[int, datetime]]:
    """Primary key and minute of what is too old, in the order of the index."""
    # By the minute alone: PostgreSQL would sort all rows of a minute for each batch of it.
    old = Rejection.objects.using(alias).filter(minute__lt=before).order_by("minute")
    return old.values_list("id", "minute")


def purge(
    before: datetime,
    *,
    batch: int = BATCH,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Deletes rows older than that, the oldest first; how many.

    Each batch is a statement and a transaction of its own, found through the index on
    `minute`: what was deleted stays so if the next one fails, and new rows never wait.
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
        # From here on: what was deleted lies in the index until the database cleans up.
        following = old.filter(minute__gte=rows[-1][1])
        if progress is not None:
            progress(deleted)
