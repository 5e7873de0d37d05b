"""Delete old rows of the logs, in batches that hold locks only for a short time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db import connections
from django.db.models import QuerySet
from django.utils import timezone

from ..conf import conf
from ..models import Rejection
from .upsert import LogRow
from .writer import MODELS, log_alias

BATCH = 10_000
MAX_DAYS = 36_500
"""A century. No row is older, and Python cannot subtract more than some two thousand years."""


def cutoff(days: float | None = None) -> datetime:
    """Return the time before which rows are old. `days` defaults to LOG_DAYS."""
    return timezone.now() - timedelta(days=min(MAX_DAYS, conf.log_days if days is None else days))


def count_old(before: datetime) -> int:
    """Return how many rows a purge would delete. Reads only this part of the indexes."""
    return sum(
        model._default_manager.using(log_alias(model)).filter(minute__lt=before).count()
        for model in MODELS
    )


def old_rows(
    alias: str, before: datetime, model: type[LogRow] = Rejection
) -> QuerySet[Any, tuple[int, datetime]]:
    """Return primary key and minute of the old rows of a log, in the order of the index."""
    # Order by `minute` only. If `id` were added, PostgreSQL would sort all rows of a minute for
    # each batch.
    old = model._default_manager.using(alias).filter(minute__lt=before).order_by("minute")
    return old.values_list("id", "minute")


def purge(
    before: datetime,
    *,
    batch: int = BATCH,
    progress: Callable[[int], None] | None = None,
) -> int:
    """Delete the rows before this time, the oldest first, and return how many were deleted.

    Each batch is found through the index on `minute` and deleted in a transaction of its own. It
    stays deleted if a later batch fails. New rows never wait for a purge. `progress` is called
    after each batch with the number of rows deleted so far.
    """
    deleted = 0
    for model in MODELS:
        for count in _purge_log(model, before, batch):
            deleted += count
            if progress is not None:
                progress(deleted)
    return deleted


def _purge_log(model: type[LogRow], before: datetime, batch: int) -> Iterator[int]:
    """Delete the old rows of one log. Yield the number of deleted rows after each batch."""
    alias = log_alias(model)
    old = following = old_rows(alias, before, model)
    max_params = connections[alias].features.max_query_params
    size = batch if max_params is None else min(batch, max_params)
    while rows := list(following[:size]):
        ids = [row[0] for row in rows]
        count, _ = model._default_manager.using(alias).filter(id__in=ids).delete()
        yield count
        # Continue at this minute. From the start, the database would read the deleted rows again,
        # which stay in the index until it is cleaned up.
        following = old.filter(minute__gte=rows[-1][1])
