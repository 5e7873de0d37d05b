"""Drills on a real Redis, through both handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.dispatch import Signal

from django_slidingwindow import decisions, limits, signals
from django_slidingwindow.drill.exercise import AFTER, BEFORE, DURING, DrillError, Plan, rehearse
from django_slidingwindow.drill.handlers import Call
from django_slidingwindow.drill.outage import BLACKHOLE, BREAKER
from django_slidingwindow.drill.report import record
from django_slidingwindow.exceptions import StoreError
from tests.support.redis_failures import killed

if TYPE_CHECKING:
    from pytest_django.fixtures import SettingsWrapper
    from redis import Redis

    from tests.support.servers import RedisCluster, RedisServer

PROFILES: dict[str, Any] = {
    "many": {"axis": "ip", "limit": 1000, "window": 3600},
    "few": {"axis": "ip", "limit": 4, "window": 3600},
    "allowed": {"axis": "ip", "limit": 100, "window": 3600, "fallback": "allow"},
    "denied": {"axis": "ip", "limit": 100, "window": 3600, "fallback": "deny"},
    "busy": {"axis": "ip", "inflight": 2},
    "leased": {"axis": "ip", "limit": 4000, "window": 3600, "lease": 100},
}
pytestmark = [pytest.mark.urls("tests.support.sites.drill_urls"), pytest.mark.django_db]


@pytest.fixture(autouse=True)
def _site(settings: SettingsWrapper, redis: Redis) -> None:
    settings.ALLOWED_HOSTS = ["localhost"]
    settings.SLIDING_WINDOW = {
        "PROFILES": PROFILES,
        # A large budget: a busy machine must not look like an outage.
        "LATENCY_BUDGET": 5,
        "LOG": False,
    }


@pytest.fixture(params=["wsgi", "asgi"])
def asgi(request: pytest.FixtureRequest) -> bool:
    return request.param == "asgi"


def drill(*paths: str, **changes: Any) -> dict[str, Any]:
    calls = [Call(method="GET", path=path, host="localhost") for path in paths]
    # Long enough for a busy machine to send requests meanwhile.
    plan: dict[str, Any] = {"way": BREAKER, "seconds": 1.0, "requests": 12, **changes}
    return record(rehearse(Plan(calls=calls, **plan)))


def kept(found: dict[str, Any]) -> dict[str, bool | None]:
    return {promise["name"]: promise["kept"] for promise in found["promises"]}


def phases(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {phase["phase"]: phase for phase in found["phases"]}


def test_all_promises_are_kept(asgi: bool) -> None:
    found = drill("/page/", "/page/async/", asgi=asgi)
    assert set(kept(found).values()) == {True}, found
    assert found["ok"]
    by_phase = phases(found)
    assert by_phase[BEFORE]["sources"] == {decisions.REDIS: {"admitted": 6, "refused": 0}}
    assert set(by_phase[DURING]["sources"]) == {decisions.LOCAL}
    assert by_phase[AFTER]["sources"][decisions.REDIS]["admitted"] == 7
    assert set(by_phase[DURING]["statuses"]) == {"200"}
    assert found["signals"]["store_degraded"] == found["signals"]["store_recovered"] == 1
    assert found["recovery_seconds"] >= 0
    values = {metric["name"]: metric["value"] for metric in found["metrics"]}
    assert values["slidingwindow_fallbacks_total"] == 1
    assert values["slidingwindow_checks_total"] == found["signals"]["limit_checked"]


def test_all_promises_are_kept_in_a_black_hole(asgi: bool, settings: SettingsWrapper) -> None:
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "LATENCY_BUDGET": 0.5}
    found = drill("/page/", asgi=asgi, way=BLACKHOLE, seconds=2)
    assert set(kept(found).values()) == {True}, found
    assert phases(found)[DURING]["slowest_check"] >= 0.49, "the budget was used up"


def test_redis_is_charged_before_and_after_the_outage_only(redis: Redis) -> None:
    found = drill("/page/")
    by_redis = [
        phase["sources"].get(decisions.REDIS, {"admitted": 0})["admitted"]
        for phase in found["phases"]
    ]
    assert by_redis == [3, 0, 4]
    assert limits.check("many", "127.0.0.1").remaining == 1000 - 7 - 1


@pytest.mark.parametrize(
    ("path", "source", "status"),
    [("/few/", decisions.LOCAL, "429"), ("/allowed/", decisions.ALLOW, "200"),
     ("/denied/", decisions.DENY, "503")],
)  # fmt: skip
def test_fallback_of_the_profile_decides(path: str, source: str, status: str) -> None:
    found = drill(path)
    assert found["ok"], found
    during = phases(found)[DURING]
    assert set(during["sources"]) == {source}
    assert status in during["statuses"]
    if path == "/few/":
        assert during["sources"][source]["admitted"] == 4
        assert found["signals"]["request_limited"] > 0


def test_all_promises_are_kept_in_a_cluster(
    asgi: bool, cluster: RedisCluster, settings: SettingsWrapper
) -> None:
    factory = "django_slidingwindow.cluster.ClusterConnectionFactory"
    settings.CACHES = {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": cluster.url,
            "OPTIONS": {"CONNECTION_FACTORY": factory},
        }
    }
    calls = [Call(method="GET", path="/page/", host="localhost")]
    result = rehearse(Plan(calls=calls, way=BREAKER, seconds=1.0, requests=12, asgi=asgi))
    assert result.nodes == 3
    assert set(kept(record(result)).values()) == {True}


def test_leased_hits_admit_requests_during_the_outage() -> None:
    found = drill("/leased/")
    assert found["ok"], found
    sources = {source for phase in found["phases"] for source in phase["sources"]}
    assert {decisions.LEASE, decisions.LOCAL, decisions.REDIS} <= sources


@pytest.mark.parametrize("path", ["/busy/", "/failures/"])
def test_hits_that_are_given_back_break_no_promise(path: str) -> None:
    found = drill(path)
    assert found["ok"], found
    assert phases(found)[DURING]["admitted"] == 12


def test_budget_leaves_out_the_time_of_the_view(settings: SettingsWrapper) -> None:
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "LATENCY_BUDGET": 0.3}
    found = drill("/slow/", seconds=0.5)
    during = phases(found)[DURING]
    assert during["requests"] == 1, "the view took longer than the outage"
    assert during["slowest_request"] >= 0.7 > 2 * 0.3
    assert kept(found)["budget"] is True


def test_outage_lasts_until_its_last_request_has_ended() -> None:
    found = drill("/late/", seconds=0.2, requests=1)
    assert set(phases(found)[DURING]["sources"]) == {decisions.LOCAL}


def test_view_that_fails_without_redis_breaks_a_promise(asgi: bool) -> None:
    found = drill("/fragile/", asgi=asgi)
    assert kept(found)["answered"] is False
    assert not found["ok"]
    assert set(phases(found)[DURING]["statuses"]) == {"500"}


def test_view_that_always_fails_breaks_no_promise() -> None:
    found = drill("/wrong/")
    assert kept(found)["answered"] is None
    assert found["ok"]


def test_answered_is_broken_when_a_handler_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    from django_slidingwindow.drill.handlers import Wsgi

    send = Wsgi.send

    def fail(self: Wsgi, call: Call) -> int:
        status = send(self, call)
        if limits.get_limiter().breaker.open:
            raise RuntimeError("a middleware above Django")
        return status

    monkeypatch.setattr(Wsgi, "send", fail)
    found = drill("/page/")
    assert kept(found)["answered"] is False
    assert "RuntimeError: a middleware above Django" in phases(found)[DURING]["statuses"]


def test_view_that_stops_limiting_breaks_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django_slidingwindow.drill.exercise._PATIENCE", 0.2)
    found = drill("/careless/")
    broken = {name for name, value in kept(found).items() if value is False}
    assert broken == {"limited", "reported", "recovery"}


def test_short_drill_leaves_promises_unseen() -> None:
    found = drill("/page/", requests=2)
    assert found["ok"]
    assert found["recovery_seconds"] is None
    unseen = {name for name, value in kept(found).items() if value is None}
    assert unseen == {"breaker", "reported", "recovery"}


@pytest.mark.parametrize("path", ["/free/", "/unknown/"])
def test_drill_raises_when_a_path_has_no_limit(path: str) -> None:
    with pytest.raises(DrillError, match=f"No limit was checked for GET {path}"):
        drill("/page/", path)


def test_drill_raises_when_redis_is_away_at_the_start(
    fresh_server: RedisServer, settings: SettingsWrapper
) -> None:
    location = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": fresh_server.url}
    settings.CACHES = {"default": location}
    with killed(fresh_server), pytest.raises(StoreError, match="refused"):
        drill("/page/")


def test_drill_disconnects_its_receivers() -> None:
    def receivers() -> list[int]:
        found = [value for value in vars(signals).values() if isinstance(value, Signal)]
        return [len(signal.receivers) for signal in found]

    before = receivers()
    drill("/page/", requests=1)
    assert receivers() == before
    assert limits.check("many", "127.0.0.1").source == decisions.REDIS
