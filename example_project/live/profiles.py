"""The limits that the page offers: each algorithm with each of a few windows."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from django_slidingwindow.registry import register as register_profile

ALGORITHMS = {
    "compact": "Exact, 4 bytes a hit. The default.",
    "log": "Exact; every hit visible with ordinary Redis tools.",
    "buckets": "Constant memory; never above the limit, a little late to let in.",
    "counter": "Two numbers and an estimate: smallest, approximate.",
}
LIMITS = {
    "10": {"limit": 10, "window": 10},
    "5": {"limit": 5, "window": 5},
}
MAX_COST = 5
IN_FLIGHT = "live_in_flight"
# The limit on requests in flight, and the seconds that each request takes with this limit.
AT_ONCE, SECONDS = 3, 0.5


def name_of(algorithm: str, limit: str) -> str:
    return f"live_{algorithm}_{limit}"


def configs() -> dict[str, dict[str, Any]]:
    """Return all profiles of this app by name."""
    rates = {
        name_of(algorithm, name): {"axis": "ip", "algorithm": algorithm, **limit}
        for algorithm in ALGORITHMS
        for name, limit in LIMITS.items()
    }
    return {**rates, IN_FLIGHT: {"axis": "ip", "inflight": AT_ONCE, "hold": "10s"}}


def register() -> None:
    """Register the profiles of this app. A project can replace them by name in its settings."""
    for name, config in configs().items():
        register_profile(name, config)


def limits_in_flight(request: HttpRequest) -> bool:
    return "in_flight" in request.GET


def chosen(request: HttpRequest) -> list[str]:
    """Return the profiles that a request of the page has chosen."""
    algorithm = request.GET.get("algorithm", "")
    limit = request.GET.get("limit", "")
    name = name_of(
        algorithm if algorithm in ALGORITHMS else "compact",
        limit if limit in LIMITS else "10",
    )
    return [name, IN_FLIGHT] if limits_in_flight(request) else [name]


def cost(request: HttpRequest) -> int:
    value = request.GET.get("cost", "")
    return min(int(value), MAX_COST) if value.isdecimal() and value.isascii() else 1
