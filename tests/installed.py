"""Run the README's first example with the installed package, away from the checkout.

Run as `python -I`, with the address of a server in REDIS_URL. It exits with an error if anything
is not as the README says.
"""

from __future__ import annotations

import os
import platform
import re
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import django
import redis

import django_slidingwindow

README = Path(__file__).parent.parent / "README.md"
# Redis must decide, however slow the machine is.
PATIENT = 'SLIDING_WINDOW |= {"LATENCY_BUDGET": 30.0}'
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name not in ("PYTHONPATH", "DJANGO_SETTINGS_MODULE")
}


def main() -> None:
    place = Path(django_slidingwindow.__file__).parent
    if str(place.parent) != sysconfig.get_path("purelib"):
        raise SystemExit(f"imported from {place}, not from the installed wheel")
    with tempfile.TemporaryDirectory() as folder:
        make_project(Path(folder), os.environ["REDIS_URL"])
        statuses = ask(Path(folder))
    if statuses != [200] * 5 + [429]:
        raise SystemExit(f"five of six requests should have passed: {statuses}")
    with redis.Redis.from_url(os.environ["REDIS_URL"], decode_responses=True) as client:
        keys = sorted(client.keys())
    if keys != [f"throttle:tenant:{{acme}}:tenant_paid:c{window}" for window in (60, 86400)]:
        raise SystemExit(f"Redis should have counted: {keys}")
    versions = f"Python {platform.python_version()}, Django {django.__version__}"
    print(f"{versions}: five of six requests passed, counted by {place}")


def make_project(folder: Path, redis_url: str) -> None:
    """Create a new Django project, and add the first three files that the README shows."""
    manage(folder, "-m", "django", "startproject", "mysite", ".")
    manage(folder, "manage.py", "startapp", "shop")
    found = re.findall(
        r"^```python\n# ([\w/]+\.py)\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL
    )
    shown = dict(found[:3])
    settings = folder / "mysite" / "settings.py"
    added = shown["settings.py"].replace("redis://127.0.0.1", redis_url)
    settings.write_text(f"{settings.read_text()}\n{added}\n{PATIENT}\n")
    (folder / "mysite" / "urls.py").write_text(shown["urls.py"])
    (folder / "shop" / "views.py").write_text(shown["shop/views.py"])
    manage(folder, "manage.py", "migrate", "--verbosity", "0")


def manage(folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], cwd=folder, env=ENVIRONMENT, check=True)


def ask(folder: Path) -> list[int]:
    """Serve the project, and return the statuses of six requests."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "manage.py", "runserver", "--noreload", address]
    server = subprocess.Popen(
        command, cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 60
        while status(f"http://{address}/nowhere/") is None:
            if time.monotonic() > until:
                raise SystemExit("the site does not answer")
            time.sleep(0.05)
        return [status(f"http://{address}/orders/") or 0 for _ in range(6)]
    finally:
        server.kill()
        server.wait()


def status(url: str) -> int | None:
    """Return the status of a response; None if nothing answers."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers={"X-API-Key": "key-of-acme"})
    try:
        with opener.open(request, timeout=30) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return None


if __name__ == "__main__":
    main()
