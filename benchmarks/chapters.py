"""The text of each section of the report, and the columns of its tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple


class Column(NamedTuple):
    title: str
    name: str
    """The key of the number in a row."""
    form: Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Chapter:
    """One section of the report."""

    title: str
    intro: str
    columns: list[Column] = field(default_factory=list)
    """If empty, there is one column for each number of a row."""


def times(value: float) -> str:
    return f"{value:.2f}"


def whole(value: float) -> str:
    return f"{value:,.0f}"


def tenth(value: float) -> str:
    return f"{value:,.1f}"


def thousandth(value: float) -> str:
    return f"{value:.3f}"


def percent(value: float) -> str:
    return f"{value:.0%}"


HEAD = """
All contenders run in one process and take turns in short rounds, so that a busy moment of the
machine affects all of them. Compare ratios rather than microseconds. A ratio is computed within
each round, against the *floor*: redis-py's own EVALSHA of `return 1` through django-redis. The
tables show the median over the rounds and, in brackets, the range of the middle half of them. Where
a single call is measured, client and Redis share one core, and *× floor* compares the CPU time
of both together. *By the clock* compares elapsed time, which includes the time that other
processes took. *Ours* is django_slidingwindow.
"""

GOALS_HEAD = """
For maintainers: the goals that we measure ourselves against, and where the time goes if a goal is
missed. Written by `tox -e bench` together with [the benchmarks]({page}).
"""

_RATIO = [
    Column("× floor", "ratio", times),
    Column("client µs", "client_us", tenth),
    Column("server µs", "server_us", tenth),
    Column("by the clock, × floor", "wall_ratio", times),
    Column("Redis commands", "commands", whole),
]

CHAPTERS = {
    "library": Chapter(
        "Library",
        """
        `limits.check` called directly, without Django's request handling. `allowed`: 5,000 keys in
        turn, limit 100 in 60 s, every key used before the measurement. `refused`: one key at its
        limit. `big`: limit 10,000 a day with 9,000 stored hits (900 in a quick run).
        """,
        _RATIO,
    ),
    "views": Chapter(
        "Django",
        """
        Time that a limiter adds to a trivial view, called through the WSGI handler, in the same
        three cases. The time of the view without a limiter is subtracted; for Django REST framework
        and django-ninja that of a view of the framework. The rows of the bare views show their
        whole time. The floor is a view that calls `get_redis_connection().evalsha` of `return 1`.
        *The least of ours* is not a limiter. It shows the smallest possible cost of our approach:
        it sends our script over a plain socket and writes the headers, without a time limit, an
        identity or a decision.
        """,
        _RATIO,
    ),
    "asynchronous": Chapter(
        "Async, 100 at once",
        """
        100 tasks in one event loop. `checks` calls `limits.acheck`; `requests` sends requests to an
        async view through the ASGI handler, and shows whole requests: nothing is subtracted.
        """,
        [
            Column("a second", "per_second", whole),
            Column("client µs", "client_us", tenth),
            Column("server µs", "server_us", tenth),
            Column("× floor", "ratio", times),
        ],
    ),
    "articles": Chapter(
        "The articles' own set-up",
        """
        The benchmark of two well-known articles on rate limiting with Redis:
        `redis-benchmark -r 500000 -n 1000000 -c 500` with EVALSHA, limit 2 in 30,000 s, random keys
        (about 432,000 different ones). The scripts take turns, each in its own database; the server
        has a core to itself. The article's sorted set also uses a random number as the time, so
        its members rarely collide here. With a real clock they do, and it admits too many. Beside
        the rate stand the times that 50, 95 and 99 % of the requests did not exceed; most of it is
        waiting, because 500 connections ask one server.
        """,
        [
            Column("requests a second", "per_second", whole),
            Column("50 %, ms", "p50_ms", times),
            Column("95 %, ms", "p95_ms", times),
            Column("99 %, ms", "p99_ms", times),
            Column("server CPU, µs a request", "server_us", times),
            Column("× the article's sorted set", "sorted_set", times),
            Column("used_memory, MB", "memory_mb", tenth),
        ],
    ),
    "memory": Chapter(
        "Memory",
        """
        `MEMORY USAGE` of all keys of one identifier at limit 10,000 a day; and `used_memory` of
        many identifiers with two hits each.
        """,
    ),
    "keys": Chapter(
        "Many keys",
        """
        Keys that were filled by checks, one for each identifier, with a window of a day: the script
        and the arguments of `limits.check`, 1,000 in one round trip. Then checks of random
        identifiers among them, one at a time. Then keys of a short window come beside them and
        expire, while checks of the others go on. Redis looks for expired keys by samples, and stops
        when less than a tenth of a sample has expired. So up to a tenth of all keys may be expired
        ones that stay in its memory. A check treats them as gone. `--size huge` fills 10 million
        keys, about 2 GB.
        """,
    ),
    "growth": Chapter(
        "Growth",
        """
        CPU time of a check in microseconds, as one number grows: the limit (with half of it used),
        the policies of one identifier, the keys in the server, and the cost. The points of one row
        were measured in turns and can be compared; the rows were measured one after another. *The
        least of ours* only reads and writes every window and decides nothing; it took turns with
        `compact`.
        """,
    ),
    "flood": Chapter(
        "Flood",
        """
        One client far above its limit sends checks at full speed from its own process, beside a
        client that sends one every 5 ms.
        """,
        [
            Column("attempts a second", "attempts", whole),
            Column("Redis commands a second", "commands", tenth),
            Column("server busy", "server_share", percent),
            Column("normal client, median µs", "latency_us", whole),
            Column("99 %, µs", "latency_99_us", whole),
        ],
    ),
    "leases": Chapter(
        "Leases",
        """
        A tenant at 10,000 a day whose profile has `"lease": 100`, beside the same profile without
        it. `library` and `Django` as in the sections of these names, one tenant at a time. `a hot
        key`: processes that check one key as fast as they can, limit 50,000,000 in 60 s. They
        share the machine's cores with Redis.
        """,
        [
            Column("× floor", "ratio", times),
            Column("client µs", "client_us", tenth),
            Column("server µs a request", "server_us", tenth),
            Column("checks a second", "per_second", whole),
            Column("Redis commands a request", "commands", thousandth),
        ],
    ),
    "deferred": Chapter(
        "Deferred",
        """
        Elapsed time with a Redis that is 200 ms away: a proxy delays every byte. A profile in the
        mode "deferred", beside the same profile that waits for Redis. For the view, the time of
        the view without a limiter is subtracted.
        """,
        [
            Column("by the clock, × floor", "ratio", thousandth),
            Column("by the clock, µs", "wall_us", whole),
            Column("client µs", "client_us", tenth),
        ],
    ),
    "cluster": Chapter(
        "Cluster",
        """
        A Redis Cluster of three nodes; they and the client share one core. The floor is redis-py's
        `RedisCluster`. `one slot`: all windows of a check have the same identifier. `three slots`:
        three profiles count by different identifiers, each on another node. Such a check peeks
        at all of them and charges all if all admit. With leases it needs no peek.
        """,
        _RATIO,
    ),
    "outage": Chapter(
        "Outage",
        """
        Elapsed time while the breaker is open, beside the usual time, with Redis on the same
        machine on its own core. The further away Redis is, the longer the usual time and the
        smaller the ratio. Median of the calls of each round; for decorator and middleware the time
        that they add to a bare view.
        """,
        [
            Column("× usual", "ratio", times),
            Column("usual µs", "usual_us", tenth),
            Column("behind an open breaker µs", "away_us", tenth),
        ],
    ),
    "endtoend": Chapter(
        "End to end",
        """
        gunicorn with one worker of four threads, loaded by wrk over 16 connections. *Of the bare
        view* is computed within a round; for Django REST framework and django-ninja against a view
        of the framework.
        """,
        [
            Column("requests a second", "per_second", whole),
            Column("of the bare view", "share", percent),
        ],
    ),
    "imports": Chapter(
        "Import",
        """
        Import time at the start of a Django process, measured with `python -X importtime` and
        compiled bytecode: of django-redis, and of this app with everything that Django and a site
        import from it. `python -m benchmarks.start` measures only this.
        """,
        [Column("× django-redis", "ratio", times), Column("ms", "ms", tenth)],
    ),
}
