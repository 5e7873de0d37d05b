"""When, on what machine and with which versions something was measured."""

from __future__ import annotations

import os
import platform
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from .server import Server

PACKAGES = (
    "django",
    "django-redis",
    "redis",
    "hiredis",
    "limits",
    "throttled-py",
    "pyrate-limiter",
    "django-ratelimit",
    "django-smart-ratelimit",
    "djangorestframework",
    "django-ninja",
    "gunicorn",
)


def occasion(size: str) -> str:
    """Return the time, the size, the load of the machine, and the machine."""
    load = " ".join(f"{load:.1f}" for load in os.getloadavg())
    moment = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC"
    return f"{moment}, size {size!r}, load average {load}, on {machine()}"


def machine() -> str:
    """Return the processor and the memory."""
    return f"{os.cpu_count()} cores of {_processor()}, {_memory()}"


def facts(server: Server) -> dict[str, str]:
    """Return what readers need to compare results, without names of hosts or users."""
    return {
        "machine": machine(),
        "system": f"{platform.system()} {platform.release().split('-')[0]} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "redis server": server.version,
        **{name: _version(name) for name in PACKAGES},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    found = {line.partition(":")[2].strip() for line in lines if line.startswith("model name")}
    return found.pop() if found else platform.machine()


def _memory() -> str:
    try:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError):
        return "unknown memory"
    return f"{pages / 2**30:.0f} GiB"
