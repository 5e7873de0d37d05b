"""A Redis Cluster of three primaries, each with a replica."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import redis

from .redis import HOST, RedisServer, wait_until

if TYPE_CHECKING:
    from typing_extensions import Self

SLOTS = 16_384


class RedisCluster:
    """Six nodes; `nodes[:3]` begin as primaries, `nodes[3:]` as their replicas."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self.nodes: list[RedisServer] = []

    @property
    def url(self) -> str:
        """The address of one node. Clients discover the others."""
        return self.nodes[0].url

    def client(self, **options: Any) -> redis.RedisCluster:
        """Return a new cluster client. The caller closes it."""
        options.setdefault("decode_responses", True)
        return redis.RedisCluster.from_url(self.url, **options)

    def owner(self, slot: int) -> RedisServer:
        """Return the primary that serves `slot` now."""
        for node in self.nodes:
            with contextlib.suppress(redis.ConnectionError), node.client() as client:
                for first, last, port in _slots(client):
                    if first <= slot <= last:
                        return next(n for n in self.nodes if n.port == port)
        raise LookupError(f"no node serves slot {slot}")

    def migrate(self, slot: int, target: RedisServer) -> SlotMigration:
        """Begin to move `slot`. Until `finish()`, its keys may be on either node."""
        return SlotMigration(self, slot, self.owner(slot), target)

    def flush(self) -> None:
        for node in self.nodes:
            # A replica is emptied through its primary.
            with contextlib.suppress(redis.ReadOnlyError), node.client() as client:
                client.flushall()

    def start(self) -> Self:
        try:
            self._build()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        self._stack.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait_until_ok(self) -> None:
        """Wait until every node sees all slots served."""
        for node in self.nodes:
            with node.client() as client:
                wait_until(
                    lambda c=client: _info(c)["cluster_state"] == "ok",  # type: ignore[misc]
                    f"the node on port {node.port} sees a whole cluster",
                )

    def _build(self) -> None:
        for _ in range(6):
            node = RedisServer("cluster-enabled yes", "cluster-node-timeout 1000")
            self.nodes.append(self._stack.enter_context(node))
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(node.client()) for node in self.nodes]
            for number, client in enumerate(clients):
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
                client.execute_command("CLUSTER MEET", HOST, self.nodes[0].port)
            for number, client in enumerate(clients[:3]):
                slots = range(SLOTS * number // 3, SLOTS * (number + 1) // 3)
                client.execute_command("CLUSTER ADDSLOTS", *slots)
            for client in clients:
                wait_until(
                    lambda c=client: _info(c)["cluster_known_nodes"] == "6",  # type: ignore[misc]
                    "the nodes know one another",
                )
            for client, primary in zip(clients[3:], clients[:3], strict=True):
                _replicate(client, node_id(primary))
        self.wait_until_ok()


class SlotMigration:
    """The migration of a slot, begun on creation. Call `move_keys()`, then `finish()`."""

    def __init__(
        self, cluster: RedisCluster, slot: int, source: RedisServer, target: RedisServer
    ) -> None:
        self.cluster = cluster
        self.slot = slot
        self.source = source
        self.target = target
        with source.client() as giver, target.client() as taker:
            self.source_id, self.target_id = node_id(giver), node_id(taker)
            _set_slot(taker, slot, "IMPORTING", self.source_id)
            _set_slot(giver, slot, "MIGRATING", self.target_id)

    def move_keys(self, count: int = 1_000_000) -> int:
        """Move up to `count` keys, and return how many were moved."""
        with self.source.client() as giver:
            query = ("CLUSTER GETKEYSINSLOT", self.slot, count)
            keys = giver.execute_command(*query)
            if keys:
                address = (HOST, self.target.port)
                giver.execute_command("MIGRATE", *address, "", 0, 5000, "KEYS", *keys)
        return len(keys)

    def finish(self) -> None:
        """Move the remaining keys, and assign the slot to its new primary."""
        self.move_keys()
        for node in (self.target, self.source):
            with node.client() as client:
                _set_slot(client, self.slot, "NODE", self.target_id)
        wait_until(
            lambda: self.cluster.owner(self.slot) is self.target,
            f"slot {self.slot} is served by its new primary",
        )
        self.cluster.wait_until_ok()


def node_id(client: redis.Redis) -> str:
    return str(client.execute_command("CLUSTER MYID"))


def _set_slot(client: redis.Redis, slot: int, state: str, node: str) -> None:
    client.execute_command("CLUSTER SETSLOT", slot, state, node)


def _info(client: redis.Redis) -> dict[str, str]:
    reply: dict[str, str] = client.execute_command("CLUSTER INFO")
    return reply


def _replicate(replica: redis.Redis, primary: str) -> None:
    def accepted() -> bool:
        # Redis refuses this until the node has learned about the primary by gossip.
        return bool(replica.execute_command("CLUSTER REPLICATE", primary))

    wait_until(accepted, "the replica knows its primary")
    wait_until(
        lambda: replica.info("replication")["master_link_status"] == "up",
        "the replica follows",
    )


def _slots(client: redis.Redis) -> list[tuple[int, int, int]]:
    """Return the ranges of slots as (first, last, port of the primary)."""
    # As two words: redis-py parses the reply of "CLUSTER SLOTS" differently between versions.
    reply = client.execute_command("CLUSTER", "SLOTS")
    return [(first, last, primary[1]) for first, last, primary, *_ in reply]
