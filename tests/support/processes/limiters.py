"""Several processes that check limits as fast as they can.

`Contenders` starts them as `python -m tests.support.processes.limiters <JSON>`. The JSON holds
CACHES, SLIDING_WINDOW and whether to count signals. Such a process reads one task per line and
prints how often it got each kind of decision. With signals it also prints how often `limit_near`
was sent. A task may set the time of Redis's clock.
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
    """Processes with the same settings. Every second one checks in an event loop."""

    def __init__(
        self, count: int, caches: dict[str, Any], options: dict[str, Any], *, listens: bool = False
    ) -> None:
        arguments = json.dumps([caches, options, listens])
        command = [sys.executable, "-m", "tests.support.processes.limiters", arguments]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._processes = [
            subprocess.Popen(command, text=True, bufsize=1, **pipes) for _ in range(count)
        ]

    def check(self, asked: list[tuple[str, str]], times: int) -> Counter[str]:
        """Check each (profile, identifier) `times` times in every process.

        Return how often all processes together got each decision, as "<source> <allowed>".
        """
        return sum(self._run(asked, times, None), Counter())

    def reasons(
        self, asked: list[tuple[str, str]], times: int, now: int
    ) -> list[Counter[tuple[str, float]]]:
        """Do what `check` does with Redis's clock at `now`.

        Return for each process how often it got each (reason, retry_after).
        """
        each = self._run(asked, times, now)
        return [
            Counter({(key.split()[0], float(key.split()[1])): count for key, count in one.items()})
            for one in each
        ]

    def _run(self, asked: list[tuple[str, str]], times: int, now: int | None) -> list[Counter[str]]:
        for number, process in enumerate(self._processes):
            assert process.stdin is not None
            process.stdin.write(json.dumps([asked, times, number % 2, now]) + "\n")
        return [Counter(json.loads(_read_line(process))) for process in self._processes]

    def __enter__(self) -> Self:
        self.check([], 0)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.communicate()


def by_reason(each: list[Counter[tuple[str, float]]]) -> Counter[str]:
    """Return how often all processes together got each reason."""
    found: Counter[str] = Counter()
    for one in each:
        for (reason, _), count in one.items():
            found[reason] += count
    return found


def _read_line(process: subprocess.Popen[str]) -> str:
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

    near_signals: list[Any] = []
    unsent = 0
    changed = threading.Condition()

    def note_near(**arguments: Any) -> None:
        near_signals.append(arguments)

    def note_sent(*, charged: int, lost: int, **_: Any) -> None:
        nonlocal unsent
        with changed:
            unsent -= charged + lost
            changed.notify()

    if listens:
        limit_near.connect(note_near)
        deferred_sent.connect(note_sent)
    limiter = get_limiter()

    async def acheck(checks: list[ProfileCheck], times: int) -> list[Any]:
        return [await limiter.acharge(limiter.windows(checks)) for _ in range(times)]

    for line in sys.stdin:
        asked, times, asynchronous, now = json.loads(line)
        limiter.store._clock = None if now is None else lambda now=now: now  # type: ignore[attr-defined]
        checks = []
        for name, identifier in asked:
            profile = registry.get(name)
            checks.append(ProfileCheck(profile, identifier, profile.policies_for(identifier)))
        if asynchronous:
            decisions = asyncio.run(acheck(checks, times))
        else:
            decisions = [limiter.charge(limiter.windows(checks)) for _ in range(times)]
        counts = Counter(
            f"{decision.source} {decision.allowed}"
            if now is None
            else f"{decision.reason} {decision.retry_after}"
            for decision in decisions
        )
        if listens:
            with changed:
                unsent += counts["deferred True"]
                while unsent:
                    assert changed.wait(timeout=60)
            counts["near"] = len(near_signals)
            near_signals.clear()
        print(json.dumps(counts), flush=True)


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
