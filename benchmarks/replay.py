"""Measure the speed and the memory of a replay: python -m benchmarks.replay

Write a log in the combined format, and replay it in its own process. For comparison, awk counts the
requests of each address in the same file. No server is needed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parent.parent
COUNT = "{ seen[$1]++ } END { n = 0; for (i in seen) n++; print NR, n }"


def write(path: Path, lines: int, clients: int) -> None:
    """Write the requests of clients. A few of them send much, and most send little."""
    random = Random(1).random
    stamp, before = "", -1
    with path.open("w") as log:
        for number in range(lines):
            second = number // 500
            if second != before:
                before = second
                moment = time.gmtime(1_794_873_600 + second)
                stamp = time.strftime("%d/%b/%Y:%H:%M:%S +0000", moment)
            client = int(clients * random() ** 3)
            log.write(
                f"10.{client >> 16}.{client >> 8 & 255}.{client & 255} - - [{stamp}] "
                f'"GET /api/items/{number % 977}/ HTTP/1.1" 200 512 "-" "Mozilla/5.0"\n'
            )


def measure(command: list[str]) -> tuple[float, int, str]:
    """Return the CPU time in seconds, the peak memory in bytes, and the output of a process."""
    environment = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "PYTHONPATH": str(ROOT),
    }
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, env=environment, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{command[0]} failed")
        output.seek(0)
        # CPU time, because other processes of the machine must not count.
        return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, output.read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=10_000_000)
    parser.add_argument("--clients", type=int, default=100_000)
    parser.add_argument("--try", dest="tries", action="append", metavar="RATES")
    options = parser.parse_args()
    tries = [word for rates in options.tries or ["60/m"] for word in ("--try", rates)]
    replay = [sys.executable, "-m", "django", "slidingwindow", "replay"]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "access.log"
        write(log, options.lines, options.clients)
        print(
            f"{options.lines:,} lines, {log.stat().st_size / 1e6:,.0f} MB, Python "
            f"{sys.version.split()[0]}"
        )
        for name, command in (
            ("awk", ["awk", COUNT, str(log)]),
            ("replay", [*replay, str(log), *tries, "--format", "plain"]),
        ):
            seconds, peak, output = measure(command)
            print(
                f"{name}: {seconds:.1f} s, {options.lines / seconds:,.0f} lines a second, "
                f"peak {peak / 1e6:,.0f} MB"
            )
            print("\n".join(output.splitlines()[:3]))


if __name__ == "__main__":
    main()
