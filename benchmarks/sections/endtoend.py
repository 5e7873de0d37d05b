"""Requests per second of gunicorn, measured by wrk, with and without a limiter."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec

from ..bench import Bench
from ..contenders.base import ALLOWED, CASES, REFUSED, Case, ViewContender, view_contenders
from ..results import Row
from ..server import HOST, free_port

NAME = "endtoend"
TITLE = "End to end"
OPTIONS = ["--workers", "1", "--worker-class", "gthread", "--threads", "4", "--no-control-socket"]


def run(bench: Bench) -> list[Row]:
    if shutil.which("wrk") is None or find_spec("gunicorn") is None:
        return [Row(NAME, ALLOWED.name, "all", note="wrk or gunicorn is not installed")]
    rows = []
    for case in (ALLOWED, REFUSED):
        rows += _case(bench, case)
    return rows


def _case(bench: Bench, case: Case) -> list[Row]:
    found = [
        contender
        for contender in view_contenders()
        if not contender.is_async
        and contender.cases == CASES
        and (not bench.size.few or contender.slug in bench.size.served)
    ]
    bench.server.flush()
    bench.progress.begin(f"{TITLE}: {case.name}", bench.size.wrk_rounds * len(found))
    rates: dict[str, list[float]] = {contender.name: [] for contender in found}
    with contextlib.ExitStack() as stack:
        urls = {
            contender.name: stack.enter_context(_served(contender, case)) for contender in found
        }
        for url in urls.values():
            _wait_for(url)
        for _ in range(bench.size.wrk_rounds):
            for contender in found:
                rate = _rate(urls[contender.name], bench.size.wrk_seconds)
                rates[contender.name].append(rate)
                bench.progress.step(contender.name)
    names = {contender.slug: contender.name for contender in found}
    rows = []
    for contender in found:
        base = names[contender.base] if contender.base else contender.name
        ratios = [a / b for a, b in zip(rates[contender.name], rates[base], strict=True)]
        values = {
            "per_second": statistics.median(rates[contender.name]),
            "share": statistics.median(ratios),
        }
        rows.append(Row(NAME, case.name, contender.name, values))
    return rows


@contextlib.contextmanager
def _served(contender: ViewContender, case: Case) -> Iterator[str]:
    port = free_port()
    environment = {**os.environ, "BENCH_VIEW": contender.slug, "BENCH_CASE": case.name}
    command = [sys.executable, "-m", "gunicorn", "--bind", f"{HOST}:{port}", *OPTIONS]
    command += ["--log-level", "error", "benchmarks.wsgi:application"]
    with subprocess.Popen(command, env=environment) as server:
        try:
            yield f"http://{HOST}:{port}/{contender.slug}/{case.name}"
        finally:
            server.terminate()


def _wait_for(url: str) -> None:
    """Wait until the first request is answered."""
    deadline = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(url, timeout=10).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _rate(url: str, seconds: int) -> float:
    command = ["wrk", "--threads", "1", "--connections", "16", "--duration", f"{seconds}s", url]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    if found is None:
        raise RuntimeError(f"wrk said {done.stdout[-200:]!r}")
    return float(found[1])
