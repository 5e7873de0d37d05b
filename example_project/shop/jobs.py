"""Work outside of requests, which waits for the quota of an upstream service."""

from __future__ import annotations

import threading

from django.db import connection

from django_slidingwindow import limits

from .models import Report


def start_report(report: Report) -> None:
    # A project would use its task queue here.
    threading.Thread(target=_make, args=(report.pk,), daemon=True).start()


def _make(number: int) -> None:
    try:
        # All jobs on all hosts together stay within the quota.
        decision = limits.acquire("upstream", "tax-office", timeout=30)
        state = "done" if decision.allowed else "upstream too busy"
        Report.objects.filter(pk=number).update(state=state)
    finally:
        connection.close()
