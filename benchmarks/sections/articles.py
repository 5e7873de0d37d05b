"""The set-up of the articles: redis-benchmark with 500 connections and random keys."""

from __future__ import annotations

import shutil
import statistics
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from django_slidingwindow.policies import Policy
from django_slidingwindow.stores.commands import encode
from django_slidingwindow.stores.protocol import Evaluate, WindowRule

from ..bench import Bench
from ..contenders.articles import SOURCES
from ..contenders.base import FLOOR, OURS, SORTED_SET_NAME, UNIQUE_NAME
from ..results import Row

NAME = "articles"
TITLE = "The articles' set-up"
CASE = "redis-benchmark"
KEY = "__rand_int__"
# The arguments of their scripts: now, window and limit. Keys and times are random.
ARGUMENTS = [KEY.encode(), b"30000", b"2"]
# The contenders of a quick run.
FEW = (SORTED_SET_NAME, UNIQUE_NAME, OURS)
PARTS = ("p50", "p95", "p99")
OWN_KEYS = "ours, compact, under its own key names"


class Round(NamedTuple):
    """One run of redis-benchmark."""

    server: float
    """Seconds of CPU time of the server per request."""
    per_second: float
    latency: tuple[float, ...]
    """Milliseconds that 50, 95 and 99 % of the requests do not exceed."""


def run(bench: Bench) -> list[Row]:
    if shutil.which("redis-benchmark") is None:
        return [Row(NAME, CASE, "all", note="redis-benchmark is not installed (redis-tools)")]
    size = bench.size
    commands = _commands(bench)
    bench.progress.begin(TITLE, size.article_rounds * len(commands))
    bench.server.flush()
    rounds: dict[str, list[Round]] = {name: [] for name in commands}
    for _ in range(size.article_rounds):
        # Each command has its own database, so that it keeps its keys from turn to turn.
        for database, (name, arguments) in enumerate(commands.items()):
            rounds[name].append(_once(bench, database, arguments))
            bench.progress.step(name)
    rows = []
    for database, name in enumerate(commands):
        values = {
            "per_second": statistics.median(each.per_second for each in rounds[name]),
            "server_us": statistics.median(each.server for each in rounds[name]) * 1e6,
            "memory_mb": bench.server.memory_of_keys(database) / 1e6,
        }
        for number, part in enumerate(PARTS):
            values[f"{part}_ms"] = statistics.median(each.latency[number] for each in rounds[name])
        for what, other in (("sorted_set", SORTED_SET_NAME), ("unique", UNIQUE_NAME)):
            pairs = zip(rounds[name], rounds[other], strict=True)
            values[what] = statistics.median(ours.server / theirs.server for ours, theirs in pairs)
        rows.append(Row(NAME, CASE, name, values))
    return rows


def _once(bench: Bench, database: int, arguments: Sequence[bytes]) -> Round:
    size, server = bench.size, bench.server
    requests = size.article_requests // size.article_rounds
    command = ["redis-benchmark", "-p", str(server.port), "--dbnum", str(database), "--csv"]
    command += ["-r", str(size.article_keys), "-n", str(requests)]
    command += ["-c", str(size.article_clients)]
    before = server.cpu()
    with server.own_core():
        done = subprocess.run(
            [*map(str.encode, command), *arguments], capture_output=True, check=False
        )
    used = server.cpu() - before
    # The output is a line of titles and a line of numbers. The first column is the command.
    lines = done.stdout.decode(errors="replace").splitlines()
    if done.returncode or len(lines) < 2:
        raise RuntimeError(f"redis-benchmark said {done.stderr or done.stdout[-300:]!r}")
    titles = lines[0].replace('"', "").split(",")[1:]
    numbers = lines[-1].replace('"', "").rsplit(",", len(titles))[1:]
    found = dict(zip(titles, map(float, numbers), strict=True))
    return Round(
        used / requests, found["rps"], tuple(found[f"{part}_latency_ms"] for part in PARTS)
    )


def _commands(bench: Bench) -> dict[str, list[bytes]]:
    def evalsha(source: str, arguments: list[bytes]) -> list[bytes]:
        sha = bench.server.client.script_load(source)
        return [b"evalsha", sha, b"1", KEY.encode(), *arguments]

    found = {FLOOR.replace("redis-py's ", ""): evalsha("return 1", ARGUMENTS)}
    for name, source in SOURCES.items():
        # Their window is in seconds.
        found[name] = evalsha(source.replace("PEXPIRE", "EXPIRE"), ARGUMENTS)
    for algorithm in ("compact", "log", "buckets", "counter"):
        name = OURS if algorithm == "compact" else f"ours, {algorithm}"
        found[name] = _ours(bench, algorithm, KEY)
    if bench.size.few:
        return {name: found[name] for name in found if name.startswith("floor") or name in FEW}
    found[OWN_KEYS] = _ours(bench, "compact", f"throttle:ip:{{{KEY}}}:ip_public:c30000")
    return found


def _ours(bench: Bench, algorithm: str, key: str) -> list[bytes]:
    """Return our command. The script sets its packed argument itself.

    redis-benchmark cuts arguments at their first zero byte. So another argument of the same length
    is sent, and the server reads and keeps as much as usual.
    """
    policy = Policy(limit=2, window=30_000, algorithm=algorithm)
    command = encode(Evaluate((key,), (WindowRule(policy, 1),), writes=True), None)
    assert command.script is not None
    *sent, packed = _arguments(command.payload)
    escaped = "".join(f"\\{byte:03}" for byte in packed)
    before = ["EVALSHA", "its SHA", "how many keys", "the key"]
    source = f"ARGV[{len(sent) - len(before) + 1}] = '{escaped}'\n{command.script.source}"
    sent[1] = bench.server.client.script_load(source)
    return [*sent, b"x" * len(packed)]


def _arguments(payload: bytes) -> list[bytes]:
    """Return the arguments of a packed command."""
    count, _, rest = payload[1:].partition(b"\r\n")
    found = []
    for _ in range(int(count)):
        length, _, rest = rest[1:].partition(b"\r\n")
        found.append(rest[: int(length)])
        rest = rest[int(length) + 2 :]
    return found
