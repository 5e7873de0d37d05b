"""Is everything in order? What `slidingwindow doctor` tells, as values."""

from __future__ import annotations

import math
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
from ..models import Rejection
from ..policies import Policy
from ..rejections import recorder
from ..rejections import writer as logwriter
from ..stores.protocol import Evaluate, WindowRule
from . import reader as readings
from .search import configured

OK, INFO, WARNING, ERROR = "ok", "info", "warning", "error"

_PROBES = 100
# Seconds that the hosts' clocks may differ before times in the log confuse anybody.
_CLOCK_TOLERANCE = 1.0
_NO_REDIS = (StoreError, NotImplementedError, ImproperlyConfigured)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    name: str
    level: str
    text: str
    data: dict[str, Any] = field(default_factory=dict)
    """The same for programs."""


def examine() -> list[Finding]:
    """All findings: on the server, this process and the project's settings."""
    return [*_server(), _breaker(), *_log(), *_system_checks()]


def _server() -> Iterator[Finding]:
    data = {"alias": conf.cache}
    try:
        readings.store().run_many([_peek()])
    except _NO_REDIS as error:
        text = f"the cache {conf.cache!r} gives no Redis: {error}"
        yield Finding(name="connection", level=ERROR, text=text, data=data)
        return
    text = f"the cache {conf.cache!r} answers"
    yield Finding(name="connection", level=OK, text=text, data=data)
    looks: dict[str, Callable[[], Finding]] = {
        "server": _version,
        "eviction": _eviction,
        "latency": _latency,
        "script": _script,
        "clock": _clock,
    }
    for name, look in looks.items():
        try:
            with readings.only_store_errors():
                yield look()
        except StoreError as error:
            # This user may lack the right to ask; the system checks tell which ones matter.
            yield Finding(name=name, level=WARNING, text=f"not known: {error}")


def _peek() -> Evaluate:
    """A look at a window that is never written."""
    policy = Policy(limit=1, window=1)
    key = make_key(get_limiter().prefix, "doctor", "latency", "doctor", policy)
    return Evaluate((key,), (WindowRule(policy, 1),), False)


def _version() -> Finding:
    info = readings.client().info("server")
    version, mode = info.get("redis_version", "?"), info.get("redis_mode", "?")
    return Finding(
        name="server",
        level=OK,
        text=f"Redis {version}, {mode}",
        data={"version": version, "mode": mode},
    )


def _eviction() -> Finding:
    info = readings.client().info("memory")
    policy, bound = info.get("maxmemory_policy", "noeviction"), info.get("maxmemory", 0)
    data = {"policy": policy, "maxmemory": bound}
    if policy != "noeviction" and bound:
        text = f"{policy}: when memory is short, windows are dropped and limits start anew"
        return Finding(name="eviction", level=WARNING, text=text, data=data)
    text = f"{policy}, " + (f"at {bound:,} bytes" if bound else "memory without a bound")
    return Finding(name="eviction", level=OK, text=text, data=data)


def _latency() -> Finding:
    peek = _peek()
    took = [_timed(lambda: readings.store().run(peek)) for _ in range(_PROBES)]
    return latency(took, conf.latency_budget)


def latency(took: list[float], budget: float) -> Finding:
    """What seconds of checks say, against those that one may take."""
    took = sorted(took)
    data = {f"p{share}_ms": round(_percentile(took, share) * 1000, 3) for share in (50, 95, 99)}
    data["max_ms"] = round(took[-1] * 1000, 3)
    text = ", ".join(f"{name[:-3]} {value} ms" for name, value in data.items())
    slow = _percentile(took, 99) > budget
    if slow:
        text += f": above LATENCY_BUDGET, {budget} s"
    return Finding(name="latency", level=WARNING if slow else OK, text=text, data=data)


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _percentile(ordered: list[float], share: int) -> float:
    return ordered[math.ceil(len(ordered) * share / 100) - 1]


def _script() -> Finding:
    """Scripts are loaded by the first check that needs them: absence is no fault."""
    sets = {in_use(profile.policies) or (profile.algorithm,) for profile in configured()}
    shas = [script(end, names).sha for names in sorted(sets) for end in ("evaluate", "refund")]
    loaded = sum(map(bool, readings.client().script_exists(*shas)))
    return Finding(
        name="script",
        level=OK,
        text=f"version {SCRIPT_VERSION}, {loaded} of {len(shas)} loaded (the rest on first use)",
        data={"version": SCRIPT_VERSION, "loaded": loaded, "known": len(shas)},
    )


def _clock() -> Finding:
    before = time.time()
    seconds, micro = readings.client().time()
    middle = (before + time.time()) / 2
    return clock(seconds + micro / 1_000_000 - middle)


def clock(ahead: float) -> Finding:
    """What it means that Redis's clock is so many seconds ahead of this host's."""
    off = abs(ahead) > _CLOCK_TOLERANCE
    text = f"Redis is {abs(ahead):.3f} s {'ahead of' if ahead > 0 else 'behind'} this host"
    if off:
        text += ": limits follow Redis, but times in the log are the host's"
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
        text=f"{state} in this process; metrics tell of the others",
        data={"state": state},
    )


def _log() -> Iterator[Finding]:
    if not conf.log:
        yield Finding(name="log", level=OK, text="off: SLIDING_WINDOW['LOG'] is False")
        return
    alias = logwriter.log_alias()
    try:
        newest = Rejection.objects.using(alias).values_list("minute", flat=True).first()
    except Error as error:
        text = f"the table in the database {alias!r} cannot be read: {error}"
        yield Finding(name="log", level=ERROR, text=text.strip(), data={"database": alias})
        return
    try:
        logwriter.try_to_write(alias)
    except Error as error:
        text = f"the table in the database {alias!r} cannot be written: {error}"
        yield Finding(name="log", level=ERROR, text=text.strip(), data={"database": alias})
        return
    said = f"newest minute {newest:%Y-%m-%d %H:%M}" if newest else "empty"
    data = {"database": alias, "newest": newest.isoformat() if newest else None}
    yield writer(recorder.stats(), f"the database {alias!r}: {said}", data)


def writer(stats: recorder.Stats, said: str, data: dict[str, Any]) -> Finding:
    """What the numbers say of this process's part of the log."""
    text = (
        f"{said}; in this process {stats.written:,} refusals written, {stats.dropped:,} dropped, "
        f"{stats.unwritten:,} waiting, {stats.failed:,} batches failed"
    )
    if stats.deaths:
        text += f"; the thread that writes died {stats.deaths:,} times"
    if stats.error:
        runs = "" if stats.running else " and no thread writes"
        text += f"; the last attempt failed{runs}: {stats.error}"
    troubled = stats.down or stats.dropped or stats.failed or stats.deaths or stats.error
    return Finding(
        name="log",
        level=WARNING if troubled else OK,
        text=text,
        data={**data, **asdict(stats)},
    )


def _system_checks() -> Iterator[Finding]:
    messages = checks.run_checks(tags=[TAG], include_deployment_checks=True)
    for message in messages:
        level = INFO if message.level < checks.WARNING else WARNING
        yield Finding(
            name=(message.id or "").rpartition(".")[2] or "check",
            level=ERROR if message.level >= checks.ERROR else level,
            text=f"{message.msg} {message.hint or ''}".strip(),
            data={"id": message.id, "hint": message.hint},
        )
    if not messages:
        yield Finding(name="checks", level=OK, text="no system check has anything to say")
