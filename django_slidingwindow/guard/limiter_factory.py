"""Make a limiter from the settings, with callbacks that log and send signals."""

from __future__ import annotations

import logging
import time

from .. import signals
from ..conf import conf
from ..core.callbacks import Callbacks, Sent
from ..core.keys import identifier_in
from ..core.limiter import Limiter
from ..core.near_limit import NearLimit
from ..core.shield import Shield
from ..decisions import Decision, Verdict
from ..exceptions import StoreError
from ..stores.factory import store_of
from ..stores.memory import MemoryStore
from ..stores.protocol import Store

logger = logging.getLogger("django_slidingwindow")


def make_store() -> Store:
    """Return the store that the settings name."""
    return store_of(conf.cache, transport=conf.transport, budget=conf.latency_budget)


def make_limiter(store: Store | None = None) -> Limiter:
    """Return a limiter that uses this store, or else the store that the settings name."""
    return Limiter(
        make_store() if store is None else store,
        prefix=conf.prefix,
        fallback=conf.fallback,
        processes=conf.fallback_processes,
        local=MemoryStore(max_keys=conf.fallback_max_keys),
        shield=Shield(conf.shield_seconds),
        budget=conf.latency_budget,
        callbacks=CALLBACKS,
        deferred_seconds=conf.deferred_seconds,
    )


def _checked(decision: Decision, seconds: float | None, error: StoreError | None) -> None:
    signals.send(signals.limit_checked, Limiter, decision=decision, seconds=seconds, error=error)


def _degraded(error: StoreError) -> None:
    logger.error(
        "Redis is away (%s): limits fall back to %r",
        error,
        conf.fallback,
        extra={"alias": conf.cache, "fallback": conf.fallback},
    )
    signals.send(signals.store_degraded, Limiter, alias=conf.cache, error=error)


def _recovered(seconds: float) -> None:
    logger.warning(
        "Redis is back after %.1f s", seconds, extra={"alias": conf.cache, "seconds": seconds}
    )
    signals.send(signals.store_recovered, Limiter, alias=conf.cache, seconds=seconds)


def _leased(profile: str, granted: int, used: int, returned: int) -> None:
    signals.send(
        signals.lease_ended,
        Limiter,
        profile=profile,
        granted=granted,
        used=used,
        returned=returned,
    )


def _freed(decision: Decision, key: str, slots: int) -> None:
    if signals.slots_freed.receivers:
        profiles = {verdict.key: verdict.profile for verdict in decision.verdicts}
        signals.send(signals.slots_freed, Limiter, profile=profiles[key], slots=slots)


def _failed(error: StoreError) -> None:
    global _failure_logged_at
    now = time.monotonic()
    if now - _failure_logged_at >= _LOG_INTERVAL:
        _failure_logged_at = now
        logger.error(
            "Redis could not answer a check (%s): the fallback decided",
            error,
            extra={"alias": conf.cache},
        )


def _sent(sent: Sent) -> None:
    signals.send(signals.deferred_sent, Limiter, **sent._asdict())


def _near(verdict: Verdict) -> None:
    identifier = identifier_in(verdict.key)
    signals.send(signals.limit_near, Limiter, verdict=verdict, identifier=identifier)


CALLBACKS = Callbacks(
    checked=_checked,
    listeners=signals.limit_checked,
    degraded=_degraded,
    recovered=_recovered,
    leased=_leased,
    freed=_freed,
    failed=_failed,
    sent=_sent,
    near=NearLimit(lambda: conf.near_share, _near, signals.limit_near),
)
# Seconds between two log lines about checks that Redis could not answer.
_LOG_INTERVAL = 60.0
_failure_logged_at = float("-inf")
