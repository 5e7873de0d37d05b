"""The fields are right, and another parser can read them."""

from __future__ import annotations

import pickle
from functools import wraps
from itertools import product

import http_sf
import pytest
from django.http import HttpResponse
from django.test import RequestFactory, override_settings
from hypothesis import given, settings
from hypothesis import strategies as st

from django_slidingwindow.core.limiter import Limiter
from django_slidingwindow.core.ranking import strictest
from django_slidingwindow.core.windows import ProfileCheck
from django_slidingwindow.decisions import Decision, Verdict
from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.guard import check as guard
from django_slidingwindow.guard.current_limiter import limiters_from
from django_slidingwindow.guard.requirements import Requirement, joined
from django_slidingwindow.guard.state import STATE, Check, RequestState, state_of
from django_slidingwindow.http import headers
from django_slidingwindow.http import policy_names as naming
from django_slidingwindow.policies import Policy, Profile
from django_slidingwindow.stores.memory import MemoryStore
from django_slidingwindow.stores.redis import RedisStore
from django_slidingwindow.testing import FrozenClock, limits_in_memory


def verdict(
    profile="burst",
    rate="100/m",
    *,
    allowed=True,
    remaining=50,
    retry_after=0.0,
    reset_after=29.2,
    observed=False,
    key="throttle:ip:{203.0.113.9}:burst:c60",
    limit=None,
):
    policy = Policy.parse(rate)
    return Verdict(
        profile=profile,
        policy=policy,
        key=key,
        allowed=allowed,
        observed=observed,
        limit=policy.limit if limit is None else limit,
        remaining=remaining,
        retry_after=retry_after,
        reset_after=reset_after,
    )


def decision(*verdicts, allowed=None, retry_after=0.0):
    if allowed is None:
        allowed = all(item.allowed or item.observed for item in verdicts)
    first = strictest(verdicts) if verdicts else None
    return Decision(
        allowed=allowed,
        profile="burst" if first is None else first.profile,
        policy=first and first.policy,
        limit=first.limit if first else 0,
        remaining=first.remaining if first else 0,
        retry_after=first.retry_after if first and not first.observed else retry_after,
        reset_after=first.reset_after if first else 0.0,
        reason="",
        source="redis",
        verdicts=verdicts,
    )


def show(response, decisions, request=None):
    """Add the fields to the response of a request with these decisions; return the request."""
    request = request or RequestFactory().get("/")
    checks = [Check(joined(()), None, {}, {}, one) for one in decisions]
    if checks:
        state = getattr(request, STATE, RequestState())
        state[:] = checks
        setattr(request, STATE, state)
    headers.show(response, request)
    return request


def parsed(text):
    """Return name and parameters of each policy in a field, by the parser of another project."""
    return dict(http_sf.parse(text.encode(), tltype="list"))


BURST = verdict()
DAILY = verdict("daily", "1000/d", remaining=999, reset_after=86_400.0)


def with_settings(**keys):
    return override_settings(SLIDING_WINDOW=keys)


def test_draft_fields_list_all_policies():
    with with_settings(HEADERS=["draft"]):
        fields = headers.field_values([decision(BURST, DAILY)])
    assert fields == {
        "RateLimit-Policy": '"burst";q=100;w=60, "daily";q=1000;w=86400',
        "RateLimit": '"burst";r=50;t=30, "daily";r=999;t=86400',
    }
    assert parsed(fields["RateLimit-Policy"]) == {
        "burst": {"q": 100, "w": 60},
        "daily": {"q": 1000, "w": 86_400},
    }
    assert parsed(fields["RateLimit"]) == {
        "burst": {"r": 50, "t": 30},
        "daily": {"r": 999, "t": 86_400},
    }


def test_fields_of_several_decisions_stand_together():
    with with_settings(HEADERS=["draft"]):
        fields = headers.field_values([decision(BURST), decision(DAILY)])
        assert fields == headers.field_values([decision(BURST, DAILY)])


def test_legacy_and_x_show_the_policy_with_the_least_remaining():
    with with_settings(HEADERS=["legacy", "x"]):
        fields = headers.field_values([decision(DAILY, BURST)])
    assert fields == {
        "RateLimit-Limit": "100",
        "RateLimit-Remaining": "50",
        "RateLimit-Reset": "30",
        "X-RateLimit-Limit": "100",
        "X-RateLimit-Remaining": "50",
        "X-RateLimit-Reset": "30",
    }


def test_legacy_shows_the_later_reset_when_two_have_the_same_remaining():
    slow = verdict("slow", "60/h", remaining=50, reset_after=3_000.0)
    with with_settings(HEADERS=["legacy"]):
        assert headers.field_values([decision(BURST, slow)])["RateLimit-Reset"] == "3000"


def test_legacy_shows_the_refusal_when_another_policy_has_less_left():
    # A cost of 5 finds 3 left; the other policy, of a cost of 1, admits with 0 left.
    refused = verdict("heavy", "5/m", allowed=False, remaining=3, retry_after=12.5)
    full = verdict("light", "9/m", remaining=0)
    longer = verdict("long", "5/h", allowed=False, remaining=4, retry_after=700.0)
    with with_settings(HEADERS=["legacy"]):
        assert headers.field_values([decision(full, refused)]) == {
            "RateLimit-Limit": "5",
            "RateLimit-Remaining": "3",
            "RateLimit-Reset": "13",
        }
        fields = headers.field_values([decision(full, refused, longer)])
        assert fields["RateLimit-Reset"] == "700"


def test_default_is_draft_and_legacy():
    assert set(headers.field_values([decision(BURST)])) == {
        "RateLimit-Policy",
        "RateLimit",
        "RateLimit-Limit",
        "RateLimit-Remaining",
        "RateLimit-Reset",
    }


def test_all_three_styles_together():
    with with_settings(HEADERS=["x", "draft", "legacy"]):
        assert len(headers.field_values([decision(BURST)])) == 8


def test_no_style_gives_no_field():
    with with_settings(HEADERS=[]):
        assert headers.field_values([decision(BURST)]) == {}


def test_unknown_style_fails_no_request():
    with with_settings(HEADERS=["drafts", "legacy"]):
        assert headers.field_values([decision(BURST)])["RateLimit-Limit"] == "100"


def test_no_verdict_gives_no_field():
    assert headers.field_values([]) == {}
    assert headers.field_values([decision()]) == {}


def test_observing_profiles_are_not_shown():
    watched = verdict("watched", "1/d", allowed=False, retry_after=9.0, observed=True)
    assert headers.field_values([decision(watched)]) == {}
    with with_settings(HEADERS=["draft", "legacy"]):
        fields = headers.field_values([decision(watched, BURST)])
    assert "watched" not in str(fields)
    assert fields["RateLimit-Limit"] == "100"


def test_policies_of_one_profile_have_their_window_in_the_name():
    minute, hour = verdict("login", "5/m"), verdict("login", "20/h")
    with with_settings(HEADERS=["draft"]):
        fields = headers.field_values([decision(minute, hour)])
    assert fields["RateLimit-Policy"] == '"login:60s";q=5;w=60, "login:3600s";q=20;w=3600'
    assert list(parsed(fields["RateLimit"])) == ["login:60s", "login:3600s"]


def test_names_are_unique_when_profiles_have_names_like_them():
    same = [verdict("a", "5/m"), verdict("a", "6/m"), verdict("a:60s", "7/m")]
    with with_settings(HEADERS=["draft"]):
        fields = headers.field_values([decision(*same)])
    assert parsed(fields["RateLimit-Policy"]) == {
        "a:60s": {"q": 5, "w": 60},
        "a:60s:2": {"q": 6, "w": 60},
        "a:60s:3": {"q": 7, "w": 60},
    }


def test_window_that_is_not_whole_seconds_is_left_out():
    with with_settings(HEADERS=["draft"]):
        fields = headers.field_values([decision(verdict(rate="5/250ms"))])
    assert fields["RateLimit-Policy"] == '"burst";q=5'


def test_limit_is_the_one_that_was_applied():
    with with_settings(HEADERS=["draft", "legacy"]):
        fields = headers.field_values([decision(verdict(limit=25, remaining=3))])
    assert parsed(fields["RateLimit-Policy"])["burst"]["q"] == 25
    assert fields["RateLimit-Limit"] == "25"


def test_refusal_without_end_has_no_time():
    never = verdict(allowed=False, remaining=7, retry_after=None)
    fields = headers.field_values([decision(never, retry_after=None)])
    assert fields["RateLimit"] == '"burst";r=7'
    assert "RateLimit-Reset" not in fields


@given(st.text(st.characters(), min_size=1))
@settings(max_examples=300)
def test_any_profile_name_is_a_valid_string(name):
    with with_settings(HEADERS=["draft"]):
        fields = headers.field_values([decision(verdict(name))])
    ((read, params),) = http_sf.parse(fields["RateLimit-Policy"].encode("ascii"), tltype="list")
    assert params == {"q": 100, "w": 60}
    assert read.isascii()
    if name.isascii() and name.isprintable() and "%" not in name:
        assert read == name


def test_partition_key_is_a_keyed_hash_in_both_fields():
    def partition_keys(identifier, **keys):
        window = f"throttle:ip:{{{identifier}}}:burst:c60"
        with with_settings(HEADERS=["draft"], HEADERS_PARTITION_KEY=True, **keys):
            fields = headers.field_values([decision(verdict(key=window))])
        assert identifier not in str(fields)
        return {parsed(fields[name])["burst"]["pk"] for name in ("RateLimit", "RateLimit-Policy")}

    (first,) = partition_keys("203.0.113.9")
    assert isinstance(first, bytes)
    assert len(first) == 12
    assert partition_keys("203.0.113.9") == {first}
    assert partition_keys("203.0.113.8") != {first}
    assert partition_keys("203.0.113.9", HASH_KEY="another secret of ours") != {first}


def test_fields_are_added_to_a_response():
    response = HttpResponse(headers={"Vary": "Cookie"})
    with with_settings(HEADERS=["draft"]):
        show(response, [decision(BURST)])
    assert response["RateLimit"] == '"burst";r=50;t=30'
    assert response["Vary"] == "Cookie"


STORES = {
    "reply": lambda: Limiter(MemoryStore()),
    "local": lambda: Limiter(Unreachable(), fallback="local", processes=2),
    "allow": lambda: Limiter(Unreachable(), fallback="allow"),
    "deny": lambda: Limiter(Unreachable(), fallback="deny"),
}


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("styles", [["draft"], ["legacy", "x"], ["x", "draft", "legacy"], []])
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize(
    "profile",
    [
        {"rate": "5/m"},
        {"rate": "0/m"},
        {"rates": ["5/m", "9/h", "2/d"]},
        {"rates": ["5/m", "0/h"]},
        {"rate": "5/m", "mode": "observe"},
        {"rate": lambda identifier, request: "5/m"},
        {"rate": lambda identifier, request: None},
    ],
)
def test_prepared_fields_equal_those_of_the_verdicts(settings, profile, store, styles, keyed):
    settings.SLIDING_WINDOW = {
        "PROFILES": {"own": {"axis": "global", **profile}},
        "HEADERS": styles,
        "HEADERS_PARTITION_KEY": keyed,
        "LOG": False,
    }
    with limiters_from(STORES[store]):
        for _ in range(4):
            request = RequestFactory().get("/")
            guard.check(request, joined([Requirement(("own",))]))
            response = HttpResponse()
            headers.show(response, request)
            del response.headers["Content-Type"]
            # A copy has no windows, so its fields are made from the verdicts.
            copy = request.rate_limit.replace()
            assert dict(response.headers) == headers.field_values([copy])


class Unreachable(MemoryStore):
    def charge(self, keys, rules):
        raise StoreError("away", outage=True)


def test_fields_of_the_same_decisions_may_be_shown_twice():
    response = HttpResponse()
    request = show(response, [decision(BURST)])
    before = dict(response.headers)
    show(response, [decision(BURST)], request)
    assert dict(response.headers) == before


def test_django_reads_and_writes_fields_like_its_own():
    response = HttpResponse()
    show(response, [decision(BURST)])
    headers.refuse(response, 7)
    copy = HttpResponse()
    for name, value in response.items():
        copy[name] = value
    assert copy.headers._store == response.headers._store
    assert response["retry-after"] == "7"
    assert response["Content-Type"].startswith("text/html")


def test_fields_are_added_to_a_response_that_replaces_the_first():
    request = show(HttpResponse(), [decision(BURST)])
    response = HttpResponse()
    show(response, [decision(BURST)], request)
    assert response["RateLimit-Limit"] == "100"


def test_response_without_a_limit_is_unchanged():
    response = HttpResponse()
    show(response, [])
    assert set(response.headers) == {"Content-Type"}


def test_field_that_the_view_has_set_stays():
    response = HttpResponse(headers={"RateLimit-Limit": "of the view"})
    request = show(response, [decision(BURST)])
    show(response, [decision(BURST)], request)
    assert response["RateLimit-Limit"] == "of the view"
    assert response["RateLimit-Remaining"] == "50"


def test_own_field_is_written_again_when_there_is_a_later_decision():
    response = HttpResponse()
    request = show(response, [decision(DAILY)])
    show(response, [decision(DAILY), decision(BURST)], request)
    assert list(parsed(response["RateLimit"])) == ["daily", "burst"]
    assert response["RateLimit-Limit"] == "100"


def of_another_project(view):
    """Decorate a view, so that a `rate_limit` above it makes a check of its own."""

    @wraps(view)
    def wrapper(request):
        return view(request)

    return wrapper


KINDS = ["plain", "refund", "apart", "refund apart"]


@pytest.mark.parametrize("kinds", list(product(KINDS, repeat=3)), ids=" / ".join)
def test_fields_are_those_of_the_decisions_after_refunds(settings, kinds):
    """For three decorators: with or without a refund, and beside each other or not."""
    rates = {"one": "5/m", "two": "7/m", "three": "6/m"}
    settings.SLIDING_WINDOW = {
        "PROFILES": {name: {"axis": "ip", "rate": rate} for name, rate in rates.items()},
        "HEADERS": ["draft", "legacy"],
        "LOG": False,
    }

    def view(request):
        return HttpResponse("ok")

    for name, kind in zip(rates, kinds, strict=True):
        refunds = (lambda response: False) if "refund" in kind else None
        view = rate_limit(name, charge_when=refunds)(view)
        if "apart" in kind:
            view = of_another_project(view)
    with limits_in_memory():
        for _ in range(2):
            request = RequestFactory().get("/")
            response = view(request)
            del response.headers["Content-Type"]
            assert dict(response.headers) == headers.field_values(state_of(request).decisions)


@pytest.mark.parametrize(
    ("allowed", "wait", "seconds"),
    [(True, 0.0, 30), (False, None, None), (False, 0.0, 1), (False, 0.01, 1), (False, 2.0, 2)],
)
def test_client_seconds_are_whole_and_rounded_up(allowed, wait, seconds):
    outcome = verdict(allowed=allowed, retry_after=wait, reset_after=29.2)
    assert headers.client_seconds(outcome) == seconds


@pytest.mark.parametrize("styles", [["draft"], ["legacy"], ["x"]])
@pytest.mark.parametrize("observed", [False, True])
def test_client_seconds_are_the_same_in_every_field(styles, observed):
    """With a second verdict, the fields are those of several policies."""
    refused = verdict(allowed=False, retry_after=12.5)
    watched = verdict("watched", "1/d", allowed=False, retry_after=99.0, observed=observed)
    verdicts = (refused, watched) if observed else (refused,)
    answer = decision(*verdicts, allowed=False, retry_after=12.5)
    with with_settings(HEADERS=styles):
        fields = headers.field_values([answer])
    response = HttpResponse()
    headers.refuse(response, headers.client_seconds(answer))
    if styles == ["draft"]:
        shown = parsed(fields["RateLimit"])["burst"]["t"]
    else:
        shown = int(next(value for name, value in fields.items() if name.endswith("-Reset")))
    assert shown == int(response["Retry-After"]) == 13


def test_violated_policies_are_those_that_refused():
    refused = verdict("daily", "10/d", allowed=False, retry_after=5.0)
    watched = verdict("watched", "1/d", allowed=False, retry_after=9.0, observed=True)
    assert headers.violated(decision(BURST, refused, watched)) == ["daily"]


@pytest.mark.parametrize("algorithm", ["compact", "log", "buckets", "counter"])
@pytest.mark.parametrize("offset", [0.0, 0.25, 0.999_999])
def test_retry_after_is_exact_to_the_second(redis, algorithm, offset):
    """At that second a request passes; a second earlier it does not."""
    clock = FrozenClock()
    clock.advance(offset)
    store = RedisStore("default", clock=clock)
    limiter = Limiter(store)
    policies = tuple(Policy.parse(rate, algorithm=algorithm) for rate in ("3/10s", "5/m"))
    claims = [
        ProfileCheck(Profile(name="p", axis="ip", policies=policies), "203.0.113.9", policies)
    ]

    def wait_and_check(answer):
        seconds = headers.client_seconds(answer)
        with with_settings(HEADERS=["draft", "legacy"]):
            fields = headers.field_values([answer])
        times = [
            parsed(fields["RateLimit"])[f"p:{item.policy.window_text}s"]["t"]
            for item in answer.verdicts
            if not item.allowed
        ]
        assert seconds == max(times) == int(fields["RateLimit-Reset"])
        clock.advance(seconds - 1)
        assert not limiter.peek(limiter.windows(claims)).allowed
        clock.advance(1)
        assert limiter.peek(limiter.windows(claims)).allowed

    admitted = 0
    for _ in range(12):
        answer = limiter.charge(limiter.windows(claims))
        if answer.allowed:
            admitted += 1
            clock.advance(0.7)
        else:
            wait_and_check(answer)
    store.close()
    assert admitted >= 5


def test_cache_of_fields_is_bounded(monkeypatch):
    monkeypatch.setattr(headers._single_window_fields, "size", 3)
    for remaining in range(10):
        fields = headers.field_values([decision(BURST._replace(remaining=remaining))])
        assert fields["RateLimit-Remaining"] == str(remaining)
        assert len(headers._single_window_fields) <= 3


def test_caches_of_policies_are_bounded(monkeypatch):
    monkeypatch.setattr(headers._fields_of_policies, "size", 3)
    monkeypatch.setattr(naming._descriptions, "size", 3)
    for limit in range(1, 10):
        headers.field_values([decision(verdict(limit=limit), DAILY)])
        assert len(headers._fields_of_policies) <= 3
        assert len(naming._descriptions) <= 3


def test_fields_of_one_response_do_not_change_the_next():
    own = HttpResponse(headers={"RateLimit-Limit": "of the view"})
    several, plain = HttpResponse(), HttpResponse()
    show(own, [decision(BURST)])
    show(several, [decision(BURST, DAILY)])
    show(plain, [decision(BURST)])
    assert own["RateLimit-Limit"] == "of the view"
    assert list(parsed(several["RateLimit"])) == ["burst", "daily"]
    assert plain["RateLimit-Limit"] == "100"
    assert plain["RateLimit"] == '"burst";r=50;t=30'


def slots(*, allowed=True, remaining=3, **fields):
    policy = Policy(limit=5, window=120, algorithm="slots")
    one = verdict("export", allowed=allowed, remaining=remaining, reset_after=118.5)
    return one._replace(policy=policy, limit=5, **fields)


@pytest.mark.parametrize("styles", [["draft"], ["draft", "legacy", "x"]])
def test_requests_in_flight_have_a_unit_and_no_time(styles):
    with with_settings(HEADERS=styles):
        fields = headers.field_values([decision(slots())])
        assert fields == {
            "RateLimit-Policy": '"export";q=5;qu="concurrent-requests"',
            "RateLimit": '"export";r=3',
        }
        assert parsed(fields["RateLimit-Policy"]) == {
            "export": {"q": 5, "qu": "concurrent-requests"}
        }
        refused = decision(slots(allowed=False, remaining=0))
        assert headers.client_seconds(refused) is None
        assert headers.field_values([refused])["RateLimit"] == '"export";r=0'
    with with_settings(HEADERS=["legacy"]):
        assert headers.field_values([decision(slots())]) == {}


@pytest.mark.parametrize("together", [True, False])
def test_rates_beside_requests_in_flight_are_shown_by_the_older_fields(together):
    with with_settings(HEADERS=["draft", "legacy"]):
        given = [decision(BURST, slots())] if together else [decision(BURST), decision(slots())]
        fields = headers.field_values(given)
    assert fields == {
        "RateLimit-Policy": '"burst";q=100;w=60, "export";q=5;qu="concurrent-requests"',
        "RateLimit": '"burst";r=50;t=30, "export";r=3',
        "RateLimit-Limit": "100",
        "RateLimit-Remaining": "50",
        "RateLimit-Reset": "30",
    }


def test_retry_after_of_a_rate_counts_beside_a_slot():
    late = verdict(allowed=False, remaining=0, retry_after=12.5)
    refused = decision(late, slots(allowed=False, remaining=0))
    assert headers.client_seconds(refused) == 13
    assert headers.violated(refused) == ["burst", "export"]


def test_fields_of_a_profile_with_rate_and_slots_name_both(settings, redis):
    profiles = {"api": {"axis": "ip", "rate": "9/m", "inflight": 5}}
    settings.SLIDING_WINDOW = {"PROFILES": profiles, "LATENCY_BUDGET": 60}
    request = RequestFactory().get("/")
    guard.check(request, joined([Requirement(("api",))]))
    response = HttpResponse()
    headers.show(response, request)
    request.close()
    assert response["RateLimit-Policy"] == (
        '"api:60s";q=9;w=60, "api:inflight";q=5;qu="concurrent-requests"'
    )
    assert response["RateLimit"] == '"api:60s";r=8;t=60, "api:inflight";r=4'
    assert response["RateLimit-Limit"] == "9"


def test_response_keeps_no_decision_that_a_cache_would_store():
    with override_settings(SLIDING_WINDOW={"LOG": False}), limits_in_memory():
        view = rate_limit("ip_public")(lambda request: HttpResponse("ok"))
        response = view(RequestFactory().get("/"))
    assert response["RateLimit-Remaining"] == "119"
    assert b"django_slidingwindow" not in pickle.dumps(response)
