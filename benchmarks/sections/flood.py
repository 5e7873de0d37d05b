"""One abusive client at full speed, in its own process, beside a normal client."""

from __future__ import annotations

import subprocess
import sys
import time

from ..bench import Bench
from ..contenders.base import ALLOWED, Check, Contender, contenders
from ..measure import MICRO, middle
from ..results import Row

NAME = "flood"
TITLE = "Flood"
CASE = "one abusive client"
# Seconds between two checks of the normal client.
PAUSE = 0.005


def run(bench: Bench) -> list[Row]:
    found = [
        contender
        for contender in contenders()
        if contender.stores and (not bench.size.few or contender.name in bench.size.flooded)
    ]
    bench.progress.begin(TITLE, len(found))
    rows = []
    for contender in found:
        try:
            rows.append(_flooded(bench, contender))
        except Exception as error:  # noqa: BLE001, the report shows peers that fail
            rows.append(Row(NAME, CASE, contender.name, note=f"failed: {error}"))
        bench.progress.step(contender.name)
    return rows


def _flooded(bench: Bench, contender: Contender) -> Row:
    server, seconds = bench.server, bench.size.flood_seconds
    server.flush()
    check = contender.make(ALLOWED)
    check("warm")
    command = [sys.executable, "-m", "benchmarks.flooder", contender.name, str(seconds)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as flooder:
        assert flooder.stdin is not None
        assert flooder.stdout is not None
        assert flooder.stdout.readline() == "ready\n"
        server.client.config_resetstat()
        before = server.cpu()
        flooder.stdin.write("go\n")
        flooder.stdin.flush()
        took = _normal(check, seconds)
        used = server.cpu() - before
        attempts = int(flooder.stdout.readline())
    stats = server.client.info("commandstats")
    scripts = sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))
    took.sort()
    return Row(
        NAME,
        CASE,
        contender.name,
        {
            "attempts": attempts / seconds,
            "commands": (scripts - len(took)) / seconds,
            "server_share": used / seconds,
            "latency_us": middle(took)[0] * MICRO,
            "latency_99_us": took[int(len(took) * 0.99)] * MICRO,
        },
    )


def _normal(check: Check, seconds: float) -> list[float]:
    took: list[float] = []
    end = time.perf_counter() + seconds
    number = 0
    while (start := time.perf_counter()) < end:
        number += 1
        check(f"normal{number % 100}")
        took.append(time.perf_counter() - start)
        time.sleep(PAUSE)
    return took
