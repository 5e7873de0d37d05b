"""`python -m benchmarks.hot_key CONTENDER SECONDS`: one of several processes that check the same
key as often as they can.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import django

from .contenders.base import HOT, LEASED, UNLEASED, Check, contenders

MOVING = "limits, moving window"


def _ours(profile: str) -> Callable[[], Check]:
    def make() -> Check:
        from django_slidingwindow import limits

        return lambda identifier: limits.check(profile, identifier).allowed

    return make


def _moving() -> Check:
    found = next(one for one in contenders() if one.name == MOVING)
    return found.make(HOT)


CHECKS: dict[str, Callable[[], Check]] = {
    MOVING: _moving,
    UNLEASED: _ours("hot_unleased"),
    LEASED: _ours("hot_leased"),
}


def main(name: str, seconds: float) -> None:
    django.setup()
    check = CHECKS[name]()
    assert check("hot")
    print("ready", flush=True)
    sys.stdin.readline()
    checks = 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        assert check("hot")
        checks += 1
    print(checks, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
