"""What a section is given: the server, the sizes, the bar."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .progress import Progress
from .server import Server


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    rounds: int
    calls: int
    """Of each contender in each round."""
    keys: int = 5_000
    live: int = 9_000
    """Hits in the big windows before the measuring."""
    copies: int = 20
    """Of the big window, so that measuring does not fill it."""


FULL = Size(rounds=60, calls=200)
QUICK = Size(rounds=12, calls=60, live=900, copies=4)
TINY = Size(rounds=2, calls=4, keys=8, live=20, copies=2)
SIZES = {"full": FULL, "quick": QUICK, "tiny": TINY}


@dataclass(frozen=True, slots=True)
class Bench:
    server: Server
    size: Size
    progress: Progress
    folder: Path
    """For files that are gone afterwards."""
