"""The recipes of docs/cookbook.md work as described."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.http import HttpResponse
from django.test import RequestFactory, override_settings
from django.urls import path

from django_slidingwindow import limits
from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.policies import Policy, Profile
from django_slidingwindow.testing import limits_in_memory
from tests.support.docs_pages import PATIENT, ROOT, blocks, project, set_by

PAGE = "docs/cookbook.md"
MODEL = ("tenants/models.py", "tenants/limits.py", "tenants/views.py")

urlpatterns = [path("", lambda request: HttpResponse())]
pytestmark = pytest.mark.urls(__name__)
factory = RequestFactory()


@pytest.fixture
def modules(tmp_path: Path, redis: Any) -> Iterator[dict[str, ModuleType]]:
    with project(PAGE, tmp_path) as found:
        yield found


def sent(request: Any, **more: Any) -> Any:
    """Return the request with the attributes that a view gets."""
    request.user = AnonymousUser()
    request._dont_enforce_csrf_checks = True
    request.resolver_match = SimpleNamespace(
        view_name="view", url_name="view", _func_path="view", kwargs=more
    )
    return request


def block(file: str) -> str:
    (code,) = [b.code for b in blocks(PAGE, "python") if b.file == file]
    return code


def test_login_counts_only_failures(modules: dict[str, ModuleType]) -> None:
    views = modules["accounts/views.py"]
    outcome = {"status": 302}

    class Login(views.Login):
        def post(self, request: Any) -> HttpResponse:
            return HttpResponse(status=outcome["status"])

    view = Login.as_view()

    def attempt(name: str, address: str = "203.0.113.9") -> int:
        request = sent(factory.post("/", {"username": name}, REMOTE_ADDR=address))
        status: int = view(request).status_code
        return status

    assert [attempt("ada") for _ in range(9)] == [302] * 9
    outcome["status"] = 200
    assert [attempt("ada") for _ in range(6)] == [200] * 5 + [429]
    # The second limit counts the account, from any address and in every spelling that logs in.
    spellings = (" ADA", "\N{FULLWIDTH LATIN SMALL LETTER A}da")
    others = [attempt(spellings[number % 2], f"198.51.100.{number}") for number in range(16)]
    assert others == [200] * 15 + [429]
    assert attempt("grace", "198.51.100.99") == 200


def test_tenant_gets_one_mail_when_it_comes_near_its_limit(
    modules: dict[str, ModuleType], mailoutbox: list[Any]
) -> None:
    assert modules["billing/warnings.py"]
    tenant_api = Profile(name="tenant_api", axis="tenant", policies=(Policy.parse("10/h"),))
    other = Profile(name="other", axis="tenant", policies=(Policy.parse("10/h"),))
    for _ in range(2):
        for _ in range(12):
            limits.check(tenant_api, "acme")
            limits.check(other, "acme")
        limits.reset(tenant_api, "acme")
    [mail] = mailoutbox
    assert (mail.to, mail.body) == (["acme@example.com"], "8 of 10 requests are used.")


def test_report_costs_more_than_a_page(modules: dict[str, ModuleType]) -> None:
    views = modules["reports/views.py"]

    def status(view: Any, query: str = "") -> int:
        found: int = view(sent(factory.get(f"/{query}"))).status_code
        return found

    assert status(views.report, "?range=year") == 200
    assert status(views.report) == 200
    assert status(views.report, "?range=year") == 429
    assert status(views.page) == 200
    assert limits.peek("work", "ip:127.0.0.1").remaining == 38


def deliver(views: ModuleType, signature: str | None, account: str = "acme") -> int:
    body = b'{"event": "paid"}'
    good = hmac.new(views.SECRET, body, hashlib.sha256).hexdigest()
    headers = {"X-Signature": good if signature is None else signature}
    request = factory.post("/", body, content_type="application/json", headers=headers)
    status: int = views.receive(sent(request, account=account), account=account).status_code
    return status


def test_webhook_counts_signed_deliveries_by_account(modules: dict[str, ModuleType]) -> None:
    views = modules["hooks/views.py"]
    with limits_in_memory():
        # Wrong signatures are charged only to the limit of their address.
        wrong = ("wrong", "\xe9")
        assert [deliver(views, wrong[i % 2]) for i in range(11)] == [403] * 10 + [429]
        assert limits.peek("webhook", "acme", cost=0).remaining == 20
        limits.reset("bad_signature", "127.0.0.1")
        assert deliver(views, None) == 202
        assert limits.peek("bad_signature", "127.0.0.1", cost=0).remaining == 10
        assert limits.check("webhook", "globex", cost=20).allowed
        assert deliver(views, None, "globex") == 429
        assert deliver(views, None, "initech") == 202


@pytest.mark.parametrize(
    ("body", "cost"),
    [
        ({"query": "{ me { name } }"}, 2),
        ({"query": "{ users(first: 100) { posts(first: 50) { id } } }"}, 3 + 15),
        ({"query": "query($n: Int) { users(first: $n) { id } }", "variables": {"n": 500}}, 52),
        ({"query": "{ a }", "variables": {"n": -500}}, 1),
        ({"query": "{ users(first:,100) { id } }"}, 2 + 10),
        # Python's int() refuses a number with thousands of digits.
        ({"query": "{ users(first: 100) { id } } # :" + 5_000 * "0"}, 2 + 10),
        ({"query": 5}, 1),
        ([], 1),
        ({}, 1),
    ],
)
def test_graphql_query_has_its_cost(modules: dict[str, ModuleType], body: Any, cost: int) -> None:
    request = sent(factory.post("/", json.dumps(body), content_type="application/json"))
    assert modules["graph/views.py"].query_cost(request) == cost
    response = modules["graph/views.py"].graphql(request)
    assert response["RateLimit-Remaining"] == str(1_000 - cost)


def ask(views: ModuleType, prompt: str | None, key: str = "key-of-red") -> Any:
    body = json.dumps({} if prompt is None else {"prompt": prompt})
    headers = {"X-API-Key": key}
    return views.chat(
        sent(factory.post("/", body, content_type="application/json", headers=headers))
    )


def test_llm_charges_the_used_tokens(modules: dict[str, ModuleType]) -> None:
    views = modules["llm/views.py"]
    assert json.loads(ask(views, "hello").content) == {"answer": "You said hello."}
    assert limits.peek("llm_tokens", "red", cost=0).remaining == 100_000 - 700


def test_llm_refunds_a_failed_call(
    modules: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    views = modules["llm/views.py"]

    def fail(prompt: str) -> Any:
        raise OSError("the provider is away")

    monkeypatch.setattr(views, "ask_the_model", fail)
    with pytest.raises(OSError, match="away"):
        ask(views, "hello")
    assert limits.peek("llm_tokens", "red", cost=0).remaining == 100_000


def test_llm_refuses_an_unknown_key(modules: dict[str, ModuleType]) -> None:
    assert ask(modules["llm/views.py"], "hello", "key-of-nobody").status_code == 401


@pytest.mark.parametrize(
    "extra", [{"ENABLED": False}, {"EXEMPT": ["127.0.0.1"], "TRUSTED_PROXIES": []}]
)
def test_llm_answers_without_limits(modules: dict[str, ModuleType], extra: dict[str, Any]) -> None:
    views = modules["llm/views.py"]
    with override_settings(SLIDING_WINDOW={**settings.SLIDING_WINDOW, **extra}):
        assert ask(views, "hello").status_code == 200
        with pytest.raises(KeyError):
            ask(views, None)
    assert limits.peek("llm_tokens", "red", cost=0).remaining == 100_000


def test_llm_keeps_the_estimate_when_both_do_not_fit(modules: dict[str, ModuleType]) -> None:
    views = modules["llm/views.py"]
    assert limits.check("llm_tokens", "red", cost=97_800).allowed
    estimate = len(b'{"prompt": "hello"}') // 3 + 2_000
    assert ask(views, "hello").status_code == 200
    left = limits.peek("llm_tokens", "red", cost=0).remaining
    assert left == 100_000 - 97_800 - estimate
    assert ask(views, "hello").status_code == 429


def test_upload_meets_both_limits_or_none(modules: dict[str, ModuleType]) -> None:
    views = modules["files/views.py"]

    def upload(length: str) -> int:
        request = sent(factory.post("/"))
        request.META["CONTENT_LENGTH"] = length
        status: int = views.upload(request).status_code
        return status

    assert upload(str(60 * 2**20)) == 201
    assert upload("") == 201  # an unknown length counts as 100
    assert [upload(str(100 * 2**20 - 1)) for _ in range(4)] == [201, 201, 201, 429]
    assert limits.peek("files", "ip:127.0.0.1", cost=0).remaining == 20 - 5
    assert limits.peek("megabytes", "ip:127.0.0.1", cost=0).remaining == 500 - 460
    assert upload(str(2**20)) == 201
    assert views.upload(sent(factory.get("/"))).status_code == 201


NGINX, ALB, CLOUDFLARE = range(3)


@pytest.mark.parametrize(
    ("proxy", "peer", "forwarded", "client"),
    [
        (NGINX, "127.0.0.1", "9.9.9.9, 203.0.113.9", "203.0.113.9"),
        (NGINX, "203.0.113.9", "9.9.9.9", "203.0.113.9"),
        (ALB, "10.0.17.4", "9.9.9.9, 203.0.113.9", "203.0.113.9"),
        (ALB, "10.0.33.4", "203.0.113.9:50123", "203.0.113.9"),
        (ALB, "10.0.99.4", "203.0.113.9", "10.0.99.4"),
        (CLOUDFLARE, "127.0.0.1", "9.9.9.9, 203.0.113.9, 173.245.48.7", "203.0.113.9"),
        (CLOUDFLARE, "127.0.0.1", "9.9.9.9, 198.51.100.7", "198.51.100.7"),
    ],
)
def test_client_behind_proxies_counts_by_its_address(
    redis: Any, proxy: int, peer: str, forwarded: str, client: str
) -> None:
    shown = [b for b in blocks(PAGE, "python") if "TRUSTED_PROXIES" in b.code]
    wanted = {**set_by(shown[proxy], {})["SLIDING_WINDOW"], **PATIENT}
    with override_settings(SLIDING_WINDOW=wanted):
        request = factory.get("/", REMOTE_ADDR=peer, headers={"X-Forwarded-For": forwarded})
        rate_limit("ip_public")(lambda request: HttpResponse())(request)
    assert redis.keys() == [f"throttle:ip:{{{client}}}:ip_public:c60"]


SITE = """
SECRET_KEY = "x"
USE_TZ = True
ROOT_URLCONF = "urls"
INSTALLED_APPS = ["django_slidingwindow"]
DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": "{folder}/db"}}}}
CACHES = {{"default": {{"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "{redis}"}}}}
{shown}
SLIDING_WINDOW |= {{"LATENCY_BUDGET": 30.0, "LOG": False}}
"""
URLS = """
from django.urls import path
from tenants.views import orders
urlpatterns = [path("orders/", orders)]
"""
SCRIPT = """
import hashlib, json
import django
django.setup()
from django.core.cache import cache
from django.core.management import call_command
from django.test import Client
from tenants.models import Tenant

call_command("makemigrations", "tenants", verbosity=0)
call_command("migrate", verbosity=0)
call_command("check")
digest = hashlib.sha256(b"key-of-acme").hexdigest()
acme = Tenant.objects.create(slug="acme", api_key_sha256=digest, requests_per_minute=3)

def statuses(count, **headers):
    return [Client().get("/orders/", headers=headers).status_code for _ in range(count)]

found = [statuses(4, **{"X-API-Key": "key-of-acme"}), statuses(4, **{"X-API-Key": "unknown"})]
acme.requests_per_minute = 5
acme.save()
cache.delete("rate:acme")
found.append(statuses(3, **{"X-API-Key": "key-of-acme"}))
print(json.dumps(found))
"""


def test_limits_of_tenants_come_from_the_model(tmp_path: Path, redis_server: Any) -> None:
    with redis_server.client() as client:
        client.flushall()
    for file in MODEL:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(block(file))
    (tmp_path / "tenants" / "__init__.py").touch()
    (tmp_path / "tenants" / "migrations").mkdir()
    (tmp_path / "tenants" / "migrations" / "__init__.py").touch()
    shown = block("mysite/settings.py")
    (tmp_path / "site_settings.py").write_text(
        SITE.format(folder=tmp_path, redis=redis_server.url, shown=shown)
    )
    (tmp_path / "urls.py").write_text(URLS)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "site_settings",
            "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    limited, strangers, raised = json.loads(done.stdout.splitlines()[-1])
    assert limited == [200, 200, 200, 429]
    assert strangers == [200] * 4
    assert raised == [200, 200, 429]
