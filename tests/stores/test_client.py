"""TRANSPORT "client": all commands go through django-redis's client."""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django_redis import get_redis_connection
from redis import Redis
from redis.cluster import RedisCluster as RedisClusterClient
from redis.exceptions import RedisClusterException

from django_slidingwindow import decisions, limits
from django_slidingwindow.core.windows import ProfileCheck
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.policies import Policy
from django_slidingwindow.registry import registry
from django_slidingwindow.stores.client import ClientStore, ClusterClientStore, arguments
from django_slidingwindow.stores.commands import pack
from django_slidingwindow.stores.factory import store_of
from django_slidingwindow.stores.net.routing import slot_of
from django_slidingwindow.stores.protocol import Evaluate, Reset, WindowRule, WindowRules
from tests.support.redis_failures import frozen
from tests.support.servers.redis import HOST, free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django.fixtures import SettingsWrapper

    from tests.support.servers import RedisCluster, RedisServer

BACKEND = "django_redis.cache.RedisCache"
FACTORY = "django_slidingwindow.cluster.ClusterConnectionFactory"
LIMIT = 50
PROFILES = {"few": {"axis": "tenant", "limit": LIMIT, "window": 3600}}
TRACE: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="")


def key(identifier: str) -> str:
    return f"throttle:tenant:{{{identifier}}}:few:c3600"


def rules() -> WindowRules:
    return WindowRules([WindowRule(Policy(limit=LIMIT, window=3600), 1)])


def configure(settings: SettingsWrapper, location: Any, **options: Any) -> None:
    cache = {"BACKEND": BACKEND, "LOCATION": location, "OPTIONS": options}
    settings.CACHES = {"default": cache}
    settings.SLIDING_WINDOW = {
        "PROFILES": PROFILES, "TRANSPORT": "client", "LATENCY_BUDGET": 30.0,
    }  # fmt: skip


class Seen:
    """A mixin that notes the name of each command, and the trace in which it was sent."""

    commands: list[tuple[str, str]]

    def execute_command(self, *args: Any, **options: Any) -> Any:
        Seen.commands.append((args[0], TRACE.get()))
        return super().execute_command(*args, **options)  # type: ignore[misc]


class HookedClient(Seen, Redis):
    pass


class HookedCluster(Seen, RedisClusterClient):
    pass


class FailingClient(Redis):
    def execute_command(self, *args: Any, **options: Any) -> Any:
        raise LookupError("a mistake in a hook")


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    Seen.commands = []


@pytest.fixture
def store(redis: Redis) -> ClientStore:
    return ClientStore("default", budget=30.0)


class TestHooks:
    @pytest.fixture(autouse=True)
    def _hooked(self, redis: Redis, settings: SettingsWrapper, redis_server: RedisServer) -> None:
        configure(settings, redis_server.url, REDIS_CLIENT_CLASS=f"{__name__}.HookedClient")
        redis.script_flush()

    def test_client_class_sees_the_script_loaded_and_called(self) -> None:
        TRACE.set("one")
        assert limits.check("few", "acme").remaining == LIMIT - 1
        assert limits.check("few", "acme").remaining == LIMIT - 2
        names = ["EVALSHA", "SCRIPT LOAD", "EVALSHA", "EVALSHA"]
        assert Seen.commands == [(name, "one") for name in names]

    async def test_client_class_sees_the_same_in_the_context_of_a_task(self) -> None:
        TRACE.set("two")
        assert (await limits.acheck("few", "acme")).remaining == LIMIT - 1
        assert (await limits.acheck("few", "acme")).remaining == LIMIT - 2
        names = ["EVALSHA", "SCRIPT LOAD", "EVALSHA", "EVALSHA"]
        assert Seen.commands == [(name, "two") for name in names]

    async def test_refunds_and_resets_go_the_same_way(self) -> None:
        assert limits.refund(limits.check("few", "acme")) == 1
        assert await limits.arefund(await limits.acheck("few", "acme")) == 1
        limits.reset("few", "acme")
        assert {name for name, _ in Seen.commands} == {"EVALSHA", "SCRIPT LOAD", "UNLINK"}


async def test_error_of_a_hook_is_a_store_error(
    redis_server: RedisServer, settings: SettingsWrapper
) -> None:
    configure(settings, redis_server.url, REDIS_CLIENT_CLASS=f"{__name__}.FailingClient")
    store = ClientStore("default")
    with pytest.raises(StoreError, match="a mistake in a hook") as raised:
        store.charge((key("acme"),), rules())
    assert not raised.value.outage
    with pytest.raises(StoreError, match="a mistake in a hook"):
        await store.acharge((key("acme"),), rules())
    assert limits.check("few", "acme").source == decisions.LOCAL


async def test_alias_that_decodes_replies_can_be_used(
    redis: Redis, redis_server: RedisServer, settings: SettingsWrapper
) -> None:
    decoding = {"decode_responses": True}
    # A URL that no other test uses, because django-redis keeps a pool for each URL.
    configure(settings, f"{redis_server.url}?client_name=x", CONNECTION_POOL_KWARGS=decoding)
    assert get_redis_connection("default").set("a", 1)
    assert limits.check("few", "acme").remaining == LIMIT - 1
    assert (await limits.acheck("few", "acme")).remaining == LIMIT - 2
    store = limits.get_limiter().store
    assert isinstance(store, ClientStore)
    assert store.scan("0", "throttle:*", 100) == ("0", [key("acme")])


async def test_error_of_the_script_is_not_an_outage(store: ClientStore, redis: Redis) -> None:
    redis.rpush(key("acme"), "spoiled")
    with pytest.raises(StoreError, match="WRONGTYPE") as one:
        store.charge((key("acme"),), rules())
    with pytest.raises(StoreError, match="WRONGTYPE") as two:
        await store.acharge((key("acme"),), rules())
    assert not one.value.outage
    assert not two.value.outage


async def test_error_names_an_alias_that_cannot_be_used() -> None:
    store = ClientStore("nowhere")
    with pytest.raises(ImproperlyConfigured, match="nowhere"):
        store.charge((key("acme"),), rules())
    with pytest.raises(ImproperlyConfigured, match="nowhere"):
        await store.acharge((key("acme"),), rules())
    with pytest.raises(ImproperlyConfigured, match="nowhere"):
        store.scan("0", "*", 10)


async def test_command_is_not_sent_after_the_time_limit(redis: Redis) -> None:
    late = ClientStore("default", budget=-1.0)
    with pytest.raises(StoreError, match="time limit has passed") as one:
        late.charge((key("acme"),), rules())
    with pytest.raises(StoreError, match="no reply within the time limit") as two:
        await late.acharge((key("acme"),), rules())
    assert one.value.outage
    assert two.value.outage
    assert not redis.exists(key("acme"))


async def test_server_that_hangs_is_an_outage_and_is_asked_once(
    fresh_server: RedisServer, settings: SettingsWrapper
) -> None:
    """Without a budget, the alias's own time-out ends the call."""
    configure(settings, fresh_server.url, SOCKET_TIMEOUT=0.3)
    store = ClientStore("default")
    assert store.charge((key("acme"),), rules()).remaining == (LIMIT - 1,)
    with frozen(fresh_server):
        with pytest.raises(StoreError) as one:
            store.charge((key("acme"),), rules())
        with pytest.raises(StoreError) as two:
            await store.acharge((key("acme"),), rules())
    assert one.value.outage
    assert two.value.outage
    # Only the first call was sent: the second one could not log in.
    look = Evaluate((key("acme"),), (WindowRule(rules()[0].policy, 0),), False)
    wait_until(lambda: store.run(look).remaining < (LIMIT - 1,), "it has run what it was sent")
    assert store.charge((key("acme"),), rules()).remaining == (LIMIT - 3,)


async def test_event_loop_waits_no_longer_than_the_budget(
    fresh_server: RedisServer, settings: SettingsWrapper
) -> None:
    configure(settings, fresh_server.url, SOCKET_TIMEOUT=60)
    await ClientStore("default").acharge((key("acme"),), rules())
    store = ClientStore("default", budget=0.2)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.ensure_future(tick())
    with frozen(fresh_server), pytest.raises(StoreError, match="time limit") as raised:
        await store.acharge((key("acme"),), rules())
    ticking.cancel()
    assert raised.value.outage
    assert ticks


def test_keys_can_be_scanned_and_reset(store: ClientStore) -> None:
    call = Evaluate((key("acme"),), tuple(rules()), True)
    assert [reply.remaining for reply in store.run_many([call] * 2)] == [(49,), (48,)]
    assert store.scan("0", "throttle:*", 100) == ("0", [key("acme")])
    with pytest.raises(StoreError, match="invalid cursor"):
        store.scan("nonsense", "*", 10)
    assert store.client() is get_redis_connection("default")
    assert store.run(Reset((key("acme"),))) == [1]


def test_one_server_is_one_node(store: ClientStore) -> None:
    assert store.groups((key("a"), key("b"))) is None
    assert (store.node(key("a")), store.nodes()) == ("", [""])
    store.charge((key("a"),), rules())
    store.close()
    assert store.charge((key("a"),), rules()).remaining == (LIMIT - 2,)


def test_packed_command_is_taken_apart() -> None:
    assert arguments(pack(b"UNLINK", b"a\r\n$1\r\n", b"")) == ("UNLINK", b"a\r\n$1\r\n", b"")
    assert arguments(pack(b"SCRIPT", b"LOAD", b"return 1")) == ("SCRIPT LOAD", b"return 1")


class TestCluster:
    @pytest.fixture(params=[30.0])
    def store(
        self, cluster: RedisCluster, settings: SettingsWrapper, request: pytest.FixtureRequest
    ) -> Iterator[ClusterClientStore]:
        """Return the store of the cluster. The parameter is the alias's time-out."""
        options = {
            "CONNECTION_FACTORY": FACTORY,
            "REDIS_CLIENT_CLASS": f"{__name__}.HookedCluster",
            "SOCKET_TIMEOUT": request.param,
        }
        configure(settings, [node.url for node in cluster.nodes[:3]], **options)
        store = limits.get_limiter().store
        assert isinstance(store, ClusterClientStore)
        yield store
        store.client().close()
        cluster.wait_until_ok()

    def names(self, cluster: RedisCluster) -> list[str]:
        """Return three identifiers, whose windows are on the three primaries."""
        found: dict[int, str] = {}
        for number in range(1000):
            found.setdefault(cluster.owner(slot_of(key(f"t{number}"))).port, f"t{number}")
        return list(found.values())

    def used(self, *names: str) -> list[int]:
        return [LIMIT - limits.peek("few", name, cost=0).remaining for name in names]

    async def test_windows_are_found_on_all_nodes(
        self, store: ClusterClientStore, cluster: RedisCluster
    ) -> None:
        for node in cluster.nodes:
            with node.client() as client:
                client.script_flush()
        names = self.names(cluster)
        for name in names:
            assert limits.check("few", name).remaining == LIMIT - 1
            assert (await limits.acheck("few", name)).remaining == LIMIT - 2
        # The script was loaded once into each node.
        assert [name for name, _ in Seen.commands].count("SCRIPT LOAD") == 3

    async def test_several_slots_are_charged_all_or_none(
        self, store: ClusterClientStore, cluster: RedisCluster
    ) -> None:
        names = self.names(cluster)
        limiter, profile = limits.get_limiter(), registry.get("few")
        windows = limiter.windows([ProfileCheck(profile, name, profile.policies) for name in names])
        assert limiter.charge(windows).remaining == LIMIT - 1
        assert (await limiter.acharge(windows)).remaining == LIMIT - 2
        limits.check("few", names[1], cost=LIMIT - 2)
        assert not limiter.charge(windows).allowed
        assert not (await limiter.acharge(windows)).allowed
        assert self.used(*names) == [2, LIMIT, 2]

    @pytest.mark.parametrize("store", [0.5], indirect=True)
    async def test_node_that_hangs_is_an_outage_of_its_own(
        self, store: ClusterClientStore, cluster: RedisCluster
    ) -> None:
        one, two, _ = self.names(cluster)
        calls = [Evaluate((key(name),), tuple(rules()), True) for name in (one, two)]
        assert [answer.admitted for answer in store.run_together(calls)] == [1, 1]
        for kind in ("sync", "async"):
            # For less time than the cluster needs to choose another primary.
            with frozen(cluster.owner(slot_of(key(two)))):
                if kind == "sync":
                    answers = store.run_together(calls)
                else:
                    answers = await store.arun_together(calls)
            cluster.wait_until_ok()
            assert answers[0].admitted
            assert isinstance(answers[1], StoreError)
            assert answers[1].outage

    def test_slot_that_has_moved_is_found(
        self, store: ClusterClientStore, cluster: RedisCluster
    ) -> None:
        # No other test uses this identifier, because its slot stays on the other node.
        keys = (key("moving by the client"),)
        assert store.charge(keys, rules()).remaining == (LIMIT - 1,)
        home = cluster.owner(slot_of(keys[0]))
        owners = [cluster.owner(slot_of(key(name))) for name in self.names(cluster)]
        away = next(node for node in owners if node is not home)
        with away.client() as client:
            client.script_flush()
        moving = cluster.migrate(slot_of(keys[0]), away)
        moving.move_keys()
        # ASK leads to a node without the script, so the call is sent with the source.
        assert store.charge(keys, rules()).remaining == (LIMIT - 2,)
        moving.finish()
        assert store.charge(keys, rules()).remaining == (LIMIT - 3,)

    def test_keys_of_one_slot_go_together(self, store: ClusterClientStore) -> None:
        assert store.groups((key("a"), key("a"))) is None
        assert store.groups((key("a"), key("b"), key("a"))) == [[0, 2], [1]]

    def test_node_of_a_key_is_the_address_of_its_primary(
        self, store: ClusterClientStore, cluster: RedisCluster
    ) -> None:
        assert (store.node(key("a")), store.nodes()) == ("", [""])
        limits.check("few", "a")
        assert store.node(key("a")) == f"{HOST}:{cluster.owner(slot_of(key('a'))).port}"
        assert len(store.nodes()) == 3

    def test_slot_without_a_node_is_an_outage(
        self, store: ClusterClientStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = store.client()
        monkeypatch.setattr(client.nodes_manager, "slots_cache", {})
        assert store.node(key("a")) == ""

        def uncovered(*args: Any, **options: Any) -> Any:
            raise RedisClusterException("no node has the slot")

        monkeypatch.setattr(client, "execute_command", uncovered)
        with pytest.raises(StoreError, match="no node has the slot") as raised:
            store.charge((key("a"),), rules())
        assert raised.value.outage

    def test_all_primaries_are_scanned(
        self, store: ClusterClientStore, cluster: RedisCluster
    ) -> None:
        names = [f"t{number}" for number in range(40)]
        for name in names:
            limits.check("few", name)
        found: list[str] = []
        cursor, steps = "0", 0
        while steps == 0 or cursor != "0":
            cursor, keys = store.scan(cursor, "throttle:*", 5)
            found += keys
            steps += 1
        assert sorted(found) == sorted(map(key, names))
        assert steps > 3
        first, second, _ = sorted(store.nodes())
        assert store.scan("0.0.0.0:1/17", "*", 1000)[0] == f"{second}/0"
        assert store.scan("999.0.0.1:1/17", "*", 10) == ("0", [])
        with pytest.raises(StoreError, match="invalid cursor"):
            store.scan(f"{first}/nonsense", "*", 10)

    async def test_cluster_that_is_away_is_an_outage(self, settings: SettingsWrapper) -> None:
        configure(settings, f"redis://{HOST}:{free_port()}/0", CONNECTION_FACTORY=FACTORY)
        store = store_of("default", transport="client", budget=10.0)
        assert isinstance(store, ClusterClientStore)
        with pytest.raises(StoreError) as one:
            store.charge((key("a"),), rules())
        with pytest.raises(StoreError) as two:
            await store.acharge((key("a"),), rules())
        assert one.value.outage
        assert two.value.outage
        assert limits.check("few", "a").source == decisions.LOCAL

    def test_error_names_a_wrong_address_of_a_cluster(self, settings: SettingsWrapper) -> None:
        configure(settings, "redis://node:7000/1", CONNECTION_FACTORY=FACTORY)
        store = store_of("default", transport="client")
        with pytest.raises(ImproperlyConfigured, match="one database"):
            store.charge((key("a"),), rules())
