"""Measure the memory of the local fallback: python -m benchmarks.fallback

Check identifiers without a Redis, each case in its own process, and print by how much its resident
memory has grown. No server is needed.
"""

from __future__ import annotations

import os
import subprocess
import sys

# FALLBACK_MAX_KEYS, the number of identifiers, and the hits of each.
CASES = ((100_000, 1_000_000, 1), (10_000, 1_000_000, 1), (100_000, 100_000, 10))
PROGRAM = """
import sys
import django
from django.conf import settings

keys, identifiers, hits = map(int, sys.argv[1:])
location = "redis://127.0.0.1:1"
settings.configure(
    INSTALLED_APPS=["django_slidingwindow"],
    CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": location}},
    SLIDING_WINDOW={"FALLBACK_MAX_KEYS": keys, "FALLBACK_PROCESSES": 1},
    LOGGING_CONFIG=None,
)
django.setup()
from django_slidingwindow import limits

def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))

assert limits.check("tenant_free", "first").source == "local"
before = resident()
for number in range(identifiers):
    for _ in range(hits):
        limits.check("tenant_free", f"identifier-{number}")
print((resident() - before) / 1000)
"""


def main() -> None:
    print(f"Python {sys.version.split()[0]}")
    for case in CASES:
        command = [sys.executable, "-c", PROGRAM, *map(str, case)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
        keys, identifiers, hits = case
        print(
            f"FALLBACK_MAX_KEYS {keys:,}: {identifiers:,} identifiers of {hits} hits each: "
            f"{float(done.stdout):.0f} MB"
        )


if __name__ == "__main__":
    main()
