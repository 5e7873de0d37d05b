"""A request is charged in the same windows by sync and async code."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import RequestFactory

from django_slidingwindow import decisions, limits
from django_slidingwindow.core.limiter import Limiter
from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.guard import binding, current_limiter
from django_slidingwindow.guard import check as guard
from django_slidingwindow.guard.requirements import Requirement, Requirements, joined
from django_slidingwindow.guard.resolve import resolve
from django_slidingwindow.guard.state import state_of
from django_slidingwindow.http import headers
from django_slidingwindow.policies import Profile
from django_slidingwindow.registry import register, unregister
from django_slidingwindow.stores.memory import MemoryStore
from tests.support.lazy_users import set_lazy_user

CLIENT = "203.0.113.9"
PROFILES = {
    "burst": {"axis": "ip", "rate": "5/m"},
    "daily": {"axis": "ip", "rates": ["100/d", "50/h"]},
    "site": {"axis": "global", "rate": "1000/m"},
    "key": {"axis": "header:X-API-Key", "rate": "9/m"},
    "keys": {"axis": "ip+header:X-API-Key", "rate": "9/m"},
    "pair": {"axis": "ip+global", "rate": "9/m"},
    "user": {"axis": "user", "rate": "9/m"},
    "watched": {"axis": "ip", "rate": "0/m", "mode": "observe"},
    "closed": {"axis": "ip", "rate": "0/m"},
    "free": {"axis": "ip", "rate": lambda identifier, request: "7/m"},
    "plans": {"axis": "tenant", "rate": lambda identifier, request: ["7/m", "90/h"]},
    "unlimited": {"axis": "ip", "rate": lambda identifier, request: None},
    "twice": {"axis": "ip", "rate": lambda identifier, request: ["7/m", "8/m"]},
    "planned key": {"axis": "header:X-API-Key", "rate": lambda identifier, request: "9/m"},
    "tenant": {"axis": "tenant", "rate": "9/m"},
    "session": {"axis": "session", "rate": "9/m"},
    "both": {"axis": "tenant+ip", "rate": "9/m"},
}


def tenant(request):
    return 42


@pytest.fixture(autouse=True)
def project(settings, redis):
    settings.SLIDING_WINDOW = {
        "LOG": False,
        "LATENCY_BUDGET": 10,
        "PROFILES": PROFILES,
        "IDENTITIES": {"tenant": tenant},
    }
    return settings


def get(**extra):
    return RequestFactory().get("/", REMOTE_ADDR=CLIENT, **extra)


def windows_of(*requirements, may_block=True, **extra):
    """Return the keys, rules and profiles that are charged; None if nothing is charged."""
    limiter = limits.get_limiter()
    request, required = get(**extra), joined(requirements)
    binding_ = binding.bind(required, limiter)
    if not may_block:
        async_to_sync(binding_.prepare)(request)
    windows = resolve(request, binding_, None).windows
    return windows and (windows.keys, windows.template.rules, windows.template.profiles)


def get_only(request):
    return "burst"


@pytest.mark.parametrize(
    ("requirements", "counts"),
    [
        ([Requirement(("burst",))], {"burst": 1}),
        ([Requirement(("burst", "daily", "site"), cost=3)], {"burst": 3, "daily": 3, "site": 3}),
        (
            [
                Requirement(("burst", "site")),
                Requirement(("site", "key"), cost=2),
                Requirement(("burst",), cost=0),
            ],
            {"burst": 1, "site": 2, "key": 2},
        ),
        (
            [Requirement(("burst", "pair"), methods=frozenset({"GET"}))],
            {"burst": 1, "pair": 1},
        ),
        (
            [Requirement(("burst",)), Requirement(("site",), methods=frozenset({"POST"}))],
            {"burst": 1},
        ),
        (
            [Requirement(("user", "burst", "tenant", "session", "both"))],
            {"user": 1, "burst": 1, "tenant": 1, "session": 1, "both": 1},
        ),
        ([Requirement(("free",), cost=2)], {"free": 2}),
        (
            [Requirement(("plans", "burst", "unlimited")), Requirement(("planned key", "free"))],
            {"plans": 1, "burst": 1, "planned key": 1, "free": 1},
        ),
        (
            [Requirement(get_only, cost=lambda request: 4), Requirement(("burst", "site"))],
            {"burst": 4, "site": 1},
        ),
    ],
)
def test_sync_and_async_code_find_the_same_windows(requirements, counts):
    keys, rules, profiles = windows_of(*requirements, HTTP_X_API_KEY="secret")
    assert {
        profile.name: rule.cost for profile, rule in zip(profiles, rules, strict=True)
    } == counts
    found = windows_of(*requirements, may_block=False, HTTP_X_API_KEY="secret")
    assert found == (keys, rules, profiles)


@pytest.mark.parametrize(
    "requirement",
    [
        Requirement(("burst",), methods=frozenset({"POST"})),
        Requirement(("key",)),
        Requirement(("keys",)),
        Requirement(("planned key",)),
        Requirement(lambda request: None),
        Requirement(()),
    ],
    ids=["methods", "no header", "no header of two", "no header, planned", "choice", "nothing"],
)
def test_request_that_nothing_counts_is_charged_nothing(requirement):
    assert windows_of(requirement) is None
    assert guard.check(get(), joined([requirement])) is None


def test_limit_without_policies_has_no_windows():
    assert windows_of(Requirement(("unlimited",)))[0] == ()
    assert guard.check(get(), joined([Requirement(("unlimited",))])).reason == decisions.UNLIMITED


async def acheck(request, requirements):
    return await guard.acheck(request, joined(requirements))


@pytest.mark.parametrize("check", [guard.check, async_to_sync(acheck)], ids=["sync", "async"])
@pytest.mark.parametrize("found", [None, ValueError("no such tenant")], ids=["nobody", "error"])
def test_identity_function_is_called_once_even_if_it_finds_nothing(project, check, found, caplog):
    asked = []

    def tenant(request):
        asked.append(request)
        if found is not None:
            raise found

    project.SLIDING_WINDOW |= {"IDENTITIES": {"tenant": tenant}}
    request = get()
    decision = check(request, Requirements([Requirement(("burst", "tenant", "site"))]))
    assert asked == [request]
    if found is None:
        assert decision.allowed
        counted = state_of(request)[0].counted
        assert counted == {"burst": (CLIENT, 1), "tenant": None, "site": ("all", 1)}
    else:
        assert decision.reason == decisions.IDENTITY_ERROR
        (record,) = caplog.records
        assert record.exc_info[1] is found
    assert limits.peek("burst", CLIENT).remaining == (3 if found is None else 4)


@pytest.mark.parametrize("check", [guard.check, async_to_sync(acheck)], ids=["sync", "async"])
@pytest.mark.parametrize(
    "found", [None, ValueError("no such plan"), "nonsense"], ids=["none", "error", "wrong"]
)
def test_limit_function_is_called_once_even_if_it_finds_nothing(project, check, found, caplog):
    asked = []

    def planned(identifier, request):
        asked.append((identifier, request))
        if isinstance(found, Exception):
            raise found
        return found

    profiles = PROFILES | {"planned": {"axis": "tenant", "rate": planned}}
    project.SLIDING_WINDOW |= {"PROFILES": profiles}
    for names in (("planned",), ("burst", "planned", "free")):
        request = get()
        asked.clear()
        decision = check(request, Requirements([Requirement(names)]))
        assert asked == [("42", request)]
        if found is None:
            assert decision.allowed
            assert decision.reason == (decisions.ALLOWED if "burst" in names else "unlimited")
            assert list(state_of(request)[0].counted) == list(names)
        else:
            assert decision.reason == decisions.IDENTITY_ERROR
            assert "planned" in caplog.records[-1].getMessage()
    assert limits.peek("burst", CLIENT).remaining == (3 if found is None else 4)


def test_limit_that_changes_is_applied_at_once(project):
    limit = ["3/m"]
    project.SLIDING_WINDOW |= {
        "PROFILES": {"planned": {"axis": "ip", "rate": lambda identifier, request: limit[0]}}
    }
    limited = rate_limit("planned")(view)
    assert limit_of(limited) == 3
    limit[0] = "9/m"
    assert limit_of(limited) == 9
    assert limits.peek("planned", CLIENT).remaining == 6


@pytest.mark.parametrize("same", ["burst", "same"])
def test_window_that_two_profiles_share_is_charged_once(project, same):
    two = {name: {"axis": "ip", "rate": "5/m", "scope": "one"} for name in ("burst", "same")}
    project.SLIDING_WINDOW = {"LOG": False, "PROFILES": two}
    guard.check(get(), joined(Requirements([Requirement(("burst", same))])))
    assert limits.peek("burst", CLIENT).remaining == 3, "one was charged, and one is asked"


@pytest.mark.parametrize(
    ("exempt", "counts"),
    [
        (["192.0.2.0/24"], True),
        (["192.0.2.0/24", f"{CLIENT}/32"], False),
        (["staff"], True),
        (["192.0.2.0/24", lambda request: False], True),
        ([lambda request: True], False),
    ],
    ids=["others", "client", "staff", "false", "true"],
)
def test_client_that_is_exempt_is_charged_nothing(project, exempt, counts):
    project.SLIDING_WINDOW |= {"EXEMPT": exempt}
    assert (windows_of(Requirement(("burst",))) is not None) == counts
    request = get()
    for _ in range(2):
        assert (guard.check(request, joined([Requirement(("burst",))])) is not None) == counts


def test_unknown_profile_raises_no_error_for_an_exempt_client(project):
    project.SLIDING_WINDOW = {"PROFILES": PROFILES, "EXEMPT": [f"{CLIENT}/32"]}
    assert guard.check(get(), joined(Requirements([Requirement(("burts",))]))) is None
    project.SLIDING_WINDOW = {"PROFILES": PROFILES}
    with pytest.raises(ImproperlyConfigured, match="burts"):
        guard.check(get(), joined(Requirements([Requirement(("burts",))])))


def test_failures_are_logged(caplog):
    request = RequestFactory().get("/", REMOTE_ADDR="")
    decision = guard.check(request, joined(Requirements([Requirement(("burst",))])))
    assert decision.reason == decisions.IDENTITY_ERROR
    (record,) = caplog.records
    assert "burst" in record.getMessage()


def test_second_check_of_the_same_requirements_asks_nothing(monkeypatch):
    request = get()
    daily = Requirement(("daily",))
    decision = guard.check(request, joined(Requirements([Requirement(("burst",)), daily])))
    monkeypatch.setattr(guard, "resolve", None)
    assert guard.check(request, joined(Requirements([daily]))) is decision
    assert limits.peek("daily", CLIENT).remaining == 48


@pytest.mark.parametrize("check", [guard.check, async_to_sync(acheck)], ids=["sync", "async"])
def test_second_check_of_a_method_that_is_not_counted_decides_nothing(check):
    request = get()
    decision = check(request, Requirements([Requirement(("burst", "daily"))]))
    posts, gets = (
        Requirement(("burst",), methods=frozenset({method})) for method in ("POST", "GET")
    )
    assert check(request, Requirements([posts])) is None
    assert check(request, Requirements([gets])) is decision
    assert limits.peek("burst", CLIENT).remaining == 3


def test_second_check_with_a_chosen_profile_finds_the_first_decision():
    request = get()
    decision = guard.check(request, joined(Requirements([Requirement(("burst", "daily"))])))
    chosen = Requirements([Requirement(lambda request: "burst")])
    assert guard.check(request, joined(chosen)) is decision
    # The request's state has two checks now.
    assert guard.check(request, joined(Requirements([Requirement(("daily",))]))) is decision
    assert limits.peek("burst", CLIENT).remaining == 3


def test_second_check_charges_only_new_profiles():
    request = get()
    guard.check(request, joined(Requirements([Requirement(("burst",))])))
    second = guard.check(request, joined(Requirements([Requirement(("burst", "site"))])))
    (site,) = state_of(request).decisions[1].verdicts
    assert site.profile == "site"
    assert second.profile == "burst"


def test_choice_that_fails_is_called_once_for_a_requirement(caplog):
    calls = []

    def choose(request):
        calls.append(request)
        raise RuntimeError("broken on purpose")

    request, requirements = get(), Requirements([Requirement(choose)])
    first, second = (guard.check(request, joined(requirements)) for _ in range(2))
    assert first is second
    assert first.reason == decisions.IDENTITY_ERROR
    assert calls == [request]


def test_choice_after_one_that_failed_is_denied_too(caplog):
    def fail(request):
        raise RuntimeError("broken on purpose")

    after = Requirement(get_only)
    request = get()
    denied = guard.check(request, joined([Requirement(fail), after]))
    assert denied.reason == decisions.IDENTITY_ERROR
    assert guard.check(request, joined([after])) is denied


# Bindings are prepared again after a change


def view(request):
    return HttpResponse()


def limit_of(limited):
    request = get()
    limited(request)
    return request.rate_limit.limit


def test_views_that_ran_before_see_changed_settings(project):
    limited = rate_limit("burst")(view)
    assert limit_of(limited) == 5
    project.SLIDING_WINDOW = {"PROFILES": {"burst": {"axis": "ip", "rate": "6/m"}}}
    assert limit_of(limited) == 6


def test_views_that_ran_before_see_a_profile_that_is_registered_again():
    limited = rate_limit("own")(view)
    profile = Profile(name="own", axis="ip", limit_for=lambda identifier, request: "8/m")
    register("own", {"axis": "ip", "rate": "7/m"})
    try:
        assert limit_of(limited) == 7
        register("own", profile)
        assert limit_of(limited) == 8
    finally:
        unregister("own")
    with pytest.raises(ImproperlyConfigured, match="own"):
        limit_of(limited)


def test_views_that_ran_before_see_a_new_exemption(project):
    limited = rate_limit("burst")(view)
    assert limit_of(limited) == 5
    project.SLIDING_WINDOW = {"PROFILES": PROFILES, "EXEMPT": [f"{CLIENT}/32"]}
    request = get()
    limited(request)
    assert request.rate_limit is None


def test_nothing_is_prepared_twice_for_the_same_profiles(monkeypatch):
    requirements = Requirements([Requirement(("burst",))])
    guard.check(get(), joined(requirements))
    monkeypatch.setattr(binding, "Binding", None)
    assert guard.check(get(), joined(requirements)).allowed


@pytest.mark.parametrize(
    "names",
    [
        *(("burst",), ("daily",), ("site",), ("key",), ("watched",), ("closed",)),
        *(("burst", "site"), ("site", "daily", "key"), ("burst", "watched"), ("burst", "closed")),
        *(("tenant",), ("user",), ("session",), ("both", "tenant", "pair")),
        *(("free",), ("plans",), ("unlimited",), ("twice",), ("planned key",)),
        *(("burst", "free"), ("unlimited", "plans", "watched"), ("plans", "unlimited", "closed")),
    ],
    ids="-".join,
)
def test_sync_and_async_checks_leave_the_same_state(redis, names):
    found = []
    for check in (guard.check, async_to_sync(guard.acheck)):
        redis.flushdb()
        limits.get_limiter().shield.clear()
        for _ in range(2):
            request = get(HTTP_X_API_KEY="secret")
            decision = check(request, joined([Requirement(names)]))
            assert decision is request.rate_limit
            (checked,) = state_of(request)
            response = HttpResponse()
            headers.show(response, request)
            left = (len(decision.verdicts), decision.key, checked.counted)
            found.append((dict(response.headers), replace_times(decision), left))
    assert found[:2] == found[2:]


def replace_times(decision):
    return decision.replace(reset_after=0, verdicts=(), receipt=None)


def test_same_requirements_are_charged_once(monkeypatch):
    requirements, request = Requirements([Requirement(("burst",))]), get()
    first = guard.check(request, joined(requirements))
    monkeypatch.setattr(limits.get_limiter(), "charge", None)
    assert guard.check(request, joined(requirements)) is first


def test_binding_follows_the_settings(project):
    requirements = Requirements([Requirement(("burst",))])
    assert guard.check(get(), joined(requirements)).limit == 5
    project.SLIDING_WINDOW = {"LOG": False, "PROFILES": {"burst": {"axis": "ip", "rate": "8/m"}}}
    assert guard.check(get(), joined(requirements)).limit == 8
    with current_limiter.limiters_from(lambda: Limiter(MemoryStore(), prefix="other")):
        decision = guard.check(get(), joined(requirements))
    assert decision.key.startswith("other:")
    project.SLIDING_WINDOW = {"LOG": False, "PROFILES": PROFILES, "EXEMPT": [f"{CLIENT}/32"]}
    assert guard.check(get(), joined(requirements)) is None


async def test_user_of_a_joined_axis_is_loaded_without_blocking_async_code(project):
    async def load():
        return SimpleNamespace(pk=7, is_authenticated=True)

    project.SLIDING_WINDOW |= {"PROFILES": {"pair": {"axis": "user+ip", "rate": "9/m"}}}
    request = get()
    set_lazy_user(request, load)
    assert (await guard.acheck(request, joined([Requirement(("pair",))]))).allowed
    assert limits.peek("pair", f"7+{CLIENT}").remaining == 7, "one was charged, and one is asked"


async def test_user_of_an_exempt_client_is_not_loaded_by_async_code(project):
    async def load():
        raise AssertionError("nobody needs the user")

    project.SLIDING_WINDOW |= {"EXEMPT": [f"{CLIENT}/32"]}
    request = get()
    set_lazy_user(request, load)
    assert await guard.acheck(request, joined([Requirement(("user",))])) is None


async def test_user_that_cannot_be_loaded_is_an_unknown_identity_in_async_code(caplog):
    async def load():
        raise ValueError("the database is away")

    request = get()
    set_lazy_user(request, load)
    decision = await guard.acheck(request, joined([Requirement(("user",))]))
    assert decision.reason == decisions.IDENTITY_ERROR
    (record,) = caplog.records
    assert "user" in record.getMessage()


def test_nothing_is_given_back_for_a_request_that_was_not_checked(project):
    project.SLIDING_WINDOW |= {"ENABLED": False}
    limited = rate_limit("burst", charge_when=lambda response: False)(view)
    assert limited(get()).status_code == 200
