"""Fork a process that holds leases, and check the leased windows in parent and child.

Run as `python -m tests.support.processes.forked_leases <redis url>`. Prints the sources of all
decisions as JSON, and exits without returning its leases explicitly.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

PROFILES = {
    "forked": {"axis": "tenant", "rate": "10000/d", "lease": 100},
    "ended": {"axis": "tenant", "rate": "10000/d", "lease": 100},
}
CALLS = 8


def main(url: str) -> None:
    import django
    from django.conf import settings

    settings.configure(
        SECRET_KEY="leases",
        CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}},
        SLIDING_WINDOW={"PROFILES": PROFILES, "LATENCY_BUDGET": 20.0},
    )
    django.setup()
    from django_slidingwindow import limits
    from django_slidingwindow.core.windows import ProfileCheck
    from django_slidingwindow.registry import registry

    profile = registry.get("forked")
    limiter = limits.get_limiter()
    windows = limiter.windows([ProfileCheck(profile, "acme", profile.policies)])

    def sources() -> list[str]:
        return [limiter.charge(windows).source for _ in range(CALLS)]

    found: dict[str, Any] = {"before": sources()}
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, json.dumps(sources()).encode())
        os._exit(0)
    os.wait()
    os.close(writer)
    with os.fdopen(reader) as pipe:
        found["child"] = json.load(pipe)
    found["parent"] = sources()
    found["used"] = 0
    for _ in range(CALLS):
        found["used"] += limits.check("ended", "acme").allowed
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
