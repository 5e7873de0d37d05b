"""What a change costs: python -m benchmarks.compare OTHER_CHECKOUT [...]

Measures this checkout and others in turns, each in a process of its own, all with one Redis and on
one core. Two runs of a benchmark differ by what else the machine does, and by where a process
happens to lie in memory. So the turns are short, and the processes are started several times.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from statistics import mean, stdev

from .server import Server, running

ROOT = Path(__file__).resolve().parent.parent
BARE = "bare view"
CALLS = 60
"""In one turn: some milliseconds."""


class Side:
    """A process that measures one checkout."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.cases: list[str] = json.loads(self._answer())

    def ask(self, case: str, calls: int) -> float:
        """Return the microseconds of one call."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{case} {calls}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit("a checkout could not be measured; its error stands above")
        return answer


def process(checkout: Path, server: Server, prefix: str) -> subprocess.Popen[str]:
    """Start `compare_side.py` of this checkout with the package of another."""
    source = Path(__file__).with_name("compare_side.py").read_text()
    command = [sys.executable, "-c", source, server.url, prefix]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=checkout, stdin=pipe, stdout=pipe, text=True)


def measure(
    checkouts: Sequence[Path], server: Server, turns: int, random: Random
) -> list[dict[str, float]]:
    """Start a process of each checkout, and return what each case takes there.

    That is the quickest quarter of the turns; of views, what they take beyond the bare one.
    """
    with ExitStack() as stack:
        sides = [
            Side(stack.enter_context(process(path, server, f"side{number}")))
            for number, path in enumerate(checkouts)
        ]
        taken: list[dict[str, list[float]]] = [{case: [] for case in side.cases} for side in sides]
        for turn in range(turns + 1):
            for case in sides[0].cases:
                for number in random.sample(range(len(sides)), len(sides)):
                    microseconds = sides[number].ask(case, CALLS)
                    # The first turn meets everything that is made once, and is not counted.
                    if turn:
                        taken[number][case].append(microseconds)
    return [_beyond_bare(found) for found in taken]


def _beyond_bare(taken: dict[str, list[float]]) -> dict[str, float]:
    least = {case: sorted(turns)[len(turns) // 4] for case, turns in taken.items()}
    views = [case for case in least if case.startswith(("decorator", "middleware"))]
    return least | {case: least[case] - least[BARE] for case in views}


def table(starts: Sequence[Sequence[dict[str, float]]]) -> list[str]:
    """Return a line for each case: microseconds of each checkout, and what the others differ by."""
    lines = []
    for case in starts[0][0]:
        columns = [[side[case] for side in sides] for sides in zip(*starts, strict=True)]
        first, *others = [mean(values) for values in columns]
        cells = [f"{mean(values):8.1f} ± {_error(values):.1f}" for values in columns]
        cells += [f"{100 * (other / first - 1):+7.1f} %" for other in others]
        lines.append(f"{case:27}" + "  ".join(cells))
    return lines


def _error(values: Sequence[float]) -> float:
    """Return the standard error of the mean."""
    return stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkouts", nargs="+", type=Path, metavar="OTHER_CHECKOUT")
    parser.add_argument("--starts", type=int, default=8, help="of the processes (default: 8)")
    parser.add_argument("--turns", type=int, default=50, help="in each start (default: 50)")
    options = parser.parse_args(arguments)
    checkouts = [*options.checkouts, ROOT]
    random = Random(1)
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder)) as server,
        server.one_core(),
    ):
        starts = [measure(checkouts, server, options.turns, random) for _ in range(options.starts)]
    print("Microseconds a call, less those of the bare view, and the difference to the first:")
    print("\n".join(table(starts)))


if __name__ == "__main__":
    main()
