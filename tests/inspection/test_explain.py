"""`explain` predicts exactly what happens to the real request."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.decorators import login_required
from django.core.handlers.base import BaseHandler
from django.http import HttpResponse
from django.urls import include, path
from django.utils.decorators import method_decorator
from django.views import View

from django_slidingwindow.decorators import RateLimitMixin, rate_limit, rate_limit_exempt
from django_slidingwindow.guard import override_snapshot
from django_slidingwindow.guard.override import Override
from django_slidingwindow.guard.override_snapshot import ProfileOverrides, Snapshot
from django_slidingwindow.guard.state import state_of
from django_slidingwindow.inspection.explain import explain
from django_slidingwindow.inspection.sample_request import request_of
from tests.support.explanations import Inside, explained, real

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redis import Redis

MIDDLEWARE = "django_slidingwindow.middleware.RateLimitMiddleware"


def tenant(request: Any) -> str | None:
    if request.headers.get("X-Tenant") == "broken":
        raise LookupError("broken")
    return request.headers.get("X-Tenant")  # type: ignore[no-any-return]


def planned(identifier: str, request: Any) -> list[str] | None:
    return None if identifier.startswith("a") else ["4/d"]


def from_office(request: Any) -> bool:
    return "X-Office" in request.headers


def chosen(request: Any) -> Any:
    return {"one": "wide", "many": ["wide", "tenants"], "none": None}[
        request.headers.get("X-Choice", "one")
    ]


def costing(request: Any) -> int:
    return int(request.headers.get("X-Cost", 1))


def seen(request: Any, **kwargs: Any) -> HttpResponse:
    return HttpResponse("seen")


class Mixed(RateLimitMixin, View):
    rate_limit_profiles = ("ips", "users")

    def get(self, request: Any) -> HttpResponse:
        return HttpResponse("seen")

    post = get


@method_decorator(rate_limit("shared_a"), name="dispatch")
class Decorated(View):
    @method_decorator(rate_limit("shared_b", cost=3))
    def get(self, request: Any) -> HttpResponse:
        return HttpResponse("seen")

    post = get


VIEWS = {
    "plain": seen,
    "one": rate_limit("ips")(seen),
    "two": rate_limit("ips")(rate_limit("tenants", methods="POST")(seen)),
    "costly": rate_limit("ips", cost=3)(login_required(rate_limit("ips", cost=5)(seen))),
    "login": login_required(rate_limit("users", "headers")(seen)),
    "exempt": rate_limit_exempt(rate_limit("tenants")(seen)),
    "chosen": rate_limit(profile=chosen, cost=costing)(seen),
    "mixed": Mixed.as_view(),
    "inside": Inside.as_view(),
    "decorated": Decorated.as_view(),
}
inner = [path(f"{name}/", view, name=name) for name, view in VIEWS.items()]
urlpatterns = [*inner, path("shop/", include((inner, "shop")))]
pytestmark = [pytest.mark.urls(__name__), pytest.mark.usefixtures("redis")]

AXES = {
    "ips": "ip",
    "users": "user",
    "either": "user_or_ip",
    "sessions": "session",
    "headers": "header:X-API-Key",
    "views": "endpoint",
    "all": "global",
    "tenants": "tenant",
    "pairs": "ip+endpoint",
    "triples": "tenant+user+ip",
}


def random_profiles(draw: random.Random) -> dict[str, Any]:
    """Return a profile for every axis. Windows are long: no hit leaves them during the test."""
    found: dict[str, Any] = {}
    for name, axis in AXES.items():
        found[name] = {
            "axis": axis,
            "rates": [f"{draw.randint(1, 8)}/d", f"{draw.randint(3, 20)}/w"][: draw.randint(1, 2)],
            "mode": draw.choice(["enforce", "enforce", "observe"]),
            "anonymous": draw.choice(["ip", "skip"]),
            "algorithm": draw.choice(["compact", "log", "buckets", "counter"]),
            "count_rejected": draw.random() < 0.2,
        }
        if draw.random() < 0.3:
            found[name]["penalty"] = {"after": f"{draw.randint(0, 3)}/d", "steps": ["1d"]}
        if draw.random() < 0.2:
            found[name] |= {"inflight": draw.randint(2, 6), "hold": "1h"}
    found["wide"] = {"axis": "ip", "rate": "20/d"}
    found["planned"] = {"axis": "tenant", "rate": planned}
    for name in ("shared_a", "shared_b"):
        found[name] = {"axis": "ip", "rate": f"{draw.randint(5, 30)}/d", "scope": "shared"}
    return found


def random_rules(draw: random.Random) -> list[dict[str, Any]]:
    found = []
    for _ in range(draw.randint(0, 4)):
        rule: dict[str, Any] = {"profiles": draw.sample([*AXES, "planned"], draw.randint(1, 3))}
        if draw.random() < 0.5:
            rule["path"] = draw.choice(["^/", "^/shop/", "one", "^/(two|login)/$", "^/api/"])
        if draw.random() < 0.3:
            rule["methods"] = draw.choice(["GET", ["POST", "PUT"], ["HEAD"]])
        if draw.random() < 0.2:
            rule["name"] = draw.sample(["one", "shop:one", "plain", "shop:mixed"], 2)
        if draw.random() < 0.1:
            rule["namespace"] = "shop"
        found.append(rule)
    return found


ADDRESSES = ["203.0.113.9", "10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2", "198.51.100.7"]


def random_settings(draw: random.Random) -> dict[str, Any]:
    exempt = ["198.51.100.0/24", "staff", from_office, "10.0.0.0/8"]
    return {
        "PROFILES": random_profiles(draw),
        "RULES": random_rules(draw),
        "IDENTITIES": {"tenant": tenant},
        "TRUSTED_PROXIES": draw.choice([[], ["10.0.0.0/8"], ["10.0.0.1", "2001:db8::/32"]]),
        "FORWARDED_HEADER": draw.choice(["x-forwarded-for", "forwarded"]),
        "EXEMPT": draw.sample(exempt, draw.choice([0, 0, 1, 2])),
        "IDENTITY_ERROR": draw.choice(["deny", "allow"]),
        "ENABLED": draw.random() > 0.03,
        "LATENCY_BUDGET": 60,
        # A refusal that the shield replays has fewer verdicts.
        "SHIELD_SECONDS": 0,
        "LOG": False,
    }


def random_overrides(draw: random.Random) -> Snapshot | None:
    snapshot = Snapshot()
    for name in draw.sample([*AXES, "wide", "planned"], draw.choice([0, 0, 2, 4])):
        snapshot[name] = known = ProfileOverrides()
        override = draw.choice(
            [
                Override("limit", ((draw.randint(0, 20), None),)),
                Override("limit", ((draw.randint(0, 20), 86_400.0),)),
                Override("exempt"),
                Override("observe"),
                Override("block"),
                Override("block", until=1.0),
            ]
        )
        if draw.random() < 0.4:
            known.everybody = (override,)
        else:
            for identifier in ("203.0.113.9", "acme", "7", "ip:203.0.113.9", "all"):
                known[identifier] = (override,)
    return snapshot


def random_headers(draw: random.Random, header: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, values in {
        "X-Tenant": ["acme", "globex", "globex", "broken"],
        "X-API-Key": ["abc", "def"],
        "X-Choice": ["many", "none"],
        "X-Cost": ["2", "3", "nonsense"],
    }.items():
        if draw.random() < 0.4:
            found.append((name, draw.choice(values)))
    if draw.random() < 0.05:
        found.append(("X-Office", "1"))
    if draw.random() < 0.5:
        hops = draw.choices([*ADDRESSES, "unknown", ""], k=draw.randint(1, 3))
        if header == "forwarded":
            hops = [f'for="[{hop}]"' if ":" in hop else f"for={hop}" for hop in hops]
        found.append((header, ", ".join(hops)))
    return found


def random_user(draw: random.Random) -> Any:
    pk = draw.choice([None, None, 7, 8])
    return SimpleNamespace(
        pk=pk, is_authenticated=pk is not None, is_staff=pk is not None and draw.random() < 0.1
    )


def identifiers(request: Any) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for check in state_of(request) or ():
        for name, counted in check.counted.items():
            if counted is not None and counted[0]:
                found.setdefault(name, set()).add(counted[0])
    return found


@pytest.fixture(autouse=True)
def _no_overrides() -> Iterator[None]:
    yield
    override_snapshot.publish(None)


@pytest.mark.parametrize("seed", range(25))
def test_explanation_equals_the_decision_about_the_real_request(
    settings: Any, redis: Redis, seed: int
) -> None:
    draw = random.Random(seed)
    settings.ALLOWED_HOSTS = ["*"]
    settings.SLIDING_WINDOW = random_settings(draw)
    settings.MIDDLEWARE = [MIDDLEWARE] if draw.random() < 0.8 else []
    override_snapshot.publish(random_overrides(draw))
    handler = BaseHandler()
    handler.load_middleware()
    outcomes = set()
    # Requests that are not closed hold their slots until Python deletes them.
    in_flight = []
    for _ in range(20):
        method = draw.choice(["GET", "GET", "POST", "HEAD"])
        url = draw.choice(["", "/shop"]) + f"/{draw.choice([*VIEWS, *VIEWS, 'missing'])}/?q=1"
        sent = {
            "ip": draw.choice([*ADDRESSES, "203.0.113.9", "203.0.113.9"]),
            "headers": random_headers(draw, settings.SLIDING_WINDOW["FORWARDED_HEADER"]),
            "user": random_user(draw),
        }
        keys_before = sorted(redis.keys())
        found = explain(request_of(method, url, **sent))
        assert sorted(redis.keys()) == keys_before
        request = request_of(method, url, **sent)
        in_flight.append(request)
        status = handler.get_response(request).status_code
        context = f"seed {seed}: {method} {url} {sent} {found}"
        if status == 302:
            # `login_required` has redirected the request, which `explain` cannot foresee.
            reached = explained(found)[: len(real(request))]
            assert reached == real(request), context
            continue
        assert explained(found) == real(request), context
        assert found.refused == (status in (429, 503)), context
        if found.refused:
            assert found.decision is not None
            assert found.decision["status"] == status, context
        named: dict[str, set[str]] = {}
        for state in found.profiles:
            if state.identifier is not None and state.override != "block":
                named.setdefault(state.profile, set()).add(state.identifier)
        assert named == identifiers(request), context
        outcomes.add(status)
    assert outcomes
