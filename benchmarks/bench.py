"""What a section is given: the server, the sizes, the bar."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .contenders.base import OURS, UNIQUE_NAME, UNSHIELDED
from .progress import Progress
from .server import Server


@dataclass(frozen=True, slots=True, kw_only=True)
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
    concurrent: int = 100
    article_requests: int = 1_000_000
    article_keys: int = 500_000
    article_clients: int = 500
    article_rounds: int = 10
    hits: tuple[int, ...] = (1, 2, 10, 100, 128, 129, 1_000, 10_000)
    many_keys: int = 1_000_000
    filled_keys: int = 1_000_000
    """Filled by checks, not by copies."""
    expiring_keys: int = 100_000
    """That come beside those, and expire."""
    expiring_window: int = 10
    """Seconds."""
    expiry_looks: tuple[float, ...] = (0, 10, 30)
    """Seconds after the last of them has expired, when those in memory are counted."""
    far_seconds: float = 0.2
    """The round trip to a Redis that is far away."""
    far_rounds: int = 12
    growth_limits: tuple[int, ...] = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
    growth_policies: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 7, 8)
    growth_keys: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    growth_costs: tuple[int, ...] = (1, 10, 100, 1_000)
    flood_seconds: float = 3.0
    hot_processes: int = 8
    hot_seconds: float = 3.0
    outage_rounds: int = 160
    """More than of others: what is added there is a small difference of large times."""
    wrk_seconds: int = 2
    wrk_rounds: int = 5
    starts: int = 25
    """Of Python, to measure what an import takes."""
    few: bool = False
    """Whether a few contenders do, where each takes seconds."""
    flooded: tuple[str, ...] = ()
    """Which of them, by name, if few do."""
    served: tuple[str, ...] = ()
    """Which of them gunicorn serves, by the slugs of their views, if few do."""


FULL = Size(rounds=40, calls=200)
QUICK = Size(
    rounds=12,
    calls=40,
    live=900,
    copies=4,
    article_requests=30_000,
    article_keys=15_000,
    article_rounds=3,
    hits=(1, 2, 10, 100, 128, 129, 1_000),
    many_keys=20_000,
    filled_keys=20_000,
    expiring_keys=10_000,
    expiring_window=2,
    expiry_looks=(0, 1, 3),
    far_rounds=3,
    growth_limits=(10, 1_000, 100_000),
    growth_policies=(1, 2, 4, 8),
    growth_keys=(1_000, 100_000),
    flood_seconds=0.5,
    hot_seconds=1.0,
    outage_rounds=12,
    wrk_seconds=1,
    wrk_rounds=1,
    starts=7,
    few=True,
    flooded=(UNIQUE_NAME, UNSHIELDED, OURS),
    served=("bare", "smart-middleware", "ours-decorator"),
)
TINY = Size(
    rounds=2,
    calls=4,
    keys=8,
    live=20,
    copies=2,
    concurrent=2,
    article_requests=500,
    article_keys=100,
    article_clients=5,
    article_rounds=1,
    hits=(1, 10),
    many_keys=2_000,
    filled_keys=4_000,
    expiring_keys=50,
    expiring_window=1,
    expiry_looks=(0, 0.1),
    far_seconds=0.02,
    far_rounds=2,
    growth_limits=(10, 100),
    growth_policies=(1, 8),
    growth_keys=(10, 100),
    growth_costs=(1, 10),
    flood_seconds=0.2,
    hot_processes=2,
    hot_seconds=0.1,
    outage_rounds=2,
    wrk_seconds=1,
    wrk_rounds=1,
    starts=2,
    few=True,
    flooded=(OURS,),
    served=("bare", "ours-decorator"),
)
# As many keys as the articles ask for: about 2 GB.
HUGE = replace(FULL, filled_keys=10_000_000, expiring_keys=1_000_000)
SIZES = {"full": FULL, "huge": HUGE, "quick": QUICK, "tiny": TINY}


@dataclass(frozen=True, slots=True)
class Bench:
    """The server that is measured, and how much."""

    server: Server
    size: Size
    progress: Progress
