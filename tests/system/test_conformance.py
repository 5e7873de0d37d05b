"""The comparison in its quick form: every scenario tells a good limiter from a wrong one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from benchmarks.conformance.__main__ import CONTENDERS, FOLDER
from benchmarks.conformance.lab import Lab
from benchmarks.conformance.model import (
    ABSENT,
    ADMITTED,
    BAD,
    GOOD,
    REFUSED,
    Answer,
    Ask,
    AsyncAsk,
    Cell,
    Contender,
    Question,
    Setup,
)
from benchmarks.conformance.scenarios import SCENARIOS, measured
from benchmarks.conformance.scenarios.windows import most_in
from benchmarks.conformance.table import Table
from benchmarks.conformance.worker import load
from benchmarks.server import Server
from tests.support.servers import RedisServer

ROOT = Path(__file__).parent.parent.parent
HERE = "tests.system.test_conformance"


def naive(setup: Setup, timeout: float = 0.2) -> Ask:
    """Return a limiter that makes all the usual mistakes."""
    client: Any = redis.Redis.from_url(setup.redis, socket_timeout=timeout)
    script = client.script_load("return 1")

    def ask(question: Question) -> Answer:
        who = question.forwarded.split(",")[0] or question.client
        client.evalsha(script, 0)
        client.rpush("log", who)
        outcome = ADMITTED
        for number, rate in enumerate(setup.rates):
            now = int(time.time()) // rate.window
            key = f"{number}:{'all' if rate.shared else who}:{now}"
            hits = int(client.get(key) or 0)
            time.sleep(0.001)
            client.set(key, hits + 1, ex=rate.window)
            if hits >= rate.limit:
                outcome = REFUSED
        return Answer(outcome, setup.rate.window)

    return ask


def naive_async(setup: Setup) -> AsyncAsk:
    blocking = naive(setup, timeout=10)

    async def ask(question: Question) -> Answer:
        return blocking(question)

    return ask


def stubborn(setup: Setup) -> Ask:
    """Return a limiter whose window begins anew with every request."""
    client: Any = redis.Redis.from_url(setup.redis)

    def ask(question: Question) -> Answer:
        hits = client.incr(question.client)
        client.expire(question.client, setup.rate.window)
        return Answer(ADMITTED if hits <= setup.rate.limit else REFUSED)

    return ask


NAIVE = Contender(name="naive", module="redis", make=naive, make_async=naive_async)
STUBBORN = Contender(name="stubborn", module="redis", make=stubborn)
MISSING = Contender(name="missing", module="no_such_module", make=naive)
FAILING = Contender(name="failing", module="redis", make=lambda setup: naive(setup)._no_such_thing)

LabOf = Callable[[str], Lab]


@pytest.fixture
def lab(fresh_server: RedisServer) -> LabOf:
    server = Server(fresh_server.url)
    return lambda path: Lab(server, path, quick=True)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_ours_is_good(lab: LabOf, scenario: str) -> None:
    cell = measured(lab(CONTENDERS["ours"]), scenario)
    assert cell.mark == GOOD, cell


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_wrong_limiter_is_found(lab: LabOf, scenario: str) -> None:
    wrong = "STUBBORN" if scenario == "readmission" else "NAIVE"
    cell = measured(lab(f"{HERE}:{wrong}"), scenario)
    assert cell.mark == BAD, cell
    # By the fault that the scenario is about, and not because it fails in any other way.
    assert ("error" in cell.text) == (scenario in ("frozen", "frozen-tuned", "scripts"))


def test_a_peer_that_is_as_good_is_marked_so(lab: LabOf) -> None:
    drf = lab(CONTENDERS["drf"])
    assert measured(drf, "spoofed") == Cell(BAD, "5 of 5", {"passed": 5})
    assert measured(drf, "proxy") == Cell(GOOD, "0 of 5", {"passed": 0})
    assert measured(drf, "async") == Cell(ABSENT, "no async views")


def test_what_cannot_run_is_named(lab: LabOf) -> None:
    assert measured(lab(f"{HERE}:MISSING"), "memory") == Cell(ABSENT, "not installed")
    cell = measured(lab(f"{HERE}:FAILING"), "memory")
    assert cell.mark == BAD
    assert "_no_such_thing" in cell.text


def test_most_in_a_window_is_what_was_surely_within_it() -> None:
    at = [0.0, 0.1, 0.9, 1.05, 1.95]
    answers = [Answer(ADMITTED, sent=second, received=second + 0.01) for second in at]
    answers.insert(2, Answer(REFUSED, sent=0.5, received=0.5))
    assert most_in(answers, 1.0) == 3
    assert most_in([], 1.0) == 0


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.conformance", *arguments]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'scripts'}"}
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_results_are_stored_and_kept(tmp_path: Path) -> None:
    output = ["--quick", "--output", str(tmp_path)]
    done = run(*output, "--contender", "ours", "--contender", f"{HERE}:NAIVE", "subnet", "mapped")
    assert done.returncode == 0, done.stderr
    row = "| IPv6 addresses of one /64 | 0 of 5 get past the limit | ✔ 0 of 5 | ✘ 5 of 5 |"
    assert row in done.stdout
    assert done.stdout.strip() in (tmp_path / "conformance.md").read_text(encoding="utf-8")
    again = run(*output, "--contender", f"{HERE}:STUBBORN", "subnet")
    assert again.returncode == 0, again.stderr
    table = Table.load(tmp_path)
    assert table.contenders == ["**django_slidingwindow**", "naive", "stubborn"]
    assert table.scenarios == ["mapped", "subnet"]
    assert table.shown("mapped", "stubborn") == ""
    assert table.facts["redis server"]


def test_an_unknown_scenario_is_refused() -> None:
    done = run("nonsense")
    assert done.returncode == 2
    assert "there is no scenario nonsense" in done.stderr


def test_stored_results_are_complete() -> None:
    table = Table.load(FOLDER)
    names = [load(path).name for path in CONTENDERS.values()]
    assert table.contenders == names
    assert set(table.cells) == {(slug, name) for slug in SCENARIOS for name in names}
    assert (FOLDER / "conformance.md").read_text(encoding="utf-8") == table.page()
    assert "not installed" not in table.page()
