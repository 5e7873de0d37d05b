"""The views of the example project, served as `./scripts/demo` serves them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from redis import Redis

from example_project.config.secret import kept_secret
from tests.support.demo import ROOT, SERVE, Demo, environment, processes
from tests.support.servers import RedisServer
from tests.support.servers.redis import wait_until

pytestmark = pytest.mark.xdist_group("demo")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with Demo(tmp_path_factory.mktemp("demo")) as started:
        yield started


def manage(folder: Path, *arguments: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, ROOT / "example_project" / "manage.py", *arguments],
        env=environment(
            folder, PYTHONPATH=str(ROOT), DJANGO_SETTINGS_MODULE="config.settings", **variables
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def serve(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SERVE, *arguments],
        env=environment(folder, **variables),
        capture_output=True,
        text=True,
        check=False,
    )


def test_public_page_is_limited_by_address(demo: Demo) -> None:
    response = demo.get("/status/")
    assert response.status == 200
    assert response.headers["RateLimit-Policy"] == '"ip_public";q=120;w=60'


@pytest.mark.parametrize(
    "path",
    ["/api/orders/", "/api/rates/", "/api/invoices/", "/api/customers/", "/api/v2/parcels"],
)
@pytest.mark.parametrize(("key", "plan"), [("acme", "free"), ("globex", "paid")])
def test_plan_of_the_tenant_and_the_rules_decide(
    demo: Demo, path: str, key: str, plan: str
) -> None:
    response = demo.get(path, key=key)
    assert response.status == 200
    policies = response.headers["RateLimit-Policy"]
    limit = {"free": 100, "paid": 10_000}[plan]
    assert f'"tenant_{plan}";q={limit};w=86400' in policies
    assert '"ip_public"' in policies, "the middleware's rule"
    assert "tenant_soon" not in policies, "a profile in observe mode is not shown to the client"


@pytest.mark.parametrize(
    "path", ["/api/orders/", "/api/rates/", "/api/customers/", "/api/v2/parcels"]
)
def test_request_without_a_key_is_limited_by_address(demo: Demo, path: str) -> None:
    response = demo.get(path)
    assert response.status in (401, 403)
    assert response.headers["RateLimit-Policy"] == '"ip_public";q=120;w=60'


def test_callers_see_what_is_left_of_their_own_limits(demo: Demo) -> None:
    demo.get("/api/orders/", key="globex")
    seen, again = (json.loads(demo.get("/limits/", key="globex").text) for _ in range(2))
    assert [limit["name"] for limit in seen["limits"]] == ["ip_public", "tenant_paid"]
    left = [[limit["remaining"] for limit in one["limits"]] for one in (seen, again)]
    assert left[0][1] < 10_000
    assert left[0][1] == left[1][1], "a peek costs nothing"
    assert "meter" in demo.get("/limits/?format=html").text


def test_exports_have_the_limit_of_the_paid_plan(demo: Demo) -> None:
    exported = demo.get("/api/exports/", key="globex")
    assert exported.status == 200
    assert '"tenant_paid";q=10000;w=86400' in exported.headers["RateLimit-Policy"]
    assert demo.get("/api/exports/").status == 401
    free = demo.get("/api/exports/", key="acme")
    assert free.status == 403
    assert "tenant_paid" not in free.headers["RateLimit-Policy"], "the view was not reached"


def test_writing_an_invoice_costs_five(demo: Demo) -> None:
    def left() -> int:
        return int(demo.get("/api/invoices/", key="initech").headers["RateLimit-Remaining"])

    before = left()
    assert demo.get("/api/invoices/", key="initech", total="5").status == 201
    assert left() == before - 6


def test_expensive_report_is_made_by_a_job_that_waits_for_the_upstream(demo: Demo) -> None:
    made = demo.get("/api/reports/", key="globex", of="2026")
    assert made.status == 202
    assert '"endpoint_expensive";q=30;w=60' in made.headers["RateLimit-Policy"]
    assert '"report_slots";q=2;qu="concurrent-requests"' in made.headers["RateLimit-Policy"]
    # The slot was freed when the response was closed.
    again = demo.get("/api/reports/", key="globex", of="2026")
    assert '"report_slots";r=1' in again.headers["RateLimit"]
    number = json.loads(made.text)["report"]

    def state() -> str:
        return str(json.loads(demo.get(f"/api/reports/{number}/", key="globex").text)["state"])

    wait_until(lambda: state() == "done", "the job is done", 30)
    assert demo.get(f"/api/reports/{number}/", key="acme").status == 404


def test_strangers_cannot_use_up_what_tenants_share(tmp_path: Path) -> None:
    with Demo(tmp_path) as demo:
        strangers = [demo.get("/api/reports/").status for _ in range(31)]
        strangers += [demo.get("/api/reports/", of="2026").status for _ in range(31)]
        assert strangers == [405] * 31 + [401] * 31
        assert demo.get("/api/reports/", key="globex", of="2026").status == 202


def test_client_cannot_choose_its_address(tmp_path: Path) -> None:
    """Uvicorn trusts X-Forwarded-For from this machine by default."""
    with Demo(tmp_path) as demo:
        statuses = [
            demo.get("/status/", headers={"X-Forwarded-For": f"198.51.100.{number}"}).status
            for number in range(200)
        ]
    assert statuses[:120] == [200] * 120
    assert 429 in statuses[120:]


def test_login_counts_only_failures(demo: Demo) -> None:
    statuses = [
        demo.get("/api/login/", username="demo", password=demo.password).status for _ in range(2)
    ]
    assert statuses == [200] * 2
    statuses = [demo.get("/api/login/", username="demo", password="?").status for _ in range(6)]
    assert statuses == [401] * 5 + [429]


def test_login_blocks_repeated_guessing(demo: Demo) -> None:
    for _ in range(9):
        last = demo.get("/api/login/", username="demo", password="?")
    assert last.status == 429
    assert 'slidingwindow_refusals_total{profile="login",reason="penalty"' in (
        demo.get("/metrics").text
    )


def test_observing_profile_refuses_nothing_and_appears_in_metrics(demo: Demo) -> None:
    statuses = {demo.get("/api/orders/", key="globex").status for _ in range(6)}
    assert statuses == {200}
    metrics = demo.get("/metrics").text
    observed = 'slidingwindow_refusals_total{profile="tenant_soon",reason="observe"'
    assert observed in metrics
    assert "slidingwindow_store_duration_seconds_bucket" in metrics


def test_live_page_is_complete_and_loads_nothing_from_other_hosts(demo: Demo) -> None:
    page = demo.get("/").text
    assert "Pull Redis" in page
    assert "//" not in page.replace(demo.url, "").replace("<!doctype", "")
    for name in ("page.js", "lane.js", "model.js", "page.css", "icon.svg"):
        response = demo.get(f"/static/live/{name}")
        assert response.status == 200
        text = response.text.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text
        assert "https://" not in text
    assert "https://" not in demo.get("/api/v2/docs").text


def test_live_view_shows_the_source_of_the_decision(demo: Demo) -> None:
    response = demo.get("/live/hit/?algorithm=log&limit=5&cost=2")
    assert response.headers["X-Demo-Source"] == "redis"
    assert response.headers["RateLimit-Policy"] == '"live_log_5";q=5;w=5'
    assert response.headers["RateLimit-Remaining"] == "3"


@pytest.mark.parametrize("query", ["?algorithm=x&limit=y&cost=z", "?cost=-1", "?cost=²", ""])
def test_live_view_uses_the_default_for_invalid_input(demo: Demo, query: str) -> None:
    response = demo.get("/live/hit/" + query.replace("²", "%C2%B2"))
    assert '"live_compact_10"' in response.headers["RateLimit-Policy"]


@pytest.mark.parametrize("path", ["/live/plug/", "/live/reset/"])
def test_plug_and_reset_need_the_page(demo: Demo, path: str) -> None:
    assert demo.get(path).status == 405
    assert demo.get(path, on="false").status == 403, "no CSRF token"


def test_reset_empties_the_windows_of_all_live_profiles(
    tmp_path: Path, redis_server: RedisServer, redis: Redis
) -> None:
    code = """
from django.test import Client
from django_slidingwindow import limits
from django_slidingwindow.registry import registry
names = [name for name in registry.configs() if name.startswith("live_")]
print("charged:", len(names), all(limits.check(name, "127.0.0.1").allowed for name in names))
print("status:", Client().post("/live/reset/", HTTP_HOST="localhost").status_code)
print("left:", [name for name in names if limits.reset(name, "127.0.0.1")])
"""
    said = manage(tmp_path, "shell", "-c", code, REDIS_URL=redis_server.url)
    assert "charged: 9 True" in said
    assert "status: 204" in said
    assert "left: []" in said


def test_settings_pass_all_checks_of_the_app(tmp_path: Path, redis_server: RedisServer) -> None:
    options = ("--tag", "slidingwindow", "--fail-level", "WARNING")
    said = manage(tmp_path, "check", *options, REDIS_URL=redis_server.url)
    assert "no issues" in said
    assert "No changes" in manage(tmp_path, "makemigrations", "--check", "--dry-run")


def test_demo_data_can_be_created_again(tmp_path: Path) -> None:
    twice = """
from django.core.management import call_command
from django_slidingwindow.models import Override, Rejection, Usage
from shop.models import Tenant
call_command("migrate", verbosity=0)
call_command("demo_data")
print("again", flush=True)
call_command("demo_data")
[override.clean() for override in Override.objects.all()]
print("rows:", Tenant.objects.count(), Override.objects.count(), Rejection.objects.count() > 300)
print("admitted:", Usage.objects.count() > 1000)
"""
    first, again = manage(tmp_path, "shell", "-c", twice).split("again\n")
    assert "keeps its password" not in first
    assert "keeps its password" in again
    assert "rows: 3 2 True" in again
    assert "admitted: True" in again


def test_demo_data_leaves_users_and_tenants_that_exist_alone(tmp_path: Path) -> None:
    made_before = """
from django.contrib.auth.models import User
from django.core.management import call_command
from shop.models import Tenant, digest
call_command("migrate", verbosity=0)
User.objects.create_user("demo", password="mine")
Tenant.objects.create(slug="acme", name="Mine", key_digest=digest("mine"))
call_command("demo_data")
demo, acme = User.objects.get(), Tenant.objects.get(slug="acme")
print("kept:", demo.check_password("mine"), demo.is_superuser, acme.key_digest == digest("mine"))
"""
    assert "kept: True False True" in manage(tmp_path, "shell", "-c", made_before)


def test_second_start_keeps_the_password(demo: Demo) -> None:
    with Demo(demo.folder) as again:
        assert "password: as before (changepassword demo" in again.output
        login = {"username": "demo", "password": demo.password}
        assert again.get("/api/login/", **login).status == 200


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the example outside the checkout."""
    ignored = shutil.ignore_patterns("__pycache__", ".secret_key", "db.sqlite3*")
    return Path(shutil.copytree(ROOT / "example_project", tmp_path / "copy", ignore=ignored))


def settings_of(copy: Path, **variables: str) -> tuple[bool, str]:
    """Return DEBUG and SECRET_KEY of a copy."""
    rest = {k: v for k, v in os.environ.items() if k not in ("DEBUG", "SECRET_KEY")}
    code = (
        "import json; from config import settings as s; print(json.dumps([s.DEBUG, s.SECRET_KEY]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=copy,
        env={**rest, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    debug, key = json.loads(done.stdout)
    return debug, key


def test_copy_of_the_settings_is_safe_as_it_is(copied: Path, tmp_path: Path) -> None:
    debug, key = settings_of(copied)
    assert debug is False
    assert len(key) >= 50
    assert settings_of(copied) == (False, key), "sessions outlive a restart"
    kept = copied / ".secret_key"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert sorted(copied.glob("tmp*")) == []
    kept.unlink()
    assert settings_of(copied)[1] != key
    assert settings_of(copied, DEBUG="1", SECRET_KEY="mine") == (True, "mine")


def test_processes_that_start_together_share_one_secret(tmp_path: Path) -> None:
    path = tmp_path / ".secret_key"
    with ThreadPoolExecutor(8) as threads:
        found = {threads.submit(kept_secret, path) for _ in range(64)}
    assert len({one.result() for one in found}) == 1


def test_configured_redis_is_used_and_has_no_plug(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    with Demo(tmp_path, REDIS_URL=redis_server.url) as demo:
        assert "no plug to pull" in demo.get("/").text
        assert demo.get("/live/hit/").headers["X-Demo-Source"] == "redis"
        with redis_server.client() as client:
            assert client.keys("throttle:ip:{127.0.0.1}:live_*")
        assert redis_server.url in demo.output


def test_port_in_use_is_an_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = serve(tmp_path, PORT=str(port))
    assert done.returncode == 1
    assert done.stderr.startswith(f"demo: port {port} cannot be used")
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr
    assert serve(tmp_path, "--port", "99999").returncode == 1


def test_missing_redis_server_is_an_error(tmp_path: Path) -> None:
    done = serve(tmp_path, "--port", "0", TEST_REDIS_SERVER="no-such-server")
    assert done.returncode == 1
    assert "TEST_REDIS_SERVER names 'no-such-server'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_however_it_ends(tmp_path: Path, number: signal.Signals) -> None:
    with Demo(tmp_path) as demo:
        assert demo.get("/live/hit/").status == 200
        assert len(processes(demo.mark)) >= 2, "the server and its Redis"
        os.kill(demo.process.pid, number)
        code = demo.process.wait(60)
        assert code == (-number if number == signal.SIGKILL else 0)
        wait_until(lambda: not processes(demo.mark), "all of it has ended")
