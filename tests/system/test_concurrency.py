"""Many processes and threads that share windows admit exactly the limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_slidingwindow import limits
from django_slidingwindow.policies import ALGORITHMS
from tests.support.processes.contention import IDENTIFIER, profiles

if TYPE_CHECKING:
    from redis import Redis

PROCESSES, THREADS = 8, 4
# One xdist worker runs all tests, so that the processes start only once.
pytestmark = pytest.mark.xdist_group("contenders")

# Long enough that no clock window of `counter` ends during a test, except once in 400 days.
WINDOW = 400 * 86_400


@pytest.fixture(autouse=True)
def _patience(settings: Any) -> None:
    """Redis must decide, however slow the machine is."""
    settings.SLIDING_WINDOW = {"LATENCY_BUDGET": 60}


class Contenders:
    """Processes that wait for a job and then all run it at the same time."""

    def __init__(self, redis_url: str) -> None:
        environment = {
            **os.environ,
            "TEST_REDIS_URL": redis_url,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
        }
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.support.processes.contention"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                cwd=Path(__file__).parent.parent.parent,
                env=environment,
            )
            for _ in range(PROCESSES)
        ]
        assert [self._read(process) for process in self.processes] == ["ready"] * PROCESSES

    def admitted(self, **job: Any) -> list[int]:
        """Run a job in all processes. Return how many requests each profile admitted in total."""
        line = json.dumps({"threads": THREADS, **job}) + "\n"
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(line)
            process.stdin.flush()
        each = [json.loads(self._read(process)) for process in self.processes]
        return [sum(counts) for counts in zip(*each, strict=True)]

    def stop(self) -> None:
        for process in self.processes:
            process.communicate()
            assert process.returncode == 0

    def _read(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline().strip()


@pytest.fixture(scope="module")
def contenders(redis_server: Any) -> Iterator[Contenders]:
    contenders = Contenders(redis_server.url)
    yield contenders
    contenders.stop()


def held(spec: list[Any]) -> int:
    """Return the hits that count in a profile's window now."""
    [profile] = profiles([spec])
    return profile.policies[0].limit - limits.peek(profile, IDENTIFIER, cost=0).remaining


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_many_processes_and_threads_admit_exactly_the_limit(
    redis: Redis, contenders: Contenders, algorithm: str
) -> None:
    spec = ["one", 100, WINDOW, algorithm]
    assert contenders.admitted(specs=[spec], asks=10, groups=[[0]]) == [100]
    assert held(spec) == 100


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "mixed"])
def test_each_of_three_keys_holds_exactly_its_admitted_requests(
    redis: Redis, contenders: Contenders, algorithm: str
) -> None:
    used = ["compact", "log", "buckets"] if algorithm == "mixed" else [algorithm] * 3
    specs = [
        [f"profile {i}", limit, WINDOW, name]
        for i, (limit, name) in enumerate(zip((150, 60, 90), used, strict=True))
    ]
    # Some threads charge all three profiles at once, others two or one.
    groups = [[0, 1, 2], [0, 1], [2, 0], [0]]
    admitted = contenders.admitted(specs=specs, asks=10, groups=groups)
    assert [held(spec) for spec in specs] == admitted
    # The first profile gets more requests than it has room for, some for itself alone. So it fills
    # up, although requests that another profile refuses charge nothing.
    assert admitted[0] == 150
    assert admitted[1] <= 60
    assert admitted[2] <= 90


def test_keys_that_are_always_charged_together_admit_the_smallest_limit(
    redis: Redis, contenders: Contenders
) -> None:
    specs = [["a", 100, WINDOW, "compact"], ["b", 70, WINDOW, "compact"], ["c", 80, WINDOW, "log"]]
    assert contenders.admitted(specs=specs, asks=10, groups=[[0, 1, 2]]) == [70, 70, 70]
    assert [held(spec) for spec in specs] == [70, 70, 70]
