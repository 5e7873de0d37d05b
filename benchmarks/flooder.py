"""`python -m benchmarks.flooder CONTENDER SECONDS`: a client that sends checks without a pause."""

from __future__ import annotations

import sys
import time

import django

from .contenders.base import ALLOWED, contenders


def main(name: str, seconds: float) -> None:
    django.setup()
    contender = next(found for found in contenders() if found.name == name)
    check = contender.make(ALLOWED)
    # The client is at its limit before the clock starts.
    for _ in range(ALLOWED.limit + 1):
        check("abusive")
    print("ready", flush=True)
    sys.stdin.readline()
    attempts = 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        check("abusive")
        attempts += 1
    print(attempts, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
