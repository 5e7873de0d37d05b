"""The app adds little to the start of a project that uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

# One xdist worker runs all tests of this module, because they share the cached output.
pytestmark = pytest.mark.xdist_group("import_cost")

ROOT = Path(__file__).parent.parent.parent
OWN = "django_slidingwindow"
EXTRAS = {"rest_framework", "ninja", "prometheus_client", "opentelemetry", "rich"}

# Starts Django with the apps in the first argument, imports the modules in the others, and prints
# the size of the compiled code of each loaded module.
REPORT = """
import json, marshal, sys
import django
from django.conf import settings
from tests import settings as project

apps, *imports = sys.argv[1:]
values = {name: getattr(project, name) for name in dir(project) if name.isupper()}
settings.configure(**{**values, "INSTALLED_APPS": apps.split()})
django.setup()
import django.core.cache, django.http, django.template.loader, django.urls
for name in imports:
    __import__(name)

sizes = {}
for name, module in list(sys.modules.items()):
    spec = getattr(module, "__spec__", None)
    get_code = getattr(getattr(spec, "loader", None), "get_code", None)
    code = get_code(spec.name) if get_code else None
    sizes[name] = len(marshal.dumps(code)) if code else 0
print(json.dumps(sizes))
"""
APPS = "django.contrib.auth django.contrib.contenttypes django.contrib.sessions"
# Shares of what django-redis takes. Of the code: 0.10 on Python 3.13, but 0.20 on 3.10 with the
# oldest redis-py, which has much less code than the newest.
MOST_CODE = 0.22
# Of the calls: 0.28 on Python 3.11, 0.31 on 3.13 with Django 6.1.
MOST_CALLS = 0.32
DJANGO_REDIS = ["django_redis.cache", "django_redis.client", "django_redis.pool"]
SITE = [f"{OWN}.decorators", f"{OWN}.middleware", f"{OWN}.limits"]


def printed(program: str, *arguments: str) -> str:
    """Return what a program prints in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def loaded(apps: str, *imports: str) -> dict[str, int]:
    """Return the bytes of each module after a start with these apps and imports."""
    sizes: dict[str, int] = json.loads(printed(REPORT, apps, *imports))
    return sizes


@pytest.fixture(scope="module")
def added() -> dict[str, int]:
    """The modules that a site loads for this app, beyond those of Django and django-redis."""
    before = loaded(APPS, *DJANGO_REDIS)
    after = loaded(f"{APPS} {OWN}", *DJANGO_REDIS, *SITE)
    return {name: size for name, size in after.items() if name not in before}


def test_app_imports_nothing_that_only_its_extras_need(added: dict[str, int]) -> None:
    assert {name.split(".")[0] for name in added} & EXTRAS == set()


def test_app_imports_no_package_beside_django_and_django_redis(added: dict[str, int]) -> None:
    packages = {name.split(".")[0] for name in added} - set(sys.stdlib_module_names)
    assert packages - {"django"} == {OWN}


def test_modules_that_a_start_does_not_need_are_imported_on_use(added: dict[str, int]) -> None:
    late = ("rejections.recorder", "rejections.rows", "rejections.writer", "guard.refunds")
    assert added.keys().isdisjoint(f"{OWN}.{name}" for name in (*late, "admin", "stores.redis"))
    assert f"{OWN}.models" in added


def test_checks_are_imported_when_they_run(added: dict[str, int]) -> None:
    checks = {name for name in added if name.startswith(f"{OWN}.checks")}
    assert checks == {f"{OWN}.checks", f"{OWN}.checks.register"}


def test_app_adds_little_to_the_code_of_django_redis(added: dict[str, int]) -> None:
    django = loaded(APPS)
    theirs = {
        name: size for name, size in loaded(APPS, *DJANGO_REDIS).items() if name not in django
    }
    assert sum(added.values()) <= MOST_CODE * sum(theirs.values())


# Counts the function calls of the import of django-redis, and then of the app. Those of the import
# system do not count, because their number depends on how modules are cached.
COUNT = """
import sys
from benchmarks import loading

def calls_of(load):
    found = 0
    def count(frame, event, argument):
        nonlocal found
        own = not frame.f_code.co_filename.startswith("<frozen importlib")
        found += own and event in ("call", "c_call")
    sys.setprofile(count)
    load()
    sys.setprofile(None)
    return found

loading.begin()
print(calls_of(loading.import_django_redis), calls_of(loading.import_app))
"""


def test_import_of_the_app_makes_few_calls_compared_with_django_redis() -> None:
    # The share of calls is close to the share of time, but the same on every machine. For the
    # time, run `python -m benchmarks.start`. Lower the number when the code makes fewer calls.
    theirs, ours = map(int, printed(COUNT).split())
    assert ours <= MOST_CALLS * theirs
