"""The results of a drill, as one record for people and programs."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from dataclasses import asdict
from typing import Any

from .exercise import PHASES, Result, Sent
from .promises import promises, slowest_check


def record(result: Result) -> dict[str, Any]:
    """Return everything that the drill has seen."""
    plan, observer = result.plan, result.observer
    judged = promises(result)
    return {
        "ok": all(promise.kept is not False for promise in judged),
        "pid": os.getpid(),
        "way": plan.way,
        "seconds": plan.seconds,
        "handler": "asgi" if plan.asgi else "wsgi",
        "method": plan.calls[0].method,
        "paths": [call.path for call in plan.calls],
        "latency_budget": result.budget,
        "phases": [_phase(phase, result.of(phase)) for phase in PHASES],
        "recovery_seconds": result.recovered_after,
        "signals": {
            "limit_checked": len(observer.checks),
            "request_limited": observer.refused,
            "store_degraded": len(observer.degraded),
            "store_recovered": len(observer.recovered),
        },
        "metrics": [
            {
                "name": metric.prometheus_name,
                "labels": dict(zip(metric.labels, labels, strict=True)),
                "value": value,
            }
            for (metric, labels), value in sorted(
                observer.metrics.items(), key=lambda item: (item[0][0].name, item[0][1])
            )
            if value
        ],
        "promises": [asdict(promise) for promise in judged],
    }


def _phase(phase: str, sent: list[Sent]) -> dict[str, Any]:
    sources: dict[str, dict[str, int]] = defaultdict(lambda: {"admitted": 0, "refused": 0})
    for check in (check for request in sent for check in request.checks):
        decision = check.decision
        sources[decision.source]["admitted" if decision.allowed else "refused"] += 1
    statuses = Counter(str(request.status or request.error) for request in sent)
    return {
        "phase": phase,
        "requests": len(sent),
        "statuses": dict(sorted(statuses.items())),
        "admitted": sum(counts["admitted"] for counts in sources.values()),
        "refused": sum(counts["refused"] for counts in sources.values()),
        "sources": dict(sorted(sources.items())),
        "slowest_request": max((request.seconds for request in sent), default=None),
        "slowest_check": slowest_check(sent),
    }
