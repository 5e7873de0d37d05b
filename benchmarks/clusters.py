"""A Redis Cluster of three nodes, measured as one server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .server import HOST, Server, running

_NODES, _SLOTS = 3, 16_384


class ClusterServer(Server):
    """All nodes of a cluster, measured as one server."""

    def __init__(self, nodes: list[Server]) -> None:
        super().__init__(nodes[0].url)
        self.nodes = nodes
        self.pids = [node.pid for node in nodes]

    def cpu(self) -> float:
        return sum(node.cpu() for node in self.nodes)

    def flush(self) -> None:
        for node in self.nodes:
            node.flush()

    def scripts(self) -> int:
        """Return how many script calls the nodes have run so far."""
        stats = [node.client.info("commandstats") for node in self.nodes]
        return sum(int(one.get("cmdstat_evalsha", {}).get("calls", 0)) for one in stats)


@contextmanager
def running_cluster(folder: Path) -> Iterator[ClusterServer]:
    """Run an empty cluster that keeps its files in the folder."""
    with ExitStack() as stack:
        nodes = []
        for number in range(_NODES):
            home = folder / str(number)
            home.mkdir()
            nodes.append(stack.enter_context(running(home, "--cluster-enabled", "yes")))
        for number, node in enumerate(nodes):
            first, last = _SLOTS * number // _NODES, _SLOTS * (number + 1) // _NODES
            node.client.execute_command("CLUSTER ADDSLOTS", *range(first, last))
            node.client.execute_command("CLUSTER MEET", HOST, nodes[0].port)
        _wait_for(nodes)
        cluster = ClusterServer(nodes)
        stack.callback(cluster.client.close)
        yield cluster


def _wait_for(nodes: list[Server]) -> None:
    """Wait until each node sees the whole cluster."""
    deadline = time.monotonic() + 30
    for node in nodes:
        while node.client.execute_command("CLUSTER INFO")["cluster_state"] != "ok":
            if time.monotonic() > deadline:
                raise RuntimeError("the nodes do not form a cluster")
            time.sleep(0.05)
