"""Failures of a Redis server, as context managers that repair the server at their end."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

import redis

from tests.support.servers.redis import HOST, RedisServer, free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Failure = Callable[[RedisServer], contextlib.AbstractContextManager[None]]


@contextlib.contextmanager
def killed(server: RedisServer) -> Iterator[None]:
    server.kill()
    yield
    server.start()


@contextlib.contextmanager
def frozen(server: RedisServer) -> Iterator[None]:
    server.freeze()
    yield
    server.thaw()


@contextlib.contextmanager
def paused(server: RedisServer) -> Iterator[None]:
    """CLIENT PAUSE. It ends after its time, because CLIENT UNPAUSE would have to wait as well."""
    with server.client() as client:
        client.client_pause(1500)
        yield
        client.ping()


@contextlib.contextmanager
def silent(server: RedisServer) -> Iterator[None]:
    """Another program listens at the server's address, accepts connections and never replies."""
    server.kill()
    with listening(server.port):
        yield
    server.start()


@contextlib.contextmanager
def dripping(server: RedisServer) -> Iterator[None]:
    """Another program listens at the server's address and replies one byte at a time."""
    server.kill()
    with listening(server.port, drip=b"*7\r\n" + b":1\r\n" * 7):
        yield
    server.start()


@contextlib.contextmanager
def out_of_memory(server: RedisServer) -> Iterator[None]:
    with server.client() as client:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", "1")
        yield
        client.config_set("maxmemory", "0")


@contextlib.contextmanager
def forbidden(server: RedisServer) -> Iterator[None]:
    """An ACL without the commands that run scripts."""
    with server.client() as client:
        client.acl_setuser("default", enabled=True, commands=["-evalsha", "-eval"])
        yield
        client.acl_setuser("default", enabled=True, commands=["+evalsha", "+eval"])


@contextlib.contextmanager
def read_only(server: RedisServer) -> Iterator[None]:
    """The server has become a replica of a primary that does not exist."""
    with server.client() as client:
        client.execute_command("REPLICAOF", HOST, free_port())
        yield
        client.execute_command("REPLICAOF", "NO", "ONE")


@contextlib.contextmanager
def without_replicas(server: RedisServer) -> Iterator[None]:
    """The server refuses writes because it has no replica."""
    with server.client() as client:
        client.config_set("min-replicas-to-write", "1")
        yield
        client.config_set("min-replicas-to-write", "0")


@contextlib.contextmanager
def cut_off(server: RedisServer) -> Iterator[None]:
    """The server has become a replica that replies MASTERDOWN without its primary."""
    with server.client() as client:
        client.config_set("replica-serve-stale-data", "no")
        client.execute_command("REPLICAOF", HOST, free_port())
        yield
        client.execute_command("REPLICAOF", "NO", "ONE")
        client.config_set("replica-serve-stale-data", "yes")


@contextlib.contextmanager
def busy(server: RedisServer) -> Iterator[None]:
    """A script of another client never ends."""
    with server.client() as client, server.client(socket_timeout=30) as other:
        # Redis 7 calls it busy-reply-threshold, and accepts the old name as well.
        client.config_set("lua-time-limit", "10")

        def run() -> None:
            with contextlib.suppress(redis.RedisError):
                other.eval("while true do end", 0)

        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: _is_busy(client), "the script runs")
        yield
        client.script_kill()
        thread.join()


def _is_busy(client: redis.Redis) -> bool:
    try:
        client.get("any")
    except redis.ResponseError as error:
        return "BUSY" in str(error)
    return False


FAILURES: dict[str, Failure] = {
    failure.__name__: failure
    for failure in (
        *(killed, frozen, paused, silent, dripping, out_of_memory, forbidden),
        *(read_only, without_replicas, cut_off, busy),
    )
}


@contextlib.contextmanager
def listening(port: int = 0, *, drip: bytes = b"", pause: float = 0.03) -> Iterator[int]:
    """Listen on a port: accept connections and send nothing, or the bytes of `drip` one by one."""
    server = socket.create_server((HOST, port))
    server.settimeout(0.05)
    ended = threading.Event()
    accepted: list[socket.socket] = []

    def serve(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while drip and not ended.is_set():
                for i in range(len(drip)):
                    connection.send(drip[i : i + 1])
                    if ended.wait(pause):
                        return

    def accept() -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                accepted.append(connection)
                threads.append(threading.Thread(target=serve, args=(connection,)))
                threads[-1].start()

    threads = [threading.Thread(target=accept)]
    threads[0].start()
    try:
        yield server.getsockname()[1]
    finally:
        ended.set()
        threads[0].join()
        for thread in threads[1:]:
            thread.join()
        for each in (server, *accepted):
            each.close()
