"""manage.py slidingwindow explain: output, options, errors and exit codes."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.http import HttpResponse
from django.urls import path

from django_slidingwindow import limits
from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.guard import override_snapshot
from django_slidingwindow.management.commands.slidingwindow import Command
from django_slidingwindow.models import Override
from django_slidingwindow.overrides.watcher import watcher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redis import Redis

OURS = "django_slidingwindow.middleware.RateLimitMiddleware"
PROFILES: dict[str, Any] = {
    "burst": {"axis": "ip", "rate": "2/m"},
    "api": {"axis": "tenant", "rates": ["100/h", "1000/d"]},
    "busy": {"axis": "ip", "inflight": 5, "hold": "10s"},
    "each": {"axis": "user+endpoint", "rate": "5/h", "mode": "observe"},
}


def tenant(request: Any) -> str:
    raise LookupError("only real requests have a tenant")


@rate_limit("api")
def orders(request: Any) -> HttpResponse:
    raise AssertionError("the view must not run")


urlpatterns = [path("orders/", orders, name="orders"), path("plain/", lambda request: None)]
pytestmark = [
    pytest.mark.urls(__name__),
    pytest.mark.usefixtures("redis"),
    pytest.mark.django_db,
]


@pytest.fixture(autouse=True)
def _settings(settings: Any) -> Iterator[None]:
    settings.MIDDLEWARE = [OURS]
    settings.SLIDING_WINDOW = {
        "PROFILES": PROFILES,
        "IDENTITIES": {"tenant": tenant},
        "RULES": [
            {"path": "^/orders/", "profiles": ["burst", "each"]},
            {"path": "^/admin/", "profiles": ["burst"]},
        ],
        "TRUSTED_PROXIES": ["10.0.0.0/8"],
        "LATENCY_BUDGET": 60,
    }
    yield
    override_snapshot.publish(None)


def run(*arguments: str) -> str:
    stream = io.StringIO()
    call_command("slidingwindow", "explain", *arguments, stdout=stream)
    return stream.getvalue()


def found(*arguments: str) -> dict[str, Any]:
    [line] = run(*arguments, "--json").splitlines()
    record: dict[str, Any] = json.loads(line)
    return record


def fails(*arguments: str) -> tuple[int, str]:
    with pytest.raises(CommandError) as caught:
        run(*arguments)
    return caught.value.returncode, str(caught.value)


def test_json_has_the_whole_explanation(redis: Redis) -> None:
    ada = User.objects.create(username="ada")
    forwarded = ["--ip", "10.0.0.1", "--header", "X-Forwarded-For: 2001:db8::1, 10.0.0.2"]
    record = found("get", "/orders/?page=2", "--user", "ada", "--tenant", "acme", *forwarded)
    assert (record["method"], record["path"]) == ("GET", "/orders/")
    assert record["view"] == "tests.command.test_explain.orders"
    client = record["client"]
    assert (client["address"], client["counted"]) == ("2001:db8::1", "2001:db8::/64")
    assert [(hop["where"], hop["text"], hop["trusted"]) for hop in client["passed"]] == [
        ("REMOTE_ADDR", "10.0.0.1", True),
        ("x-forwarded-for", "10.0.0.2", True),
        ("x-forwarded-for", "2001:db8::1", False),
    ]
    assert [(rule["rule"], rule["applies"], rule["why"]) for rule in record["rules"]] == [
        ("RULES[0]", True, "it matches"),
        ("RULES[1]", False, "the path does not match"),
    ]
    burst, each, api = record["profiles"]
    assert (burst["profile"], burst["identifier"]) == ("burst", "2001:db8::/64")
    assert [window["remaining"] for window in burst["windows"]] == [1]
    assert each["identifier"] == f"{ada.pk}+orders@tests.command.test_explain.orders"
    assert each["windows"][0]["observed"] is True
    assert each["found_by"] == ["user: the primary key of the user", "endpoint: the view"]
    assert (api["identifier"], api["found_by"]) == ("acme", ["tenant: given"])
    assert [window["key"] for window in api["windows"]] == [
        "throttle:tenant:{acme}:api:c3600",
        "throttle:tenant:{acme}:api:c86400",
    ]
    assert record["decision"] == {
        "allowed": True,
        "status": None,
        "profile": "burst",
        "reason": "allowed",
        "source": "redis",
        "retry_after": 0.0,
        "waits_for_slot": False,
    }
    assert record["refused"] is False
    assert redis.dbsize() == 0


def test_plain_prints_the_explanation() -> None:
    text = run("GET", "/orders/", "--tenant", "acme", "--ip", "2001:db8::7")
    for expected in (
        "request    GET /orders/",
        "client     2001:db8::7, counted as 2001:db8::/64: REMOTE_ADDR; no forwarding header",
        "hops       REMOTE_ADDR 2001:db8::7 (not a proxy)",
        "RULES[1]    no       burst                     the path does not match",
        "throttle:tenant:{acme}:api:c86400",
        "\nAdmitted.\n- Other middleware was not run",
    ):
        assert expected in text
    assert "\nNothing counts this request.\n" in run("GET", "/plain/")
    assert "view       -" in run("GET", "/nowhere/")


def test_explain_exits_1_when_the_request_would_be_refused() -> None:
    for _ in range(2):
        limits.check("burst", "203.0.113.9")
    arguments = ["GET", "/orders/", "--tenant", "acme", "--ip", "203.0.113.9"]
    code, text = fails(*arguments)
    assert code == 1
    assert text.startswith("Refused with 429 by burst (limit): a retry can pass in ")
    code, _ = fails(*arguments, "--json")
    assert code == 1
    stream = io.StringIO()
    with pytest.raises(CommandError):
        call_command("slidingwindow", "explain", *arguments, stdout=stream)
    assert "Admitted" not in stream.getvalue()
    [row] = [line for line in stream.getvalue().splitlines() if ":burst:" in line]
    assert row.split()[:5] == ["burst", "2", "/", "1", "min"]


def test_plain_shows_a_full_window_as_observed_when_it_only_observes() -> None:
    for _ in range(6):
        limits.check("each", "ip:127.0.0.1+orders@tests.command.test_explain.orders")
    text = run("GET", "/orders/", "--tenant", "acme")
    [row] = [line for line in text.splitlines() if "}:each:" in line]
    assert " observed " in row
    assert "Admitted." in text


def test_refusal_names_the_profile_when_its_identity_fails(caplog: Any) -> None:
    code, text = fails("GET", "/orders/")
    assert code == 1
    assert text == "Refused with 503 by api (identity_error): it is unknown when a retry can pass."
    assert "only real requests have a tenant" in caplog.text
    assert (
        found("GET", "/orders/", "--identify", "tenant=a=b")["profiles"][2]["identifier"] == "a=b"
    )


def test_profile_without_a_limit_for_the_identifier_does_not_count(settings: Any) -> None:
    profiles = {"partner": {"axis": "ip", "rate": lambda identifier, request: None}}
    rules = [{"path": "^/", "profiles": "partner"}]
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "PROFILES": profiles, "RULES": rules}
    (profile,) = found("GET", "/plain/")["profiles"]
    assert (profile["counts"], profile["why"]) == (False, "it has no limit for this identifier")


def test_refusal_names_the_choice_when_it_fails(settings: Any) -> None:
    settings.ROOT_URLCONF = (path("chosen/", rate_limit(profile=tenant)(orders)),)
    code, text = fails("GET", "/chosen/")
    assert (code, text) == (
        1,
        "Refused with 503 by a choice: it is unknown when a retry can pass.",
    )


def test_explain_applies_overrides_in_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    Override.objects.create(profile="api", identifier="acme", action="block")
    code, text = fails("GET", "/orders/", "--tenant", "acme")
    assert (code, text) == (1, "Refused with 429 by api (block): no retry can pass.")
    assert found("GET", "/orders/", "--tenant", "globex")["refused"] is False
    Override.objects.create(profile="api", identifier="initech", action="exempt")
    profiles = found("GET", "/orders/", "--tenant", "initech")["profiles"]
    whys = {profile["profile"]: profile["why"] for profile in profiles}
    assert whys["api"] == "an override exempts the identifier"
    monkeypatch.setattr(watcher, "refresh", lambda: False)
    unknown = found("GET", "/orders/", "--tenant", "globex")["unknown"]
    assert unknown[-1].startswith("The overrides could not be read")


def test_explain_reads_no_overrides_when_they_are_off(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "OVERRIDES_SECONDS": 0}
    monkeypatch.setattr(watcher, "refresh", lambda: False)
    assert "overrides" not in str(found("GET", "/plain/")["unknown"])


def test_plain_prints_no_rules_when_there_are_none(settings: Any) -> None:
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "RULES": []}
    assert "RULE " not in run("GET", "/orders/", "--tenant", "acme")


def test_windows_are_unknown_when_redis_is_down(settings: Any) -> None:
    away = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
    settings.CACHES = {**settings.CACHES, "away": away}
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "CACHE": "away", "FALLBACK": "allow"}
    text = run("GET", "/orders/", "--tenant", "acme")
    assert "Redis is away, so the fallback decides (allow)." in text
    assert text.count(" unknown ") == 4


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("GET", "orders/"), "must begin with a slash"),
        (("G E T", "/orders/"), "is not a method"),
        (("GET", "/", "--user", "nobody"), "there is no user with the key or the name 'nobody'"),
        (("GET", "/", "--identify", "planet=earth"), "no profile counts by 'planet'"),
        (("GET", "/", "--tenant", ""), "the value is empty"),
        (("GET", "/", "--identify", "tenant"), "'tenant' is not AXIS=ID"),
        (("GET", "/", "--identify", "=acme"), "'=acme' is not AXIS=ID"),
        (("GET", "/", "--header", "X-Key"), "'X-Key' is not a header"),
        (("GET", "/", "--header", "X_Key:a"), "'X_Key:a' is not a header"),
        (("GET",), "PATH"),
    ],
)
def test_explain_exits_2_when_an_argument_is_invalid(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], problem: str
) -> None:
    with pytest.raises((CommandError, SystemExit)) as caught:
        Command().run_from_argv(["manage.py", "slidingwindow", "explain", *arguments])
    assert caught.value.code == 2  # type: ignore[union-attr]
    assert problem in capsys.readouterr().err


def test_explain_exits_2_when_a_setting_is_invalid(settings: Any) -> None:
    settings.SLIDING_WINDOW = {"RULES": [{"path": "^/", "profiles": ["unknown"]}]}
    code, text = fails("GET", "/orders/")
    assert code == 2
    assert "unknown" in text


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    parser = Command().create_parser("manage.py", "slidingwindow")
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(["explain", "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "manage.py slidingwindow explain GET /api/orders/ --user 7 --ip 203.0.113.9" in text


def test_plain_escapes_a_hostile_request() -> None:
    text = run("GET", "/plain/%1B%5B31m%E2%80%AE", "--ip", "\x1b[31m\u202e")
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "hops       REMOTE_ADDR %1B[31m%E2%80%AE (no address)" in text


def test_plain_names_a_hop_that_is_not_an_address() -> None:
    text = run("GET", "/plain/", "--ip", "10.0.0.1", "--header", "X-Forwarded-For:nonsense")
    assert "client     10.0.0.1: x-forwarded-for has" in text
    assert "nonsense (no address)" in text
    unknown = run("GET", "/plain/", "--ip", "")
    assert "client     unknown: REMOTE_ADDR is not an address" in unknown
    assert "hops       REMOTE_ADDR - (no address)" in unknown


def test_explain_shows_a_limit_on_requests_in_flight(settings: Any) -> None:
    rules = [{"path": "^/plain/", "profiles": ["busy"]}]
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "RULES": rules}
    assert "5 in flight" in run("GET", "/plain/")


def test_refusal_by_requests_in_flight_passes_when_one_ends(settings: Any) -> None:
    rules = [{"path": "^/plain/", "profiles": ["busy"]}]
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "RULES": rules}
    for _ in range(5):
        limits.check("busy", "127.0.0.1")
    stream = io.StringIO()
    with pytest.raises(CommandError) as caught:
        call_command("slidingwindow", "explain", "GET", "/plain/", stdout=stream)
    assert str(caught.value) == (
        "Refused with 429 by busy (limit): a retry can pass when a request in flight ends."
    )
    [row] = [line for line in stream.getvalue().splitlines() if ":busy:" in line]
    assert " one ends " in row
    stream = io.StringIO()
    with pytest.raises(CommandError):
        call_command("slidingwindow", "explain", "GET", "/plain/", "--json", stdout=stream)
    decision = json.loads(stream.getvalue())["decision"]
    assert (decision["retry_after"], decision["waits_for_slot"]) == (0.0, True)


def test_limit_of_no_requests_in_flight_never_passes(settings: Any) -> None:
    rules = [{"path": "^/plain/", "profiles": ["busy"]}]
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "RULES": rules}
    Override.objects.create(profile="busy", action="limit", limit="0")
    code, text = fails("GET", "/plain/")
    assert (code, text) == (1, "Refused with 429 by busy (limit): no retry can pass.")
