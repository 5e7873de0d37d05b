"""Schemas of drf-spectacular and django-ninja, made by the real generators."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, TypeAlias

import pytest
from django.test import Client, override_settings
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema
from ninja import NinjaAPI, Router
from ninja.decorators import decorate_view

from django_slidingwindow.contrib import ninja, openapi
from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.guard.requirements import Requirement
from django_slidingwindow.middleware import RateLimitMiddleware
from tests.support.installed_apps import installed

URLS = "tests.support.sites.spectacular_urls"
MIDDLEWARE = "django_slidingwindow.middleware.RateLimitMiddleware"
PROFILES = {
    "narrow": {"axis": "ip", "rates": ["2/m", "1000/d"]},
    "wide": {"axis": "user", "rate": "5/90s"},
    "planned": {"axis": "ip", "rate": lambda identifier, request: "5/m"},
    "watched": {"axis": "ip", "rate": "2/m", "mode": "observe"},
}
LIMITS = {"PROFILES": PROFILES, "LATENCY_BUDGET": 5.0, "LOG": False}
NARROW = "Too many requests. Limits: 2 in 1 min by ip; 1,000 in 1 d by ip."
DRAFT = {"RateLimit-Policy", "RateLimit"}
LEGACY = {"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}
DETAIL = {"type": "object", "properties": {"detail": {"type": "string"}}, "required": ["detail"]}
Responses: TypeAlias = "Callable[..., dict[str, Any]]"
PROBLEM = {"$ref": "#/components/schemas/RateLimitProblem"}


@pytest.fixture(scope="module", autouse=True)
def _site() -> Iterator[None]:
    """Set up a project with drf-spectacular, and set only its schema class."""
    drf = {"DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema"}
    with (
        installed("rest_framework", "drf_spectacular"),
        override_settings(REST_FRAMEWORK=drf, SLIDING_WINDOW=LIMITS),
    ):
        yield


def as_read(schema: Any) -> dict[str, Any]:
    """Return the schema as a client reads it."""
    read: dict[str, Any] = json.loads(json.dumps(schema))
    return read


def found_at(schema: dict[str, Any], reference: str) -> Any:
    found: Any = schema
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return found


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def headers(response: dict[str, Any]) -> set[str]:
    return set(response.get("headers", {}))


# drf-spectacular


def spectacular(**limits: Any) -> dict[str, Any]:
    patterns = import_module(URLS).urlpatterns
    with override_settings(SLIDING_WINDOW={**LIMITS, **limits}):
        return as_read(SchemaGenerator(patterns=patterns).get_schema(request=None, public=True))


@pytest.fixture(scope="module")
def schema(_site: None) -> dict[str, Any]:
    """Return the schema of all views, with the usual settings."""
    return spectacular()


@pytest.fixture(scope="module")
def responses_of(schema: dict[str, Any]) -> Responses:
    return lambda name, method="get": schema["paths"][f"/{name}/"][method]["responses"]


def test_schemas_are_valid_and_their_references_exist(schema: dict[str, Any]) -> None:
    for made in (schema, ninja_schema(API), ninja_schema(PLAIN)):
        validate_schema(made)
        found = {*references(made)}
        assert len(found) > 5
        assert all(found_at(made, reference) for reference in found)


def test_throttled_operation_shows_429_and_the_fields(schema: dict[str, Any]) -> None:
    responses = schema["paths"]["/Own/"]["get"]["responses"]
    assert responses["429"] == {
        "description": NARROW,
        "content": {"application/json": {"schema": DETAIL}},
        "headers": {
            name: {"$ref": f"#/components/headers/{name}"}
            for name in [*DRAFT, *LEGACY, "Retry-After"]
        },
    }
    assert headers(responses["200"]) == DRAFT | LEGACY
    # DRF checks permissions before it calls throttles.
    assert headers(responses["403"]) == set()
    shown = schema["components"]["headers"]
    assert shown["RateLimit-Policy"]["example"] == '"ip_public";q=120;w=60'
    assert shown["RateLimit-Remaining"]["schema"] == {"type": "integer"}


@pytest.mark.usefixtures("redis")
def test_description_equals_what_a_client_gets(
    schema: dict[str, Any], responses_of: Responses
) -> None:
    with override_settings(ROOT_URLCONF=URLS):
        client = Client()
        admitted, _, refused = [client.get("/Own/") for _ in range(3)]
        by_decorator = client.get("/url/", headers={"Accept": "application/json"})
    responses = responses_of("Own")
    assert headers(responses["200"]) <= {*admitted.headers}
    assert refused.status_code == 429
    assert headers(responses["429"]) <= {*refused.headers}
    assert [*refused.json()] == ["detail"]
    assert refused.headers["Content-Type"] in responses["429"]["content"]
    shown = responses_of("url")["429"]
    assert by_decorator.headers["Content-Type"] in shown["content"]
    problem = schema["components"]["schemas"]["RateLimitProblem"]
    assert {*by_decorator.json()} == {*problem["properties"]}


@pytest.mark.parametrize(
    ("name", "method", "text"),
    [
        ("OfTheView", "get", "Too many requests. Limits: 5 in 1 min 30 s by user."),
        ("Posts", "post", NARROW),
        ("Planned", "get", "Too many requests."),
        ("Misspelt", "get", "Too many requests."),
        ("orders", "get", NARROW),
        ("orders/newest", "get", "Too many requests. Limits: 5 in 1 min 30 s by user."),
    ],
)
def test_limits_are_those_of_the_operation(
    name: str, method: str, text: str, responses_of: Responses
) -> None:
    responses = responses_of(name, method)
    assert responses["429"]["description"] == text
    assert "application/json" in responses["429"]["content"]


@pytest.mark.parametrize(
    "name", ["Posts", "Unthrottled", "Foreign", "Watched", "FailingThrottles", "View"]
)
def test_operation_without_limits_shows_nothing(name: str, responses_of: Responses) -> None:
    responses = responses_of(name)
    assert "429" not in responses
    assert not any(map(headers, responses.values()))


@pytest.mark.parametrize("name", ["url", "Dispatch", "Handler", "inside"])
def test_decorated_operation_shows_problem_details(name: str, responses_of: Responses) -> None:
    refused = responses_of(name)["429"]
    assert refused["description"] == NARROW
    assert refused["content"] == {"application/problem+json": {"schema": PROBLEM}}
    assert "RateLimit" in headers(refused)


def test_decorator_and_throttle_are_shown_together(responses_of: Responses) -> None:
    refused = responses_of("function")["429"]
    assert refused["description"] == (
        "Too many requests. Limits: 5 in 1 min 30 s by user; 2 in 1 min by ip; 1,000 in 1 d by ip."
    )
    assert {*refused["content"]} == {"application/json", "application/problem+json"}


def test_body_is_left_out_when_the_project_makes_its_own(
    responses_of: Responses, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "content" not in responses_of("OwnHandler")["429"]
    schema = spectacular(RESPONSE=lambda request, decision: None)
    assert "content" not in schema["paths"]["/url/"]["get"]["responses"]["429"]
    assert "get_throttles failed: no request" in capsys.readouterr().err


def test_response_is_kept_when_the_project_describes_it(responses_of: Responses) -> None:
    refused = responses_of("Described")["429"]
    assert refused["description"] == "Slow down."
    assert refused["content"]["application/json"]["schema"] == {"type": "string"}
    assert headers(refused) == {*DRAFT, *LEGACY, "Retry-After"}


def test_excluded_operation_stays_excluded(schema: dict[str, Any]) -> None:
    assert "get" not in schema["paths"]["/Hidden/"]


@pytest.mark.parametrize(
    ("styles", "names"),
    [
        ([], set()),
        (["draft"], DRAFT),
        (["x"], {"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"}),
    ],
)
def test_fields_follow_the_setting(styles: list[str], names: set[str]) -> None:
    schema = spectacular(HEADERS=styles)
    responses = schema["paths"]["/Own/"]["get"]["responses"]
    assert headers(responses["200"]) == names
    assert headers(responses["429"]) == {*names, "Retry-After"}
    assert {*schema["components"]["headers"]} == {*names, "Retry-After"}


# django-ninja


def make_api(name: str, *, decorated: bool = True) -> NinjaAPI:
    api = NinjaAPI(urls_namespace=name, throttle=[ninja.ProfileThrottle("narrow")])
    router = Router(throttle=[ninja.ProfileThrottle("wide")])
    api.add_router("router", router)
    if decorated:
        api.add_decorator(ninja.throttled, mode="view")

    @api.get("of-api", response={200: str, 401: str})
    def of_api(request: Any) -> str:
        return "ok"

    @api.get("async")
    async def of_async(request: Any) -> str:
        return "ok"

    @api.get("own", throttle=[ninja.ProfileThrottle("wide")])
    def own(request: Any) -> str:
        return "ok"

    @api.get("exempt", throttle=[])
    def exempt(request: Any) -> str:
        return "ok"

    @api.get("posts", throttle=[ninja.ProfileThrottle("narrow", methods="POST")])
    def posts(request: Any) -> str:
        return "ok"

    @api.get("described", response={200: str, 429: int})
    def described(request: Any) -> str:
        return "ok"

    @api.get("view", throttle=[])
    @decorate_view(rate_limit("narrow"))
    def view(request: Any) -> str:
        return "ok"

    @router.get("in")
    def in_router(request: Any) -> str:
        return "ok"

    return api


API, PLAIN = make_api("with throttled"), make_api("without throttled", decorated=False)


def ninja_schema(api: NinjaAPI) -> dict[str, Any]:
    return as_read(api.get_openapi_schema(path_prefix=""))


def ninja_responses(name: str, api: NinjaAPI = API) -> dict[str, Any]:
    found: dict[str, Any] = ninja_schema(api)["paths"][f"/{name}"]["get"]["responses"]
    return found


def test_ninja_operation_shows_429_and_the_fields() -> None:
    responses = ninja_responses("of-api")
    assert responses["429"]["description"] == NARROW
    assert responses["429"]["content"] == {"application/json": {"schema": DETAIL}}
    assert headers(responses["429"]) == {*DRAFT, *LEGACY, "Retry-After"}
    assert headers(responses["200"]) == DRAFT | LEGACY
    assert headers(responses["401"]) == set()


@pytest.mark.parametrize("name", ["own", "router/in"])
def test_ninja_throttles_of_operation_and_router_replace_those_of_the_api(name: str) -> None:
    shown = ninja_responses(name)["429"]["description"]
    assert shown == "Too many requests. Limits: 5 in 1 min 30 s by user."


@pytest.mark.parametrize("name", ["exempt", "posts"])
def test_ninja_operation_without_limits_shows_nothing(name: str) -> None:
    assert [*ninja_responses(name)] == ["200"]
    assert headers(ninja_responses(name)["200"]) == set()


def test_ninja_response_is_kept_when_the_project_describes_it() -> None:
    refused = ninja_responses("described")["429"]
    assert refused["description"] == "Too Many Requests"
    assert "RateLimit" in headers(refused)


class OwnMiddleware(RateLimitMiddleware):
    """A project's subclass of the middleware."""


@pytest.mark.parametrize("middleware", [MIDDLEWARE, f"{__name__}.OwnMiddleware"])
def test_ninja_fields_are_shown_when_something_sets_them(middleware: str) -> None:
    assert headers(ninja_responses("of-api", PLAIN)["429"]) == {"Retry-After"}
    with override_settings(MIDDLEWARE=[middleware]):
        assert "RateLimit" in headers(ninja_responses("of-api", PLAIN)["429"])
        # The middleware charges the operation, so the refusal has the middleware's body.
        refused = ninja_responses("async", PLAIN)["429"]
        assert refused["content"] == {"application/problem+json": {"schema": PROBLEM}}


@pytest.mark.parametrize("api", [API, PLAIN])
def test_ninja_decorated_operation_shows_problem_details(api: NinjaAPI) -> None:
    refused = ninja_responses("view", api)["429"]
    assert refused["content"] == {"application/problem+json": {"schema": PROBLEM}}
    assert "RateLimit" in headers(refused)


def test_requests_in_flight_are_described() -> None:
    profiles = {"slots": {"axis": "tenant", "rate": "9/m", "inflight": 5}}
    with override_settings(SLIDING_WINDOW={"PROFILES": profiles}):
        described = list(openapi._limits_of(Requirement(("slots",)), {"GET"}))
    assert described == ["9 in 1 min by tenant", "5 at once by tenant"]
