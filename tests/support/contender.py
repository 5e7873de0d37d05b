"""Processes of their own that check as fast as they can, all at once.

`python -m tests.support.contender '<caches and options as JSON>'` reads one task a line, and
answers each with a line: the number of each decision, and how often `limit_near` was sent if it
listens. A task may say what Redis's clock shows.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


class Contenders:
    """Some processes with the same settings; every other one checks in an event loop."""

    def __init__(
        self, count: int, caches: dict[str, Any], options: dict[str, Any], *, listens: bool = False
    ) -> None:
        arguments = json.dumps([caches, options, listens])
        command = [sys.executable, "-m", "tests.support.contender", arguments]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._processes = [
            subprocess.Popen(command, text=True, bufsize=1, **pipes) for _ in range(count)
        ]

    def check(self, claims: list[tuple[str, str]], times: int) -> Counter[str]:
        """What all of them were answered together, each so often: "<source> <allowed>"."""
        return sum(self._ask(claims, times, None), Counter())

    def reasons(
        self, claims: list[tuple[str, str]], times: int, now: int
    ) -> list[Counter[tuple[str, float]]]:
        """What each was answered when Redis's clock stands still: (reason, retry_after)."""
        each = self._ask(claims, times, now)
        return [
            Counter({(key.split()[0], float(key.split()[1])): count for key, count in one.items()})
            for one in each
        ]

    def _ask(
        self, claims: list[tuple[str, str]], times: int, now: int | None
    ) -> list[Counter[str]]:
        for number, process in enumerate(self._processes):
            assert process.stdin is not None
            process.stdin.write(json.dumps([claims, times, number % 2, now]) + "\n")
        return [Counter(json.loads(_line(process))) for process in self._processes]

    def __enter__(self) -> Self:
        self.check([], 0)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.communicate()


def by_reason(each: list[Counter[tuple[str, float]]]) -> Counter[str]:
    """How often all processes together were answered with each reason."""
    found: Counter[str] = Counter()
    for one in each:
        for (reason, _), count in one.items():
            found[reason] += count
    return found


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def main(caches: dict[str, Any], options: dict[str, Any], listens: bool) -> None:
    import django
    from django.conf import settings

    settings.configure(SECRET_KEY="contender", CACHES=caches, SLIDING_WINDOW=options)
    django.setup()
    from django_slidingwindow.core.windows import ProfileCheck
    from django_slidingwindow.limits import get_limiter
    from django_slidingwindow.registry import registry
    from django_slidingwindow.signals import deferred_sent, limit_near

    heard: list[Any] = []
    later = 0
    changed = threading.Condition()

    def hear(**arguments: Any) -> None:
        heard.append(arguments)

    def count(*, charged: int, lost: int, **_: Any) -> None:
        nonlocal later
        with changed:
            later -= charged + lost
            changed.notify()

    if listens:
        limit_near.connect(hear)
        deferred_sent.connect(count)
    limiter = get_limiter()

    async def acheck(claims: list[ProfileCheck], times: int) -> list[Any]:
        return [await limiter.acharge(limiter.windows(claims)) for _ in range(times)]

    for line in sys.stdin:
        asked, times, asynchronous, now = json.loads(line)
        limiter.store._clock = None if now is None else lambda now=now: now  # type: ignore[attr-defined]
        claims = []
        for name, identifier in asked:
            profile = registry.get(name)
            claims.append(ProfileCheck(profile, identifier, profile.policies_for(identifier)))
        if asynchronous:
            decisions = asyncio.run(acheck(claims, times))
        else:
            decisions = [limiter.charge(limiter.windows(claims)) for _ in range(times)]
        answers = Counter(
            f"{decision.source} {decision.allowed}"
            if now is None
            else f"{decision.reason} {decision.retry_after}"
            for decision in decisions
        )
        if listens:
            with changed:
                later += answers["deferred True"]
                while later:
                    assert changed.wait(timeout=60)
            answers["near"] = len(heard)
            heard.clear()
        print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
