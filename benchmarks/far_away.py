"""`python -m benchmarks.far_away PORT SECONDS`: a proxy to a Redis that is far away.

It prints the port that it listens on, and delays every byte by half of the seconds in each
direction.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from .server import HOST


@contextmanager
def far_away(port: int, seconds: float) -> Iterator[str]:
    """Yield the URL of a proxy that makes the Redis at a port seem far away."""
    command = [sys.executable, "-m", "benchmarks.far_away", str(port), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"redis://{HOST}:{int(process.stdout.readline())}/0"
        finally:
            process.kill()


async def _serve(port: int, delay: float) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(HOST, port)
        await asyncio.gather(_pump(reader, far_writer, delay), _pump(far_reader, writer, delay))

    server = await asyncio.start_server(serve, HOST, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while data := await reader.read(2**16):
            loop.call_later(delay, writer.write, data)
    loop.call_later(delay, writer.close)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2]) / 2))
