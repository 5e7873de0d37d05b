"""Import time of this app and of django-redis at the start of Django, by `python -X importtime`.

`python -m benchmarks.start` prints both and their ratio.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .loading import APP
from .measure import middle

ROOT = Path(__file__).resolve().parent.parent
THEIRS, OURS = "== django-redis", "== the app"

_LINE = re.compile(r"import time:\s+(\d+) \|")
# One process imports both, so that a busy machine slows down both of them.
_CHILD = f"""
import sys
from benchmarks import loading
loading.begin()
print({THEIRS!r}, file=sys.stderr, flush=True)
loading.import_django_redis()
print({OURS!r}, file=sys.stderr, flush=True)
loading.import_app()
"""


def starts(count: int) -> Iterator[tuple[float, float]]:
    """Yield the import times of django-redis and the app in seconds, each pair in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        # Keep the bytecode, as a site does. The first start writes it.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "PYTHONPATH": str(ROOT)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        _times(environment)
        for _ in range(count):
            yield _times(environment)


def _times(environment: dict[str, str]) -> tuple[float, float]:
    command = [sys.executable, "-X", "importtime", "-c", _CHILD]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    _, _, rest = done.stderr.partition(THEIRS)
    theirs, _, ours = rest.partition(OURS)
    return _seconds(theirs), _seconds(ours)


def _seconds(text: str) -> float:
    """Return the sum of the times of all imported modules, each without its own imports."""
    return sum(int(own) for own in _LINE.findall(text)) / 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start", description=__doc__)
    parser.add_argument("--count", type=int, default=15, help="how many processes are started")
    pairs = list(starts(parser.parse_args().count))
    theirs, ours = (middle([pair[i] for pair in pairs])[0] * 1_000 for i in (0, 1))
    ratio, low, high = middle([ours / theirs for theirs, ours in pairs])
    print(
        f"django-redis {theirs:.1f} ms, {APP} {ours:.1f} ms: "
        f"{ratio:.2f} times as long ({low:.2f} to {high:.2f}, {len(pairs)} starts)"
    )


if __name__ == "__main__":
    main()
