"""`refusals` and `Group.row` turn a decision into rows of the log."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from django.test import override_settings
from django.urls import ResolverMatch
from django.views.defaults import page_not_found

from django_slidingwindow import decisions
from django_slidingwindow.decisions import Decision
from django_slidingwindow.guard.identity import keyed_hash
from django_slidingwindow.models import Rejection
from django_slidingwindow.policies import Policy
from django_slidingwindow.rejections.rows import Group, Tally, refusals
from tests.support.rejection_factories import POLICY, refusal, request, verdict

NOW = 1_794_832_496.5  # 34 minutes and 56.5 seconds past the hour
HOUR = Policy(limit=20, window=3600)


def rows(decision: Decision, http_request: Any = None, now: float = NOW) -> list[Rejection]:
    http_request = request() if http_request is None else http_request
    return [group.row(tally) for group, tally in refusals(http_request, decision, now)]


def row(decision: Decision | None = None, http_request: Any = None, now: float = NOW) -> Rejection:
    (found,) = rows(refusal() if decision is None else decision, http_request, now)
    return found


def test_row_holds_identifier_policy_and_times() -> None:
    found = row(http_request=request("POST"))
    minute = datetime(2026, 11, 16, 12, 34, tzinfo=timezone.utc)
    assert found.minute == minute
    assert found.first_at == found.last_at == minute.replace(second=56, microsecond=500_000)
    assert (found.profile, found.limit, found.window, found.algorithm) == (
        ("login", 5, 60.0, "compact")
    )
    assert (found.axis, found.identifier, found.scope) == ("ip", "203.0.113.9", "login")
    assert (found.method, found.reason, found.source) == ("POST", "limit", "redis")
    assert (found.hits, found.retry_after) == (1, 12.5)
    assert (found.client, found.user_agent) == ("", "")


def test_row_keeps_its_identifier_when_the_prefix_changes() -> None:
    ((group, tally),) = refusals(request(), refusal(), NOW)
    before = group.row(tally)
    with override_settings(SLIDING_WINDOW={"PREFIX": "shop:limits"}):
        after = group.row(tally)
    assert (after.axis, after.identifier, after.scope) == ("ip", "203.0.113.9", "login")
    assert after.digest == before.digest


def test_refusal_is_one_hit_when_several_policies_refuse() -> None:
    decision = refusal(verdict(policy=HOUR, retry_after=900.0), verdict(), verdict(observed=True))
    found = row(decision)
    assert (found.limit, found.retry_after) == (20, 900.0)


def test_row_names_the_deciding_policy_when_others_come_first() -> None:
    decided = verdict(policy=HOUR)
    others = (
        verdict(allowed=True),
        verdict(policy=HOUR, observed=True),
        verdict(policy=HOUR, profile="other"),
    )
    decision = refusal(*others, decided, profile="login", policy=HOUR)
    assert row(decision).scope == "login"
    assert row(decision).limit == 20


def test_refusals_include_each_observing_policy_over_its_limit() -> None:
    decision = refusal(
        verdict(observed=True),
        verdict(observed=True, policy=HOUR),
        verdict(observed=True, allowed=True, profile="calm"),
        verdict(allowed=True, profile="enforcing"),
        allowed=True,
        reason=decisions.OBSERVED,
    )
    assert [(r.limit, r.reason) for r in rows(decision)] == [(5, "observe"), (20, "observe")]


def test_row_has_the_identifier_when_denied() -> None:
    decision = refusal(
        profile="ip_public",
        key="throttle:ip:{203.0.113.9}:ip_public:c60",
        policy=POLICY,
        reason=decisions.DENY,
        source=decisions.DENY,
        retry_after=2.0,
        verdicts=(),
    )
    found = row(decision)
    assert (found.axis, found.identifier, found.scope) == ("ip", "203.0.113.9", "ip_public")
    assert (found.limit, found.retry_after, found.reason) == (5, 2.0, "deny")


def test_row_has_no_policy_when_the_identity_failed() -> None:
    decision = refusal(
        profile="tenant_free",
        policy=None,
        reason=decisions.IDENTITY_ERROR,
        retry_after=None,
        verdicts=(),
    )
    found = row(decision)
    assert (found.axis, found.scope, found.policy) == ("tenant", "tenant_free", "")
    assert (found.limit, found.window, found.algorithm) == (None, None, "")
    assert found.retry_after is None


def test_row_has_no_axis_when_the_profile_was_removed() -> None:
    found = row(refusal(profile="gone", policy=None, verdicts=()))
    assert (found.profile, found.axis, found.scope) == ("gone", "", "")


def resolved(**values: Any) -> Any:
    http_request = request()
    http_request.resolver_match = ResolverMatch(page_not_found, (), {}, **values)
    return http_request


@pytest.mark.parametrize(
    ("http_request", "view"),
    [
        (request(path="/secret/42/"), ""),
        (resolved(route="api/<int:pk>/", url_name="order"), "api/<int:pk>/"),
        (resolved(route="", url_name="home", namespaces=["shop"]), "shop:home"),
        (object(), ""),
    ],
)
def test_view_is_the_route_and_never_the_path(http_request: Any, view: str) -> None:
    assert row(http_request=http_request).view == view


@pytest.mark.parametrize(
    ("method", "logged"), [("GET", "GET"), ("PATCH", "PATCH"), ("BREW1", "other"), ("", "")]
)
def test_unknown_methods_share_a_row(method: str, logged: str) -> None:
    http_request = request()
    http_request.method = method
    assert row(http_request=http_request).method == logged


@override_settings(SLIDING_WINDOW={"LOG_CLIENT": True})
def test_row_holds_the_client_when_log_client_is_set() -> None:
    found = row(http_request=request(REMOTE_ADDR="2001:db8::7", HTTP_USER_AGENT="curl\x1b/8"))
    assert (found.client, found.user_agent) == ("2001:db8::7", "curl%1B/8")


@override_settings(SLIDING_WINDOW={"LOG_CLIENT": True})
def test_refusals_cut_the_user_agent() -> None:
    ((_, tally),) = refusals(request(HTTP_USER_AGENT="\x1b" + "x" * 8_000), refusal(), NOW)
    assert tally.user_agent == "\x1b" + "x" * 199
    assert row(http_request=request(HTTP_USER_AGENT="x" * 8_000)).user_agent == "x" * 200


@override_settings(SLIDING_WINDOW={"LOG_CLIENT": True})
def test_client_is_empty_when_it_has_no_address() -> None:
    assert row(http_request=request(REMOTE_ADDR="")).client == ""


@override_settings(SLIDING_WINDOW={"LOG_IDENTIFIERS": "hash"})
def test_row_hashes_the_identifier_when_log_identifiers_is_hash() -> None:
    found = row()
    assert found.identifier == keyed_hash("203.0.113.9")
    assert "203.0.113.9" not in str({**vars(found), "_state": None})


@override_settings(SLIDING_WINDOW={"LOG_IDENTIFIERS": "hash"})
def test_digest_depends_on_the_key_when_identifiers_are_hashed() -> None:
    first = row().digest
    with override_settings(SLIDING_WINDOW={"LOG_IDENTIFIERS": "hash", "HASH_KEY": "another"}):
        assert row().digest != first


def test_row_escapes_an_unprintable_identifier() -> None:
    found = row(refusal(verdict("<b>\x00\x1b[31m\u202e\ud800")))
    assert found.identifier == "<b>%00%1B[31m%E2%80%AE%ED%A0%80"


def test_row_cuts_long_texts_to_their_columns() -> None:
    http_request = resolved(route="x" * 999)
    found = row(refusal(verdict("i" * 999, profile="p" * 999, axis="a" * 999)), http_request)
    found.clean_fields(exclude=["client", "user_agent", "override"])
    assert len(found.view) == 200


@pytest.mark.parametrize(
    "change",
    [
        {"profile": "other"},
        {"policy": HOUR},
        {"key": "throttle:ip:{198.51.100.1}:login:c60"},
        {"key": "another:ip:{203.0.113.9}:login:c60"},
        {"view": "other/"},
        {"method": "POST"},
        {"reason": "fallback"},
        {"source": "local"},
    ],
)
def test_digest_differs_for_every_group(change: dict[str, Any]) -> None:
    group = Group(0, "login", POLICY, verdict().key, "login/", "GET", "limit", "redis")
    tally = Tally(1, NOW, NOW, 1.0)
    one, two = group.row(tally), group._replace(**change).row(tally)
    assert one.digest != two.digest
    assert one.digest == group._replace(minute=99).row(tally).digest


def test_minute_is_naive_when_use_tz_is_false() -> None:
    with override_settings(USE_TZ=False, TIME_ZONE="Asia/Tokyo"):
        assert row().minute == datetime(2026, 11, 16, 21, 34)


@pytest.mark.parametrize(
    ("waits", "longest"),
    [((1.0, 3.0), 3.0), ((3.0, 1.0), 3.0), ((1.0, None), None), ((None, 1.0), None)],
)
def test_tally_keeps_the_longest_wait(waits: Any, longest: float | None) -> None:
    tally = Tally(1, 10.0, 10.0, waits[0])
    tally.add(Tally(1, 11.0, 11.0, waits[1]))
    assert tally.retry_after == longest


def test_tally_keeps_the_last_client_in_any_order() -> None:
    tally = Tally(2, 10.0, 20.0, 0.0, "192.0.2.1", "one")
    tally.add(Tally(3, 5.0, 15.0, 0.0, "192.0.2.2", "two"))
    assert (tally.hits, tally.first, tally.last, tally.client) == (5, 5.0, 20.0, "192.0.2.1")
    tally.add(Tally(1, 25.0, 25.0, 0.0, "192.0.2.3", "three"))
    assert (tally.last, tally.client, tally.user_agent) == (25.0, "192.0.2.3", "three")
