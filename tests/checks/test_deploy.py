"""The checks of `--deploy` on a real server, and the Redis users of docs/security-acl.md."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.core.checks import CheckMessage
from django_redis.pool import ConnectionFactory
from redis.connection import Connection
from redis.credentials import UsernamePasswordCredentialProvider

from django_slidingwindow.checks import deploy, rights
from django_slidingwindow.checks.register import check_deployment
from django_slidingwindow.checks.server import Server
from django_slidingwindow.core.limiter import Limiter
from django_slidingwindow.core.windows import ProfileCheck
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.guard import usages
from django_slidingwindow.inspection import windows as inspection
from django_slidingwindow.limits import acheck, apeek, arefund, areset, check, peek, refund, reset
from django_slidingwindow.policies import ALGORITHMS, LETTERS, Policy, Profile
from django_slidingwindow.stores.redis import RedisStore
from tests.support.servers import RedisServer
from tests.support.servers.redis import HOST

if TYPE_CHECKING:
    from redis import Redis

    from tests.support.servers import RedisCluster, SentinelGroup

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "security-acl.md").read_text()
# Settings for which the checks report nothing. The large budget is for slow machines.
QUIET: dict[str, Any] = {"FALLBACK_PROCESSES": 2, "TRUSTED_PROXIES": [], "LATENCY_BUDGET": 30}
_names = count()


def documented(name: str) -> list[str]:
    """Return the rights that the page lists under this name."""
    (words,) = re.findall(
        rf"^```acl name={name}\nuser \S+(.+?)^```$", PAGE, re.MULTILINE | re.DOTALL
    )
    return words.split()


def granted(words: list[str]) -> set[str]:
    return {word[1:].upper() for word in words if word.startswith("+")}


@pytest.fixture(autouse=True)
def _no_views(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the views of other tests, because this project lacks their profiles."""
    monkeypatch.setattr(usages, "_usages", {})


@pytest.fixture
def use(settings: Any) -> Callable[..., None]:
    """Return a function that makes the limits use a server."""

    def point(url: str, **options: Any) -> None:
        backend = "django_redis.cache.RedisCache"
        cache = {"BACKEND": backend, "LOCATION": url, "OPTIONS": options}
        settings.CACHES = {"default": cache}
        settings.SLIDING_WINDOW = dict(QUIET)

    return point


@pytest.fixture
def become(redis: Redis, redis_server: RedisServer, use: Any) -> Iterator[Callable[..., None]]:
    """Return a function that makes the limits log in as a user with only the given rights."""
    made = []

    def login(*words: str, database: int = 0) -> None:
        name = f"user{next(_names)}"
        redis.execute_command("ACL", "SETUSER", name, "on", ">secret", *words)
        made.append(name)
        # The name is part of the URL: django-redis keeps a pool per URL, and tests need their own.
        use(f"redis://{name}@{HOST}:{redis_server.port}/{database}", PASSWORD="secret")

    yield login
    if made:
        redis.execute_command("ACL", "DELUSER", *made)


def numbers(messages: list[CheckMessage]) -> list[str]:
    return [str(message.id).removeprefix("django_slidingwindow.") for message in messages]


def one(messages: list[CheckMessage], number: str) -> str:
    """Return the text of the only message, which must have this number."""
    assert numbers(messages) == [number], messages
    assert messages[0].hint
    return messages[0].msg


def check_one(number: str) -> str:
    return one(check_deployment(None), number)


# Settings that are only useful in development


def test_warns_when_limits_are_disabled(settings: Any) -> None:
    settings.SLIDING_WINDOW = {**QUIET, "ENABLED": False}
    assert "nothing is limited" in check_one("W101")


def test_reports_missing_fallback_processes(settings: Any) -> None:
    settings.SLIDING_WINDOW = {"TRUSTED_PROXIES": []}
    assert "FALLBACK_PROCESSES" in check_one("I102")
    settings.SLIDING_WINDOW = {"FALLBACK": "deny"}
    assert check_deployment(None) == []


@pytest.mark.parametrize("axis", ["ip", "user", "user_or_ip", "session", "ip+endpoint"])
def test_reports_missing_proxies_when_a_profile_counts_by_address(settings: Any, axis: str) -> None:
    profiles = {"own": {"axis": axis, "rate": "1/m"}}
    settings.SLIDING_WINDOW = {"FALLBACK_PROCESSES": 1, "PROFILES": profiles}
    assert "'own' counts by address" in check_one("I103")
    settings.SLIDING_WINDOW = {**QUIET, "PROFILES": profiles}
    assert check_deployment(None) == []


def test_proxies_are_not_needed_when_anonymous_clients_are_skipped(settings: Any) -> None:
    profiles = {"own": {"axis": "user", "rate": "1/m", "anonymous": "skip"}}
    settings.SLIDING_WINDOW = {"FALLBACK_PROCESSES": 1, "PROFILES": profiles}
    assert check_deployment(None) == []


# The server


def test_healthy_server_has_no_problem(redis: Redis, settings: Any) -> None:
    settings.SLIDING_WINDOW = QUIET
    assert check_deployment(None) == []
    assert redis.dbsize() == 0


def test_server_is_not_checked_when_the_alias_is_unusable(settings: Any) -> None:
    settings.SLIDING_WINDOW = {**QUIET, "CACHE": "nowhere"}
    assert check_deployment(None) == []


def test_warns_when_the_server_is_down(use: Any) -> None:
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        use(f"redis://{HOST}:{unused.getsockname()[1]}/0")
        assert "does not answer" in check_one("W111")


def test_warns_when_the_server_never_replies(use: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("django_slidingwindow.checks.server.TIMEOUT", 0.1)
    with socket.create_server((HOST, 0)) as silent:
        use(f"redis://{HOST}:{silent.getsockname()[1]}/0")
        assert "does not answer" in check_one("W111")


def test_checks_a_server_on_a_unix_socket(use: Any, redis_server: RedisServer) -> None:
    use(redis_server.unix_url)
    assert check_deployment(None) == []


@pytest.mark.parametrize("password", ["wrong", None])
def test_reports_a_refused_login(
    use: Any, become: Any, redis_server: RedisServer, password: Any
) -> None:
    with RedisServer(password="right") as server:
        use(f"redis://{HOST}:{server.port}/0", PASSWORD=password)
        text = check_one("E112")
    assert f"{HOST}:{server.port}" in text
    assert "wrong" not in text


def test_reports_a_missing_right_to_connect(become: Any) -> None:
    become("~*", "+@all", "-select", database=1)
    assert "may not run SELECT on" in check_one("E116")


class FakeServer(Server):
    """A server with a fixed reply to INFO, for releases that tests cannot install."""

    def __init__(self, info: str) -> None:
        self.name = "redis.example.com:6379"
        self._info = info

    def send(self, *commands: Any) -> list[Any]:
        return [self._info.encode()]


@pytest.mark.parametrize(
    ("version", "old"),
    [("6.0.16", True), ("5.0.7", True), ("6.2.0", False), ("10.0", False), ("unknown", True)],
)
def test_reports_a_server_that_is_too_old(version: str, old: bool) -> None:
    messages = list(
        deploy.check_facts("default", FakeServer(f"# Server\r\nredis_version:{version}\r\n"))
    )
    if old:
        assert f"is version {version}" in one(messages, "E113")
    else:
        assert messages == []


def test_reports_a_replica(use: Any, redis_server: RedisServer) -> None:
    with RedisServer(replica_of=redis_server) as replica:
        use(replica.url)
        assert "is a replica" in check_one("E114")


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-lru", "volatile-ttl"])
def test_warns_when_the_server_evicts_windows(
    use: Any, fresh_server: RedisServer, policy: str
) -> None:
    use(fresh_server.url)
    with fresh_server.client() as client:
        client.config_set("maxmemory-policy", policy)
        assert check_deployment(None) == [], "without maxmemory nothing is evicted"
        client.config_set("maxmemory", "100mb")
        assert f"(maxmemory-policy {policy})" in check_one("W115")
        client.config_set("maxmemory-policy", "noeviction")
        assert check_deployment(None) == []


def point_to_sentinels(settings: Any, url: str, sentinels: list[tuple[str, int]]) -> None:
    options = {
        "CLIENT_CLASS": "django_redis.client.SentinelClient",
        "CONNECTION_POOL_CLASS": "redis.sentinel.SentinelConnectionPool",
        "CONNECTION_FACTORY": "django_redis.pool.SentinelConnectionFactory",
        "SENTINELS": sentinels,
    }
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url, "OPTIONS": options}
    settings.CACHES = {"default": cache}
    settings.SLIDING_WINDOW = dict(QUIET)


def test_checks_the_primary_behind_sentinels(settings: Any, sentinels: SentinelGroup) -> None:
    point_to_sentinels(settings, sentinels.url, sentinels.addresses)
    assert check_deployment(None) == []


def test_warns_when_no_sentinel_replies(settings: Any) -> None:
    point_to_sentinels(settings, "redis://nobody/0", [(HOST, 1)])
    assert "no sentinel knows a primary" in check_one("W111")


def test_reports_an_alias_that_django_redis_rejects(settings: Any) -> None:
    point_to_sentinels(settings, "redis://nowhere/0", [])
    assert "SENTINELS must be provided" in check_one("E015")


class FailingFactory(ConnectionFactory):  # type: ignore[misc]
    """A project's factory that cannot be created."""

    def __init__(self, options: dict[str, Any]) -> None:
        raise options["ERROR"]


@pytest.mark.parametrize(
    ("error", "number"), [(ValueError("no such vault"), "E015"), (OSError("no route"), "W111")]
)
def test_reports_why_a_connection_factory_failed(
    settings: Any, redis_server: RedisServer, error: Exception, number: str
) -> None:
    options = {"CONNECTION_FACTORY": f"{__name__}.FailingFactory", "ERROR": error}
    backend = "django_redis.cache.RedisCache"
    settings.CACHES = {
        "default": {"BACKEND": backend, "LOCATION": redis_server.url, "OPTIONS": options}
    }
    settings.SLIDING_WINDOW = dict(QUIET)
    text = check_one(number)
    assert str(error) in text
    assert text.count("'default'") == 1


def point_to_cluster(settings: Any, *urls: str, **options: Any) -> None:
    options["CONNECTION_FACTORY"] = "django_slidingwindow.cluster.ClusterConnectionFactory"
    cache = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": urls, "OPTIONS": options}
    settings.CACHES = {"default": cache}
    settings.SLIDING_WINDOW = dict(QUIET)


def test_checks_each_primary_of_a_cluster(settings: Any, cluster: RedisCluster) -> None:
    point_to_cluster(settings, cluster.url)
    assert check_deployment(None) == []
    with cluster.owner(0).client() as client:
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            assert f"{HOST}:{cluster.owner(0).port} evicts" in check_one("W115")
        finally:
            client.config_set("maxmemory-policy", "noeviction")
            client.config_set("maxmemory", "0")


def test_checks_each_configured_node_when_the_topology_is_unknown(settings: Any) -> None:
    with RedisServer(password="right") as server:
        point_to_cluster(settings, f"redis://{HOST}:{server.port}", f"redis://{HOST}:1")
        assert numbers(check_deployment(None)) == ["E112", "W111"]


class OwnConnection(Connection):
    """A project's variant."""


def connect(connection: Any) -> None:
    connection.on_connect()


@pytest.mark.parametrize(
    "options", [{"connection_class": OwnConnection}, {"redis_connect_func": connect}]
)
def test_reports_a_connection_option_that_async_does_not_support(
    redis_server: RedisServer, use: Any, options: dict[str, Any]
) -> None:
    (name,) = options
    # A URL of its own: django-redis keeps a pool for each.
    use(f"{redis_server.url}?client_name={name}", CONNECTION_POOL_KWARGS=options)
    messages = check_deployment(None)
    assert f"connection option {name}," in one(messages, "I121")
    assert "threads" in str(messages[0].hint)


def test_credential_provider_has_no_problem(redis_server: RedisServer, use: Any) -> None:
    options = {"credential_provider": UsernamePasswordCredentialProvider("default", "any")}
    use(f"{redis_server.url}?client_name=provider", CONNECTION_POOL_KWARGS=options)
    assert check_deployment(None) == []


# Rights


def test_reports_missing_rights_for_a_cluster(settings: Any, cluster: RedisCluster) -> None:
    words = [*documented("site"), *documented("checks"), *documented("inspection")]
    nodes = [node.client() for node in cluster.nodes]
    try:
        for node in nodes:
            node.execute_command("ACL", "SETUSER", "less", "on", ">secret", *words)
        point_to_cluster(settings, cluster.url, USERNAME="less", PASSWORD="secret")
        assert "may not run CLUSTER|SLOTS, ASKING on" in check_one("E116")
        for node in nodes:
            node.execute_command("ACL", "SETUSER", "less", *documented("cluster"))
        assert check_deployment(None) == []
        for algorithm in ALGORITHMS:
            assert check(profile(algorithm), "x").source == "redis"
    finally:
        for node in nodes:
            node.execute_command("ACL", "DELUSER", "less")
            node.close()


def test_reports_each_missing_command(become: Any, redis: Redis) -> None:
    become("~throttle:*", "+@all", "-evalsha", "-setrange", "-zadd")
    assert "may not run EVALSHA, SETRANGE on" in check_one("E116")
    assert redis.dbsize() == 0


def test_reports_missing_commands_of_the_algorithms_in_use(become: Any, settings: Any) -> None:
    become("~throttle:*", "+@all", "-zadd", "-hset")
    profiles = {
        "a": {"axis": "global", "rate": "1/m", "algorithm": "log"},
        "b": {"axis": "global", "rate": lambda *_: "1/m", "algorithm": "buckets"},
    }
    settings.SLIDING_WINDOW = {**QUIET, "PROFILES": profiles}
    assert "may not run ZADD, HSET on" in check_one("E116").replace("HSET, ZADD", "ZADD, HSET")


def test_reports_missing_rights_to_keys(become: Any) -> None:
    become("~other:*", "+@all")
    assert "may not access keys throttle:*" in check_one("E117")


def test_reports_missing_rights_to_inspect(become: Any) -> None:
    become("~*", "+@all", "-scan", "-memory")
    assert "may not run SCAN, MEMORY|USAGE on" in check_one("I118")


def test_reports_when_info_is_not_allowed(become: Any) -> None:
    become("~*", "+@all", "-info")
    assert "were not checked" in check_one("I119")


@pytest.mark.parametrize("command", ["-multi", "-discard"])
def test_reports_when_rights_cannot_be_tested(become: Any, command: str) -> None:
    become("~*", "+@all", command)
    assert "rights were not checked" in check_one("I120")


# The documented users


def test_rights_are_the_commands_that_the_scripts_call() -> None:
    sources = {
        path.stem: path.read_text()
        for path in ROOT.glob("django_slidingwindow/algorithms/lua/*.lua")
    }
    called = {name: set(re.findall(r"\bcall\('(\w+)'", text)) for name, text in sources.items()}
    for algorithm in LETTERS:
        assert called.pop(algorithm) - set(rights.ALWAYS) == set(rights.BY_ALGORITHM[algorithm])
    assert set().union(*called.values()) <= set(rights.ALWAYS)


def test_documented_site_user_has_exactly_the_needed_rights() -> None:
    words = documented("site")
    assert granted(words) == set(rights.needed(LETTERS))
    assert {"resetchannels", "~throttle:*", "-@all"} < set(words)


def test_docs_list_the_commands_of_each_algorithm() -> None:
    rows = re.findall(r"^\| `?(\w+)`?(?: \(the default\))? \| (`.+`) \|$", PAGE, re.MULTILINE)
    listed = {name: set(re.findall(r"`(.+?)`", row.replace("\\", ""))) for name, row in rows}
    wanted = {"all": rights.ALWAYS, **rights.BY_ALGORITHM}
    assert listed == {name: set(commands) for name, commands in wanted.items()}


def test_documented_operator_has_no_write_command(redis: Redis) -> None:
    writing = {name.upper() for name in redis.execute_command("ACL", "CAT", "write")}
    assert not granted(documented("operator")) & writing


def profile(algorithm: str, **options: Any) -> Profile:
    policy = Policy(limit=300, window=60, algorithm=algorithm)
    return Profile(
        name=f"all_{algorithm}", axis="global", policies=(policy,), fallback="deny", **options
    )


@pytest.mark.parametrize("count_rejected", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
async def test_documented_site_user_can_run_every_function_of_limits(
    become: Any, redis: Redis, algorithm: str, count_rejected: bool
) -> None:
    become(*documented("site"))
    redis.script_flush()
    own = profile(algorithm, count_rejected=count_rejected)
    for cost in (1, 2, 200):
        decision = check(own, "x", cost)
        assert (decision.allowed, decision.source) == (True, "redis")
    assert peek(own, "x").source == "redis"
    assert refund(decision) == 200
    refused = check(own, "x", 299)
    assert (refused.allowed, refused.source) == (False, "redis")
    assert reset(own, "x") == 1
    decision = await acheck(own, "y", 200)
    assert (decision.allowed, decision.source) == (True, "redis")
    assert (await apeek(own, "y")).source == "redis"
    assert await arefund(decision) == 200
    assert (await acheck(own, "y")).source == "redis"
    assert await areset(own, "y") == 1


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_documented_site_user_can_charge_when_the_clock_moves(become: Any, algorithm: str) -> None:
    become(*documented("site"))
    seconds = iter([1000, 1001, 1061, 1030, 1030, 1300, 1300, 1301, 1302])
    store = RedisStore("default", clock=lambda: next(seconds) * 1_000_000)
    limiter = Limiter(store, fallback="deny")
    own = profile(algorithm)
    for cost in (1, 1, 100, 5, 60, 290):
        wanted = ProfileCheck(own, "x", own.policies, cost)
        decision = limiter.charge(limiter.windows([wanted]))
        assert decision.source == "redis"
    assert limiter.refund(decision) == 290


def test_documented_rights_for_checks_and_inspection_are_complete(become: Any) -> None:
    become(*documented("site"), *documented("checks"), *documented("inspection"))
    assert check_deployment(None) == []


def test_reports_unchecked_facts_when_only_site_rights_are_granted(become: Any) -> None:
    become(*documented("site"))
    assert numbers(check_deployment(None)) == ["I119", "I120"]


def fill(settings: Any) -> None:
    settings.SLIDING_WINDOW = {
        **QUIET,
        "PROFILES": {
            name: {"axis": "global", "rate": "3/m", "algorithm": name} for name in ALGORITHMS
        },
    }
    for name in ALGORITHMS:
        for _ in range(2):
            assert check(name, "x").source == "redis"


@pytest.mark.parametrize("names", [("operator",), ("site", "inspection")], ids=["operator", "site"])
def test_documented_rights_allow_inspection(
    redis: Redis, become: Any, settings: Any, names: tuple[str, ...]
) -> None:
    fill(settings)
    window = settings.SLIDING_WINDOW
    become(*(word for name in names for word in documented(name)))
    settings.SLIDING_WINDOW = window
    redis.script_flush()
    states = list(inspection.walk())
    assert {state.algorithm: state.hits for state in states} == dict.fromkeys(ALGORITHMS, 2)
    for state in states:
        assert state.ttl
        assert state.bytes
        assert sum(number for _, number in inspection.hits(state.key)) == 2


def test_documented_operator_cannot_change_anything(
    become: Any, settings: Any, redis: Redis
) -> None:
    fill(settings)
    window = settings.SLIDING_WINDOW
    become(*documented("operator"))
    settings.SLIDING_WINDOW = {**window, "FALLBACK": "deny"}
    for name in ALGORITHMS:
        assert peek(name, "x").source == "redis"
    for name in ALGORITHMS:
        assert check(name, "x").source == "deny"
        with pytest.raises(StoreError):
            reset(name, "x")
    assert redis.dbsize() == len(ALGORITHMS)
