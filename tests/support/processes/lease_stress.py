"""Whether leases admit more than the limit in any interval of one window, under stress.

`python -m tests.support.processes.lease_stress <redis url> <JSON>` forks processes whose threads
and event loops check leased windows all the time. Meanwhile it pauses, kills and replaces processes
at random. It prints what it found as JSON. With `long` instead of the JSON it runs for 90 seconds.

All processes run on one host, so one clock, CLOCK_BOOTTIME, measures all admissions. A decision
from a lease is admitted when its process reads that clock. Any other decision is admitted when
Redis reads its own clock. Each limiter gets a steady clock with a random offset and drift, and a
wall clock that returns random times.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import struct
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

# The error of a comparison between Redis's clock and this host's clock, in seconds.
TOLERANCE = 0.0002
# How much a limiter's clock is too fast or too slow at most. Leases allow for a thousandth.
DRIFT = 0.0005
# lease_seconds as a share of the window: long enough that units taken at the start of a window
# are still used when the window is almost half over.
LEASE_PART = 0.4
RECORD = struct.Struct("<BBd")
LONG = {
    "processes": 8,
    "threads": 4,
    "loops": 4,
    "seconds": 90,
    "seed": 1,
    "specs": [
        [limit, window, lease, algorithm]
        for window in (1, 5)
        for limit, lease, algorithm in (
            (10, 1, "compact"),
            (10, 5, "log"),
            (100, 10, "buckets"),
            (100, 100, "compact"),
            (1_000, 20, "log"),
            (1_000, 100, "compact"),
        )
    ],
}


def pause_after(decision: Any) -> float:
    """Return the seconds until the next check. Some are long, so that units are used late."""
    if random.random() < 0.01:
        return random.uniform(0, 1)
    return 0 if decision.allowed else random.uniform(0, 0.02)


class Clock:
    """A steady clock that starts at a random time and runs a little too fast or too slow."""

    def __init__(self) -> None:
        from django_slidingwindow.core.leases import steady_clock

        self.true = steady_clock
        """The clock that measures all admissions."""
        self._begins = steady_clock()
        self._offset = random.uniform(-1e6, 1e6)
        self._rate = 1 + random.uniform(-DRIFT, DRIFT)
        self._read_by = threading.local()

    def __call__(self) -> float:
        self._read_by.last = last = self.true()
        return self._offset + self._rate * (last - self._begins)

    @property
    def last(self) -> float:
        """When this thread has last read this clock, as a time of `true`."""
        return float(self._read_by.last)


def wall_offset() -> float:
    """Return how far the wall clock is ahead of the steady clock: the best of many readings."""
    from django_slidingwindow.core.leases import steady_clock

    found = []
    for _ in range(200):
        before, wall, after = steady_clock(), time.time_ns() / 1e9, steady_clock()
        found.append((after - before, wall - (before + after) / 2))
    return min(found)[1]


class Worker:
    """One process: threads and event loops that check leased windows and record admissions."""

    def __init__(self, job: dict[str, Any], offset: float, records: int, ends: float) -> None:
        from django_slidingwindow.core.limiter import Limiter
        from django_slidingwindow.core.windows import ProfileCheck
        from django_slidingwindow.policies import Policy, Profile
        from django_slidingwindow.stores.redis import RedisStore

        self.job, self.offset, self.records, self.ends = job, offset, records, ends
        self.clock = Clock()
        store = RedisStore("default", budget=30.0)
        self.limiter = Limiter(store, fallback="deny", clock=self.clock, processes=2)
        profiles = [
            Profile(
                name=f"p{number}",
                axis="tenant",
                policies=(
                    Policy(
                        limit=limit,
                        window=window,
                        algorithm=algorithm,
                        lease=lease,
                        lease_seconds=window * LEASE_PART,
                    ),
                ),
            )
            for number, (limit, window, lease, algorithm) in enumerate(job["specs"])
        ]
        self.windows = [
            self.limiter.windows([ProfileCheck(each, "acme", each.policies)]) for each in profiles
        ]

    def run(self) -> None:
        # Leases must not depend on the wall clock.
        time.time = lambda: random.uniform(0, 2e9)  # type: ignore[assignment]
        threads = [threading.Thread(target=self.ask) for _ in range(self.job["threads"])]
        threads += [
            threading.Thread(target=asyncio.run, args=(self.aask(),))
            for _ in range(self.job["loops"])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.limiter.close()

    def ask(self) -> None:
        while self.clock.true() < self.ends:
            number = random.randrange(len(self.windows))
            decision = self.limiter.charge(self.windows[number])
            self.note(number, decision)
            time.sleep(pause_after(decision))

    async def aask(self) -> None:
        while self.clock.true() < self.ends:
            number = random.randrange(len(self.windows))
            decision = await self.limiter.acharge(self.windows[number])
            self.note(number, decision)
            await asyncio.sleep(pause_after(decision))

    def note(self, number: int, decision: Any) -> None:
        if not decision.allowed:
            return
        leased = decision.source == "lease"
        ((_, stamp),) = decision.receipt.parts
        at = self.clock.last if leased else stamp / 1e6 - self.offset
        # Unbuffered, so that no admission is lost if this process is killed.
        os.write(self.records, RECORD.pack(number, leased, at))


def stress(job: dict[str, Any]) -> dict[str, Any]:
    """Run the processes, and return what they admitted."""
    from django_slidingwindow.core.leases import steady_clock

    chance = random.Random(job["seed"])
    offset, ends, done = wall_offset(), steady_clock(), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records"
        records = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        # Import here what the children need, so that they start at once, even on a busy machine.
        Worker(job, offset, records, ends)
        ends = steady_clock() + job["seconds"]

        def start() -> int:
            child = os.fork()
            if child == 0:
                Worker(job, offset, records, ends).run()
                os._exit(0)
            return child

        children = [start() for _ in range(job["processes"])]
        while steady_clock() < ends - 0.3:
            time.sleep(chance.uniform(0.01, 0.1))
            one = chance.randrange(len(children))
            if chance.random() < 0.15:
                os.kill(children[one], signal.SIGKILL)
                os.waitpid(children[one], 0)
                children[one] = start()
                done["killed"] += 1
            else:
                os.kill(children[one], signal.SIGSTOP)
                time.sleep(chance.uniform(0, 0.25))
                os.kill(children[one], signal.SIGCONT)
                done["paused"] += 1
        for child in children:
            _, status = os.waitpid(child, 0)
            assert status == 0, status
        found = list(RECORD.iter_unpack(path.read_bytes()))
    moved = abs(wall_offset() - offset)
    return {"moved": moved, **done, "keys": _summaries(job, found)}


def _summaries(job: dict[str, Any], found: list[Any]) -> list[dict[str, Any]]:
    keys = []
    for number, (limit, window, lease, algorithm) in enumerate(job["specs"]):
        times = sorted(at for of, _, at in found if of == number)
        keys.append(
            {
                "rate": f"{limit}/{window}s",
                "lease": lease,
                "algorithm": algorithm,
                "limit": limit,
                "worst": worst(times, window - TOLERANCE),
                "admitted": len(times),
                "leased": sum(leased for of, leased, _ in found if of == number),
            }
        )
    return keys


def worst(times: list[float], window: float) -> int:
    """Return the highest number of times within any interval of one window."""
    most = first = 0
    for last, at in enumerate(times):
        while at - times[first] >= window:
            first += 1
        most = max(most, last - first + 1)
    return most


def main(url: str, text: str) -> None:
    import django
    from django.conf import settings

    settings.configure(
        SECRET_KEY="stress",
        CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}},
    )
    django.setup()
    print(json.dumps(stress(LONG if text == "long" else json.loads(text)), indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
