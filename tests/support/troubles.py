"""What can happen to a Redis server, and how it is made good again."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING

import redis

from tests.support.servers.redis import HOST, RedisServer, free_port, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Trouble = Callable[[RedisServer], contextlib.AbstractContextManager[None]]


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
    """CLIENT PAUSE ends by itself: nobody else could end it."""
    with server.client() as client:
        client.client_pause(1500)
        yield
        client.ping()


@contextlib.contextmanager
def silent(server: RedisServer) -> Iterator[None]:
    """Something else listens at the server's address, accepts, and never answers."""
    server.kill()
    with listening(server.port):
        yield
    server.start()


@contextlib.contextmanager
def dripping(server: RedisServer) -> Iterator[None]:
    """Something else listens at the server's address, and answers a byte at a time."""
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
    """The server has become a replica, of a primary that is not there."""
    with server.client() as client:
        client.execute_command("REPLICAOF", HOST, free_port())
        yield
        client.execute_command("REPLICAOF", "NO", "ONE")


@contextlib.contextmanager
def without_replicas(server: RedisServer) -> Iterator[None]:
    """It takes no writes as long as no replica follows."""
    with server.client() as client:
        client.config_set("min-replicas-to-write", "1")
        yield
        client.config_set("min-replicas-to-write", "0")


@contextlib.contextmanager
def cut_off(server: RedisServer) -> Iterator[None]:
    """A replica that serves nothing without its primary: MASTERDOWN."""
    with server.client() as client:
        client.config_set("replica-serve-stale-data", "no")
        client.execute_command("REPLICAOF", HOST, free_port())
        yield
        client.execute_command("REPLICAOF", "NO", "ONE")
        client.config_set("replica-serve-stale-data", "yes")


@contextlib.contextmanager
def busy(server: RedisServer) -> Iterator[None]:
    """A script of somebody else runs without end."""
    with server.client() as client, server.client(socket_timeout=30) as other:
        # Redis 7 calls it busy-reply-threshold, and knows the old name as well.
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


TROUBLES: dict[str, Trouble] = {
    trouble.__name__: trouble
    for trouble in (
        *(killed, frozen, paused, silent, dripping, out_of_memory, forbidden),
        *(read_only, without_replicas, cut_off, busy),
    )
}


@contextlib.contextmanager
def listening(port: int = 0, *, drip: bytes = b"", pause: float = 0.03) -> Iterator[int]:
    """A port that accepts and is silent, or sends a byte of `drip` now and then."""
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


def seconds(action: Callable[[], object]) -> float:
    """How long it takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
