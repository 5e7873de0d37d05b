"""What the report says of each section, and which numbers its tables show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple


class Column(NamedTuple):
    title: str
    name: str
    """Of the number in a row."""
    form: Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Chapter:
    """One section of the report."""

    title: str
    intro: str
    columns: list[Column] = field(default_factory=list)
    """None at all: each number of a row is one."""


def times(value: float) -> str:
    return f"{value:.2f}"


def whole(value: float) -> str:
    return f"{value:,.0f}"


def tenth(value: float) -> str:
    return f"{value:,.1f}"


def percent(value: float) -> str:
    return f"{value:.0%}"


HEAD = """
Written by `tox -e bench`; `tox -e bench -- --quick` takes a minute. Rounds of all contenders are
interleaved in one process, so compare ratios, not microseconds: each is taken within a round
against the floor, and the median of the rounds is shown, with the bounds of their middle half.
The floor is redis-py's own EVALSHA of `return 1` through django-redis. Where a single call is
measured, client and Redis share one core, and *× floor* is of the CPU time that both of them
took, which is all the time that a call takes there; *by the clock* has in it what other processes
took meanwhile.
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
        A check called directly. `allowed`: 5,000 keys in turn, 100 in 60 s, each of them met
        before. `refused`: one key at its limit. `big`: 10,000 a day with 9,000 live hits (900 in a
        quick run).
        """,
        _RATIO,
    ),
    "views": Chapter(
        "Django",
        """
        What a limiter adds to a trivial view through the WSGI handler, in the same three cases:
        the bare view's time is taken off, for Django REST framework that of its own bare view;
        bare views stand whole. The floor is a view that calls `get_redis_connection().evalsha` of
        `return 1`. *The least of ours* is no limiter: it sends our script over a bare socket and
        writes the fields, without a time limit, a look at the address, or a decision.
        """,
        _RATIO,
    ),
    "asynchronous": Chapter(
        "Async, 100 at once",
        """
        In one event loop: checks, and requests to an async view through the ASGI handler (whole
        requests: nothing is taken off).
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
        `redis-benchmark -r 500000 -n 1000000 -c 500` by EVALSHA, two in 30,000 s, the key a random
        number (432,000 of them come up). They take turns of a part of these requests, each in a
        database of its own; the server has a core of its own. The article's sorted set takes a
        random number for the time as well, so members seldom collide there; by a real clock they
        do, and it admits too many.
        """,
        [
            Column("requests a second", "per_second", whole),
            Column("server CPU, µs a request", "server_us", times),
            Column("× the article's sorted set", "sorted_set", times),
            Column("used_memory, MB", "memory_mb", tenth),
        ],
    ),
    "memory": Chapter(
        "Memory",
        """
        `MEMORY USAGE` of all the keys of one identifier at 10,000 a day; and `used_memory` of many
        identifiers with two hits each (one is filled, and copied on the server).
        """,
    ),
    "growth": Chapter(
        "Growth",
        """
        Microseconds of CPU a check: against the limit (half of it live), the policies of one
        identifier, the keys in the server, and the cost. The points of a row are interleaved, the
        rows are not: compare along a row. *The least of ours*, which decides nothing and only
        reads and writes every window, is interleaved with our own.
        """,
    ),
    "flood": Chapter(
        "Flood",
        """
        One client far above its limit asks at full speed from a process of its own, beside one
        that asks every 5 ms: what reaches Redis, and what the normal one waits.
        """,
        [
            Column("attempts a second", "attempts", whole),
            Column("Redis commands a second", "commands", tenth),
            Column("server busy", "server_share", percent),
            Column("normal client, median µs", "latency_us", whole),
            Column("99 %, µs", "latency_99_us", whole),
        ],
    ),
    "outage": Chapter(
        "Outage",
        """
        Behind a breaker that is open, beside the same while Redis answers: Redis on this machine,
        on a core of its own, which is as near as it can be; the farther away it is, the less is
        the share. By the clock, the median of the calls of each round; of decorator and middleware,
        what they add to a bare view.
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
        gunicorn with one worker of four threads, asked by wrk over 16 connections. The share is
        taken within a round; for Django REST framework, of its own bare view.
        """,
        [
            Column("requests a second", "per_second", whole),
            Column("of the bare view", "share", percent),
        ],
    ),
    "imports": Chapter(
        "Import",
        """
        What a start of Django pays, by `python -X importtime` and with bytecode that is there: for
        django-redis, and then for this app, all that Django loads of it and what a site imports.
        `python -m benchmarks.start` measures this alone.
        """,
        [Column("× django-redis", "ratio", times), Column("ms", "ms", tenth)],
    ),
}
