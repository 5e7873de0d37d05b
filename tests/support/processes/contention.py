"""A process whose threads contend for windows.

Run as `python -m tests.support.processes.contention`. It reads jobs from stdin, one line of JSON
each: the arguments of `contend`. For each job it prints a list: how many requests each profile has
admitted.
"""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from itertools import cycle
from typing import Any

IDENTIFIER = "acme"


def profiles(specs: list[Any]) -> list[Any]:
    from django_slidingwindow.policies import Policy, Profile

    return [
        Profile(
            name=name,
            axis="tenant",
            policies=(Policy(limit=limit, window=window, algorithm=algorithm),),
        )
        for name, limit, window, algorithm in specs
    ]


def contend(specs: list[Any], asks: int, groups: list[list[int]], threads: int) -> list[int]:
    """Return how many requests of this process each profile admitted.

    A spec is the name, limit, window and algorithm of a profile. Each thread makes `asks` requests
    against one group of profiles, given by their positions in `specs`.
    """
    from django_slidingwindow.core.windows import ProfileCheck
    from django_slidingwindow.limits import get_limiter

    made = profiles(specs)
    admitted: Counter[int] = Counter()
    failures: list[BaseException] = []
    lock = threading.Lock()
    barrier = threading.Barrier(threads)

    def ask(group: list[int]) -> None:
        checks = [ProfileCheck(made[i], IDENTIFIER, made[i].policies) for i in group]
        try:
            barrier.wait()
            for _ in range(asks):
                decision = get_limiter().charge(get_limiter().windows(checks))
                assert decision.source == "redis", decision
                if decision.allowed:
                    with lock:
                        admitted.update(group)
        except BaseException as error:
            failures.append(error)
            raise

    running = [
        threading.Thread(target=ask, args=(group,))
        for group, _ in zip(cycle(groups), range(threads), strict=False)
    ]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not failures
    return [admitted[i] for i in range(len(made))]


def main() -> None:
    import django
    from django.test import override_settings

    django.setup()
    # Each request must reach Redis, and Redis must decide however slow the machine is.
    options = {"LATENCY_BUDGET": 60, "FALLBACK": "deny", "SHIELD_SECONDS": 0}
    with override_settings(SLIDING_WINDOW=options):
        print("ready", flush=True)
        for line in sys.stdin:
            print(json.dumps(contend(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
