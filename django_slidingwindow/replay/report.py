"""The results of a replay, as one record for each candidate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import nsmallest
from typing import Any

from .engine import Replay, Trial
from .readers import Tally
from .times import SECOND, text_of

MOST_AFFECTED = 10


def records(replay: Replay, tally: Tally) -> list[dict[str, Any]]:
    """Return what `--json` prints. Times are in seconds; shares are from 0 to 1."""
    return [_record(replay, index, tally) for index in range(len(replay.trials))]


def _record(replay: Replay, index: int, tally: Tally) -> dict[str, Any]:
    trial = replay.trials[index]
    touched = len(trial.refused_by)
    return {
        "try": trial.candidate.label,
        "profile": trial.candidate.profile,
        "algorithm": trial.candidate.policies[0].algorithm,
        "requests": replay.requests,
        "refused": trial.refused,
        "refused_share": trial.refused / replay.requests,
        **_bounds(replay, trial),
        "identifiers": len(replay.identifiers),
        "identifiers_refused": touched,
        "identifiers_share": touched / len(replay.identifiers),
        "longest_wait": None if trial.longest_wait < 0 else trial.longest_wait / SECOND,
        "busiest_minute": _busiest(replay, index),
        "most_affected": list(_most_affected(replay, trial)),
        "fixed_window": _fixed(trial),
        **({} if replay.suggest is None else {"suggest": list(_suggestions(replay, trial))}),
        "first": text_of(replay.first or 0),
        "last": text_of(replay.last),
        "lines": tally.lines,
        "unreadable": tally.unreadable,
        "unreadable_lines": [
            {"file": file, "line": line, "text": text} for file, line, text in tally.samples
        ],
        "unidentified": tally.unidentified,
        "filtered": tally.filtered,
        "late": tally.late,
    }


def _bounds(replay: Replay, trial: Trial) -> Mapping[str, int | None]:
    if not replay.whole_seconds:
        return {}
    bounds = trial.bounds
    return {
        "refused_least": None if bounds is None else bounds.least,
        "refused_most": None if bounds is None else bounds.most,
    }


def _busiest(replay: Replay, index: int) -> dict[str, Any]:
    minute = replay.timeline.busiest
    assert minute is not None
    return {
        "minute": text_of(minute.stamp),
        "requests": minute.requests,
        "refused": minute.refused[index],
    }


def _most_affected(replay: Replay, trial: Trial) -> Iterator[dict[str, Any]]:
    ranked = nsmallest(
        MOST_AFFECTED, ((-count, identifier) for identifier, count in trial.refused_by.items())
    )
    for negative, identifier in ranked:
        yield {
            "identifier": identifier,
            "requests": replay.identifiers[identifier],
            "refused": -negative,
        }


def _fixed(trial: Trial) -> dict[str, Any]:
    fixed = trial.fixed
    return {
        "refused": fixed.refused,
        "beyond": fixed.beyond,
        "windows": [
            {"limit": policy.limit, "window": policy.window, "most": most}
            for policy, most in zip(trial.candidate.policies, fixed.most, strict=True)
        ],
    }


def _suggestions(replay: Replay, trial: Trial) -> Iterator[dict[str, Any]]:
    assert replay.suggest is not None
    for i, (policy, peaks) in enumerate(zip(trial.candidate.policies, trial.peaks, strict=True)):
        found = peaks.suggest(replay.suggest)
        record: dict[str, Any] = {
            "window": policy.window,
            "limit": found.limit,
            "identifiers_refused": found.touched,
        }
        if replay.whole_seconds:
            # Enough wherever in their seconds the requests came.
            worst = trial.worst_peaks[i]
            record["limit_most"] = None if worst is None else worst.suggest(replay.suggest).limit
        yield record
