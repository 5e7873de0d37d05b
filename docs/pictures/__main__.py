"""Draw the pictures of the docs, and write the tables of numbers into the pages.

python -m docs.pictures                                     all that needs no server
python scripts/with_redis.py python -m docs.pictures        the memory tables too
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from . import drawing, memory, traffic

DOCS = Path(__file__).resolve().parent.parent
KEYS = (10_000, 100_000, 1_000_000, 10_000_000)


def fill(page: str, name: str, lines: list[str]) -> None:
    """Replace the lines between the two comments of that name in a page."""
    path = DOCS / page
    begin, end = f"<!-- {name}: made by docs/pictures -->", f"<!-- {name}: end -->"
    pattern = re.compile(rf"(?<={re.escape(begin)}\n\n).*?(?=\n\n{re.escape(end)})", re.DOTALL)
    text, count = pattern.subn(lambda _: "\n".join(lines), path.read_text())
    assert count == 1, f"{page} has no place for {name}"
    path.write_text(text)


def numbers() -> list[str]:
    """Return a table of the algorithms on the same traffic."""
    rows = [
        f"| {name} | {edge} | {attack} | {'never' if late <= 0 else f'{late:.1f} s'} |"
        for name, edge, attack, late in traffic.table()
    ]
    return [
        "| 10 in 60 seconds | most let in, at the edge | most let in, attacked | late at most |",
        "|---|---|---|---|",
        *rows,
    ]


def sizes(measured: dict[str, dict[int, int]]) -> list[str]:
    """Return a table of the bytes of one window."""
    head = " | ".join(f"{hits:,} hits" for hits in memory.HITS)
    rows = [
        f"| `{name}` | " + " | ".join(f"{of[hits]:,}" for hits in memory.HITS) + " |"
        for name, of in measured.items()
    ]
    return [f"| bytes of one key | {head} |", "|---" * (1 + len(memory.HITS)) + "|", *rows]


def totals(measured: dict[str, dict[int, int]]) -> list[str]:
    """Return a table of the memory of many full windows."""
    head = " | ".join(f"{keys:,} keys" for keys in KEYS)
    rows = [
        f"| {hits:,} (`{name}`) | "
        + " | ".join(amount(keys * measured[name][hits]) for keys in KEYS)
        + " |"
        for hits in memory.HITS
        for name in ("compact", "log", "counter")
    ]
    return [f"| limit, full | {head} |", "|---" * (1 + len(KEYS)) + "|", *rows]


def amount(size: float) -> str:
    """Return a number of bytes with three digits and a unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def main() -> None:
    for name, picture in (
        ("edge", drawing.edge()),
        ("attack", drawing.attack()),
        ("architecture", drawing.architecture()),
    ):
        (DOCS / "pictures" / f"{name}.svg").write_text(picture.text())
    fill("algorithms.md", "numbers", numbers())
    if "REDIS_URL" in os.environ:
        memory.configure()
        measured = memory.measure()
        (DOCS / "pictures" / "memory.svg").write_text(drawing.memory(measured).text())
        fill("algorithms.md", "memory", sizes(measured))
        fill("scaling.md", "memory", totals(measured))
        print(f"measured on Redis {memory.server()}")


if __name__ == "__main__":
    main()
