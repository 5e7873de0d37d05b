"""What a request is charged: found at once, or by asking, and always the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import RequestFactory

from django_slidingwindow import decisions, limits
from django_slidingwindow.core.limiter import Limiter
from django_slidingwindow.core.windows import Planner
from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.guard import check as guard
from django_slidingwindow.guard import resolve as claiming
from django_slidingwindow.guard.requirements import Demand, Demands
from django_slidingwindow.guard.resolve import claims_of
from django_slidingwindow.guard.state import account_of
from django_slidingwindow.guard.user_code import answer
from django_slidingwindow.http import headers
from django_slidingwindow.policies import Profile
from django_slidingwindow.registry import register, unregister
from django_slidingwindow.stores.flows import drive
from django_slidingwindow.stores.memory import MemoryStore

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


def at_once(*demands, may_block=False, **extra):
    """The windows that are found at once, and what is asked of them; None where none are."""
    found = claiming.at_once(
        get(**extra), Demands(demands), limits.get_limiter(), may_block=may_block
    )
    if found is None:
        return None
    _, form, keys = found
    return keys, form.lines, form.profiles


def asked(*demands, **extra):
    """The same by asking."""
    request = get(**extra)
    claims = drive(claims_of(request, account_of(request), demands), answer)
    form, keys = Planner("throttle").plan(claims)
    return keys, form.lines, form.profiles


@pytest.mark.parametrize(
    "demands",
    [
        [Demand(("burst",))],
        [Demand(("burst", "daily", "site"), cost=3)],
        [Demand(("burst", "site")), Demand(("site", "key"), cost=2), Demand(("burst",), cost=0)],
        [Demand(("burst", "pair"), methods=frozenset({"GET"}))],
        [Demand(("user", "burst", "tenant", "session", "both"))],
        [Demand(("free",), cost=2)],
        [Demand(("plans", "burst", "unlimited")), Demand(("planned key", "free"))],
    ],
)
def test_both_ways_find_the_same(demands):
    found = at_once(*demands, may_block=True, HTTP_X_API_KEY="secret")
    assert found is not None
    assert found == asked(*demands, HTTP_X_API_KEY="secret")


@pytest.mark.parametrize(
    "demand",
    [
        Demand(lambda request: "burst"),
        Demand(("burst",), cost=lambda request: 2),
        # Not counted, and counted by another.
        Demand(("burst",), methods=frozenset({"POST"})),
        # Without the header nobody is counted.
        Demand(("key",)),
        Demand(("keys",)),
        Demand(("planned key",)),
        # Two windows that are one.
        Demand(("twice",)),
    ],
    ids=["choice", "cost", "methods", "nobody", "nobody of two", "nobody planned", "twice"],
)
def test_whatever_has_to_be_asked_is_left_to_the_flow(demand):
    assert at_once(Demand(("burst",)), demand, may_block=True) is None
    assert at_once(demand, may_block=True) is None


def test_request_without_any_limit_is_left_to_the_flow():
    assert at_once(Demand(("unlimited",)), may_block=True) is None
    assert at_once(Demand(("unlimited", "burst")), may_block=True) is not None


@pytest.mark.parametrize("name", ["user", "session", "tenant", "both", "free", "plans"])
def test_whatever_may_block_is_left_to_the_flow_on_an_event_loop(name):
    assert at_once(Demand((name,))) is None
    assert at_once(Demand((name,)), may_block=True) is not None


async def acheck(request, demands):
    return await guard.acheck(request, demands)


@pytest.mark.parametrize("check", [guard.check, async_to_sync(acheck)], ids=["sync", "async"])
@pytest.mark.parametrize("found", [None, ValueError("no such tenant")], ids=["nobody", "error"])
def test_whom_to_count_is_asked_once_even_if_there_is_no_answer(project, check, found, caplog):
    asked = []

    def tenant(request):
        asked.append(request)
        if found is not None:
            raise found

    project.SLIDING_WINDOW |= {"IDENTITIES": {"tenant": tenant}}
    request = get()
    decision = check(request, Demands([Demand(("burst", "tenant", "site"))]))
    assert asked == [request]
    if found is None:
        assert decision.allowed
        assert guard.find_account(request).decided == {
            "burst": decision,
            "tenant": None,
            "site": decision,
        }
    else:
        assert decision.reason == decisions.IDENTITY_ERROR
        (record,) = caplog.records
        assert record.exc_info[1] is found
    assert limits.peek("burst", CLIENT).remaining == (3 if found is None else 4)


@pytest.mark.parametrize("check", [guard.check, async_to_sync(acheck)], ids=["sync", "async"])
@pytest.mark.parametrize(
    "found", [None, ValueError("no such plan"), "nonsense"], ids=["none", "error", "wrong"]
)
def test_limit_is_asked_for_once_even_if_there_is_none(project, check, found, caplog):
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
        decision = check(request, Demands([Demand(names)]))
        assert asked == [("42", request)]
        if found is None:
            assert decision.allowed
            assert decision.reason == (decisions.ALLOWED if "burst" in names else "unlimited")
            assert guard.find_account(request).decided == dict.fromkeys(names, decision)
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


def test_demands_that_are_no_fixed_set_are_left_to_the_flow():
    assert (
        claiming.at_once(get(), [Demand(("burst",))], limits.get_limiter(), may_block=True) is None
    )


@pytest.mark.parametrize("same", ["burst", "same"])
def test_windows_that_two_profiles_share_are_left_to_the_flow(project, same):
    """What they are charged together has to be found out."""
    two = {name: {"axis": "ip", "rate": "5/m", "scope": "one"} for name in ("burst", "same")}
    project.SLIDING_WINDOW = {"LOG": False, "PROFILES": two}
    assert (at_once(Demand(("burst", same))) is None) == (same == "same")
    guard.check(get(), Demands([Demand(("burst", same))]))
    assert limits.peek("burst", CLIENT).remaining == 3, "one was charged, and one is asked"


def test_demand_of_nothing_has_no_windows():
    assert at_once(Demand(())) is None
    assert guard.check(get(), Demands([Demand(())])) is None


@pytest.mark.parametrize(
    ("exempt", "known"),
    [
        (["192.0.2.0/24"], True),
        (["192.0.2.0/24", f"{CLIENT}/32"], False),
        (["staff"], False),
        (["192.0.2.0/24", lambda request: False], False),
    ],
    ids=["others", "client", "staff", "function"],
)
def test_who_may_be_exempt_is_left_to_the_flow(project, exempt, known):
    project.SLIDING_WINDOW |= {"EXEMPT": exempt}
    found = at_once(Demand(("burst",)), may_block=True)
    assert found == (asked(Demand(("burst",))) if known else None)


def test_who_is_exempt_does_not_meet_the_error_of_an_unknown_profile(project):
    project.SLIDING_WINDOW = {"PROFILES": PROFILES, "EXEMPT": [f"{CLIENT}/32"]}
    assert guard.check(get(), Demands([Demand(("burts",))])) is None
    project.SLIDING_WINDOW = {"PROFILES": PROFILES}
    with pytest.raises(ImproperlyConfigured, match="burts"):
        guard.check(get(), Demands([Demand(("burts",))]))


def test_what_fails_is_told_by_the_flow(caplog):
    request = RequestFactory().get("/", REMOTE_ADDR="")
    decision = guard.check(request, Demands([Demand(("burst",))]))
    assert decision.reason == decisions.IDENTITY_ERROR
    (record,) = caplog.records
    assert "burst" in record.getMessage()


def test_what_is_decided_is_not_claimed_again_and_nobody_is_asked(monkeypatch):
    request = get()
    daily = Demand(("daily",))
    decision = guard.check(request, Demands([Demand(("burst",)), daily]))
    monkeypatch.setattr(guard, "claims_of", None)
    assert guard.check(request, Demands([daily])) is decision
    assert limits.peek("daily", CLIENT).remaining == 48


@pytest.mark.parametrize("check", [guard.check, async_to_sync(acheck)], ids=["sync", "async"])
def test_second_check_of_a_method_that_is_not_counted_decides_nothing(check):
    request = get()
    decision = check(request, Demands([Demand(("burst", "daily"))]))
    posts, gets = (Demand(("burst",), methods=frozenset({method})) for method in ("POST", "GET"))
    assert check(request, Demands([posts])) is None
    assert check(request, Demands([gets])) is decision
    assert limits.peek("burst", CLIENT).remaining == 3


def test_second_check_by_what_a_function_chooses_finds_the_first():
    request = get()
    decision = guard.check(request, Demands([Demand(("burst", "daily"))]))
    chosen = Demands([Demand(lambda request: "burst")])
    assert guard.check(request, chosen) is decision
    # Now that there is more to keep of the request than a first decision.
    assert guard.check(request, Demands([Demand(("daily",))])) is decision
    assert limits.peek("burst", CLIENT).remaining == 3


def test_what_is_not_decided_yet_is_claimed_by_the_second_check():
    request = get()
    guard.check(request, Demands([Demand(("burst",))]))
    second = guard.check(request, Demands([Demand(("burst", "site"))]))
    assert [verdict.profile for verdict in request._rate_limit_account.decisions[1].verdicts] == [
        "site"
    ]
    assert second.profile == "burst"


def test_choice_that_fails_is_asked_once_for_a_demand(caplog):
    calls = []

    def choose(request):
        calls.append(request)
        raise RuntimeError("broken on purpose")

    request, demands = get(), Demands([Demand(choose)])
    first, second = (guard.check(request, demands) for _ in range(2))
    assert first is second
    assert first.reason == decisions.IDENTITY_ERROR
    assert calls == [request]


# What is prepared is prepared anew


def view(request):
    return HttpResponse()


def limit_of(limited):
    request = get()
    limited(request)
    return request.rate_limit.limit


def test_settings_that_change_are_seen_by_views_that_were_asked_before(project):
    limited = rate_limit("burst")(view)
    assert limit_of(limited) == 5
    project.SLIDING_WINDOW = {"PROFILES": {"burst": {"axis": "ip", "rate": "6/m"}}}
    assert limit_of(limited) == 6


def test_profile_that_is_registered_anew_is_seen_by_views_that_were_asked_before():
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


def test_exemption_that_is_added_is_seen_by_views_that_were_asked_before(project):
    limited = rate_limit("burst")(view)
    assert limit_of(limited) == 5
    project.SLIDING_WINDOW = {"PROFILES": PROFILES, "EXEMPT": [f"{CLIENT}/32"]}
    request = get()
    limited(request)
    assert request.rate_limit is None


def test_nothing_is_prepared_twice_for_the_same_profiles(monkeypatch):
    demands = Demands([Demand(("burst",))])
    guard.check(get(), demands)
    monkeypatch.setattr(claiming, "bind", None)
    assert guard.check(get(), demands).allowed


def seen(request):
    """What a check has left on a request, and what the response tells of it."""
    response = HttpResponse()
    headers.show(response, request)
    account = guard.find_account(request)
    decision = request.rate_limit
    return {
        "fields": dict(response.headers),
        "decision": replace(decision, reset_after=0, verdicts=(), receipt=None),
        "decided": list(account.decided),
        "decisions": account.decisions == (decision,),
        "rest": (account.exempt, account.alone, decision.key, len(decision.verdicts)),
    }


@pytest.mark.parametrize("way", ["sync", "async"])
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
def test_the_short_way_leaves_what_the_long_way_does(redis, way, names):
    """Demands that few meet, in a plain list, take the long one."""
    found = []
    for demands in ([Demand(names)], Demands([Demand(names)])):
        redis.flushdb()
        limits.get_limiter().shield.clear()
        for _ in range(2):
            request = get(HTTP_X_API_KEY="secret")
            if way == "sync":
                decision = guard.check(request, demands)
            else:
                decision = async_to_sync(guard.acheck)(request, demands)
            assert decision is request.rate_limit
            found.append(seen(request))
    assert found[:2] == found[2:]


def test_the_short_way_is_taken_once_a_request(monkeypatch):
    demands, request = Demands([Demand(("burst",))]), get()
    first = guard.check(request, demands)
    monkeypatch.setattr(limits.get_limiter(), "charge", None)
    assert guard.check(request, demands) is first


def test_the_short_way_follows_the_settings(project):
    demands = Demands([Demand(("burst",))])
    assert guard.check(get(), demands).limit == 5
    project.SLIDING_WINDOW = {"LOG": False, "PROFILES": {"burst": {"axis": "ip", "rate": "8/m"}}}
    assert guard.check(get(), demands).limit == 8
    with limits.limiters_from(lambda: Limiter(MemoryStore(), prefix="other")):
        decision = guard.check(get(), demands)
    assert decision.key.startswith("other:")
    project.SLIDING_WINDOW = {"LOG": False, "PROFILES": PROFILES, "EXEMPT": [f"{CLIENT}/32"]}
    assert guard.check(get(), demands) is None


def test_who_is_not_counted_is_left_to_the_flow():
    request = get()
    assert guard.check(request, Demands([Demand(("key",))])) is None
    assert request._rate_limit_account.decided == {"key": None}
