"""Short texts for the results of a replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..durations import duration_exact, duration_rounded_up


def name_of(record: Mapping[str, Any]) -> str:
    """Return the name of a candidate for people."""
    return f"{record['profile']}: {record['try']}" if record["profile"] else str(record["try"])


def refused_text(record: Mapping[str, Any]) -> str:
    """Return the refusals, as an interval if the stamps are whole seconds."""
    least, most = record.get("refused_least"), record.get("refused_most")
    if least is None or most is None or least == most:
        return f"{record['refused']:,}"
    return f"{least:,} to {most:,}"


def share_text(value: float) -> str:
    """Return a share in percent; one that is not zero never looks like zero."""
    percent = 100 * value
    if 0 < percent < 0.01:
        return "<0.01%"
    return f"{percent:.2f}%"


def wait_text(seconds: float | None) -> str:
    """Return the longest wait; None means that it never ends, and 0 that nothing was refused."""
    return "for ever" if seconds is None else duration_rounded_up(seconds) if seconds else "-"


def suggestion_text(found: Mapping[str, Any]) -> str:
    """Return a suggested limit for people."""
    text = f"{found['limit']:,} in {duration_exact(found['window'])}"
    most = found.get("limit_most")
    if most is not None and most != found["limit"]:
        text += f", to be sure {most:,}"
    return f"{text} (identifiers touched: {found['identifiers_refused']:,})"
