"""The requirements of a request are charged once, together, or not at all."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.test import RequestFactory

from django_slidingwindow import decisions, limits, signals
from django_slidingwindow.guard import check as guard
from django_slidingwindow.guard.check import Requirement
from django_slidingwindow.guard.requirements import joined, methods_from, requirements_from
from django_slidingwindow.guard.state import state_of

CLIENT = "203.0.113.9"


def broken(*args, **kwargs):
    raise RuntimeError("broken on purpose")


def tenant(request):
    return request.headers.get("X-Tenant")


PROFILES = {
    "burst": {"axis": "ip", "rate": "2/m"},
    "daily": {"axis": "ip", "rate": "100/d"},
    "tenant": {"axis": "tenant", "rate": "5/m"},
    "watched": {"axis": "ip", "rate": "1/m", "mode": "observe"},
    "nobody": {"axis": "broken", "rate": "5/m"},
    "watched_nobody": {"axis": "broken", "rate": "5/m", "mode": "observe"},
    "by_tenant": {"axis": "tenant", "rate": lambda name, request: request.headers.get("X-Rate")},
    "closed": {"axis": "ip", "limit": 0, "window": 60},
    "one": {"axis": "ip", "rate": "3/m", "scope": "shared"},
    "two": {"axis": "ip", "rate": "5/m", "scope": "shared"},
}
SETTINGS = {
    "LOG": False,
    "LATENCY_BUDGET": 10,
    "PROFILES": PROFILES,
    "IDENTITIES": {"tenant": tenant, "broken": broken},
}


@pytest.fixture(autouse=True)
def project(settings, redis):
    settings.SLIDING_WINDOW = SETTINGS
    return settings


@pytest.fixture
def scripts(redis):
    """Return the number of scripts that the server has run since the last call."""
    redis.config_resetstat()

    def count():
        stats = redis.info("commandstats")
        redis.config_resetstat()
        return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))

    return count


@pytest.fixture(params=["sync", "async"])
def check(request):
    """Call `guard.check` from sync code, and `guard.acheck` from a coroutine."""
    if request.param == "sync":
        return lambda request, requirements: guard.check(request, joined(requirements))
    return lambda request, requirements: asyncio.run(guard.acheck(request, joined(requirements)))


@pytest.fixture(params=["sync", "async"])
def refund(request):
    if request.param == "sync":
        return guard.refund
    return lambda *args: asyncio.run(guard.arefund(*args))


@pytest.fixture
def refusals():
    found = []

    def receive(sender, request, decision, **kwargs):
        found.append((request, decision))

    signals.request_limited.connect(receive)
    yield found
    signals.request_limited.disconnect(receive)


def get(**extra):
    return RequestFactory().get("/", REMOTE_ADDR=CLIENT, **extra)


def left(profile, identifier=CLIENT):
    """Return the hits that are left; a peek counts one as taken."""
    decision = limits.peek(profile, identifier)
    return decision.remaining + decision.allowed


# One call, all or nothing


def test_profiles_of_all_requirements_are_charged_in_one_script(check, scripts):
    get_one = get(HTTP_X_TENANT="acme")
    check(get(), [Requirement(("burst",))])
    scripts()
    decision = check(get_one, [Requirement(("burst", "daily")), Requirement(("tenant",))])
    assert scripts() == 1
    assert decision.allowed
    assert {verdict.profile for verdict in decision.verdicts} == {"burst", "daily", "tenant"}


def test_refusal_by_one_profile_charges_nothing_to_the_others(check):
    for _ in range(5):
        decision = check(get(), [Requirement(("burst",)), Requirement(("daily",))])
    assert not decision.allowed
    assert left("daily") == 98


def test_profile_is_charged_once_for_several_requirements(check, scripts):
    request = get()
    first = check(request, [Requirement(("burst",))])
    check(get(), [Requirement(("daily",))])
    scripts()
    again = check(request, [Requirement(("burst",))])
    assert again is first
    assert scripts() == 0
    assert left("burst") == 1


def test_later_check_charges_only_new_profiles(check):
    request = get()
    check(request, [Requirement(("burst",))])
    decision = check(request, [Requirement(("burst", "daily"))])
    assert (left("burst"), left("daily")) == (1, 99)
    assert decision.profile == "burst"
    assert [item.profile for item in state_of(request).decisions] == ["burst", "daily"]


def test_refusal_is_returned_by_later_checks(check):
    request = get()
    check(request, [Requirement(("closed",))])
    assert not check(request, [Requirement(("closed", "daily"))]).allowed


def test_profile_that_is_required_twice_has_the_higher_cost(check):
    check(
        get(),
        [Requirement(("daily",)), Requirement(("daily",), cost=7), Requirement(("daily",), cost=3)],
    )
    assert left("daily") == 93


def test_decision_is_an_attribute_of_the_request(check):
    request = get()
    assert state_of(request) is None
    decision = check(request, [Requirement(("burst",))])
    assert request.rate_limit is decision
    assert state_of(request).decisions == (decision,)


def test_request_has_the_strictest_decision_so_far(check):
    request = get()
    check(request, [Requirement(("burst",))])
    check(request, [Requirement(("daily",))])
    assert request.rate_limit.profile == "burst"
    check(request, [Requirement(("closed",))])
    assert request.rate_limit.profile == "closed"
    check(request, [Requirement(("tenant",))])
    assert request.rate_limit.profile == "closed"


def test_observing_profile_is_less_strict_than_any_limit(check):
    request = get()
    check(request, [Requirement(("daily",))])
    check(request, [Requirement(("watched",))])
    assert request.rate_limit.profile == "daily"


def test_decision_without_a_limit_is_the_least_strict(check, project):
    request = get(HTTP_X_TENANT="acme")
    check(request, [Requirement(("by_tenant",))])
    assert request.rate_limit.reason == decisions.UNLIMITED
    check(request, [Requirement(("daily",))])
    assert request.rate_limit.profile == "daily"


# Requests that are not counted


@pytest.mark.parametrize(
    "requirements", [[], [Requirement(("tenant",))], [Requirement(lambda request: None)]]
)
def test_check_returns_none_when_nothing_counts_the_request(check, requirements):
    request = get()
    assert check(request, requirements) is None
    assert request.rate_limit is None


def test_profile_that_skips_a_request_leaves_the_others(check):
    decision = check(get(), [Requirement(("tenant", "burst"))])
    assert [verdict.profile for verdict in decision.verdicts] == ["burst"]


def test_check_asks_nothing_when_limits_are_disabled(check, project, scripts):
    project.SLIDING_WINDOW = {**SETTINGS, "ENABLED": False, "CACHE": "no such cache"}
    request = get()
    assert check(request, [Requirement(("closed", "no such profile"))]) is None
    assert request.rate_limit is None
    assert scripts() == 0


def test_earlier_decision_stays_when_limits_are_disabled(check, project):
    request = get()
    decision = check(request, [Requirement(("burst",))])
    project.SLIDING_WINDOW = {**SETTINGS, "ENABLED": False}
    assert check(request, [Requirement(("daily",))]) is None
    assert request.rate_limit is decision


def test_methods_that_are_not_named_are_not_counted(check):
    requirement = Requirement(("burst",), methods=methods_from(["post"]))
    assert check(get(), [requirement]) is None
    assert check(RequestFactory().post("/"), [requirement]).allowed


@pytest.mark.parametrize(
    ("given", "methods"),
    [
        (None, None),
        ("post", {"POST"}),
        (["GET"], {"GET", "HEAD"}),
        (["head", "Put"], {"HEAD", "PUT"}),
    ],
)
def test_methods_with_get_include_head(given, methods):
    assert methods_from(given) == methods


# The choice of a profile


@pytest.mark.parametrize(
    ("answer", "profiles"),
    [("burst", ["burst"]), (["burst", "daily"], ["burst", "daily"]), (("daily",), ["daily"])],
)
def test_choice_returns_one_name_or_several(check, answer, profiles):
    decision = check(get(), [Requirement(lambda request: answer)])
    assert [verdict.profile for verdict in decision.verdicts] == profiles


def test_choice_may_be_async(check):
    async def choose(request):
        return "daily"

    assert check(get(), requirements_from([choose])).profile == "daily"


def test_choice_is_made_once_for_a_requirement(check):
    calls = []

    def choose(request):
        calls.append(request)
        return "burst"

    request, requirements = get(), [Requirement(choose)]
    for _ in range(2):
        check(request, requirements)
    assert calls == [request]


def test_choice_of_an_unknown_profile_raises_an_error_with_a_hint(check):
    with pytest.raises(ImproperlyConfigured, match=r"'burts'.*'burst'"):
        check(get(), [Requirement(lambda request: "burts")])


@pytest.mark.parametrize("choice", [broken, lambda request: 5])
def test_choice_that_fails_denies(check, choice, refusals, caplog):
    decision = check(get(), [Requirement(choice), Requirement(("burst",))])
    assert (decision.allowed, decision.reason) == (False, decisions.IDENTITY_ERROR)
    assert [found for _, found in refusals] == [decision]
    assert "chooses a rate-limit profile failed" in caplog.text


def test_choice_that_fails_may_allow(check, project, caplog):
    project.SLIDING_WINDOW = {**SETTINGS, "IDENTITY_ERROR": "allow"}
    assert check(get(), [Requirement(broken)]) is None
    assert "broken on purpose" in caplog.text


# Costs


def test_cost_may_be_a_function_even_an_async_one(check):
    async def three(request):
        return 3

    check(get(), [Requirement(("daily",), cost=lambda request: 2)])
    check(get(), requirements_from(["daily"], cost=three))
    assert left("daily") == 95


@pytest.mark.parametrize("cost", [-1, 0.5, None, "2", True, broken])
def test_invalid_cost_is_logged_and_counts_as_one(check, cost, caplog):
    function = cost if callable(cost) else lambda request: cost
    assert check(get(), [Requirement(("daily",), cost=function)]).allowed
    assert left("daily") == 99
    assert "so the cost is 1" in caplog.text


def test_cost_function_is_not_called_when_nothing_is_charged(check):
    assert check(get(), [Requirement(lambda request: None, cost=broken)]) is None


# Identities and limits that fail


def test_identity_that_fails_denies_and_charges_nothing(check, refusals, caplog):
    request = get()
    decision = check(request, [Requirement(("daily", "nobody"))])
    assert (decision.allowed, decision.profile) == (False, "nobody")
    assert (decision.reason, decision.retry_after) == (decisions.IDENTITY_ERROR, None)
    assert left("daily") == 100
    assert request.rate_limit is decision
    assert refusals == [(request, decision)]
    assert "broken on purpose" in caplog.text


def test_identity_that_fails_may_allow(check, project, caplog):
    project.SLIDING_WINDOW = {**SETTINGS, "IDENTITY_ERROR": "allow"}
    assert check(get(), [Requirement(("daily", "nobody"))]).profile == "daily"
    assert "nobody" in caplog.text


def test_identity_of_an_observing_profile_never_denies(check, caplog):
    assert check(get(), [Requirement(("watched_nobody",))]) is None
    assert "watched_nobody" in caplog.text


def test_client_without_an_address_is_denied_with_a_hint_in_the_log(check, caplog):
    request = RequestFactory().get("/", REMOTE_ADDR="")
    assert check(request, [Requirement(("burst",))]).reason == decisions.IDENTITY_ERROR
    assert "TRUSTED_PROXIES" in caplog.text


@pytest.mark.parametrize(("rate", "limit"), [("7/m", 7), ("3/h", 3)])
def test_limit_function_gets_identifier_and_request(check, rate, limit):
    request = get(HTTP_X_TENANT="acme", HTTP_X_RATE=rate)
    assert check(request, [Requirement(("by_tenant",))]).limit == limit


def test_invalid_limit_denies(check, caplog):
    request = get(HTTP_X_TENANT="acme", HTTP_X_RATE="lots")
    assert check(request, [Requirement(("by_tenant",))]).reason == decisions.IDENTITY_ERROR
    assert "lots" in caplog.text


async def test_limit_function_may_use_the_database_in_async_code(project):
    threads = []

    def limit(name, request):
        threads.append(threading.current_thread())
        return "3/m"

    project.SLIDING_WINDOW = {"PROFILES": {"own": {"axis": "ip", "rate": limit}}}
    assert (await guard.acheck(get(), joined([Requirement(("own",))]))).limit == 3
    assert threads[0] is not threading.current_thread()


def test_unknown_profile_raises_an_error_with_a_hint(check):
    with pytest.raises(ImproperlyConfigured, match=r"'dayly'.*'daily'"):
        check(get(), [Requirement(("dayly",))])


def test_axis_without_a_resolver_raises_an_error_instead_of_refusing(check, project):
    project.SLIDING_WINDOW = {}
    with pytest.raises(ImproperlyConfigured, match="tenant"):
        check(get(), [Requirement(("tenant_paid",))])


# Signals and the observe mode


def test_refusal_is_recorded_and_an_admission_is_not(check, refusals):
    for _ in range(3):
        request = get()
        decision = check(request, [Requirement(("burst",))])
    assert refusals == [(request, decision)]


def test_observing_profile_counts_and_reports_and_never_refuses(check, refusals):
    for _ in range(3):
        decision = check(get(), [Requirement(("watched", "daily"))])
        assert decision.allowed
    assert [found.reason for _, found in refusals] == [decisions.OBSERVED] * 2
    assert left("daily") == 97


def test_receiver_that_fails_does_not_fail_the_request(check, caplog):
    signals.request_limited.connect(broken)
    try:
        assert not check(get(), [Requirement(("closed",))]).allowed
    finally:
        signals.request_limited.disconnect(broken)
    assert "broken on purpose" in caplog.text


# Exemptions


def test_exempt_address_is_not_counted(check, project):
    project.SLIDING_WINDOW = {**SETTINGS, "EXEMPT": ["203.0.113.0/24", "2001:db8::1"]}
    request = get()
    assert check(request, [Requirement(("closed",))]) is None
    assert check(request, [Requirement(("closed",))]) is None
    assert request.rate_limit is None
    other = RequestFactory().get("/", REMOTE_ADDR="2001:db8::2")
    assert not check(other, [Requirement(("closed",))]).allowed


def test_exempt_network_does_not_cover_a_client_without_address(check, project):
    project.SLIDING_WINDOW = {**SETTINGS, "EXEMPT": ["0.0.0.0/0"], "TRUSTED_PROXIES": ["unix"]}
    no_address = RequestFactory().get("/", REMOTE_ADDR="")
    assert not check(no_address, [Requirement(("closed",))]).allowed
    project.SLIDING_WINDOW = {**SETTINGS, "EXEMPT": ["0.0.0.0/0"]}
    no_address = RequestFactory().get("/", REMOTE_ADDR="")
    assert not check(no_address, [Requirement(("closed",))]).allowed


def is_monitor(request):
    return request.headers.get("X-Monitor") == "yes"


async def is_async_monitor(request):
    return request.headers.get("X-Monitor") == "yes"


@pytest.mark.parametrize("exempt", [is_monitor, f"{__name__}.is_monitor", is_async_monitor])
def test_function_exempts_the_requests_it_returns_true_for(check, project, exempt):
    project.SLIDING_WINDOW = {**SETTINGS, "EXEMPT": [exempt]}
    assert check(get(HTTP_X_MONITOR="yes"), [Requirement(("closed",))]) is None
    assert not check(get(), [Requirement(("closed",))]).allowed


def test_exemption_that_fails_does_not_apply(check, project, caplog):
    project.SLIDING_WINDOW = {**SETTINGS, "EXEMPT": [broken]}
    assert not check(get(), [Requirement(("closed",))]).allowed
    assert "exemption failed" in caplog.text


def test_staff_is_exempt_when_the_setting_has_it(check, project):
    request = get()
    request.user = User(pk=1, is_staff=True)
    assert not check(request, [Requirement(("closed",))]).allowed
    project.SLIDING_WINDOW = {**SETTINGS, "EXEMPT": ["staff"]}
    for staff, exempt in [(True, True), (False, False)]:
        request = get()
        request.user = User(pk=1, is_staff=staff)
        assert (check(request, [Requirement(("closed",))]) is None) is exempt
    assert not check(get(), [Requirement(("closed",))]).allowed


def test_nobody_is_exempt_as_staff_when_users_cannot_be_loaded(check, project, caplog):
    class Away:
        is_staff = property(broken)

    project.SLIDING_WINDOW = {**SETTINGS, "EXEMPT": ["staff"]}
    request = get()
    request.user = Away()
    assert not check(request, [Requirement(("closed",))]).allowed
    assert "broken on purpose" in caplog.text


@pytest.mark.parametrize("entry", ["10.0.0.1/8", "10.0.0", "fd00::/129", 5])
def test_error_of_an_invalid_exemption_names_the_setting(check, project, entry):
    project.SLIDING_WINDOW = {**SETTINGS, "EXEMPT": [entry]}
    with pytest.raises(ImproperlyConfigured, match=r"\['EXEMPT'\]"):
        check(get(), [Requirement(("closed",))])


# Refunds


def test_refund_gives_back_one_requirement_and_keeps_the_others(check, refund):
    request = get()
    mine, other = Requirement(("burst",)), Requirement(("daily",), cost=4)
    check(request, [mine, other])
    refund(request, mine)
    assert (left("burst"), left("daily")) == (2, 96)


def test_refund_works_once(check, refund):
    request, requirement = get(), Requirement(("daily",), cost=4)
    check(get(), [requirement])
    check(request, [requirement])
    for _ in range(3):
        refund(request, requirement)
    assert left("daily") == 96


def test_second_refund_gives_back_what_the_first_kept(check, refund):
    request = get()
    burst, daily = Requirement(("burst",)), Requirement(("daily",))
    check(request, [burst, daily])
    refund(request, burst)
    refund(request, daily)
    assert (left("burst"), left("daily")) == (2, 100)


def test_headers_after_a_refund_show_what_is_left(check, refund):
    first, request = get(), get()
    requirement = Requirement(("burst",))
    check(first, [requirement])
    decision = check(request, [requirement, Requirement(("daily",))])
    assert (decision.profile, decision.remaining) == ("burst", 0)
    refund(request, requirement)
    after = request.rate_limit
    assert (after.profile, after.remaining) == ("burst", 1)
    assert after.verdicts[0].reset_after == decision.verdicts[0].reset_after > 0
    assert state_of(request).decisions == (after,)
    assert check(request, [requirement]) is after


def test_window_without_hits_has_nothing_to_reset(check, refund):
    request, requirement = get(), Requirement(("burst",))
    check(request, [requirement])
    refund(request, requirement)
    assert (request.rate_limit.remaining, request.rate_limit.reset_after) == (2, 0.0)


def test_refund_keeps_a_window_that_another_profile_shares(check, refund):
    request = get()
    mine = Requirement(("one",))
    check(request, [mine, Requirement(("two",))])
    refund(request, mine)
    assert left("two") == 4


def test_refund_gives_back_nothing_when_nothing_was_charged(check, refund):
    request = get()
    post = Requirement(("daily",), methods=frozenset({"POST"}))
    check(request, [Requirement(("daily",)), post])
    refund(request, post)
    assert left("daily") == 99
    refund(request, Requirement(("burst",)))
    refused = get()
    check(refused, [Requirement(("closed",))])
    refund(refused, Requirement(("closed",)))
    assert not refused.rate_limit.allowed


# When Redis is away


def test_check_falls_back_when_redis_is_away(check, project, caplog):
    project.CACHES = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": "redis://127.0.0.1:1/0",
        }
    }
    with caplog.at_level(logging.CRITICAL):
        answers = [check(get(), [Requirement(("burst",))]) for _ in range(3)]
    assert [decision.allowed for decision in answers] == [True, True, False]
    assert {decision.source for decision in answers} == {decisions.LOCAL}
