"""Where a penalty is visible: responses, log, metrics, live keys, commands and the admin."""

from __future__ import annotations

import io
import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command
from django.http import HttpResponse
from django.test import RequestFactory
from django.urls import reverse

from django_slidingwindow import decisions, limits
from django_slidingwindow.algorithms.decode import DECODERS
from django_slidingwindow.algorithms.scripts import script
from django_slidingwindow.contrib.debug_toolbar import _window_row
from django_slidingwindow.contrib.metrics import REFUSALS, Receivers
from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.guard import override_snapshot
from django_slidingwindow.inspection import doctor
from django_slidingwindow.inspection import windows as inspection
from django_slidingwindow.inspection.search import Filters
from django_slidingwindow.models import Rejection
from django_slidingwindow.rejections import recorder
from django_slidingwindow.testing import limits_in_memory
from tests.support.override_factories import limited, put

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.test import Client
    from redis import Redis

ADDRESS = "203.0.113.9"
STEPS = {"after": "2/10m", "steps": ["1h", "1d"]}
PROFILES: dict[str, dict[str, Any]] = {
    "login": {"axis": "ip", "rates": ["1/m", "50/h"], "penalty": STEPS},
    "trial": {"axis": "ip", "rate": "1/m", "penalty": STEPS, "mode": "observe"},
    "asked": {"axis": "ip", "rate": lambda identifier, request: "1/m", "penalty": STEPS},
}
KEY = f"throttle:ip:{{{ADDRESS}}}:login:p600"

pytestmark = pytest.mark.usefixtures("profiles")


@pytest.fixture
def profiles(settings: Any) -> Iterator[None]:
    settings.SLIDING_WINDOW = {"PROFILES": PROFILES, "LATENCY_BUDGET": 5.0}
    yield
    override_snapshot.publish(None)


def block(profile: str = "login", who: str = ADDRESS) -> None:
    """Cause a block: one admission, two tolerated refusals, and one more refusal."""
    for _ in range(4):
        limits.check(profile, who)


@rate_limit("login")
def login(request: Any) -> HttpResponse:
    return HttpResponse("welcome")


@rate_limit("trial")
def trial(request: Any) -> HttpResponse:
    return HttpResponse("welcome")


def visit(view: Any, times: int) -> list[HttpResponse]:
    factory = RequestFactory(headers={"Accept": "application/json"})
    return [view(factory.get("/login/", REMOTE_ADDR=ADDRESS)) for _ in range(times)]


# Responses, log and metrics


@pytest.mark.usefixtures("redis")
@pytest.mark.django_db
def test_responses_log_and_metrics_of_a_block() -> None:
    seen: list[tuple[str, ...]] = []
    receivers = Receivers(lambda metric, value, labels: seen.append((metric.name, *labels)))
    receivers.connect()
    try:
        *_, last = visit(login, 5)
        watched = visit(trial, 5)
    finally:
        receivers.disconnect()
    assert last.status_code == 429
    assert 3_595 < int(last.headers["Retry-After"]) <= 3_600
    assert '"login:60s";r=0;t=' in last.headers["RateLimit"]
    problem = json.loads(last.content)
    assert problem["type"].endswith("#quota-exceeded")
    assert problem["violated-policies"] == ["login:60s", "login:3600s"]
    assert {response.status_code for response in watched} == {200}
    recorder.flush()
    rows = Rejection.objects.order_by("profile", "reason", "source")
    assert [(row.profile, row.reason, row.source, row.hits) for row in rows] == [
        ("login", "limit", "redis", 1),
        ("login", "limit", "shield", 1),
        ("login", "penalty", "redis", 1),
        ("login", "penalty", "shield", 1),
        ("trial", "observe", "redis", 2),
        ("trial", "observe_penalty", "redis", 2),
    ]
    assert {row.identifier for row in rows} == {ADDRESS}
    assert rows[2].retry_after == pytest.approx(3_600, abs=1)
    refusals = [labels for name, *labels in seen if name == REFUSALS.name]
    assert refusals.count(["login", "penalty", "shield"]) == 1
    assert refusals.count(["trial", "observe_penalty", "redis"]) == 2
    assert refusals.count(["trial", "observe", "redis"]) == 2


def test_panel_of_the_toolbar_names_the_penalty() -> None:
    with limits_in_memory():
        block()
        block("trial")
        refused, watched = [limits.check(name, ADDRESS) for name in ("login", "trial")]
    outcomes = [_window_row(one.verdicts[0])["outcome"] for one in (refused, watched)]
    assert outcomes == [
        "refused: blocked by the penalty",
        "would be refused: blocked by the penalty (observe)",
    ]


# Overrides


def test_exempt_identifier_is_neither_blocked_nor_counted() -> None:
    with limits_in_memory() as clock:
        block()
        put("login", ADDRESS, action="exempt")
        assert {limits.check("login", ADDRESS).reason for _ in range(9)} == {"exempt"}
        override_snapshot.publish(None)
        assert limits.check("login", ADDRESS).reason == "penalty"
        clock.advance(3_600)
        assert limits.check("login", ADDRESS).allowed


def test_observed_identifier_is_not_blocked() -> None:
    with limits_in_memory():
        put("login", ADDRESS, action="observe")
        decided = [limits.check("login", ADDRESS) for _ in range(6)]
        assert all(one.allowed for one in decided)
        assert [one.verdicts[0].blocked for one in decided] == [False] * 3 + [True] * 3
        override_snapshot.publish(None)
        assert limits.check("login", ADDRESS).reason == "penalty"


def test_overridden_limit_keeps_its_penalty_and_an_operators_block_does_not_count() -> None:
    with limits_in_memory():
        put("login", ADDRESS, action="block")
        assert {limits.check("login", ADDRESS).reason for _ in range(9)} == {"block"}
        override_snapshot.publish(None)
        put("login", ADDRESS, **limited((3, 60.0)))
        reasons = [limits.check("login", ADDRESS).reason for _ in range(7)]
        assert reasons == ["allowed"] * 3 + ["limit"] * 2 + ["penalty"] * 2


def test_rate_from_a_function_keeps_the_penalty_of_its_profile() -> None:
    with limits_in_memory():
        block("asked")
        assert limits.check("asked", ADDRESS).reason == "penalty"
        assert limits.reset("asked", ADDRESS) == 2
        assert limits.check("asked", ADDRESS).allowed


# Live keys


def states(**filters: Any) -> dict[str, inspection.KeyState]:
    return {state.key: state for state in inspection.walk(Filters(**filters))}


def test_live_keys_show_refusals_and_blocks(redis: Redis) -> None:
    limits.check("login", ADDRESS)
    limits.get_limiter().shield.clear()
    limits.check("login", ADDRESS)
    state = states()[KEY]
    assert (state.profile, state.algorithm, state.window) == ("login", "penalty", 600.0)
    assert (state.hits, state.limit, state.remaining, state.blocked) == (1, 2, 1, False)
    assert inspection.hits(KEY) == [(pytest.approx(0, abs=5), 1)]
    limits.check("login", ADDRESS)
    limits.check("login", ADDRESS)
    state = inspection.describe(KEY)
    assert state is not None
    assert (state.hits, state.remaining, state.use, state.blocked) == (3, 0, 1.0, True)
    assert state.retry_after == pytest.approx(3_600, abs=5)
    assert state.ttl == pytest.approx(3_600 + 86_400 + 600, abs=5)
    assert inspection.hits(KEY) == []
    # The windows may expire long before the block ends.
    redis.delete(KEY.replace("p600", "c60"), KEY.replace("p600", "c3600"))
    assert [*states(profile="login", identifier=ADDRESS)] == [KEY]


def test_only_penalties_that_block_are_listed_as_blocked(redis: Redis) -> None:
    limits.check("login", ADDRESS)
    for _ in range(2):
        limits.check("login", ADDRESS)
        limits.get_limiter().shield.clear()
    assert states()[KEY].remaining == 0
    assert KEY not in states(blocked=True)
    limits.check("login", ADDRESS)
    block("trial")
    assert [key for key in states(blocked=True) if key.endswith("p600")] == [KEY]
    top = inspection.keys_top(9, Filters(blocked=True))
    assert KEY in [state.key for state in top]
    watched = states()[f"throttle:ip:{{{ADDRESS}}}:trial:p600"]
    assert (watched.observed, watched.blocked, watched.remaining) == (True, False, 0)


def test_penalty_is_listed_with_the_windows_of_its_profile(redis: Redis) -> None:
    block()
    window = KEY.replace("p600", "c60")
    assert [state.key for state in inspection.describe_all(window)] == [
        window,
        KEY.replace("p600", "c3600"),
        KEY,
    ]
    assert inspection.reset_key(KEY)
    assert limits.peek("login", ADDRESS).reason == decisions.LIMIT


def test_penalty_shows_the_override_of_its_identifier(redis: Redis) -> None:
    block()
    for action in ("exempt", "observe", "block"):
        put("login", ADDRESS, action=action)
        assert states()[KEY].override == action
        assert states()[KEY].blocked is (action == "block")
        override_snapshot.publish(None)
    put("login", ADDRESS, **limited((9, 60.0)))
    assert states()[KEY].limit == 2


def test_penalty_without_a_profile_is_shown(redis: Redis, settings: Any) -> None:
    block()
    settings.SLIDING_WINDOW = {"LATENCY_BUDGET": 5.0}
    state = states()[KEY]
    assert (state.profile, state.limit, state.blocked) == (None, None, False)


def test_penalties_of_long_identifiers_are_found(redis: Redis) -> None:
    who = "i" * 300
    for _ in range(4):
        limits.check("login", who)
    shown = next(state.identifier for state in states().values())
    for name in (who, shown):
        keys = states(profile="login", identifier=name)
        assert [key.rpartition(":")[2] for key in keys] == ["c60", "c3600", "p600"]


@pytest.mark.parametrize("value", [b"x", b"\x01" * 12])
def test_damaged_penalty_is_reported_and_can_be_reset(redis: Redis, value: bytes) -> None:
    redis.set(KEY, value)
    assert [state.key for state in inspection.damaged()] == [KEY]
    decision = limits.check("login", ADDRESS)
    assert (decision.allowed, decision.source) == (True, "local")
    assert inspection.reset_key(KEY)
    assert limits.check("login", ADDRESS).source == "redis"


def test_decoder_reads_refusals_that_count() -> None:
    policy = limits.registry.get("login").penalty
    assert policy is not None
    stamps = b"".join(at.to_bytes(7, "big") for at in (10**9, 2 * 10**9, 5 * 10**9))
    hits = DECODERS["penalty"](bytes(9) + stamps, policy, 2 * 10**9 + 10**6)
    assert hits == [(1.0, 1), (0.0, 1)]


# Commands and the admin


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("slidingwindow", *arguments, stdout=out)
    return out.getvalue()


def test_commands_show_and_remove_a_block(redis: Redis) -> None:
    block()
    (shown,) = [
        json.loads(line)
        for line in run("show", "--profile", "login", "--id", ADDRESS, "--json").splitlines()
        if "p600" in line
    ]
    assert (shown["algorithm"], shown["blocked"]) == ("penalty", True)
    assert KEY in run("keys", "--blocked")
    assert "penalty: 2 / 10 min, then 1 h, 1 d" in run("profiles")
    run("reset", "--profile", "login", "--id", ADDRESS, "--yes")
    assert redis.keys() == []
    assert limits.check("login", ADDRESS).allowed


@pytest.mark.django_db
def test_doctor_recognizes_the_scripts_of_penalties(redis: Redis) -> None:
    block()
    (found,) = [one for one in doctor.examine() if one.name == "script"]
    # Checks with and without a penalty, and one refund.
    assert found.data["known"] == 3
    assert redis.script_exists(script("evaluate", ("compact", "penalty")).sha) == [True]


@pytest.mark.django_db
def test_admin_shows_a_block_and_unblocks(redis: Redis, admin_client: Client) -> None:
    block()
    pages = "admin:django_slidingwindow_rejection_"
    live = admin_client.get(reverse(f"{pages}live"), {"blocked": "1"})
    assert KEY in [row.state.key for row in live.context["rows"]]
    page = admin_client.get(reverse(f"{pages}key"), {"key": KEY}).content.decode()
    assert "yes, released in" in page
    assert "penalty" in page
    address = f"{reverse(f'{pages}unblock')}?key={KEY.replace('p600', 'c60')}"
    assert len(admin_client.get(address).context["rows"]) == 3
    admin_client.post(address)
    assert redis.keys() == []
    assert limits.check("login", ADDRESS).allowed
    reasons = admin_client.get(reverse(f"{pages}changelist")).content.decode()
    assert "penalty" in reasons


@pytest.mark.parametrize("in_memory", [False, True], ids=["redis", "memory"])
def test_penalty_works_with_rates_and_requests_in_flight(
    settings: Any, redis: Redis, in_memory: bool
) -> None:
    settings.SLIDING_WINDOW = {
        "PROFILES": {
            "busy": {
                "axis": "tenant",
                "rate": "10/m",
                "inflight": 1,
                "penalty": {"after": "2/10m", "steps": ["1m"]},
            }
        },
        "LATENCY_BUDGET": 60,
    }
    with limits_in_memory() if in_memory else nullcontext():
        first = limits.check("busy", "acme")
        assert first.allowed
        # The slot is taken: two refusals are tolerated, and the third one blocks.
        assert [limits.check("busy", "acme").reason for _ in range(4)] == [
            decisions.LIMIT,
            decisions.LIMIT,
            decisions.PENALTY,
            decisions.PENALTY,
        ]
        # The refund includes a slot and a hit.
        assert limits.refund(first) == 2
        blocked = limits.check("busy", "acme")
        assert (blocked.allowed, blocked.reason) == (False, decisions.PENALTY)
        assert blocked.retry_after == pytest.approx(60, abs=10)
        assert limits.check("busy", "globex").allowed
        assert limits.reset("busy", "acme")
        again = limits.check("busy", "acme")
        assert again.allowed
        assert limits.refund(again) == 2
