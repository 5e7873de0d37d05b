"""A Redis server as far away as in most data centres: `python -m tests.support.distance <port>`.

Prints the port on which it passes everything on, half a millisecond later.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "127.0.0.1"
DELAY = 0.0005


@contextlib.contextmanager
def distant(port: int) -> Iterator[int]:
    """A port from which the server on `port` is that far away."""
    command = [sys.executable, "-m", "tests.support.distance", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.terminate()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        await asyncio.sleep(DELAY)
        writer.write(data)
    writer.close()


async def main(port: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection(HOST, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pass_on(reader, there[1]), _pass_on(there[0], writer))

    server = await asyncio.start_server(serve, HOST, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
