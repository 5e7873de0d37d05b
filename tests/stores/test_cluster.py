"""A Redis Cluster: limits stay exact during redirections, resharding and failovers."""

from __future__ import annotations

import asyncio
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django_redis import get_redis_connection
from redis.cluster import RedisCluster as RedisClusterClient

from django_slidingwindow import decisions, limits
from django_slidingwindow.cluster import ClusterConnectionFactory
from django_slidingwindow.core.breaker import CLOSED
from django_slidingwindow.core.windows import ProfileCheck
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.policies import Policy
from django_slidingwindow.registry import registry
from django_slidingwindow.signals import store_degraded
from django_slidingwindow.stores.cluster import ClusterStore
from django_slidingwindow.stores.commands import pack
from django_slidingwindow.stores.factory import store_of
from django_slidingwindow.stores.net.routing import slot_of
from django_slidingwindow.stores.net.server import Server
from django_slidingwindow.stores.net.topology import SLOTS, Address
from django_slidingwindow.stores.protocol import Evaluate, Reset, WindowRule, WindowRules
from django_slidingwindow.stores.redis import RedisStore
from tests.support.background_load import Load
from tests.support.clock import SECOND, START
from tests.support.processes.limiters import Contenders, by_reason
from tests.support.redis_failures import frozen
from tests.support.servers import RedisCluster as RunningCluster
from tests.support.servers import RedisServer
from tests.support.servers.redis import HOST, free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_django.fixtures import SettingsWrapper

    from django_slidingwindow.decisions import Decision
    from tests.support.servers import RedisCluster

FACTORY = "django_slidingwindow.cluster.ClusterConnectionFactory"
LIMIT = 50
PROFILES = {
    "many": {"axis": "tenant", "limit": 100_000, "window": 3600},
    "few": {"axis": "tenant", "limit": LIMIT, "window": 3600},
    "three": {"axis": "tenant", "limit": 3, "window": 3600},
    "counting": {"axis": "tenant", "limit": 3, "window": 3600, "count_rejected": True},
    "penalized": {
        "axis": "tenant",
        "rate": "1/m",
        "penalty": {"after": "2/10m", "steps": ["1h"]},
    },
    "double": {"axis": "tenant", "rates": ["5/h", "9/d"]},
    "observing": {"axis": "tenant", "limit": 3, "window": 3600, "mode": "observe"},
    "slots": {"axis": "tenant", "inflight": 2, "hold": "1h"},
    "leased": {"axis": "tenant", "limit": 1_000, "window": 3600, "lease": 50},
}


def caches(location: Any, **options: Any) -> dict[str, Any]:
    options["CONNECTION_FACTORY"] = FACTORY
    backend = "django_redis.cache.RedisCache"
    return {"default": {"BACKEND": backend, "LOCATION": location, "OPTIONS": options}}


@pytest.fixture
def use(settings: SettingsWrapper, cluster: RedisCluster) -> Callable[..., ClusterStore]:
    """Return a function that configures the cluster and returns this process's store."""

    def configure(**options: Any) -> ClusterStore:
        settings.CACHES = caches([node.url for node in cluster.nodes])
        settings.SLIDING_WINDOW = {"PROFILES": PROFILES, **options}
        store = limits.get_limiter().store
        assert isinstance(store, ClusterStore)
        return store

    return configure


@pytest.fixture
def store(use: Callable[..., ClusterStore]) -> ClusterStore:
    # A long budget, because these tests must pass on a slow machine too.
    return use(LATENCY_BUDGET=5.0)


def profile_check(profile: str, identifier: str) -> ProfileCheck:
    found = registry.get(profile)
    return ProfileCheck(found, identifier, found.policies_for(identifier))


def identifiers(cluster: RedisCluster, count: int = 3) -> list[str]:
    """Return identifiers, whose windows are on different primaries."""
    found: dict[int, str] = {}
    for number in range(1000):
        port = cluster.owner(slot_of(key("few", f"t{number}"))).port
        found.setdefault(port, f"t{number}")
        if len(found) == count:
            break
    return list(found.values())


def key(profile: str, identifier: str) -> str:
    return f"throttle:tenant:{{{identifier}}}:{profile}:c3600"


def idle(store: ClusterStore) -> dict[str, int]:
    """Return the number of idle connections to each node."""
    return {
        str(address): len(server._connections._idle) for address, server in store._servers.items()
    }


def used(profile: str, *names: str) -> list[int]:
    """Return the number of hits in each window."""
    limit: Any = PROFILES[profile]["limit"]
    # With a cost of 0, because `remaining` of a peek is the number after the request.
    return [limit - limits.peek(profile, name, cost=0).remaining for name in names]


class TestFactory:
    def test_django_redis_speaks_to_the_cluster(self, store: ClusterStore) -> None:
        from django.core.cache import cache

        for number in range(20):
            cache.set(f"key{number}", number)
        assert [cache.get(f"key{number}") for number in range(20)] == list(range(20))
        assert isinstance(get_redis_connection("default"), RedisClusterClient)

    def test_client_is_one_for_the_process(self, store: ClusterStore) -> None:
        assert store.client() is store.client()
        assert get_redis_connection("default") is get_redis_connection("default")

    def test_client_can_be_disconnected_and_used_again(self, store: ClusterStore) -> None:
        client = store.client()
        assert client.set("a", 1)
        store._factory.disconnect(client)
        assert client.get("a") == b"1"

    def test_other_client_class_and_options_are_used(self, cluster: RedisCluster) -> None:
        path = f"{__name__}.OwnClient"
        options = {"REDIS_CLIENT_CLASS": path, "REDIS_CLIENT_KWARGS": {"decode_responses": True}}
        client = ClusterConnectionFactory(options).connect(cluster.url)
        assert type(client) is OwnClient
        client.set("a", "text")
        assert client.get("a") == "text"
        client.close()

    def test_secure_address_makes_secure_connections(self) -> None:
        pool = ClusterConnectionFactory({}).pool("rediss://node:7000")
        assert pool.connection_class.__name__ == "SSLConnection"

    def test_secure_client_is_secure(self) -> None:
        factory = ClusterConnectionFactory({"REDIS_CLIENT_CLASS": "builtins.dict"})
        given = factory.client(["rediss://node:7000"])
        assert given["ssl"] is True
        assert given["retry"].get_retries() == 0

    def test_address_without_host_or_port_gets_the_defaults(self, settings: Any) -> None:
        settings.CACHES = caches(["redis://node", "redis://:7000"])
        store = store_of("default")
        assert isinstance(store, ClusterStore)
        assert sorted(store.topology.sources()) == [("localhost", 7000), ("node", 6379)]

    def test_thread_does_not_wait_for_the_connection_of_another_thread(self) -> None:
        factory = ClusterConnectionFactory({"REDIS_CLIENT_CLASS": f"{__name__}.SlowClient"})
        with ThreadPoolExecutor(2) as threads:
            one, two = threads.map(factory.connect, ["redis://slow:7000"] * 2)
        assert one is two

    @pytest.mark.parametrize("url", ["redis://node:7000/1", "unix:///redis.sock"])
    def test_other_databases_and_unix_sockets_are_refused(self, url: str) -> None:
        with pytest.raises(ImproperlyConfigured, match="one database"):
            ClusterConnectionFactory({}).pool(url)

    def test_command_that_timed_out_is_not_sent_again(self, cluster: RedisCluster) -> None:
        factory = ClusterConnectionFactory({"SOCKET_TIMEOUT": 0.2})
        client = factory.connect(cluster.url)
        client.incr("counter")
        node = cluster.owner(slot_of("counter"))
        with frozen(node), pytest.raises(Exception, match=r"(?i)time"):
            client.incr("counter")
        wait_until(lambda: client.get("counter") == b"2", "the frozen call has run")
        assert client.get("counter") == b"2"
        client.close()
        cluster.wait_until_ok()


class OwnClient(RedisClusterClient):
    pass


class SlowClient:
    """A client that connects only if two threads connect at the same time."""

    together = threading.Barrier(2, timeout=10)

    def __init__(self, **options: Any) -> None:
        self.together.wait()


class Failing(ClusterConnectionFactory):
    """A project's factory that needs a network when it is created."""

    def __init__(self, options: dict[str, Any]) -> None:
        raise OSError("no token from the vault")


class TestChoice:
    def test_alias_of_a_cluster_has_a_cluster_store(self, store: ClusterStore) -> None:
        assert isinstance(store_of("default"), ClusterStore)

    def test_other_aliases_have_a_redis_store(self, settings: SettingsWrapper) -> None:
        assert isinstance(store_of("default"), RedisStore)

    def test_logs_why_a_connection_factory_failed(
        self, settings: SettingsWrapper, caplog: pytest.LogCaptureFixture
    ) -> None:
        settings.CACHES = caches("redis://127.0.0.1:1")
        settings.CACHES["default"]["OPTIONS"]["CONNECTION_FACTORY"] = f"{__name__}.Failing"
        assert isinstance(store_of("default"), RedisStore)
        (record,) = caplog.records
        assert (record.name, record.levelname) == ("django_slidingwindow", "ERROR")
        assert "cache 'default' (OSError: no token from the vault)" in record.getMessage()
        assert record.exc_info

    @pytest.mark.parametrize("alias", ["default", "missing"])
    def test_logs_nothing_when_the_first_call_reports_the_alias(
        self, alias: str, settings: SettingsWrapper, caplog: pytest.LogCaptureFixture
    ) -> None:
        # With ENABLED = False there is no first call, and such an alias is allowed.
        settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
        assert isinstance(store_of(alias), RedisStore)
        assert caplog.records == []


class TestRouting:
    async def test_windows_are_found_on_all_nodes(
        self, store: ClusterStore, cluster: RedisCluster
    ) -> None:
        names = [f"t{number}" for number in range(30)]
        for name in names:
            assert limits.check("few", name).source == decisions.REDIS
            assert (await limits.acheck("few", name)).remaining == LIMIT - 2
        assert used("few", *names) == [2] * 30
        sizes = []
        for node in cluster.nodes[:3]:
            with node.client() as client:
                sizes.append(client.dbsize())
        assert sum(sizes) == 30
        assert all(sizes)

    async def test_script_that_a_node_has_lost_is_loaded(
        self, store: ClusterStore, cluster: RedisCluster
    ) -> None:
        limits.check("few", "k")
        for node in cluster.nodes[:3]:
            with node.client() as client:
                client.script_flush()
        assert limits.check("few", "k").remaining == LIMIT - 2
        for node in cluster.nodes[:3]:
            with node.client() as client:
                client.script_flush()
        assert (await limits.acheck("few", "k")).remaining == LIMIT - 3

    def test_many_calls_go_to_each_node_at_once(self, store: ClusterStore) -> None:
        rule = WindowRule(registry.get("few").policies[0], 1)
        calls = [Evaluate((key("few", f"t{n}"),), (rule,), True) for n in range(20)]
        # At first, no node knows the script.
        for left in (LIMIT - 1, LIMIT - 2):
            assert [reply[3] for reply in store.run_many(calls)] == [left] * 20
        assert store.run_many([Reset((key("few", "t0"),))]) == [[1]]

    def test_deferred_charges_go_to_each_node(self, store: ClusterStore) -> None:
        few = registry.get("few")
        later = replace(few, name="later", scope="later", mode="deferred")
        limiter = limits.get_limiter()
        for number in range(20):
            check = ProfileCheck(later, f"t{number}", later.policies)
            assert limiter.charge(limiter.windows([check])).source == decisions.DEFERRED
        limiter.deferred.flush()
        for number in range(20):
            check = ProfileCheck(later, f"t{number}", later.policies)
            assert limiter.peek(limiter.windows([check])).remaining == LIMIT - 2

    async def test_errors_of_several_calls_are_returned_in_order(
        self, settings: SettingsWrapper
    ) -> None:
        settings.CACHES = caches(f"redis://{HOST}:{free_port()}/0")
        store = store_of("default", budget=1.0)
        assert isinstance(store, ClusterStore)
        calls = [Reset((key("few", name),)) for name in ("a", "b")]
        for answers in (
            store.run_many(calls),
            store.run_together(calls),
            await store.arun_together(calls),
        ):
            assert [type(answer) for answer in answers] == [StoreError, StoreError]
            assert "no node of the cluster" in str(answers[0])

    def test_windows_of_one_identifier_are_asked_in_one_call(self, store: ClusterStore) -> None:
        keys = (key("few", "a"), key("many", "a"), key("few", "b"))
        assert store.groups(keys[:2]) is None
        assert store.groups(keys) == [[0, 1], [2]]

    async def test_windows_can_be_read_and_reset_by_async_code(self, store: ClusterStore) -> None:
        windows = limits._windows(limits.get_limiter(), "few", "async", 1, True)
        await store.acharge(windows.keys, windows.template.rules)
        assert (await limits.apeek("few", "async")).remaining == 48, "one is charged, one asked"
        assert await store.arun(Reset(windows.keys)) == [1]

    def test_reset_forgets_windows_in_several_slots(self, store: ClusterStore) -> None:
        for name in ("a", "b", "c"):
            limits.check("few", name)
        limiter = limits.get_limiter()
        assert limiter.reset([key("few", name) for name in ("a", "b", "c")]) == 3
        assert used("few", "a", "b", "c") == [0, 0, 0]

    def test_node_of_a_key_is_the_address_of_its_primary(
        self, store: ClusterStore, cluster: RedisCluster
    ) -> None:
        assert store.node(key("few", "a")) == ""
        assert store.nodes() == [""]
        limits.check("few", "a")
        owner = cluster.owner(slot_of(key("few", "a")))
        assert store.node(key("few", "a")) == f"{HOST}:{owner.port}"
        assert len(store.nodes()) == 3

    def test_connections_can_be_closed_and_are_made_again(self, store: ClusterStore) -> None:
        limits.check("few", "a")
        store.close()
        assert limits.check("few", "a").remaining == LIMIT - 2

    def test_connections_of_one_node_can_be_closed(self, store: ClusterStore) -> None:
        for number in range(20):
            limits.check("few", f"t{number}")
        one, *others = store.nodes()
        store.close(one)
        assert idle(store) == {one: 0} | dict.fromkeys(others, 1)

    def test_connections_to_a_node_that_has_left_are_closed(
        self, store: ClusterStore, cluster: RedisCluster
    ) -> None:
        limits.check("few", "a")
        # The map has no node with this name, as if the node had left the cluster.
        gone = Address("localhost", cluster.nodes[0].port)
        left = store._server(gone)
        left.exchange(pack(b"PING"), 1, left.settings.deadline())
        assert left._connections._idle
        new, newer = Address("new-node", 6379), Address("newer-node", 6379)
        store._server(new)
        assert {gone, new} <= set(store._servers), "they may be too new for the map"
        store.scan("0", "*", 10)  # reads the map
        store._server(newer)
        assert {gone, new, newer} & set(store._servers) == {newer}
        assert not left._connections._idle

    async def test_connection_of_an_event_loop_to_a_node_that_has_left_is_closed(
        self, store: ClusterStore, cluster: RedisCluster
    ) -> None:
        await limits.acheck("few", "a")
        left = store._server(Address("localhost", cluster.nodes[0].port))
        payload = pack(b"WAIT", b"9", b"200")  # for nine replicas, at most 0.2 s
        in_use = asyncio.ensure_future(left.aexchange(payload, 1, left.settings.deadline()))
        await asyncio.sleep(0.05)
        (multiplexer,) = left._multiplexers.values()
        await asyncio.to_thread(store.scan, "0", "*", 10)
        store._server(Address("new-node", 6379))
        assert type((await in_use)[0]) is int
        await asyncio.to_thread(wait_until, lambda: multiplexer._connection is None, "it is closed")

    def test_each_node_that_fails_loses_its_idle_connections(self, store: ClusterStore) -> None:
        for number in range(20):
            limits.check("few", f"t{number}")
        *failing, sound = store.nodes()
        outages: list[StoreError] = []

        def note(error: StoreError, **_: Any) -> None:
            outages.append(error)

        store_degraded.connect(note)
        try:
            for node in failing * 3:
                error = StoreError("away on purpose")
                limits.get_limiter()._health.unanswered(node, error, charges=True)
        finally:
            store_degraded.disconnect(note)
        assert idle(store) == dict.fromkeys(failing, 0) | {sound: 1}
        assert len(outages) == 1


class TestScan:
    def test_all_primaries_are_scanned(self, store: ClusterStore) -> None:
        names = [f"t{number}" for number in range(60)]
        for name in names:
            limits.check("few", name)
        found: list[str] = []
        cursor, steps = "0", 0
        while steps == 0 or cursor != "0":
            cursor, keys = store.scan(cursor, "throttle:*", 5)
            found += keys
            steps += 1
        assert sorted(found) == sorted(key("few", name) for name in names)
        assert steps > 3

    def test_node_that_has_left_is_passed_over(self, store: ClusterStore) -> None:
        store.scan("0", "*", 10)
        *_, last = store.topology.primaries
        after, _ = store.scan("0.0.0.0:1/17", "*", 1000)
        assert after == f"{store.topology.primaries[1]}/0"
        assert store.scan("999.0.0.1:1/17", "*", 10) == ("0", [])
        assert store.scan(f"{last}/0", "*", 1000)[0] == "0"

    def test_error_of_a_node_is_a_store_error(self, store: ClusterStore) -> None:
        store.scan("0", "*", 10)
        with pytest.raises(StoreError, match="invalid cursor"):
            store.scan(f"{store.topology.primaries[0]}/nonsense", "*", 10)


class TestCharge:
    """Most checks: one call to one node."""

    KEYS = (key("few", "hit"),)

    @pytest.fixture(params=[None, 5.0], ids=["no limit", "limit"])
    def store(self, request: pytest.FixtureRequest, use: Callable[..., Any]) -> Iterator[Any]:
        use()
        store = store_of("default", budget=request.param)
        yield store
        store.close()

    @pytest.fixture
    def rules(self) -> WindowRules:
        return WindowRules([WindowRule(Policy(limit=LIMIT, window=3600), 1)])

    def left(self, store: ClusterStore, rules: WindowRules) -> int:
        return store.charge(self.KEYS, rules)[3]

    def test_script_that_its_node_has_lost_is_loaded_and_charges_once(
        self, store: ClusterStore, rules: WindowRules, cluster: RedisCluster
    ) -> None:
        assert [self.left(store, rules) for _ in range(3)] == [LIMIT - 1, LIMIT - 2, LIMIT - 3]
        with cluster.owner(slot_of(self.KEYS[0])).client() as client:
            client.script_flush()
        assert [self.left(store, rules) for _ in range(2)] == [LIMIT - 4, LIMIT - 5]

    def test_slot_that_has_moved_is_found(
        self,
        store: ClusterStore,
        rules: WindowRules,
        cluster: RedisCluster,
        request: pytest.FixtureRequest,
    ) -> None:
        # No other test uses this slot, because it stays on the other node. If it moved back, the
        # nodes would need some time to agree on its owner.
        keys = (key("few", f"moving {request.node.callspec.id}"),)
        assert [store.charge(keys, rules)[3] for _ in range(2)] == [LIMIT - 1, LIMIT - 2]
        slot = slot_of(keys[0])
        home = cluster.owner(slot)
        away = next(node for node in cluster.nodes[:3] if node is not home)
        cluster.migrate(slot, away).finish()
        assert [store.charge(keys, rules)[3] for _ in range(2)] == [LIMIT - 3, LIMIT - 4]
        assert store.topology.owner(slot) == (HOST, away.port)

    def test_error_of_the_script_is_not_an_outage(
        self, store: ClusterStore, rules: WindowRules, cluster: RedisCluster
    ) -> None:
        store.charge(self.KEYS, rules)
        node = cluster.owner(slot_of(self.KEYS[0]))
        with node.client() as client:
            client.delete(self.KEYS[0])
            client.rpush(self.KEYS[0], "spoiled")
        for _ in range(2):
            with pytest.raises(StoreError, match="WRONGTYPE") as raised:
                store.charge(self.KEYS, rules)
            assert not raised.value.outage
        assert not store.topology.doubts(Address(HOST, node.port))

    def test_node_that_is_away_is_doubted(
        self, use: Callable[..., Any], rules: WindowRules, cluster: RedisCluster
    ) -> None:
        use()
        store = store_of("default", budget=0.2)
        assert isinstance(store, ClusterStore)
        for _ in range(2):
            store.charge(self.KEYS, rules)
        node = cluster.owner(slot_of(self.KEYS[0]))
        with frozen(node), pytest.raises(StoreError) as raised:
            store.charge(self.KEYS, rules)
        assert raised.value.outage
        assert store.topology.doubts(Address(HOST, node.port))
        store.close()


class TestSeveralSlots:
    def test_all_are_charged_or_none(self, store: ClusterStore, cluster: RedisCluster) -> None:
        names = identifiers(cluster)
        limiter = limits.get_limiter()
        checks = [profile_check("three", name) for name in names]
        for left in (2, 1):
            decision = limiter.charge(limiter.windows(checks))
            assert (decision.allowed, decision.remaining) == (True, left)
        limits.check("three", names[1])
        decision = limiter.charge(limiter.windows(checks))
        assert not decision.allowed
        assert used("three", *names) == [2, 3, 2]
        assert [verdict.allowed for verdict in decision.verdicts] == [True, False, True]
        assert [verdict.remaining for verdict in decision.verdicts] == [1, 0, 1]
        assert decision.receipt is None

    def test_leased_windows_take_units_from_their_own_slots(
        self, store: ClusterStore, cluster: RedisCluster
    ) -> None:
        one, two, _ = identifiers(cluster)
        limiter = limits.get_limiter()
        windows = limiter.windows([profile_check("leased", one), profile_check("leased", two)])
        found = [limiter.charge(windows).source for _ in range(4)]
        assert found == ["redis", "redis", "lease", "lease"]
        refusal = [profile_check("leased", one), profile_check("three", two)._replace(cost=4)]
        assert not limiter.charge(limiter.windows(refusal)).allowed
        limiter.close()
        assert used("leased", one, two) == [4, 4]
        assert used("three", two) == [0]

    async def test_windows_beside_a_deferred_one_are_charged_in_their_own_slots(
        self, store: ClusterStore, cluster: RedisCluster
    ) -> None:
        one, two, three = identifiers(cluster)
        limiter = limits.get_limiter()
        later = replace(registry.get("few"), name="later", scope="later", mode="deferred")
        checks = [
            ProfileCheck(later, one, later.policies),
            profile_check("three", two),
            profile_check("three", three),
        ]
        found = [limiter.charge(limiter.windows(checks)) for _ in range(2)]
        found += [await limiter.acharge(limiter.windows(checks)) for _ in range(2)]
        assert [decision.allowed for decision in found] == [True] * 3 + [False]
        assert {decision.source for decision in found} == {decisions.REDIS}
        assert used("three", two, three) == [3, 3]

    def test_refused_check_shows_an_unused_window_as_unused(
        self, store: ClusterStore, cluster: RedisCluster
    ) -> None:
        one, two, _ = identifiers(cluster)
        for _ in range(3):
            limits.check("three", one)
        decision = limits.get_limiter().charge(
            limits.get_limiter().windows([profile_check("three", one), profile_check("three", two)])
        )
        untouched = decision.verdicts[1]
        assert (untouched.remaining, untouched.reset_after) == (3, 0.0)

    def test_refused_check_shows_what_is_left_in_the_slot_that_refuses(
        self, store: ClusterStore, cluster: RedisCluster
    ) -> None:
        one, two, _ = identifiers(cluster)
        for _ in range(3):
            limits.check("three", one)
        for name in (one, two):
            limits.check("few", name, cost=10)
        checks = [profile_check("three", one), profile_check("few", one), profile_check("few", two)]
        decision = limits.get_limiter().charge(
            limits.get_limiter().windows([one._replace(cost=2) for one in checks])
        )
        assert [verdict.remaining for verdict in decision.verdicts] == [0, LIMIT - 10, LIMIT - 10]

    async def test_refund_gives_back_in_all_slots(
        self, store: ClusterStore, cluster: RedisCluster
    ) -> None:
        names = identifiers(cluster)
        limiter = limits.get_limiter()
        decision = await limiter.acharge(
            limiter.windows([profile_check("three", name) for name in names])
        )
        assert used("three", *names) == [1, 1, 1]
        assert limiter.refund(decision) == 3
        assert used("three", *names) == [0, 0, 0]

    def test_peek_charges_nothing(self, store: ClusterStore, cluster: RedisCluster) -> None:
        names = identifiers(cluster)
        decision = limits.get_limiter().peek(
            limits.get_limiter().windows([profile_check("three", name) for name in names])
        )
        assert (decision.allowed, decision.remaining) == (True, 2)
        assert used("three", *names) == [0, 0, 0]

    def test_race_that_refuses_gives_back_what_was_charged(
        self, store: ClusterStore, cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = sorted(identifiers(cluster))
        ran = store.run_together

        def overtaken(calls: Any) -> Any:
            # Before the other slots are charged, other clients take the last hits of the second.
            if len(calls) == 2:
                monkeypatch.setattr(store, "run_together", ran)
                for _ in range(3):
                    limits.check("three", names[1])
            return ran(calls)

        monkeypatch.setattr(store, "run_together", overtaken)
        decision = limits.get_limiter().charge(
            limits.get_limiter().windows([profile_check("three", name) for name in names])
        )
        assert not decision.allowed
        assert decision.receipt is None
        assert used("three", *names) == [0, 3, 0]

    def test_call_that_fails_gives_back_what_was_charged(
        self, store: ClusterStore, cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = sorted(identifiers(cluster))
        ran = store.run_together

        def failing(calls: Any) -> Any:
            if len(calls) == 2 and isinstance(calls[1], Evaluate):
                # One of the last two nodes fails before it is charged.
                assert names[2] in calls[1].keys[0]
                return [*ran(calls[:1]), StoreError("it is away")]
            return ran(calls)

        monkeypatch.setattr(store, "run_together", failing)
        decision = limits.get_limiter().charge(
            limits.get_limiter().windows([profile_check("three", name) for name in names])
        )
        assert decision.source == decisions.LOCAL
        monkeypatch.undo()
        assert used("three", *names) == [0, 0, 0]

    @pytest.mark.parametrize("answered", [False, True], ids=["in flight", "answered"])
    @pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6])
    async def test_cancelled_check_gives_back_what_it_charged(
        self,
        store: ClusterStore,
        cluster: RedisCluster,
        monkeypatch: pytest.MonkeyPatch,
        number: int,
        answered: bool,
    ) -> None:
        """Three calls look and three calls charge. The check is cancelled in each of them."""
        names = sorted(identifiers(cluster))
        exchanged, sent = Server.aexchange, itertools.count(1)

        async def exchange(*arguments: Any) -> list[Any]:
            now = next(sent) == number
            if now and not answered:
                checking.cancel()
            replies = await exchanged(*arguments)
            if now and answered:
                checking.cancel()
            return replies

        monkeypatch.setattr(Server, "aexchange", exchange)
        flow = limits.get_limiter().acharge(
            limits.get_limiter().windows([profile_check("three", name) for name in names])
        )
        checking = asyncio.ensure_future(flow)
        with pytest.raises(asyncio.CancelledError):
            await checking
        assert used("three", *names) == [0, 0, 0]

    async def test_check_that_is_cancelled_twice_does_not_wait_for_a_node_that_hangs(
        self, store: ClusterStore, cluster: RedisCluster
    ) -> None:
        names = sorted(identifiers(cluster))
        limiter = limits.get_limiter()
        checks = [profile_check("three", name) for name in names]
        await limiter.acharge(limiter.windows(checks))
        with frozen(cluster.owner(slot_of(key("three", names[0])))):
            checking = asyncio.ensure_future(limiter.acharge(limiter.windows(checks)))
            for _ in range(2):
                await asyncio.sleep(0.05)
                checking.cancel()
            done, _ = await asyncio.wait({checking}, timeout=2.0)
            assert done, "the budget is 5 seconds"
        assert checking.cancelled()
        assert used("three", *names) == [1, 1, 1]

    def test_interrupted_check_gives_back_what_it_charged(
        self, store: ClusterStore, cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = sorted(identifiers(cluster))
        ran = store.run_together

        def interrupted(calls: Any) -> Any:
            if len(calls) == 2:
                # The first slot is charged. Signal handlers and gevent may raise at this point.
                raise SystemExit
            return ran(calls)

        monkeypatch.setattr(store, "run_together", interrupted)
        with pytest.raises(SystemExit):
            limits.get_limiter().charge(
                limits.get_limiter().windows([profile_check("three", name) for name in names])
            )
        assert used("three", *names) == [0, 0, 0]

    @pytest.mark.parametrize("kind", ["sync", "async"])
    def test_other_nodes_are_asked_when_one_node_hangs(
        self, store: ClusterStore, cluster: RedisCluster, kind: str
    ) -> None:
        names = identifiers(cluster)
        checks = [profile_check("three", name) for name in names]
        nodes = [cluster.owner(slot_of(key("three", name))) for name in names]
        limiter = limits.get_limiter()

        def check() -> Decision:
            return (
                limiter.charge(limiter.windows(checks))
                if kind == "sync"
                else asyncio.run(limiter.acharge(limiter.windows(checks)))
            )

        def asked(node: RedisServer) -> int:
            with node.client() as client:
                return client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]

        assert check().remaining == 2
        before = [asked(node) for node in nodes]
        with ThreadPoolExecutor(1) as threads:
            with frozen(nodes[0]):
                waiting = threads.submit(check)
                for node, count in zip(nodes[1:], before[1:], strict=True):
                    wait_until(lambda: asked(node) > count, "the node is asked")  # noqa: B023
                assert not waiting.done()
            decision = waiting.result()
        assert (decision.source, decision.remaining) == (decisions.REDIS, 1)

    def test_node_that_is_away_leaves_the_others_uncharged(
        self, use: Callable[..., ClusterStore], cluster: RedisCluster
    ) -> None:
        use(LATENCY_BUDGET=0.4)
        names = identifiers(cluster)
        limits.check("three", names[1])
        with frozen(cluster.owner(slot_of(key("three", names[0])))):
            decision = limits.get_limiter().charge(
                limits.get_limiter().windows([profile_check("three", name) for name in names])
            )
            assert decision.source == decisions.LOCAL
        assert used("three", *names[1:]) == [1, 0]

    def test_check_holds_no_connection_while_it_waits_for_another(
        self, settings: SettingsWrapper, cluster: RedisCluster
    ) -> None:
        pool = {"max_connections": 1}
        urls = [node.url for node in cluster.nodes[:3]]
        settings.CACHES = caches(urls, CONNECTION_POOL_KWARGS=pool)
        settings.SLIDING_WINDOW = {"PROFILES": PROFILES, "LATENCY_BUDGET": 20.0}
        names = identifiers(cluster)
        limiter = limits.get_limiter()

        def check(number: int) -> str:
            order = names if number % 2 else names[::-1]
            return limiter.charge(
                limiter.windows([profile_check("many", name) for name in order])
            ).source

        with ThreadPoolExecutor(8) as threads:
            assert set(threads.map(check, range(200))) == {decisions.REDIS}
        assert used("many", *names) == [200, 200, 200]

    def test_refusal_is_stored_only_where_its_own_policy_counts_it(
        self, store: ClusterStore, cluster: RedisCluster
    ) -> None:
        one, two, _ = identifiers(cluster)
        for _ in range(3):
            limits.check("three", one)
        limiter = limits.get_limiter()
        limiter.charge(
            limiter.windows([profile_check("three", one), profile_check("counting", two)])
        )
        assert used("counting", two) == [0], "refused by another policy"
        for _ in range(3):
            limits.check("counting", two)
        before = limits.peek("counting", two).retry_after
        decision = limiter.charge(
            limiter.windows([profile_check("three", one), profile_check("counting", two)])
        )
        assert not decision.allowed
        after = limits.peek("counting", two).retry_after
        assert before is not None
        assert after is not None
        assert after > before - 1, "the oldest hit made place for the refused one"
        assert used("counting", two) == [3]

    def test_penalty_counts_refusals_and_blocks_across_slots(
        self, store: ClusterStore, cluster: RedisCluster
    ) -> None:
        one, two, _ = identifiers(cluster)
        limiter = limits.get_limiter()
        windows = limiter.windows([profile_check("three", one), profile_check("penalized", two)])
        decided = [limiter.charge(windows)]
        for _ in range(3):
            limiter.shield.clear()
            decided.append(limiter.charge(windows))
        assert [each.reason for each in decided] == ["allowed", "limit", "limit", "penalty"]
        assert used("three", one) == [1]
        assert limits.check("penalized", two).reason == decisions.PENALTY
        assert limits.check("penalized", one).allowed
        assert limits.reset("penalized", two) == 2
        assert asyncio.run(limiter.acharge(windows)).allowed

    def test_observing_profile_in_another_slot_vetoes_nothing(
        self, store: ClusterStore, cluster: RedisCluster
    ) -> None:
        one, two, _ = identifiers(cluster)
        for _ in range(4):
            limits.check("observing", one)
        decision = limits.get_limiter().charge(
            limits.get_limiter().windows(
                [profile_check("observing", one), profile_check("three", two)]
            )
        )
        assert decision.allowed
        assert decision.reason == decisions.OBSERVED
        assert used("three", two) == [1]


class TestOneShard:
    """A cluster of one node: all slots fail and recover together."""

    def test_check_of_several_slots_reaches_the_node_again(self, settings: SettingsWrapper) -> None:
        with RedisServer("cluster-enabled yes") as node, node.client() as client:
            client.execute_command("CLUSTER ADDSLOTS", *range(SLOTS))
            wait_until(lambda: client.cluster("info")["cluster_state"] == "ok", "it serves all")
            settings.CACHES = caches(node.url)
            settings.SLIDING_WINDOW = {"PROFILES": PROFILES, "LATENCY_BUDGET": 0.3}
            limiter = limits.get_limiter()
            checks = [profile_check("many", name) for name in ("a", "b", "c")]
            assert limiter.charge(limiter.windows(checks)).source == decisions.REDIS
            with frozen(node):
                wait_until(
                    lambda: (
                        limiter.charge(limiter.windows(checks)).source == decisions.LOCAL
                        and limiter.breaker.state != CLOSED
                    ),
                    "its breaker opens",
                )
            wait_until(
                lambda: limiter.charge(limiter.windows(checks)).source == decisions.REDIS,
                "it is asked again",
            )
            assert limiter.breaker.state == CLOSED


@pytest.fixture(scope="module")
def contenders(_running_cluster: RedisCluster) -> Iterator[Contenders]:
    options = {"PROFILES": PROFILES, "LATENCY_BUDGET": 20.0, "SHIELD_SECONDS": 0}
    urls = [node.url for node in _running_cluster.nodes[:3]]
    with Contenders(8, caches(urls), options) as contenders:
        yield contenders


class TestContention:
    def test_eight_processes_are_admitted_exactly_the_limit(
        self, contenders: Contenders, store: ClusterStore
    ) -> None:
        answers = contenders.check([("few", "k")], 20)
        assert answers == {"redis True": LIMIT, "redis False": 160 - LIMIT}
        assert used("few", "k") == [LIMIT]

    def test_several_slots_are_all_or_nothing_after_the_dust_settles(
        self, contenders: Contenders, store: ClusterStore, cluster: RedisCluster
    ) -> None:
        names = identifiers(cluster)
        answers = contenders.check([("few", name) for name in names], 20)
        admitted = answers["redis True"]
        assert set(answers) == {"redis True", "redis False"}
        assert used("few", *names) == [admitted] * 3
        # A race may refuse needlessly, but never admits too many.
        assert LIMIT // 2 < admitted <= LIMIT

    def test_eight_processes_are_blocked_after_exactly_the_tolerated_refusals(
        self, contenders: Contenders, store: ClusterStore, cluster: RedisCluster
    ) -> None:
        one, two, _ = identifiers(cluster)
        # Alone, and with a window on another node. The clock of all nodes is fixed.
        for asked in ([("penalized", one)], [("many", one), ("penalized", two)]):
            answers = by_reason(contenders.reasons(asked, 20, START))
            assert answers == {"allowed": 1, "limit": 2, "penalty": 157}
            for left in (3_600 * SECOND, 1):
                seen = contenders.reasons(asked, 1, START + 3_600 * SECOND - left)
                assert seen == [{("penalty", left / SECOND): 1}] * 8
            ended = contenders.reasons(asked, 1, START + 3_600 * SECOND)
            assert by_reason(ended)["allowed"] == 1

    def test_slot_migrated_under_load_loses_and_doubles_nothing(
        self, store: ClusterStore, cluster: RedisCluster
    ) -> None:
        slot = slot_of(key("many", "moving"))
        source = cluster.owner(slot)
        target = next(node for node in cluster.nodes[:3] if node is not source)
        with Load("many", "moving") as load:
            for giver, taker in ((source, target), (target, source)):
                load.go_on(20)
                migration = cluster.migrate(slot, taker)
                load.go_on(20)
                migration.move_keys()
                load.go_on(20)
                migration.finish()
                load.go_on(20)
                assert cluster.owner(slot) is not giver
        assert load.sources == {decisions.REDIS}
        assert used("many", "moving") == [len(load.answers)]

    async def test_windows_that_a_move_has_split_are_tried_again_for_a_while(
        self, store: ClusterStore, cluster: RedisCluster
    ) -> None:
        assert limits.check("double", "moving").source == decisions.REDIS
        slot = slot_of(key("double", "moving"))
        source = cluster.owner(slot)
        target = next(node for node in cluster.nodes[:3] if node is not source)
        migration = cluster.migrate(slot, target)
        assert migration.move_keys(1) == 1
        assert limits.check("double", "moving").source == decisions.LOCAL
        assert (await limits.acheck("double", "moving")).source == decisions.LOCAL
        assert limits.get_limiter().breaker.state == CLOSED, "the others are served"
        timer = threading.Timer(0.02, migration.move_keys)
        timer.start()
        assert limits.check("double", "moving").remaining == 3
        timer.join()
        migration.finish()
        assert (await limits.acheck("double", "moving")).remaining == 2
        cluster.migrate(slot, source).finish()


class TestFailover:
    def test_primary_killed_under_load_is_replaced_by_its_replica(
        self, settings: SettingsWrapper
    ) -> None:
        with RunningCluster() as cluster:
            settings.CACHES = caches([node.url for node in cluster.nodes])
            settings.SLIDING_WINDOW = {
                "PROFILES": PROFILES,
                "FALLBACK": "deny",
                "SHIELD_SECONDS": 0,
            }
            doomed, other, _ = identifiers(cluster)
            old = cluster.owner(slot_of(key("many", doomed)))
            limiter = limits.get_limiter()
            with Load("many", doomed) as load:
                load.go_on(30)
                old.kill()
                for _ in range(5):
                    assert limits.check("many", other).source == decisions.REDIS
                wait_until(
                    lambda: limiter.breaker.of(f"{HOST}:{old.port}").state != CLOSED,
                    "the breaker of that node has opened",
                )
                assert limits.check("many", other).source == decisions.REDIS
                assert limits.check("many", doomed).source == decisions.DENY
                wait_until(lambda: load.answers[-1].source == decisions.REDIS, "its replica serves")
                load.go_on(10)
                assert load.sources == {decisions.REDIS, decisions.DENY}
            assert limiter.breaker.state == CLOSED
            new = cluster.owner(slot_of(key("many", doomed)))
            assert new is not old
            assert limiter.store.node(key("many", doomed)) == f"{HOST}:{new.port}"
            admitted = load.admitted
            # For each caller, one acknowledged hit may be missing on the replica.
            assert abs(admitted - used("many", doomed)[0]) <= load.callers + 1


class TestSlots:
    """Requests in flight in a cluster: a release frees exactly the slots that were taken."""

    @pytest.mark.parametrize("asynchronous", [False, True])
    def test_profiles_in_several_slots_are_taken_together(
        self, store: ClusterStore, cluster: RedisCluster, asynchronous: bool
    ) -> None:
        limiter, names = limits.get_limiter(), identifiers(cluster)
        windows = limiter.windows([profile_check("slots", name) for name in names])

        def charge() -> Decision:
            if asynchronous:
                return asyncio.run(limiter.acharge(windows))
            return limiter.charge(windows)

        def left() -> list[int]:
            return [limits.peek("slots", name, 0).remaining for name in names]

        first, second = charge(), charge()
        assert (first.allowed, second.allowed, left()) == (True, True, [0, 0, 0])
        assert limiter.release(first) == 3
        assert left() == [1, 1, 1]
        other = limits.check("slots", names[1])
        # One profile refuses, so no slot is taken, and no slot of another request is freed.
        assert not charge().allowed
        assert left() == [1, 0, 1]
        assert limiter.release(second) == 3
        assert limits.refund(other) == 1
        assert left() == [2, 2, 2]

    def test_race_that_is_lost_gives_back_its_own_slots(
        self, store: ClusterStore, cluster: RedisCluster
    ) -> None:
        limiter, names = limits.get_limiter(), identifiers(cluster)
        windows = limiter.windows([profile_check("slots", name) for name in names])

        def contend(_: int) -> None:
            for _round in range(30):
                decision = limiter.charge(windows)
                assert decision.source == "redis"
                limiter.release(decision)

        with ThreadPoolExecutor(6) as threads:
            list(threads.map(contend, range(6)))
        assert [limits.peek("slots", name, 0).remaining for name in names] == [2, 2, 2]
