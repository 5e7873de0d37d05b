"""The tasks of docs/tasks.md wait without blocking a worker, and run later. With real workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import django
import pytest

from django_slidingwindow import limits
from django_slidingwindow.testing import limits_in_memory
from tests.support.docs_pages import ROOT, blocks, project

if TYPE_CHECKING:
    from redis import Redis

    from tests.support.servers import RedisServer

PAGE = "docs/tasks.md"

# The settings of the page, with small limits: two customers a minute for each tenant, and two a
# second for one tenant, whose tasks the test waits for.
SITE = """
SECRET_KEY = "x"
USE_TZ = True
INSTALLED_APPS = ["django_tasks_db", "django_slidingwindow"]
DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}}
CACHES = {{"default": {{"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "{redis}"}}}}
TASKS = {{"default": {{"BACKEND": "django_tasks_db.DatabaseBackend"}}}}
{shown}
SLIDING_WINDOW["PROFILES"]["crm_tenant"]["rate"] = "rates.of_tenant"
SLIDING_WINDOW |= {{"LATENCY_BUDGET": 30.0, "LOG": False}}
"""
RATES = """
def of_tenant(identifier, request):
    return "2/s" if identifier == "initech" else "2/m"
"""


def file(name: str) -> str:
    (code,) = [block.code for block in blocks(PAGE, "python") if block.file == name]
    return code


@pytest.fixture
def site(tmp_path: Path, redis: Redis, redis_server: RedisServer) -> Path:
    """A folder with the project of the page."""
    shown = file("settings.py")
    (tmp_path / "site_settings.py").write_text(SITE.format(redis=redis_server.url, shown=shown))
    (tmp_path / "rates.py").write_text(RATES)
    (tmp_path / "crm").mkdir()
    (tmp_path / "crm" / "quota.py").write_text(file("crm/quota.py"))
    return tmp_path


def environment(site: Path, **more: str) -> dict[str, str]:
    path = os.pathsep.join([str(site), str(ROOT)])
    return {**os.environ, "DJANGO_SETTINGS_MODULE": "site_settings", "PYTHONPATH": path, **more}


def run(script: str, site: Path, **more: str) -> Any:
    """Run a script in the project, and return the JSON of its last line."""
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command,
        cwd=site,
        env=environment(site, **more),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_tenant_and_quota_are_charged_together_or_not_at_all(tmp_path: Path, redis: Redis) -> None:
    def left(tenant: str) -> tuple[int, int]:
        mine, all_ = limits.peek("crm_tenant", tenant, cost=0), limits.peek("crm", "all", cost=0)
        return mine.remaining, all_.remaining

    with project(PAGE, tmp_path) as modules, limits_in_memory():
        charge = modules["crm/quota.py"].charge
        assert charge("acme").allowed
        assert left("acme") == (59, 9)
        assert limits.check("crm_tenant", "acme", cost=59).allowed
        assert charge("acme").profile == "crm_tenant"
        assert left("acme") == (0, 9), "the quota of the API is untouched"
        assert limits.check("crm", "all", cost=9).allowed
        assert charge("globex").profile == "crm"
        assert left("globex") == (60, 0), "the tenant got its charge back"


CELERY_APP = """
import os
from celery import Celery
from celery.signals import worker_init

app = Celery("site", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
app.conf.update(include=["crm.tasks"], broker_connection_retry_on_startup=True)

@worker_init.connect
def before_the_fork(**_):
    from django_slidingwindow import limits
    limits.check("crm", "a connection that the worker processes inherit")
"""
# One worker process: if the third task blocked it, the tasks after it would not run.
CELERY_SCRIPT = """
import json, time
import django
django.setup()
from celery_app import app
from crm.tasks import push_customer

waiting = [push_customer.delay("acme", name) for name in ("a", "b", "c")]
other = push_customer.delay("globex", "d")
back = [push_customer.delay("initech", name) for name in ("e", "f", "g", "h")]
done = [result.get(timeout=45) for result in (*waiting[:2], other, *back)]
print(json.dumps([done, waiting[2].state]))
"""


@contextmanager
def celery_worker(site: Path, broker: str) -> Iterator[Path]:
    """Run a worker with one process, and yield the path of its log."""
    command = [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "--concurrency=1"]
    command += ["--pool=prefork", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    log = site / "worker.log"
    with log.open("wb") as output:
        worker = subprocess.Popen(
            command,
            cwd=site,
            env=environment(site, BROKER=broker),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield log
    finally:
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()


def test_celery_task_retries_without_blocking_its_worker(
    site: Path, redis_server: RedisServer
) -> None:
    (site / "crm" / "tasks.py").write_text(file("crm/tasks.py"))
    (site / "celery_app.py").write_text(CELERY_APP)
    broker = redis_server.url.removesuffix("/0") + "/7"
    with celery_worker(site, broker) as log:
        try:
            done, state = run(CELERY_SCRIPT, site, BROKER=broker)
        except AssertionError:
            print(log.read_text())
            raise
    assert done == [f"pushed {name}" for name in "abdefgh"]
    assert state == "RETRY"


# The worker's command ends when no task is ready. Then the script simulates the end of the minute:
# it empties the window and makes the waiting task due.
DJANGO_SCRIPT = """
import json
import django
django.setup()
from django.core.management import call_command
from django.utils import timezone
from django_tasks_db.models import DBTaskResult
from crm.jobs import push_customer
from django_slidingwindow import limits

def work():
    call_command("db_worker", "--batch", "--no-startup-delay", "--interval=0", "--no-reload")

call_command("migrate", verbosity=0)
acme = [push_customer.enqueue("acme", name) for name in ("a", "b", "c")]
other = push_customer.enqueue("globex", "d")
work()
for result in (*acme, other):
    result.refresh()
later = DBTaskResult.objects.get(status="READY")
waits = (later.run_after - later.enqueued_at).total_seconds()
limits.reset("crm_tenant", "acme")
DBTaskResult.objects.filter(id=later.id).update(run_after=timezone.now())
work()
later.refresh_from_db()
print(json.dumps({
    "first": [result.return_value for result in (acme[0], acme[1], other)],
    "same": acme[2].return_value == str(later.id),
    "arguments": later.args_kwargs["args"],
    "waits": waits,
    "then": later.return_value,
}))
"""


def test_django_task_is_enqueued_again_for_when_there_is_room(site: Path) -> None:
    code = file("crm/jobs.py")
    if django.VERSION < (6, 0):
        code = code.replace("from django.tasks import", "from django_tasks import")
    (site / "crm" / "jobs.py").write_text(code)
    found = run(DJANGO_SCRIPT, site)
    assert found["first"] == ["pushed a", "pushed b", "pushed d"]
    assert found["same"]
    assert found["arguments"] == ["acme", "c", 1]
    assert 0 < found["waits"] <= 61, "the rest of the minute, and at most a second more"
    assert found["then"] == "pushed c"
