"""Describe limits in the schema of an API: the response 429 and the rate-limit fields.

The adapter for each schema generator finds the requirements of an operation. This module describes
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from django.core.exceptions import ImproperlyConfigured

from ..conf import conf
from ..decisions import ALLOWED, REDIS, Decision, Verdict
from ..durations import duration_exact
from ..guard.requirements import Requirement
from ..http.headers import field_values
from ..policies import Policy
from ..registry import registry

Content: TypeAlias = "dict[str, Any]"
"""Schemas of a body, by media type."""

# DRF and ninja reject requests with these statuses before they call a throttle.
_BEFORE_LIMITS = {"401", "403"}
_RETRY_AFTER = "Retry-After"
_PROBLEM_TYPE = "application/problem+json"
_TEXTS = {
    "RateLimit-Policy": "The limits: for each its name, the quota `q` and the window `w` in "
    "seconds.",
    "RateLimit": "What is left: for each limit its name, the remaining quota `r` and `t`, the "
    "seconds until more of it is available.",
    "Limit": "The quota of the strictest limit.",
    "Remaining": "What is left of the strictest limit.",
    "Reset": "Seconds until more of the strictest limit is available.",
    _RETRY_AFTER: "Seconds to wait. It is missing if no retry can succeed.",
}
_TEXT = {"type": "string"}
_NUMBER = {"type": "integer"}
_POLICY = Policy(limit=120, window=60)


class Component(NamedTuple):
    """An object in the schema's `components`, to which responses refer."""

    kind: str
    """The section of `components`: "headers" or "schemas"."""
    name: str
    schema: dict[str, Any]

    @property
    def ref(self) -> dict[str, str]:
        return {"$ref": f"#/components/{self.kind}/{self.name}"}


def describe(
    responses: dict[Any, Any],
    status: Any,
    methods: Iterable[str],
    refusals: Iterable[tuple[Iterable[Requirement], Content]],
    *,
    fields: bool = True,
) -> list[Component]:
    """Add 429 to the responses of an operation, and the fields to responses after a check.

    `status` is 429 as the generator writes it. `refusals` are pairs of requirements and the body
    of their refusals. `fields`: whether responses have the rate-limit fields. Descriptions of the
    project's own are not changed. Return the components to add to the schema.
    """
    limits: dict[str, None] = {}
    content: Content = {}
    for requirements, body in refusals:
        found = [text for each in requirements for text in _limits_of(each, set(methods))]
        if found:
            limits |= dict.fromkeys(found)
            content |= body
    if not limits:
        return []
    known = "; ".join(filter(None, limits))
    text = "Too many requests." + (f" Limits: {known}." if known else "")
    described: dict[str, Any] = {"description": text}
    if content:
        described["content"] = content
    refused = responses.setdefault(status, described)
    shown = [*_fields()] if fields else []
    for code, response in responses.items():
        if "$ref" not in response and str(code) not in _BEFORE_LIMITS:
            for header in (*shown, _retry_after()) if response is refused else shown:
                response.setdefault("headers", {}).setdefault(header.name, header.ref)
    return [*shown, _retry_after(), *([_problem()] if _PROBLEM_TYPE in content else [])]


def _limits_of(requirement: Requirement, methods: set[str]) -> Iterator[str]:
    """Yield a text for each limit on requests with these methods.

    The text is empty if the limit is not known before the request. Profiles that only observe are
    left out, because they refuse nothing.
    """
    if requirement.methods is not None and not requirement.methods & methods:
        return
    if not isinstance(requirement.profiles, tuple):
        yield ""
        return
    for name in requirement.profiles:
        try:
            profile = registry.get(name)
        except ImproperlyConfigured:
            # The system checks report the profile. The schema can do without its limits.
            yield ""
            continue
        if profile.observed:
            continue
        if profile.limit_for is not None:
            yield ""
        for policy in profile.policies:
            unit = "at once" if policy.inflight else f"in {duration_exact(policy.window)}"
            yield f"{policy.limit:,} {unit} by {profile.axis}"


def detail(media_types: Iterable[str]) -> Content:
    """Return the body of refusals that DRF and ninja send by default."""
    schema = {"type": "object", "properties": {"detail": _TEXT}, "required": ["detail"]}
    return {media_type: {"schema": schema} for media_type in media_types}


def problem() -> Content:
    """Return the body of this app's own refusals, for clients that accept JSON.

    It is unknown if the project makes its own responses.
    """
    if conf.response is not None:
        return {}
    return {_PROBLEM_TYPE: {"schema": _problem().ref}}


def _fields() -> Iterator[Component]:
    """Yield the fields that the setting HEADERS chooses, each with an example."""
    for name, value in field_values([_example()]).items():
        if name in _TEXTS:
            yield _header(name, _TEXTS[name], _TEXT, value)
        else:
            yield _header(name, _TEXTS[name.rpartition("-")[2]], _NUMBER, int(value))


def _retry_after() -> Component:
    return _header(_RETRY_AFTER, _TEXTS[_RETRY_AFTER], _NUMBER, 30)


def _header(name: str, text: str, schema: dict[str, str], example: object) -> Component:
    described = {"description": text, "schema": schema, "example": example}
    return Component("headers", name, described)


def _problem() -> Component:
    properties = {
        "type": _TEXT,
        "title": _TEXT,
        "status": _NUMBER,
        "detail": _TEXT,
        "violated-policies": {"type": "array", "items": _TEXT},
    }
    required = ["type", "title", "status", "detail"]
    schema = {
        "type": "object",
        "description": "Problem details (RFC 9457).",
        "properties": properties,
        "required": required,
    }
    return Component("schemas", "RateLimitProblem", schema)


def _example() -> Decision:
    """Return a decision about a first request, for the names and the examples of the fields."""
    known: dict[str, Any] = {
        "allowed": True,
        "profile": "ip_public",
        "policy": _POLICY,
        "limit": _POLICY.limit,
        "remaining": _POLICY.limit - 1,
        "retry_after": 0.0,
        "reset_after": _POLICY.window,
    }
    verdict = Verdict(**known, observed=False, key="throttle:ip:{203.0.113.9}:ip_public:c60")
    return Decision(**known, reason=ALLOWED, source=REDIS, verdicts=(verdict,))
