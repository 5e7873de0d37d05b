"""A replay has the same results as brute force."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_slidingwindow.exceptions import PolicyError
from django_slidingwindow.policies import ALGORITHMS, Policy, Profile
from django_slidingwindow.replay.candidates import (
    Candidate,
    from_profile,
    parse_share,
    parse_try,
)
from django_slidingwindow.replay.engine import Replay
from django_slidingwindow.replay.formats import Names
from django_slidingwindow.replay.identify import identify_by
from django_slidingwindow.replay.ordering import in_order
from django_slidingwindow.replay.readers import Entry, LogFile, Reading, Tally
from django_slidingwindow.replay.report import MOST_AFFECTED, records
from django_slidingwindow.replay.store import ReplayStore
from django_slidingwindow.replay.timeline import COLUMNS, MINUTE, Minute, Timeline
from django_slidingwindow.replay.times import SECOND, Stamps
from tests.support.clock import START
from tests.support.replay_oracle import refusals, requests

windows = st.sampled_from([0.5, 1, 2, 2.5, 10, 60])
policies = st.builds(
    Policy,
    limit=st.integers(0, 5),
    window=windows,
    algorithm=st.sampled_from(ALGORITHMS),
    resolution=st.sampled_from([1, 2, 10, 60]),
)
candidates = st.builds(
    lambda policies, count_rejected: Candidate(
        label="x", policies=tuple(policies), count_rejected=count_rejected
    ),
    st.lists(policies, min_size=1, max_size=2),
    st.booleans(),
)


def fixed(entries: list[Entry], policies: tuple[Policy, ...]) -> tuple[int, int, list[int]]:
    """Return how many requests fixed windows refuse, admit beyond the limit, and admit at most."""
    kept: list[Entry] = []
    beyond, most = 0, [0] * len(policies)
    for stamp, identifier in entries:
        mine = [time for time, name in kept if name == identifier]
        if any(
            sum(time // policy.window_us == stamp // policy.window_us for time in mine)
            >= policy.limit
            for policy in policies
        ):
            continue
        kept.append((stamp, identifier))
        recent = [1 + sum(t > stamp - policy.window_us for t in mine) for policy in policies]
        most = list(map(max, most, recent))
        beyond += any(n > policy.limit for n, policy in zip(recent, policies, strict=True))
    return len(entries) - len(kept), beyond, most


def replayed(entries: list[Entry], *tried: Candidate, **options: Any) -> list[dict[str, Any]]:
    replay = Replay(tried, **options)
    replay.run(entries)
    return records(replay, Tally())


def written(path: Path, entries: list[Entry]) -> Path:
    """Write a log with all digits of the stamps, and with lines that are out of order."""
    lines = [
        json.dumps({"time": f"{stamp // SECOND}.{stamp % SECOND:06}", "ip": identifier})
        for stamp, identifier in entries
    ]
    for i in range(0, len(lines) - 3, 4):
        lines[i], lines[i + 3] = lines[i + 3], lines[i]
    path.write_text("\n".join(lines))
    return path


@settings(max_examples=200)
@given(entries=requests(), candidate=candidates)
def test_replay_of_a_log_equals_brute_force(
    tmp_path_factory: pytest.TempPathFactory, entries: list[Entry], candidate: Candidate
) -> None:
    names, tally = Names(), Tally()
    reading = Reading(
        log_format="json", stamps=Stamps(), names=names, identify=identify_by("field:ip", names)
    )
    path = written(tmp_path_factory.getbasetemp() / "random.log", entries)
    replay = Replay([candidate])
    with closing(LogFile(str(path))) as log:
        replay.run(in_order([log.entries(reading, tally)], tally, buffer=3))
    (record,) = records(replay, tally)
    assert (tally.lines, tally.late) == (len(entries), 0)

    found = refusals(entries, candidate)
    refused = Counter(identifier for _, identifier, _ in found)
    sent = Counter(identifier for _, identifier in entries)
    waits = [wait for *_, wait in found]
    assert record["requests"] == len(entries)
    assert record["refused"] == len(found)
    assert record["identifiers"] == len(sent)
    assert record["identifiers_refused"] == len(refused)
    expected = None if -1 in waits else max(waits, default=0) / SECOND
    assert record["longest_wait"] == expected
    assert record["most_affected"] == [
        {"identifier": name, "requests": sent[name], "refused": refused[name]}
        for name in sorted(refused, key=lambda name: (-refused[name], name))
    ]
    by_minute = Counter(stamp // MINUTE for stamp, _ in entries)
    busiest = min(by_minute, key=lambda minute: (-by_minute[minute], minute))
    assert record["busiest_minute"]["requests"] == by_minute[busiest]
    assert record["busiest_minute"]["refused"] == sum(
        stamp // MINUTE == busiest for stamp, *_ in found
    )
    compared = record["fixed_window"]
    most = [window["most"] for window in compared["windows"]]
    assert (compared["refused"], compared["beyond"], most) == fixed(entries, candidate.policies)


@settings(max_examples=60)
@given(
    entries=requests(most=15),
    policy=policies,
    share=st.sampled_from(["0%", "33.3%", "34%", "50%", "100%"]),
)
def test_suggested_limit_is_the_smallest_of_all_limits(
    entries: list[Entry], policy: Policy, share: str
) -> None:
    (record,) = replayed(
        entries, Candidate(label="x", policies=(policy,)), suggest=parse_share(share)
    )
    allowed = parse_share(share) * len({identifier for _, identifier in entries})
    for limit in range(len(entries) + 1):
        tried = Policy(
            limit=limit,
            window=policy.window,
            algorithm=policy.algorithm,
            resolution=policy.resolution,
        )
        touched = {name for _, name, _ in refusals(entries, Candidate(label="", policies=(tried,)))}
        if len(touched) <= allowed:
            break
    (found,) = record["suggest"]
    assert (found["limit"], found["identifiers_refused"]) == (limit, len(touched))
    assert found.get("limit_most", limit) >= limit


def test_suggestion_has_no_upper_limit_for_the_longest_window() -> None:
    (record,) = replayed([(START, "a")], parse_try("1/400d"), suggest=Fraction(0))
    assert record["suggest"][0]["limit_most"] is None
    assert record["refused_most"] is None


def test_replay_store_forgets_empty_windows() -> None:
    store = ReplayStore(parse_try("5/m").policies)
    for i in range(4_000):
        store.hit(START + i * SECOND, f"client {i}")
        assert len(store) <= 60 + 2 * 64


def test_only_the_ten_most_affected_are_listed() -> None:
    entries = [(START, f"{i:02}") for i in range(20) for _ in range(i)]
    (record,) = replayed(entries, parse_try("1/s"))
    assert len(record["most_affected"]) == MOST_AFFECTED
    assert record["most_affected"][0] == {"identifier": "19", "requests": 19, "refused": 18}


def test_progress_is_reported_every_10_000_requests() -> None:
    calls: list[int] = []
    replay = Replay([parse_try("1/s")])
    replay.run(((START + i, "a") for i in range(20_000)), lambda: calls.append(replay.requests))
    assert calls == [10_000, 20_000]


@settings(max_examples=50)
@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=30, unique=True),
    st.sampled_from([1, 50, 1_000, 50_000]),
)
def test_timeline_keeps_all_counts_in_few_columns(places: list[int], scale: int) -> None:
    minutes = [START // MINUTE + place * scale for place in sorted(places)]
    timeline = Timeline(1)
    for i, minute in enumerate(minutes):
        timeline.add(Minute(stamp=minute * MINUTE, requests=i + 2, refused=(1,)))
    assert len(timeline.requests) <= COLUMNS
    length = timeline.minutes * MINUTE
    shown = dict(zip(timeline.stamps(), timeline.requests, strict=True))
    assert all(stamp % length == 0 for stamp in shown)
    wanted: Counter[int] = Counter()
    for i, minute in enumerate(minutes):
        wanted[minute * MINUTE // length * length] += i + 2
    assert {stamp: count for stamp, count in shown.items() if count} == wanted
    assert sum(timeline.refused[0]) == len(minutes)
    assert timeline.busiest is not None
    assert timeline.busiest.stamp == minutes[-1] * MINUTE


def test_candidates_are_rates_or_a_profile() -> None:
    tried = parse_try("60/m, 500/h", algorithm="log")
    assert tried.label == "60/m,500/h"
    assert [policy.label for policy in tried.policies] == ["60/60s", "500/3600s"]
    own = from_profile(
        Profile(name="search", axis="ip", policies=tried.policies, count_rejected=True)
    )
    assert (own.label, own.profile, own.count_rejected) == ("60/60s,500/3600s", "search", True)
    with pytest.raises(PolicyError, match="has no '/'"):
        parse_try("60/m,")


@pytest.mark.parametrize("text", ["1", "x%", "-1%", "101%", "1%%", "%", "1/0%", "1% "])
def test_share_is_a_percentage(text: str) -> None:
    with pytest.raises(ValueError, match="is not a share"):
        parse_share(text)
    assert parse_share("0.1%") == Fraction(1, 1000)
