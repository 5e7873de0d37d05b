"""What each section gets: the server, the sizes and the progress bar."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .contenders.base import OURS, UNIQUE_NAME, UNSHIELDED
from .progress import Progress
from .server import Server


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much to measure."""

    rounds: int
    calls: int
    """Calls of each contender in each round."""
    keys: int = 5_000
    live: int = 9_000
    """Hits in the big windows before the first measurement."""
    copies: int = 20
    """Copies of the big window, so that the measured calls do not fill it."""
    concurrent: int = 100
    article_requests: int = 1_000_000
    article_keys: int = 500_000
    article_clients: int = 500
    article_rounds: int = 10
    hits: tuple[int, ...] = (1, 2, 10, 100, 128, 129, 1_000, 10_000)
    many_keys: int = 1_000_000
    filled_keys: int = 1_000_000
    """Keys that are filled by checks instead of copied."""
    expiring_keys: int = 100_000
    """Keys that are added to the filled ones and expire."""
    expiring_window: int = 10
    """The window of the expiring keys, in seconds."""
    expiry_looks: tuple[float, ...] = (0, 10, 30)
    """When to count the keys in memory: seconds after the last one has expired."""
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
    """More than elsewhere, because the result is a small difference of large times."""
    wrk_seconds: int = 2
    wrk_rounds: int = 5
    starts: int = 25
    """Starts of Python, to measure the time of an import."""
    few: bool = False
    """Whether to measure only a few contenders in sections where each takes seconds."""
    flooded: tuple[str, ...] = ()
    """If `few`: the names of the contenders in the section `flood`."""
    served: tuple[str, ...] = ()
    """If `few`: the slugs of the views that gunicorn serves."""


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
# As many keys as in the articles: about 2 GB.
HUGE = replace(FULL, filled_keys=10_000_000, expiring_keys=1_000_000)
SIZES = {"full": FULL, "huge": HUGE, "quick": QUICK, "tiny": TINY}


@dataclass(frozen=True, slots=True)
class Bench:
    """The server to measure, and how much."""

    server: Server
    size: Size
    progress: Progress
