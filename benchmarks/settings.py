"""The Django project of all contenders, each configured as in its documentation."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import Any

from benchmarks.contenders.base import CASES, HOT, TENANT

REDIS_URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")
SHIELD_SECONDS = float(os.environ.get("BENCH_SHIELD_SECONDS", "1.0"))

SECRET_KEY = "only for the benchmark"
ALLOWED_HOSTS = ["*"]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "benchmarks.urls"
MIDDLEWARE: list[str] = []
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django_slidingwindow",
    *(
        app
        for app in ("rest_framework", "django_ratelimit", "django_smart_ratelimit")
        if find_spec(app)
    ),
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("BENCH_DATABASE", ":memory:"),
    }
}
CACHES: dict[str, dict[str, Any]] = {
    "default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS_URL}
}

_ALGORITHMS = ("compact", "log", "buckets", "counter")
_RATES = {case.name: {"limit": case.limit, "window": case.window} for case in CASES}
PROFILES: dict[str, dict[str, Any]] = {
    f"{name}_{algorithm}": {"axis": "tenant", "algorithm": algorithm, **rate}
    for name, rate in _RATES.items()
    for algorithm in _ALGORITHMS
}
# A profile for each edge, so that one does not fill the window of another.
PROFILES |= {
    f"{name}_{edge}": {"axis": "ip", **rate}
    for name, rate in _RATES.items()
    for edge in ("decorator", "middleware", "async", "drf", "ninja")
}
PROFILES |= {
    f"three_{number}": {"axis": axis, "limit": 1_000_000, "window": 60}
    for number, axis in enumerate(("ip", "endpoint", "global"))
}
PROFILES |= {
    f"{case.name}_{name}{edge}": {
        "axis": axis,
        "limit": case.limit,
        "window": case.window,
        "lease": lease,
    }
    for case in (TENANT, HOT)
    for name, lease in (("unleased", 0), ("leased", 100))
    for edge, axis in (("", "tenant"), ("_view", "ip"))
}
PROFILES |= {
    f"{TENANT.name}_deferred{edge}": {
        "axis": axis,
        "limit": TENANT.limit,
        "window": TENANT.window,
        "mode": "deferred",
    }
    for edge, axis in (("", "tenant"), ("_view", "ip"))
}
SLIDING_WINDOW = {
    "PROFILES": PROFILES,
    "RULES": [
        {
            "path": rf"^/(ours-middleware|async/bare-async)/{name}$",
            "profiles": [f"{name}_middleware"],
        }
        for name in _RATES
    ],
    "SHIELD_SECONDS": SHIELD_SECONDS,
    # On a busy machine, the local fallback must not answer instead of Redis.
    "LATENCY_BUDGET": 30,
}

RATELIMIT_BACKEND = "django_smart_ratelimit.backends.redis_backend.RedisBackend"
RATELIMIT_ALGORITHM = "sliding_window"
RATELIMIT_REDIS = {"url": REDIS_URL}
# The system checks of django-ratelimit only know Django's own cache backends.
SILENCED_SYSTEM_CHECKS = ["django_ratelimit.E003", "django_ratelimit.W001"]
