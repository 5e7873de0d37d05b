"""A judge of leases: is more than the limit admitted in any interval of one window?

`python -m tests.support.lease_judge <redis url> <JSON>` forks processes whose threads and event
loops check leased keys all the time, while it pauses, kills and replaces them at random. All of it
happens on one host, so that one clock measures all admissions: that of CLOCK_BOOTTIME. Prints what
it found as JSON. `python -m tests.support.lease_judge <redis url> long` takes a minute and a half.

An admission happens when this process reads its clock, if the decision came from a lease, and
otherwise when Redis reads its own. The wall clock of the processes is wrong on purpose.
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

# How far readings of Redis's clock and of ours are off when they are compared, in seconds.
TOLERANCE = 0.0002
# Of a window. So long that what was taken at its beginning is used when it is half over.
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
    """Seconds until a caller asks again. Now and then it rests, so that units are used late."""
    if random.random() < 0.01:
        return random.uniform(0, 1)
    return 0 if decision.allowed else random.uniform(0, 0.02)


class Clock:
    """Seconds of CLOCK_BOOTTIME; remembers the last value of each thread."""

    def __init__(self) -> None:
        from django_slidingwindow.core.leases import steady_clock

        self._read = steady_clock
        self._read_last = threading.local()

    def __call__(self) -> float:
        self._read_last.last = self._read()
        return float(self._read_last.last)

    @property
    def last(self) -> float:
        return float(self._read_last.last)


def wall_offset() -> float:
    """How far the wall clock is ahead of the steady one, as exactly as it can be read."""
    from django_slidingwindow.core.leases import steady_clock

    found = []
    for _ in range(200):
        before, wall, after = steady_clock(), time.time_ns() / 1e9, steady_clock()
        found.append((after - before, wall - (before + after) / 2))
    return min(found)[1]


class Crowd:
    """What one process does."""

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
        # Nothing may go by it.
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
        while self.clock() < self.ends:
            number = random.randrange(len(self.windows))
            decision = self.limiter.charge(self.windows[number])
            self.note(number, decision)
            time.sleep(pause_after(decision))

    async def aask(self) -> None:
        while self.clock() < self.ends:
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
        # At once, so that little is lost if this process is killed.
        os.write(self.records, RECORD.pack(number, leased, at))


def judge(job: dict[str, Any]) -> dict[str, Any]:
    """Run the processes, and return what they admitted."""
    from django_slidingwindow.core.leases import steady_clock

    chance = random.Random(job["seed"])
    offset, ends, done = wall_offset(), steady_clock() + job["seconds"], Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records"
        records = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

        def start() -> int:
            child = os.fork()
            if child == 0:
                Crowd(job, offset, records, ends).run()
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
    return {"moved": moved, **done, "keys": _keys(job, found)}


def _keys(job: dict[str, Any], found: list[Any]) -> list[dict[str, Any]]:
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
    """Return the most of these times that lie in one interval of a window."""
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
        SECRET_KEY="judge",
        CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}},
    )
    django.setup()
    print(json.dumps(judge(LONG if text == "long" else json.loads(text)), indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
