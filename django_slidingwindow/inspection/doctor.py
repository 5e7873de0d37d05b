"""The health checks of `slidingwindow doctor`, as values."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import Error

from ..algorithms.scripts import SCRIPT_VERSION, in_use, script
from ..checks.register import TAG
from ..conf import conf
from ..core.breaker import CLOSED
from ..core.keys import make_key
from ..exceptions import StoreError
from ..guard.current_limiter import get_limiter
from ..models import Rejection, Usage
from ..overrides.watcher import Status, watcher
from ..policies import LOG_ALL, PENALTY, Policy
from ..rejections import recorder
from ..rejections.writer import log_alias, try_to_write
from ..stores.protocol import Evaluate, WindowRule
from . import reader
from .search import configured
from .usage import percentile

OK, INFO, WARNING, ERROR = "ok", "info", "warning", "error"

_PROBES = 100
# Seconds by which the clocks of two hosts may differ. A larger difference makes the times in the
# log confusing.
_CLOCK_TOLERANCE = 1.0
_NO_REDIS = (StoreError, NotImplementedError, ImproperlyConfigured)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one health check."""

    name: str
    level: str
    text: str
    data: dict[str, Any] = field(default_factory=dict)
    """The values in the text, for programs."""


def examine() -> list[Finding]:
    """Return all findings about the server, this process and the project's settings."""
    return [*_server(), _breaker(), _overrides(), *_log(), *_system_checks()]


def _server() -> Iterator[Finding]:
    data = {"alias": conf.cache}
    try:
        reader.store().run(_peek())
    except _NO_REDIS as error:
        text = f"cannot use Redis of the cache {conf.cache!r}: {error}"
        yield Finding(name="connection", level=ERROR, text=text, data=data)
        return
    text = f"Redis of the cache {conf.cache!r} replies"
    yield Finding(name="connection", level=OK, text=text, data=data)
    server_checks: dict[str, Callable[[], Finding]] = {
        "server": _version,
        "eviction": _eviction,
        "latency": _latency,
        "script": _script,
        "clock": _clock,
    }
    for name, check in server_checks.items():
        try:
            with reader.only_store_errors():
                yield check()
        except StoreError as error:
            # The Redis user may lack a permission. The system checks report the important ones.
            yield Finding(name=name, level=WARNING, text=f"unknown: {error}")


def _peek() -> Evaluate:
    """Return a call that reads a window to which nothing is ever written."""
    policy = Policy(limit=1, window=1)
    key = make_key(get_limiter().prefix, "doctor", "latency", "doctor", policy)
    return Evaluate((key,), (WindowRule(policy, 1),), False)


def _version() -> Finding:
    info = reader.client().info("server")
    version, mode = info.get("redis_version", "?"), info.get("redis_mode", "?")
    return Finding(
        name="server",
        level=OK,
        text=f"Redis {version}, {mode}",
        data={"version": version, "mode": mode},
    )


def _eviction() -> Finding:
    info = reader.client().info("memory")
    policy, bound = info.get("maxmemory_policy", "noeviction"), info.get("maxmemory", 0)
    data = {"policy": policy, "maxmemory": bound}
    if policy != "noeviction" and bound:
        text = f"{policy}: when memory is short, Redis deletes windows and limits start again at 0"
        return Finding(name="eviction", level=WARNING, text=text, data=data)
    text = f"{policy}, " + (f"maxmemory {bound:,} bytes" if bound else "no maxmemory")
    return Finding(name="eviction", level=OK, text=text, data=data)


def _latency() -> Finding:
    peek = _peek()
    durations = [_timed(lambda: reader.store().run(peek)) for _ in range(_PROBES)]
    return latency(durations, conf.latency_budget)


def latency(durations: list[float], budget: float) -> Finding:
    """Compare the durations of checks with the latency budget, all in seconds."""
    ordered = sorted(durations)
    data = {f"p{share}_ms": round(percentile(ordered, share) * 1000, 3) for share in (50, 95, 99)}
    data["max_ms"] = round(ordered[-1] * 1000, 3)
    text = ", ".join(f"{name[:-3]} {value} ms" for name, value in data.items())
    slow = percentile(ordered, 99) > budget
    if slow:
        text += f": p99 is above LATENCY_BUDGET ({budget} s)"
    return Finding(name="latency", level=WARNING if slow else OK, text=text, data=data)


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _script() -> Finding:
    """Count the scripts that Redis has loaded.

    A missing script is not a problem: the first check that needs it loads it.
    """
    shas: dict[str, None] = {}
    for profile in configured():
        names = in_use(profile.policies) or (profile.algorithm,)
        evaluated = names if profile.penalty is None else tuple(sorted((*names, PENALTY)))
        shas |= dict.fromkeys([script("evaluate", evaluated).sha, script("refund", names).sha])
    loaded = sum(map(bool, reader.client().script_exists(*shas)))
    return Finding(
        name="script",
        level=OK,
        text=f"version {SCRIPT_VERSION}, {loaded} of {len(shas)} loaded (others load when used)",
        data={"version": SCRIPT_VERSION, "loaded": loaded, "known": len(shas)},
    )


def _clock() -> Finding:
    before = time.time()
    seconds, micro = reader.client().time()
    middle = (before + time.time()) / 2
    return clock(seconds + micro / 1_000_000 - middle)


def clock(ahead: float) -> Finding:
    """Judge by how many seconds the clock of Redis is ahead of the clock of this host."""
    off = abs(ahead) > _CLOCK_TOLERANCE
    text = f"Redis is {abs(ahead):.3f} s {'ahead of' if ahead > 0 else 'behind'} this host"
    if off:
        text += ": limits use the clock of Redis, but times in the log are those of the host"
    return Finding(
        name="clock",
        level=WARNING if off else OK,
        text=text,
        data={"ahead_seconds": round(ahead, 6)},
    )


def _breaker() -> Finding:
    state = get_limiter().breaker.state
    return Finding(
        name="breaker",
        level=OK if state == CLOSED else WARNING,
        text=f"{state} in this process; see the metrics for other processes",
        data={"state": state},
    )


def _overrides() -> Finding:
    if not conf.overrides_seconds:
        text = "off: SLIDING_WINDOW['OVERRIDES_SECONDS'] is 0"
        return Finding(name="overrides", level=OK, text=text)
    before = watcher.status()
    watcher.refresh()
    return overrides(watcher.status(), before.age)


def overrides(status: Status, age: float | None) -> Finding:
    """Judge whether this process can read the overrides.

    `age`: seconds since the last successful read, None if there was none.
    """
    if status.error:
        holds = "the settings hold" if age is None else f"those read {age:.0f} s ago hold"
        text = f"cannot be read, so {holds}: {status.error}"
    else:
        text = f"{status.count:,} read"
    level = WARNING if status.error else OK
    return Finding(name="overrides", level=level, text=text, data=asdict(status))


def _log() -> Iterator[Finding]:
    if not conf.log:
        yield Finding(name="log", level=OK, text="off: SLIDING_WINDOW['LOG'] is False")
        return
    log = table("log", Rejection)
    yield log if log.level == ERROR else writer(recorder.stats(), log.text, log.data)
    if any(profile.log == LOG_ALL for profile in configured()):
        yield table("usage", Usage)


def table(name: str, model: type[Rejection | Usage]) -> Finding:
    """Try to read and to write the table of a log."""
    alias = log_alias(model)
    attempt = "read"
    try:
        rows = model._default_manager.using(alias).order_by("-minute")
        newest = rows.values_list("minute", flat=True).first()
        attempt = "write to"
        try_to_write(alias, model)
    # ImproperlyConfigured: the project has no database.
    except (Error, ImproperlyConfigured) as error:
        text = f"cannot {attempt} the table in the database {alias!r}: {error}"
        return Finding(name=name, level=ERROR, text=text.strip(), data={"database": alias})
    content = f"newest minute {newest.isoformat(timespec='minutes')}" if newest else "empty"
    data = {"database": alias, "newest": newest.isoformat() if newest else None}
    return Finding(name=name, level=OK, text=f"the database {alias!r}: {content}", data=data)


def writer(stats: recorder.Stats, table: str, data: dict[str, Any]) -> Finding:
    """Judge the counters of this process's rejection log. `table` describes the database."""
    text = (
        f"{table}; in this process {stats.written:,} requests written, {stats.dropped:,} dropped, "
        f"{stats.unwritten:,} waiting, {stats.failed:,} batches failed"
    )
    if stats.deaths:
        text += f"; deaths of the writing thread: {stats.deaths:,}"
    if stats.error:
        no_thread = "" if stats.running else " and no writing thread is running"
        text += f"; the last attempt failed{no_thread}: {stats.error}"
    has_problem = stats.down or stats.dropped or stats.failed or stats.deaths or stats.error
    return Finding(
        name="log",
        level=WARNING if has_problem else OK,
        text=text,
        data={**data, **asdict(stats)},
    )


def _system_checks() -> Iterator[Finding]:
    messages = checks.run_checks(tags=[TAG], include_deployment_checks=True)
    for message in messages:
        yield Finding(
            name=(message.id or "").rpartition(".")[2] or "check",
            level=_level(message),
            text=f"{message.msg} {message.hint or ''}".strip(),
            data={"id": message.id, "hint": message.hint},
        )
    if not messages:
        yield Finding(name="checks", level=OK, text="the system checks found no problem")


def _level(message: checks.CheckMessage) -> str:
    if message.level >= checks.ERROR:
        return ERROR
    return WARNING if message.level >= checks.WARNING else INFO
