"""Measure the cost of a change: python -m benchmarks.compare OTHER_CHECKOUT [...]

Measure this checkout and others in turns, each in its own process, with one Redis and on one core.
Two runs of a benchmark differ, because the machine has other work to do, and because processes have
different memory layouts. So the turns are short, and the processes are started several times.

The bare view and the floor have their own processes too. The first check of a process may slow down
all later requests, and the comparison has to show that.
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
from typing import TypeAlias

from .server import Server, running

ROOT = Path(__file__).resolve().parent.parent
BARE, FLOOR = REFERENCES = ("bare view", "floor")
CALLS = 60
"""Calls in one turn, which takes some milliseconds."""


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
    """Run `compare_side.py` of this checkout with the package of another checkout."""
    source = Path(__file__).with_name("compare_side.py").read_text()
    command = [sys.executable, "-c", source, server.url, prefix]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=checkout, stdin=pipe, stdout=pipe, text=True)


def measure(
    checkouts: Sequence[Path], server: Server, turns: int, random: Random
) -> tuple[dict[str, float], list[dict[str, float]]]:
    """Start the processes; return the times of the references, and of each case of each checkout.

    The time is the first quartile of the turns. For views, the time of the bare view is subtracted.
    """
    with ExitStack() as stack:
        references = {
            case: Side(stack.enter_context(process(ROOT, server, f"reference{number}")))
            for number, case in enumerate(REFERENCES)
        }
        sides = [
            Side(stack.enter_context(process(path, server, f"side{number}")))
            for number, path in enumerate(checkouts)
        ]
        cases = [case for case in sides[0].cases if case not in REFERENCES]
        asked = [(side, case) for side in sides for case in cases]
        asked += [(side, case) for case, side in references.items()]
        taken: dict[tuple[Side, str], list[float]] = {each: [] for each in asked}
        for turn in range(turns + 1):
            for case in (*cases, *REFERENCES):
                found = [each for each in asked if each[1] == case]
                for side, _ in random.sample(found, len(found)):
                    microseconds = side.ask(case, CALLS)
                    # The first turn is not counted, because it makes everything that is made once.
                    if turn:
                        taken[side, case].append(microseconds)
    quartiles = {each: sorted(found)[len(found) // 4] for each, found in taken.items()}
    bare = quartiles[references[BARE], BARE]
    return (
        {BARE: bare, FLOOR: quartiles[references[FLOOR], FLOOR] - bare},
        [{case: quartiles[side, case] - _is_view(case) * bare for case in cases} for side in sides],
    )


def _is_view(case: str) -> bool:
    return case.startswith(("decorator", "middleware"))


Start: TypeAlias = "tuple[dict[str, float], Sequence[dict[str, float]]]"
"""What `measure` returns."""


def table(starts: Sequence[Start]) -> list[str]:
    """Return a line for each case: the microseconds of each checkout, the differences to the first
    checkout, and for views the ratios to the floor.

    Differences and ratios are computed within each start, because the speed of the machine changes.
    """
    lines = []
    for case in REFERENCES:
        lines.append(f"{case:27}{_shown([references[case] for references, _ in starts])}")
    for case in starts[0][1][0]:
        columns = [
            [sides[number][case] for _, sides in starts] for number in range(len(starts[0][1]))
        ]
        first, *others = columns
        cells = [_shown(values) for values in columns]
        for other in others:
            ratios = [100 * (one / base - 1) for one, base in zip(other, first, strict=True)]
            cells.append(f"{mean(ratios):+7.1f} ± {_error(ratios):.1f} %")
        if _is_view(case):
            floors = [references[FLOOR] for references, _ in starts]
            cells += [
                f"{mean(one / floor for one, floor in zip(values, floors, strict=True)):6.2f} x"
                for values in columns
            ]
        lines.append(f"{case:27}" + "  ".join(cells))
    return lines


def _shown(values: Sequence[float]) -> str:
    return f"{mean(values):8.1f} ± {_error(values):.1f}"


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
    print("Microseconds a call, less those of the bare view, the difference to the first, x floor:")
    print("\n".join(table(starts)))


if __name__ == "__main__":
    main()
