from __future__ import annotations

import re
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.sessions.backends.base import SessionBase
from django.contrib.sessions.middleware import SessionMiddleware
from django.core.cache.backends.base import default_key_func
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.urls import include, path
from redis.backoff import NoBackoff
from redis.retry import Retry

from django_slidingwindow.checks import callables
from django_slidingwindow.checks.catalog import CATALOG
from django_slidingwindow.checks.project import Project
from django_slidingwindow.checks.register import TAG, check_deployment, check_project
from django_slidingwindow.checks.static import PROJECT_CHECKS
from django_slidingwindow.checks.values import VALUES, known_keys
from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.guard import usages
from django_slidingwindow.guard.installation import require_installed
from django_slidingwindow.guard.usages import Usage
from django_slidingwindow.middleware import RateLimitMiddleware
from django_slidingwindow.policies import Policy, Profile
from django_slidingwindow.registry import register, unregister

ROOT = Path(__file__).parent.parent.parent
REDIS = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
MIDDLEWARE = "django_slidingwindow.middleware.RateLimitMiddleware"


@pytest.fixture(autouse=True)
def _no_views(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the views of other tests, because this project lacks their profiles."""
    monkeypatch.setattr(usages, "_usages", {})


@pytest.fixture
def found(settings: Any) -> Callable[..., list[CheckMessage]]:
    """Return a function that checks a project whose SLIDING_WINDOW has the given keys."""

    def check(**user: Any) -> list[CheckMessage]:
        settings.SLIDING_WINDOW = user
        return check_project(None)

    return check


def numbers(messages: list[CheckMessage]) -> list[str]:
    return [str(message.id).removeprefix("django_slidingwindow.") for message in messages]


def one(messages: list[CheckMessage], number: str) -> str:
    """Return the text of the only message, which must have this number."""
    assert numbers(messages) == [number], messages
    assert messages[0].hint
    return messages[0].msg


def plan(identifier: str, request: object) -> str:
    return "5/m"


def no_arguments() -> str:
    return ""


def tenant(request: object) -> str:
    return "acme"


def limit(identifier: str, request: object) -> str:
    return "1/m"


class OwnSessionMiddleware(SessionMiddleware):
    """A project's variant."""


class SessionStore(SessionBase):
    """Makes this module a session engine that is not derived from one of Django's."""


class CallableObject:
    """A callable without a name."""

    def __call__(self) -> None: ...

    def __repr__(self) -> str:
        return "<an object>"


NOT_CALLABLE = "text"


# The setting itself


def test_default_settings_have_no_problem(found: Any) -> None:
    assert found() == []


def test_reports_when_the_setting_is_not_a_dict(settings: Any) -> None:
    settings.SLIDING_WINDOW = ["CACHE"]
    assert one(check_project(None), "E002") == "SLIDING_WINDOW is not a dict."
    assert check_deployment(None) == []


def test_unknown_key_has_a_suggestion(found: Any) -> None:
    assert "'FALBACK': did you mean 'FALLBACK'" in one(found(FALBACK="deny"), "E003")


def test_key_is_unknown_when_it_is_not_a_string(settings: Any) -> None:
    settings.SLIDING_WINDOW = {1: 2}
    assert "unknown key 1" in one(check_project(None), "E003")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("CACHE", None),
        ("CACHE", ""),
        ("TRANSPORT", "redis"),
        ("TRANSPORT", None),
        ("PROFILES", ["ip_public"]),
        ("IDENTITIES", "shop.identity"),
        ("RULES", {"path": "^/"}),
        ("TRUSTED_PROXIES", "10.0.0.0/8"),
        ("FORWARDED_HEADER", "X-Real-IP"),
        ("IPV6_PREFIX", 129),
        ("IPV6_PREFIX", 0),
        ("IPV6_PREFIX", True),
        ("FALLBACK", "local_memory"),
        ("FALLBACK", ["local"]),
        ("FALLBACK_PROCESSES", 0),
        ("FALLBACK_PROCESSES", 2.0),
        ("FALLBACK_MAX_KEYS", 0),
        ("SHIELD_SECONDS", -1),
        ("SHIELD_SECONDS", float("inf")),
        ("SHIELD_SECONDS", "1"),
        ("SHIELD_SECONDS", 10**400),
        ("HEADERS", "draft"),
        ("HEADERS", ["drafts"]),
        ("HEADERS", [["draft"]]),
        ("HEADERS_PARTITION_KEY", 1),
        ("PREFIX", "a b"),
        ("PREFIX", ""),
        ("PREFIX", None),
        ("HASH_KEY", 5),
        ("HASH_KEY", b""),
        ("HASH_KEY", "\ud800" * 16),
        ("LATENCY_BUDGET", 0),
        ("LATENCY_BUDGET", None),
        ("LATENCY_BUDGET", float("nan")),
        ("IDENTITY_ERROR", "raise"),
        ("EXEMPT", "10.0.0.0/8"),
        ("RESPONSE", 429),
        ("LOG", "yes"),
        ("LOG_DAYS", 0),
        ("LOG_CLIENT", None),
        ("LOG_IDENTIFIERS", "hashed"),
        ("NEAR_SHARE", "0.8"),
        ("NEAR_SHARE", 80),
        ("NEAR_SHARE", -0.1),
        ("NEAR_SHARE", True),
        ("ENABLED", 1),
    ],
)
def test_wrong_value_message_names_the_valid_values(found: Any, key: str, value: object) -> None:
    text = one(found(**{key: value}), "E004")
    assert text.startswith(f"SLIDING_WINDOW[{key!r}] is ")
    assert text.endswith(f"must be {VALUES[key].wanted}.")


def test_wrong_value_message_hides_the_hash_key(found: Any) -> None:
    assert "12345" not in one(found(HASH_KEY=12345), "E004")


@pytest.mark.parametrize(
    "user",
    [
        {"HEADERS": [], "HASH_KEY": None, "RESPONSE": None, "SHIELD_SECONDS": 0},
        {"NEAR_SHARE": None},
        {"NEAR_SHARE": 0},
        {"NEAR_SHARE": 1},
        {"HEADERS": ("draft", "x"), "LATENCY_BUDGET": 1, "IPV6_PREFIX": 128, "PREFIX": "rl:a"},
        {
            "FALLBACK": "deny",
            "TRANSPORT": "direct",
            "FALLBACK_PROCESSES": 64,
            "ENABLED": False,
            "LOG": False,
        },
    ],
)
def test_valid_values_have_no_problem(found: Any, user: dict[str, Any]) -> None:
    assert found(**user) == []


def test_every_setting_has_a_value_test() -> None:
    assert set(VALUES) == known_keys()


def test_warns_when_the_hash_key_is_short(found: Any) -> None:
    assert "has 15 bytes" in one(found(HASH_KEY="x" * 15), "W005")
    assert found(HASH_KEY=b"x" * 16) == []


# The cache alias


def test_missing_alias_has_a_suggestion(found: Any, settings: Any) -> None:
    settings.CACHES = {"default": REDIS, "limits": REDIS}
    assert "did you mean 'limits'" in one(found(CACHE="limit"), "E011")


def test_reports_the_redis_backend_of_django(found: Any, settings: Any) -> None:
    settings.CACHES = {
        "default": {**REDIS, "BACKEND": "django.core.cache.backends.redis.RedisCache"}
    }
    assert "Django's own Redis backend" in one(found(), "E012")


def test_reports_the_name_of_another_backend(found: Any, settings: Any) -> None:
    backend = "django.core.cache.backends.locmem.LocMemCache"
    settings.CACHES = {"default": {"BACKEND": backend}}
    assert backend in one(found(), "E013")


def test_reports_the_sharding_client(found: Any, settings: Any) -> None:
    options = {"CLIENT_CLASS": "django_redis.client.ShardClient"}
    settings.CACHES = {"default": {**REDIS, "OPTIONS": options}}
    assert "ShardClient" in one(found(), "E014")


def test_herd_client_has_no_problem(found: Any, settings: Any) -> None:
    options = {"CLIENT_CLASS": "django_redis.client.HerdClient"}
    settings.CACHES = {"default": {**REDIS, "OPTIONS": options}}
    assert found() == []


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"BACKEND": "nowhere.RedisCache"}, "nowhere"),
        ({**REDIS, "OPTIONS": {"CLIENT_CLASS": "django_redis.client.Nobody"}}, "Nobody"),
        ({**REDIS, "OPTIONS": {"CONNECTION_FACTORY": "nowhere.Factory"}}, "nowhere"),
        ({**REDIS, "LOCATION": ""}, "no LOCATION"),
        ({**REDIS, "LOCATION": "localhost:6379"}, "redis://"),
        ({**REDIS, "LOCATION": [None]}, "LOCATION has None, which is not a text"),
        ({**REDIS, "LOCATION": ROOT}, "which is not a text"),
        ({**REDIS, "OPTIONS": {"SOCKET_TIMEOUT": "5"}}, "SOCKET_TIMEOUT is not a number: '5'"),
        (
            {**REDIS, "OPTIONS": {"CONNECTION_POOL_KWARGS": {"socket_connect_timeout": "5"}}},
            "socket_connect_timeout is not a number: '5'",
        ),
        ({**REDIS, "OPTIONS": {"CONNECTION_POOL_KWARGS": [5]}}, "_KWARGS is not a dict: [5]"),
        ({**REDIS, "OPTIONS": [5]}, "OPTIONS is not a dict: [5]"),
    ],
)
def test_reports_an_unusable_alias(
    found: Any, settings: Any, config: dict[str, Any], text: str
) -> None:
    settings.CACHES = {"default": config}
    assert text in one(found(), "E015")


@pytest.mark.parametrize("location", ["cluster", [ROOT]])
def test_location_is_not_checked_when_the_alias_has_its_own_factory(
    found: Any, settings: Any, location: object
) -> None:
    options = {"CONNECTION_FACTORY": "django_redis.pool.ConnectionFactory"}
    settings.CACHES = {"default": {**REDIS, "LOCATION": location, "OPTIONS": options}}
    assert found() == []


def test_warns_when_caches_share_a_location_with_different_options(
    found: Any, settings: Any
) -> None:
    slow = {**REDIS, "OPTIONS": {"SOCKET_TIMEOUT": 30, "SERIALIZER": "x", "PASSWORD": "a"}}
    quick = {**REDIS, "OPTIONS": {"SOCKET_TIMEOUT": 0.1, "PASSWORD": "a"}}
    settings.CACHES = {"default": slow, "limits": quick}
    text = one(found(CACHE="limits"), "W016")
    assert "'limits' and 'default'" in text
    assert "(SOCKET_TIMEOUT)" in text


def test_caches_may_share_a_location_when_options_are_equal(found: Any, settings: Any) -> None:
    other = {**REDIS, "LOCATION": ["redis://127.0.0.1:2/0"], "OPTIONS": {"SOCKET_TIMEOUT": 9}}
    files = {**REDIS, "BACKEND": "django.core.cache.backends.redis.RedisCache"}
    files["OPTIONS"] = {"PASSWORD": "b"}
    settings.CACHES = {"default": REDIS, "same": dict(REDIS), "other": other, "django": files}
    assert found() == []


def test_cache_of_another_backend_may_have_any_location(found: Any, settings: Any) -> None:
    files = "django.core.cache.backends.filebased.FileBasedCache"
    settings.CACHES = {
        "default": REDIS,
        "files": {"BACKEND": files, "LOCATION": ROOT / "cache"},
    }
    assert found() == []


CLUSTER = "django_slidingwindow.cluster.ClusterConnectionFactory"


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        ("redis://me:secret@a:1", "redis://b:1", "password, username"),
        ("redis://:one@a:1", "redis://:two@b:1", "password"),
        ("rediss://a:1", "redis://b:1", "scheme"),
        ("redis://a:1", "redis://b:1?socket_timeout=3", "socket_timeout"),
        ("redis://a:1?retry_on_error=x", "redis://b:1", "retry_on_error"),
    ],
)
def test_warns_when_addresses_of_a_cluster_have_different_options(
    found: Any, settings: Any, first: str, second: str, names: str
) -> None:
    location = [first, first.replace("a:1", "c:2"), second]
    config = {**REDIS, "LOCATION": location, "OPTIONS": {"CONNECTION_FACTORY": CLUSTER}}
    settings.CACHES = {"default": config}
    text = one(found(), "W009")
    assert f"'default' differ in their options ({names})" in text
    assert "secret" not in text


@pytest.mark.parametrize(
    ("location", "factory"),
    [
        (["redis://me:a@a:1/0", "redis://me:a@b:2", "redis://me:a@c"], CLUSTER),
        (["a", "rediss://b"], CLUSTER),
        ([("h", 6379), ["h", 6380], {"host": "h"}, b"redis://h"], CLUSTER),
        ({"host": "h"}, CLUSTER),
        (["redis://a", "rediss://b"], "django_redis.pool.ConnectionFactory"),
        (["redis://a", "rediss://b"], None),
    ],
    ids=["equal", "own addresses", "not texts", "one of any type", "other factory", "no factory"],
)
def test_addresses_have_no_problem_when_equal_or_not_of_a_cluster(
    found: Any, settings: Any, location: Any, factory: str | None
) -> None:
    options = {} if factory is None else {"CONNECTION_FACTORY": factory}
    config = {**REDIS, "LOCATION": location, "OPTIONS": options}
    settings.CACHES = {"default": config, "same": dict(config)}
    assert found() == []


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("", {"SOCKET_TIMEOUT": 0.05, "CONNECTION_POOL_KWARGS": None}),
        ("", {"CONNECTION_POOL_KWARGS": {"socket_timeout": 0.05}}),
        ("?socket_timeout=0.05", {"SOCKET_TIMEOUT": 1}),
    ],
)
def test_warns_when_the_time_out_is_shorter_than_the_budget(
    found: Any, settings: Any, query: str, options: dict[str, Any]
) -> None:
    location = f"{REDIS['LOCATION']}{query}"
    settings.CACHES = {"default": {**REDIS, "LOCATION": location, "OPTIONS": options}}
    assert "after 0.05 s, which is less than LATENCY_BUDGET (0.2 s)" in one(
        found(LATENCY_BUDGET=0.2), "W017"
    )
    assert found(LATENCY_BUDGET=0.05) == []
    assert found() == [], "the budget is not the project's own"


@pytest.mark.parametrize(
    ("location", "options", "wait"),
    [
        ("redis://127.0.0.1:1/0", {}, "the default time-out of redis-py"),
        ("redis://127.0.0.1:1/0", {"SOCKET_TIMEOUT": 1}, "1 s"),
        ("redis://127.0.0.1:1/0?socket_timeout=2", {"SOCKET_TIMEOUT": 0.1}, "2.0 s"),
        ("named", {"CONNECTION_POOL_KWARGS": {"socket_timeout": 3}}, "3 s"),
    ],
)
def test_warns_when_the_client_waits_longer_than_the_budget(
    found: Any, settings: Any, location: str, options: dict[str, Any], wait: str
) -> None:
    options["CONNECTION_FACTORY"] = "django_redis.pool.ConnectionFactory"
    settings.CACHES = {"default": {**REDIS, "LOCATION": location, "OPTIONS": options}}
    assert f"waits up to {wait} for a reply" in one(found(TRANSPORT="client"), "W020")
    assert found() == []


@pytest.mark.parametrize(
    ("query", "pool", "names"),
    [
        ("", {"retry": Retry(NoBackoff(), 3)}, "retry"),
        ("?retry=3", {}, "retry"),
        (
            "?retry_on_timeout=yes",
            {"retry_on_error": [OSError]},
            "retry_on_error, retry_on_timeout",
        ),
    ],
)
def test_warns_when_the_client_retries(
    found: Any, settings: Any, query: str, pool: dict[str, Any], names: str
) -> None:
    options = {"SOCKET_TIMEOUT": 0.1, "CONNECTION_POOL_KWARGS": pool}
    location = f"{REDIS['LOCATION']}{query}"
    settings.CACHES = {"default": {**REDIS, "LOCATION": location, "OPTIONS": options}}
    assert f"sends commands again ({names})" in one(found(TRANSPORT="client"), "W010")
    assert found() == []


def test_client_has_no_problem_when_it_keeps_the_budget_and_sends_once(
    found: Any, settings: Any
) -> None:
    pool = {"retry": Retry(NoBackoff(), 0), "retry_on_timeout": True}
    options = {"SOCKET_TIMEOUT": 0.1, "CONNECTION_POOL_KWARGS": pool}
    settings.CACHES = {"default": {**REDIS, "OPTIONS": options}}
    assert found(TRANSPORT="client") == []


def make_connection(**options: Any) -> None: ...


def test_reports_a_connection_class_that_is_a_function(found: Any, settings: Any) -> None:
    options = {"CONNECTION_POOL_KWARGS": {"connection_class": make_connection}}
    settings.CACHES = {"default": {**REDIS, "OPTIONS": options}}
    text = one(found(), "E018")
    assert "'default' creates its connections with tests.checks.test_static.make_connection" in text


def test_reports_a_connection_class_that_is_a_text(found: Any, settings: Any) -> None:
    options = {"CONNECTION_POOL_KWARGS": {"connection_class": "redis.Connection"}}
    settings.CACHES = {"default": {**REDIS, "OPTIONS": options}}
    assert "creates its connections with 'redis.Connection', which" in one(found(), "E018")


def test_reports_a_client_of_fakeredis(
    found: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = types.ModuleType("fakeredis")
    module.FakeRedis = type("FakeRedis", (), {"__module__": "fakeredis"})
    monkeypatch.setitem(sys.modules, "fakeredis", module)
    options = {"REDIS_CLIENT_CLASS": "fakeredis.FakeRedis"}
    settings.CACHES = {"default": {**REDIS, "OPTIONS": options}}
    assert "fakeredis.FakeRedis" in one(found(), "E018")


def make_key(key: str, prefix: str, version: int) -> str:
    return key


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({"KEY_PREFIX": "shop"}, "KEY_PREFIX"),
        ({"VERSION": 2}, "VERSION"),
        ({"KEY_FUNCTION": make_key}, "KEY_FUNCTION"),
        ({"KEY_FUNCTION": "tests.checks.test_static.make_key"}, "KEY_FUNCTION"),
        ({"KEY_PREFIX": "a", "VERSION": 0}, "KEY_PREFIX, VERSION"),
    ],
)
def test_warns_when_the_alias_has_key_options(
    found: Any, settings: Any, config: dict[str, Any], names: str
) -> None:
    settings.CACHES = {"default": {**REDIS, **config}}
    messages = found()
    assert one(messages, "W019").startswith(f"The cache 'default' has {names}, which")
    assert "SLIDING_WINDOW['PREFIX']" in str(messages[0].hint)
    assert found(PREFIX="throttle") == [], "the project has set it on purpose"


@pytest.mark.parametrize(
    "config",
    [
        {"KEY_PREFIX": "", "VERSION": 1, "KEY_FUNCTION": None},
        {"KEY_FUNCTION": default_key_func},
        {"KEY_FUNCTION": "django.core.cache.backends.base.default_key_func"},
    ],
)
def test_alias_has_no_problem_when_its_key_options_are_defaults(
    found: Any, settings: Any, config: dict[str, Any]
) -> None:
    settings.CACHES = {"default": {**REDIS, **config}}
    assert found() == []


# The middleware's rules


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("^/", "must be a dict"),
        ({"path": "(", "profiles": ["ip_public"]}, "is not a valid regular expression"),
        ({"paths": "^/", "profiles": ["ip_public"]}, "did you mean 'path'"),
        ({"path": "^/"}, "needs the key profiles"),
    ],
)
def test_reports_an_invalid_rule(found: Any, settings: Any, rule: object, text: str) -> None:
    settings.MIDDLEWARE = [MIDDLEWARE]
    message = one(found(RULES=[{"profiles": "ip_public"}, rule]), "E031")
    assert message.startswith("SLIDING_WINDOW['RULES'][1]")
    assert text in message


def test_unknown_profile_of_a_rule_has_a_suggestion(found: Any, settings: Any) -> None:
    settings.MIDDLEWARE = [MIDDLEWARE]
    message = one(found(RULES=[{"profiles": ["ip_publik", "ip_public"]}]), "E023")
    assert message.startswith("SLIDING_WINDOW['RULES'][0]['profiles'] uses")
    assert "did you mean 'ip_public'" in message


def test_built_in_tenant_profile_needs_a_tenant_when_a_rule_uses_it(
    found: Any, settings: Any
) -> None:
    settings.MIDDLEWARE = [MIDDLEWARE]
    assert "'tenant_free'" in one(found(RULES=[{"profiles": "tenant_free"}]), "E041")


@pytest.mark.parametrize(
    ("key", "value", "near"),
    [("name", "admin:inde", "'admin:index'"), ("namespace", "amin", "'admin'")],
)
def test_warns_when_a_rule_names_an_unknown_view(
    found: Any, settings: Any, key: str, value: str, near: str
) -> None:
    settings.MIDDLEWARE = [MIDDLEWARE]
    right = {"name": "admin:index", "namespace": "admin"}[key]
    rules = [{"profiles": "ip_public"}, {key: [right, value], "profiles": "ip_public"}]
    message = one(found(RULES=rules), "W032")
    assert f"['RULES'][1][{key!r}] is {value!r}" in message
    assert near in message


def test_rules_are_not_checked_when_the_urlconf_cannot_be_imported(
    found: Any, settings: Any
) -> None:
    settings.MIDDLEWARE = [MIDDLEWARE]
    settings.ROOT_URLCONF = "tests.support.broken_module"
    assert found(RULES=[{"name": "nobody", "profiles": "ip_public"}]) == []


# Profiles


def test_reports_every_problem_of_a_profile(found: Any) -> None:
    bad = {"axis": "ip", "rate": "10/x", "mode": "watch", "burst": 3}
    messages = found(PROFILES={"api": bad})
    assert numbers(messages) == ["E021"] * 3
    text = " ".join(message.msg for message in messages)
    for part in ("['burst']", "['mode']", "['rate']", "unknown unit 'x'"):
        assert part in text


def check_view(profiles: Any) -> list[CheckMessage]:
    """Check a project whose only view has these profiles."""
    project = replace(Project.read({}), usages=[Usage("shop.views.pay", profiles)])
    return [message for check in PROJECT_CHECKS for message in check(project)]


def test_unknown_profile_of_a_view_has_a_suggestion() -> None:
    text = one(check_view(("ip_public", "tenant_pay")), "E022")
    assert text.startswith("shop.views.pay uses the unknown profile 'tenant_pay'")
    assert "'tenant_paid'" in text


def test_checks_the_views_of_the_urlconf(found: Any, settings: Any) -> None:
    settings.ROOT_URLCONF = "tests.support.sites.unknown_profile_urls"
    text = one(found(), "E022")
    assert text.startswith(
        "tests.support.sites.unknown_profile_urls.page uses the unknown profile 'nobody'"
    )


def test_checks_the_profiles_of_views_of_rest_framework(found: Any, settings: Any) -> None:
    from rest_framework.viewsets import ViewSet

    from django_slidingwindow.contrib.drf import ProfileThrottle

    class Prices(ViewSet):
        throttle_classes = (ProfileThrottle, ProfileThrottle("ip_public"))
        rate_limit_profiles = ("ip_public", "nobody")

        def show(self, request: object) -> None: ...

    class Unthrottled(Prices):
        throttle_classes = ()

    class Broken(Prices):
        def get_throttles(self) -> Any:
            raise AttributeError("it needs a request")

    limited = rate_limit("ip_public")(Prices.as_view({"get": "show"}))
    other = Prices.as_view({"get": "show"}, rate_limit_profiles="tenant_free")
    settings.ROOT_URLCONF = types.ModuleType("urls")
    settings.ROOT_URLCONF.urlpatterns = [
        path("inside/", include([path("prices/", limited)])),
        path("price/", Prices.as_view({"get": "show"})),
        path("other/", other),
        path("unthrottled/", Unthrottled.as_view({"get": "show"})),
        path("broken/", Broken.as_view({"get": "show"})),
        path("plain/", RateLimitMiddleware),
    ]
    messages = found()
    assert numbers(messages) == ["E022", "E041"]
    assert messages[0].msg.startswith(f"{__name__}.{Prices.__qualname__} uses the unknown profile")


def test_reports_a_choice_without_a_request_argument() -> None:
    assert "no_arguments" in one(check_view(no_arguments), "E025")
    assert check_view(tenant) == []


@pytest.mark.parametrize("limit", [no_arguments, f"{__name__}.tenant"])
def test_reports_a_limit_with_other_arguments(found: Any, limit: object) -> None:
    profile = {"axis": "ip", "rate": limit}
    text = one(found(PROFILES={"own": profile}), "E024")
    assert "'own'" in text
    assert __name__ in text


def test_reports_a_tier_with_other_arguments(found: Any) -> None:
    profile = {"axis": "ip", "tiers": {"free": "1/d"}, "tier": no_arguments}
    text = one(found(PROFILES={"own": profile}), "E030")
    assert "'own'" in text
    assert "no_arguments" in text
    assert found(PROFILES={"own": {**profile, "tier": limit}}) == []


def test_limit_with_two_arguments_has_no_problem(found: Any) -> None:
    profile = {"axis": "ip", "rate": f"{__name__}.limit", "algorithm": "log"}
    assert found(PROFILES={"own": profile}) == []


# Axes and identities


def test_built_in_tenant_profiles_need_no_tenant_when_unused(found: Any) -> None:
    assert found() == []


def test_built_in_tenant_profile_needs_a_tenant_when_a_view_uses_it() -> None:
    assert "'tenant_paid'" in one(check_view(("tenant_paid",)), "E041")


def test_tenant_profile_of_the_project_needs_a_tenant(found: Any) -> None:
    profile = {"axis": "tenant+endpoint", "rate": "1/m"}
    assert "'own'" in one(found(PROFILES={"own": profile}), "E041")
    identities = {"tenant": f"{__name__}.tenant"}
    assert found(PROFILES={"own": profile}, IDENTITIES=identities) == []


def test_registered_tenant_profile_needs_a_tenant(found: Any) -> None:
    policy = Policy(limit=1, window=1)
    register("theirs", Profile(name="theirs", axis="tenant", policies=(policy,)))
    try:
        assert "'theirs'" in one(found(), "E041")
    finally:
        unregister("theirs")


def test_unknown_axis_has_a_suggestion(found: Any) -> None:
    text = one(found(PROFILES={"own": {"axis": "ip+endpont", "rate": "1/m"}}), "E042")
    assert "unknown axis 'endpont': did you mean 'endpoint'" in text


@pytest.mark.parametrize("axis", ["header:", "header:X API Key", "header:X-API-Key:"])
def test_header_that_no_request_has_is_an_unknown_axis(found: Any, axis: str) -> None:
    text = one(found(PROFILES={"own": {"axis": axis, "rate": "1/m"}}), "E042")
    assert f"unknown axis {axis!r}: the known names are" in text


def test_own_axis_has_no_problem(found: Any) -> None:
    profiles = {
        "a": {"axis": "shop+header:X-API-Key", "rate": "1/m"},
        "b": {"axis": "global", "rate": "1/m"},
    }
    assert found(PROFILES=profiles, IDENTITIES={"shop": tenant}) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("nowhere.tenant", "ModuleNotFoundError"),
        (f"{__name__}.nobody", "ImportError"),
        (f"{__name__}.NOT_CALLABLE", "is not callable"),
        ("tests.support.broken_module.tenant", "ZeroDivisionError"),
        (5, "5 is not callable"),
    ],
)
def test_reports_a_resolver_that_cannot_be_loaded(found: Any, value: object, text: str) -> None:
    message = one(found(IDENTITIES={"shop": value}), "E043")
    assert message.startswith("SLIDING_WINDOW['IDENTITIES']['shop']: ")
    assert text in message


def test_reports_a_rate_whose_module_raises(found: Any) -> None:
    config = {"axis": "ip", "rate": "tests.support.broken_module.rate"}
    assert "ZeroDivisionError" in one(found(PROFILES={"a": config}), "E021")


@pytest.mark.parametrize("value", [f"{__name__}.no_arguments", CallableObject()])
def test_reports_a_resolver_without_a_request_argument(found: Any, value: object) -> None:
    assert "cannot be called with (request)" in one(found(IDENTITIES={"shop": value}), "E044")


def test_accepts_is_true_when_a_callable_has_no_signature() -> None:
    assert callables.accepts(min, "request")


def test_warns_when_the_session_axis_has_no_session_middleware(found: Any, settings: Any) -> None:
    profiles = {"own": {"axis": "session", "rate": "1/m"}, "ip": {"axis": "ip", "rate": "1/m"}}
    assert found(PROFILES=profiles) == []
    settings.MIDDLEWARE = []
    assert "'own'" in one(found(PROFILES=profiles), "W045")
    assert found(PROFILES=profiles, IDENTITIES={"session": tenant}) == []


@pytest.mark.parametrize("engine", ["db", "cached_db", "cache", "file"])
def test_server_side_session_engine_has_no_problem(found: Any, settings: Any, engine: str) -> None:
    settings.SESSION_ENGINE = f"django.contrib.sessions.backends.{engine}"
    assert found(PROFILES={"own": {"axis": "session", "rate": "1/m"}}) == []


@pytest.mark.parametrize("engine", ["django.contrib.sessions.backends.signed_cookies", __name__])
def test_warns_when_sessions_are_not_known_to_be_on_the_server(
    found: Any, settings: Any, engine: str
) -> None:
    settings.SESSION_ENGINE = engine
    profiles = {"own": {"axis": "session", "rate": "1/m"}, "ip": {"axis": "ip", "rate": "1/m"}}
    text = one(found(PROFILES=profiles), "W047")
    assert "'own'" in text
    assert engine in text
    assert found(PROFILES=profiles, IDENTITIES={"session": tenant}) == []


def test_session_engine_is_not_checked_when_it_cannot_be_imported(
    found: Any, settings: Any
) -> None:
    settings.SESSION_ENGINE = "nowhere"
    assert found(PROFILES={"own": {"axis": "session", "rate": "1/m"}}) == []


@pytest.mark.parametrize("axis", ["user", "user_or_ip"])
def test_warns_when_the_user_axis_has_no_authentication_middleware(
    found: Any, settings: Any, axis: str
) -> None:
    profiles = {"own": {"axis": axis, "rate": "1/m", "anonymous": "skip"}}
    assert found(PROFILES=profiles) == []
    settings.MIDDLEWARE = ["nowhere.Middleware", f"{__name__}.tenant"]
    assert "'own'" in one(found(PROFILES=profiles), "W046")


def test_subclass_of_the_session_middleware_is_enough(found: Any, settings: Any) -> None:
    settings.MIDDLEWARE = [f"{__name__}.OwnSessionMiddleware"]
    assert found(PROFILES={"own": {"axis": "session", "rate": "1/m"}}) == []


# Proxies, exemptions, response


@pytest.mark.parametrize("value", ["10.0.0.1/8", "proxy.local", 10, "10.0.0.0/33"])
def test_reports_a_proxy_that_is_not_a_network(found: Any, value: object) -> None:
    assert repr(value) in one(found(TRUSTED_PROXIES=["10.0.0.0/8", value]), "E051")


def test_proxy_on_a_unix_socket_has_no_problem(found: Any) -> None:
    assert found(TRUSTED_PROXIES=["unix", "10.0.0.0/8"], FORWARDED_HEADER="Forwarded") == []


@pytest.mark.parametrize("value", ["0.0.0.0/0", "::/0", "::ffff:0:0/96"])
def test_warns_when_every_proxy_is_trusted(found: Any, value: str) -> None:
    assert value in one(found(TRUSTED_PROXIES=["fd00::1", value]), "W052")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("10.0.0.1/8", "host bits"),
        (5, "int is not a network"),
        ("nowhere.exempt", "ModuleNotFoundError"),
        (f"{__name__}.no_arguments", "cannot be called with (request)"),
    ],
)
def test_reports_an_invalid_exemption(found: Any, value: object, text: str) -> None:
    message = one(
        found(EXEMPT=["192.0.2.0/24", "staff", tenant, f"{__name__}.tenant", value]), "E053"
    )
    assert repr(value) in message
    assert text in message


@pytest.mark.parametrize(
    ("value", "proxy"),
    [
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("10.1.0.0/16", "10.0.0.0/8"),
        ("10.0.0.0/8", "10.1.2.3"),
        ("fd00::1", "fd00::/8"),
        ("10.0.0.0/8", "::ffff:10.1.2.3"),
    ],
)
def test_warns_when_a_trusted_proxy_is_exempt(found: Any, value: str, proxy: str) -> None:
    text = one(found(EXEMPT=["192.0.2.0/24", "staff", value], TRUSTED_PROXIES=[proxy]), "W055")
    assert repr(value) in text
    assert repr(proxy) in text


def test_networks_may_be_exempt_and_trusted_when_they_do_not_overlap(found: Any) -> None:
    trusted = ["10.0.0.0/24", "fd00::/64", "unix"]
    assert found(EXEMPT=["10.0.1.0/24", "fd00:0:0:1::/64", "staff"], TRUSTED_PROXIES=trusted) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("nowhere.response", "ModuleNotFoundError"),
        (f"{__name__}.tenant", "cannot be called with (request, decision)"),
    ],
)
def test_reports_an_invalid_response(found: Any, value: str, text: str) -> None:
    assert text in one(found(RESPONSE=value), "E054")
    assert found(RESPONSE=f"{__name__}.limit") == []


# The middleware


def test_reports_the_middleware_listed_twice(found: Any, settings: Any) -> None:
    settings.MIDDLEWARE = [MIDDLEWARE, MIDDLEWARE]
    assert "2 times" in one(found(), "E061")


def test_warns_when_rules_are_set_without_the_middleware(found: Any, settings: Any) -> None:
    rules = [{"path": "^/", "profiles": ["ip_public"]}]
    assert "no RateLimitMiddleware" in one(found(RULES=rules), "W062")
    settings.MIDDLEWARE = [MIDDLEWARE]
    assert found(RULES=rules) == []


def test_reports_an_async_operation_that_cannot_be_charged(found: Any, settings: Any) -> None:
    from ninja import NinjaAPI

    from django_slidingwindow.contrib.ninja import ProfileThrottle

    api = NinjaAPI(urls_namespace="checked")

    @api.get("/", throttle=[ProfileThrottle("ip_public")])
    async def operation(request: object) -> None: ...

    urls = types.ModuleType("urls")
    urls.urlpatterns = [path("", api.urls)]  # type: ignore[attr-defined]
    settings.ROOT_URLCONF = urls
    assert f"{__name__}.test_reports_an_async_operation" in one(found(), "E063")
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, MIDDLEWARE]
    assert found() == []


# The app


def test_require_installed_raises_when_the_app_is_not_installed(settings: Any) -> None:
    require_installed()
    settings.INSTALLED_APPS = ["django.contrib.contenttypes"]
    with pytest.raises(ImproperlyConfigured, match=r"INSTALLED_APPS.*E001"):
        require_installed()


def test_middleware_and_decorator_raise_when_the_app_is_not_installed(settings: Any) -> None:
    settings.INSTALLED_APPS = ["django.contrib.contenttypes"]
    with pytest.raises(ImproperlyConfigured, match="INSTALLED_APPS"):
        RateLimitMiddleware(tenant)
    with pytest.raises(ImproperlyConfigured, match="INSTALLED_APPS"):
        rate_limit("ip_public")


def test_require_installed_passes_before_apps_are_loaded(monkeypatch: Any) -> None:
    monkeypatch.setattr(apps, "ready", False)
    monkeypatch.setattr(apps, "app_configs", {})
    require_installed()


@pytest.mark.parametrize("limit", [{"rate": "5/m"}, {"rate": plan, "algorithm": "log"}])
def test_algorithms_in_use_include_slots_when_requests_in_flight_are_limited(
    settings: Any, limit: dict[str, Any]
) -> None:
    user = {"PROFILES": {"a": {"axis": "ip", **limit, "inflight": 5}}}
    settings.SLIDING_WINDOW = user
    own = limit.get("algorithm", "compact")
    assert Project.read(user).algorithms() == {"compact", own, "slots"}


def test_check_command_runs_these_checks(settings: Any) -> None:
    settings.SLIDING_WINDOW = {"FALBACK": "deny"}
    with pytest.raises(SystemCheckError, match=r"E003"):
        call_command("check", tags=[TAG])


def test_checks_are_skipped_when_another_app_is_checked(settings: Any) -> None:
    settings.SLIDING_WINDOW = {"FALBACK": "deny"}
    others, own = [apps.get_app_config("auth")], [apps.get_app_config("django_slidingwindow")]
    assert check_project(others) == check_deployment(others) == []
    assert numbers(check_project(own)) == ["E003"]


# The documentation


def documented() -> dict[str, tuple[str, str]]:
    """Return level and message of each id in docs/checks.md."""
    text = (ROOT / "docs" / "checks.md").read_text()
    rows = re.findall(r"^\| `([EWI]\d{3})` \| (\w+) \| (.+?) \| .+ \| .+ \|$", text, re.MULTILINE)
    assert len(rows) == len({number for number, _, _ in rows}), "an id has two rows"
    return {number: (level, message) for number, level, message in rows}


def test_docs_list_exactly_the_ids_of_the_catalog() -> None:
    assert list(documented()) == list(CATALOG)


@pytest.mark.parametrize("number", CATALOG)
def test_docs_have_the_level_and_message_of_the_catalog(number: str) -> None:
    level = {"E": "error", "W": "warning", "I": "info"}[number[0]]
    text = re.sub(r"{(\w+)(?:!r)?}", r"<\1>", CATALOG[number].text)
    assert documented()[number] == (level, f"`{text}`")


def test_every_number_is_unique() -> None:
    assert len({number[1:] for number in CATALOG}) == len(CATALOG)


def test_every_id_has_a_test() -> None:
    folder = ROOT / "tests" / "checks"
    source = "".join(path.read_text() for path in folder.glob("test_*.py"))
    assert [number for number in CATALOG if not re.search(rf"\b{number}\b", source)] == []


# Leases


def leased(**options: Any) -> dict[str, Any]:
    return {"axis": "ip", "rate": "10000/d", "lease": 100, **options}


def test_lease_that_fits_its_limit_has_no_problem(found: Any) -> None:
    assert found(PROFILES={"a": leased()}, FALLBACK_PROCESSES=5) == []
    assert found(PROFILES={"a": leased(lease_seconds=8_640)}) == []


def test_reports_a_lease_of_the_counter(found: Any) -> None:
    text = one(found(PROFILES={"a": leased(algorithm="counter")}), "E026")
    assert text == (
        "SLIDING_WINDOW['PROFILES']['a']['lease']: "
        "cannot be used with the algorithm counter, which is an estimate."
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"lease": 10}, "['lease']: cannot be used with inflight: every request asks Redis"),
        ({"mode": "deferred"}, "['mode']: cannot be deferred with inflight: a slot is taken"),
    ],
)
def test_reports_lease_and_deferred_mode_with_inflight(found: Any, options: Any, text: str) -> None:
    config = {"axis": "ip", "rate": "10000/d", "inflight": 5, **options}
    (message,) = [each for each in found(PROFILES={"a": config}) if each.id.endswith("E037")]
    assert text in message.msg
    assert "a profile of its own" in message.hint


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"inflight": 0}, "inflight 0 is not a whole number from 1 to 10,000."),
        ({"inflight": True}, "inflight True is not a whole number"),
        ({"inflight": "5"}, "inflight '5' is not a whole number"),
        ({"inflight": 5, "hold": "2x"}, "unknown unit 'x'"),
        ({"rate": "5/m", "hold": "2m"}, "is only for inflight"),
        ({"rate": "5/m", "algorithm": "slots"}, "algorithm 'slots' is not one of compact,"),
        ({"inflight": 5, "limit": 5}, "limit needs a window"),
        ({"inflight": 5, "window": 60}, "is only for limit"),
        ({}, "needs exactly one of limit, rate, rates and tiers"),
    ],
)
def test_reports_wrong_values_of_inflight(found: Any, config: Any, text: str) -> None:
    assert text in one(found(PROFILES={"a": {"axis": "ip", **config}}), "E021")


def test_inflight_alone_and_beside_rates_has_no_problem(found: Any) -> None:
    tiers = {"tiers": {"free": "5/m", "paid": None}, "tier": lambda identifier, request: "free"}
    for config in ({}, {"rate": "5/m"}, {"rates": ["5/m", "9/h"], "hold": 30}, tiers):
        assert found(PROFILES={"a": {"axis": "ip", "inflight": 5, **config}}) == []


def test_warns_when_a_lease_is_large_for_its_limit(found: Any) -> None:
    text = one(found(PROFILES={"a": leased()}, FALLBACK_PROCESSES=6), "W027")
    assert "leases 100 hits to each of 6 processes" in text
    assert "limit of 10000" in text


def test_warns_when_a_lease_is_long_for_its_window(found: Any) -> None:
    text = one(found(PROFILES={"a": leased(lease_seconds=8_641)}), "W028")
    assert "for 8641.0 s" in text


def penalized(**options: Any) -> dict[str, Any]:
    penalty = {"after": "3/10m", "steps": ["1m", "1d"]}
    return {"axis": "ip", "rate": "10/m", "penalty": penalty, **options}


def test_penalty_has_no_problem(found: Any) -> None:
    assert found(PROFILES={"a": penalized(), "b": penalized(axis="ip+endpoint")}) == []


@pytest.mark.parametrize(("name", "value"), [("lease", 5), ("mode", "deferred")])
def test_reports_what_a_penalty_cannot_be_used_with(found: Any, name: str, value: Any) -> None:
    text = one(found(PROFILES={"a": penalized(**{name: value})}), "E071")
    assert text.startswith("SLIDING_WINDOW['PROFILES']['a']['penalty']: cannot be used with")


@pytest.mark.parametrize("axis", ["global", "endpoint", "global+endpoint"])
def test_warns_when_a_penalty_blocks_everybody(found: Any, axis: str) -> None:
    assert f"counts by {axis!r}" in one(found(PROFILES={"a": penalized(axis=axis)}), "W073")


def test_warns_when_profiles_share_a_penalty_and_describe_it_differently(found: Any) -> None:
    shared = {
        "a": penalized(scope="shared"),
        "b": penalized(scope="shared", rate="5/m"),
        "c": penalized(scope="shared", penalty={"after": "3/10m", "steps": ["1m"]}),
        "d": penalized(scope="shared", penalty={"after": "3/h", "steps": ["1m"]}),
        "e": penalized(scope="shared", rate="7/m", penalty={"after": "3/10m", "steps": [60, "1d"]}),
        "f": {"axis": "ip", "rate": "10/m", "scope": "shared"},
    }
    assert "'a' and 'c'" in one(found(PROFILES=shared), "W072")


def test_warns_when_profiles_share_a_window_and_lease_differently(found: Any) -> None:
    shared = {
        "a": leased(scope="shared"),
        "b": leased(scope="shared", rate="20000/d"),
        "c": leased(scope="shared", lease=0),
        "d": leased(scope="shared", lease=0, algorithm="log"),
    }
    assert "'a' and 'c'" in one(found(PROFILES=shared), "W029")
