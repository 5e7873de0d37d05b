"""The code of README and docs runs, and does what the pages say."""

from __future__ import annotations

import configparser
import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.test import RequestFactory, override_settings
from rest_framework.permissions import IsAuthenticated

from django_slidingwindow import limits
from django_slidingwindow.contrib import opentelemetry
from django_slidingwindow.testing import limits_disabled
from tests.support.docs_pages import (
    DOCS,
    PATIENT,
    ROOT,
    RUN_ELSEWHERE,
    SETTINGS,
    Block,
    blocks,
    code_in,
    errors,
    pages,
    project,
    run,
    set_by,
    table,
)
from tests.support.servers.redis import wait_until

if TYPE_CHECKING:
    from redis import Redis

    from tests.support.servers import RedisCluster, RedisServer, SentinelGroup

LANGUAGES = {"python", "console", "http", "json", "nginx", "acl", "po", "{toctree}", ""}
PYTHON = [block for page in pages() for block in blocks(page, "python")]
STATEMENT = re.compile(r"^(import |from [\w.]+ import |def |class |SLIDING_WINDOW)", re.MULTILINE)

factory = RequestFactory()


def request(method: str = "get", path: str = "/", **headers: str) -> Any:
    made = getattr(factory, method)(path, headers=headers)
    made.user = AnonymousUser()
    return made


@pytest.fixture(autouse=True)
def _environment(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty the server, and set the environment variable that one page reads."""
    monkeypatch.setenv("THROTTLE_PASSWORD", "secret")


# Every block


@pytest.mark.parametrize("block", [b for page in pages() for b in blocks(page)], ids=str)
def test_block_names_its_language(block: Block) -> None:
    assert block.language in LANGUAGES
    if block.language != "python":
        assert not STATEMENT.search(block.code)


@pytest.mark.parametrize("page", sorted({block.page for block in PYTHON}))
def test_settings_of_a_page_pass_the_checks(page: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {}
    stages = []
    for block in blocks(page, "python"):
        if block.file == SETTINGS:
            given = set_by(block, given)
            stages.append((block, given))
    for block, stage in stages:
        whole = {**stage, **{name: given[name] for name in ("MIDDLEWARE", "SLIDING_WINDOW")}}
        with project(page, tmp_path / str(block.line)), override_settings(**whole):
            assert errors() == [], str(block)


@pytest.mark.django_db
@pytest.mark.parametrize("page", sorted({block.page for block in PYTHON}))
def test_python_of_a_page_runs(page: str, tmp_path: Path) -> None:
    ran = 0
    with project(page, tmp_path) as modules:
        names: dict[str, Any] = {"__name__": "page"}
        for block in blocks(page, "python"):
            if block.file is None:
                run(block, names)
            else:
                file = block.file
                assert file == SETTINGS or file in modules or file in RUN_ELSEWHERE
            ran += 1
        assert errors() == []
    opentelemetry.uninstall()
    assert ran


def test_every_file_that_runs_elsewhere_is_shown_and_run() -> None:
    assert set(RUN_ELSEWHERE) <= {block.file for block in PYTHON}
    for file, test in RUN_ELSEWHERE.items():
        assert f'"{file}"' in (ROOT / "tests" / test).read_text()


# Single pages


def test_views_of_the_profiles_page(tmp_path: Path) -> None:
    with project("docs/profiles.md", tmp_path) as modules:
        views = modules["views.py"]
        found = request(path="/search/")
        found.resolver_match = SimpleNamespace(
            view_name="search", url_name="search", _func_path="views.search"
        )
        assert json.loads(views.search(found).content) == {"left": 29}
        with limits_disabled():
            assert json.loads(views.search(request(path="/search/")).content) == {"left": None}
        assert views.deep_search(request())["RateLimit-Remaining"] == "24"
        assert views.many_searches(request(path="/?q=a&q=b"))["RateLimit-Remaining"] == "22"
        assert views.export(request())["RateLimit-Remaining"] == "21"
        right = factory.post("/", {"password": "s3cret"})
        assert [views.login(right).status_code for _ in range(9)] == [200] * 9
        wrong = [views.login(factory.post("/")).status_code for _ in range(6)]
        assert wrong == [401] * 5 + [429]
        signup = views.Signup.as_view()
        answers = []
        for _ in range(4):
            made = factory.post("/")
            made.resolver_match = SimpleNamespace(
                view_name="signup", url_name="signup", _func_path="views.Signup"
            )
            answers.append(signup(made).status_code)
        assert answers == [201] * 3 + [429]
        assert views.health(request()).content == b"ok"


def test_tenants_of_the_profiles_page_have_the_limits_of_their_plans(tmp_path: Path) -> None:
    with project("docs/profiles.md", tmp_path):
        assert limits.peek("tenant_api", "acme").limit == 20
        assert limits.peek("tenant_api", "globex").limit == 100


def test_clients_behind_proxies_are_those_of_the_identities_page(redis: Redis) -> None:
    from django.http import HttpResponse

    from django_slidingwindow.decorators import rate_limit

    view = rate_limit("ip_public")(lambda request: HttpResponse())
    (first, *_) = blocks("docs/identities.md", "python")
    with override_settings(SLIDING_WINDOW={**set_by(first, {})["SLIDING_WINDOW"], **PATIENT}):
        for forwarded, client in table("docs/identities.md", "Proxies"):
            redis.flushdb()
            header = {"X-Forwarded-For": code_in(forwarded)[0]}
            view(factory.get("/", REMOTE_ADDR="10.0.0.5", headers=header))
            assert redis.keys() == [f"throttle:ip:{{{code_in(client)[0]}}}:ip_public:c60"]


def test_fields_are_those_that_the_headers_page_shows(tmp_path: Path) -> None:
    from django.http import HttpResponse

    from django_slidingwindow.decorators import rate_limit

    view = rate_limit("login")(lambda request: HttpResponse())
    with project("docs/headers.md", tmp_path):
        view(request())
        response = view(request())
    (shown,) = blocks("docs/headers.md", "http")
    lines = dict(line.split(": ", 1) for line in shown.code.splitlines()[1:])
    assert lines == {name: response[name] for name in lines}
    assert set(lines) == {name for name in response.headers if name.startswith("RateLimit")}


def test_responses_are_those_that_the_refusals_page_shows() -> None:
    from django_slidingwindow.http import refusal as responses

    profiles = {"search": {"axis": "ip", "rate": "1/m"}}
    with override_settings(SLIDING_WINDOW={**PATIENT, "PROFILES": profiles}):
        limits.check("search", "203.0.113.9")
        decision = limits.check("search", "203.0.113.9")
        response = responses.refusal(request(Accept="application/json"), decision)
        page = responses.refusal(request(Accept="text/html"), decision)
    (shown,) = blocks("docs/refusals.md", "http")
    assert f"Content-Security-Policy: {page['Content-Security-Policy']}\n" in shown.code
    (shown,) = blocks("docs/refusals.md", "json")
    wanted, found = json.loads(shown.code), json.loads(response.content)
    assert re.sub(r"\d+", "60", wanted.pop("detail")) == found.pop("detail")
    assert wanted == found


def test_own_response_of_the_refusals_page_gets_what_it_lacks(tmp_path: Path) -> None:
    from django.http import HttpResponse

    from django_slidingwindow.decorators import rate_limit

    with project("docs/refusals.md", tmp_path):
        view = rate_limit("ip_public", cost=120)(lambda request: HttpResponse())
        view(request())
        response = view(request())
    assert json.loads(response.content) == {"error": "limit", "profile": "ip_public"}
    assert response.status_code == 429
    assert response["Retry-After"] == "60"
    assert response["Cache-Control"] == "no-store"


def test_drf_page_refuses_in_the_frameworks_own_form(tmp_path: Path) -> None:
    with project("docs/frameworks.md", tmp_path) as modules:
        view = modules["api.py"].Reports.as_view()
        made = [factory.post("/") for _ in range(11)]
        for one in made:
            one.resolver_match = SimpleNamespace(
                view_name="reports", url_name="reports", _func_path="api.Reports"
            )
        answers = [view(one) for one in made]
    assert [answer.status_code for answer in answers] == [202] * 10 + [429]
    assert "Retry-After" in answers[-1].headers


def test_drf_page_limits_guessing(tmp_path: Path) -> None:
    with project("docs/frameworks.md", tmp_path) as modules:
        view = modules["urls.py"].urlpatterns[0].callback
        modules["api.py"].Orders.permission_classes = [IsAuthenticated]
        refused = [view(request()).status_code for _ in range(6)]
        rule = [settings.SLIDING_WINDOW["RULES"][0]["path"], settings.MIDDLEWARE[-1]]
    assert refused == [403] * 5 + [429]
    assert rule == ["^/api/", "django_slidingwindow.middleware.RateLimitMiddleware"]


def test_tests_of_the_testing_page_pass_in_a_project(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    shown = {block.file: block.code for block in blocks("docs/testing.md", "python")}
    assert set(shown) == {"test_shop.py", "test_limits.py", "test_fixtures.py", "test_log.py"}
    for name, code in shown.items():
        (tmp_path / str(name)).write_text(code)
    (tmp_path / "settings.py").write_text(
        "SECRET_KEY = 'x'\nROOT_URLCONF = 'urls'\nUSE_TZ = True\n"
        "INSTALLED_APPS = ['django_slidingwindow']\n"
        "DATABASES = {'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': ':memory:'}}\n"
        "CACHES = {'default': {'BACKEND': 'django_redis.cache.RedisCache',"
        f" 'LOCATION': '{redis_server.url}'}}}}\n"
        "SLIDING_WINDOW = {'LATENCY_BUDGET': 30.0}\n"
    )
    (tmp_path / "urls.py").write_text(
        "from django.http import HttpResponse\nfrom django.urls import path\n"
        "from django_slidingwindow.decorators import rate_limit\n"
        "urlpatterns = [path('prices/', rate_limit('ip_public')(lambda r: HttpResponse()))]\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "django_slidingwindow.pytest_plugin"]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        "DJANGO_SETTINGS_MODULE": "settings",
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
    }
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--rootdir", str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "7 passed" in done.stdout, done.stdout + done.stderr


def shown_alias(heading: str) -> dict[str, Any]:
    """Return the alias `limits` of the first settings below a heading of the scaling page."""
    text = pages()["docs/scaling.md"]
    line = text.count("\n", 0, text.index(f"## {heading}\n"))
    block = next(b for b in blocks("docs/scaling.md", "python") if b.line > line)
    alias: dict[str, Any] = set_by(block, {})["CACHES"]["limits"]
    return alias


def source_by(alias: dict[str, Any]) -> str:
    """Return the source of a check with this alias, after waiting for the servers."""
    wanted = {"CACHE": "limits", **PATIENT}
    caches = {"default": settings.CACHES["default"], "limits": alias}
    with override_settings(CACHES=caches, SLIDING_WINDOW=wanted):
        with suppress(TimeoutError):
            wait_until(
                lambda: limits.check("ip_public", "203.0.113.9").source == "redis", "Redis decides"
            )
        return limits.check("ip_public", "203.0.113.9").source


def test_one_redis_of_the_scaling_page_counts(redis_server: RedisServer) -> None:
    assert source_by({**shown_alias("One Redis"), "LOCATION": redis_server.url}) == "redis"


def test_sentinel_of_the_scaling_page_counts(sentinels: SentinelGroup) -> None:
    alias = shown_alias("Sentinel")
    # A unique URL: django-redis keeps one pool per URL, with the sentinels of its first use.
    alias["LOCATION"] = alias["LOCATION"].replace("limits", sentinels.name) + "?client_name=docs"
    alias["OPTIONS"]["SENTINELS"] = sentinels.addresses
    assert source_by(alias) == "redis"


def test_cluster_of_the_scaling_page_counts(cluster: RedisCluster) -> None:
    alias = shown_alias("Redis Cluster")
    alias["LOCATION"] = [node.url.rsplit("/", 1)[0] for node in cluster.nodes[:2]]
    assert source_by(alias) == "redis"


# Links and pictures


def slug(heading: str) -> str:
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower().replace("`", ""))
    return kept.replace(" ", "-")


def repository() -> str:
    """Return the address of the repository in the metadata of the package."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    urls = config["metadata"]["project_urls"].strip().splitlines()
    return dict(line.split(" = ") for line in urls)["Source"]


def links(page: str) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", pages()[page])


def in_checkout(page: str, target: str) -> tuple[Path, str] | None:
    """Return the file and the anchor of a link, or None for other sites."""
    path, _, anchor = target.partition("#")
    raw = repository().replace("github.com", "raw.githubusercontent.com")
    for base in (f"{repository()}/blob/main/", f"{repository()}/tree/main/", f"{raw}/main/"):
        if path.startswith(base):
            return ROOT / path.removeprefix(base), anchor
    if path.startswith(("http://", "https://")):
        assert not path.startswith((repository(), raw)), f"{page} links {target}"
        return None
    return ((ROOT / page).parent / path) if path else ROOT / page, anchor


@pytest.mark.parametrize("page", pages())
def test_links_have_a_target(page: str) -> None:
    for target in links(page):
        led = in_checkout(page, target)
        if led is None:
            continue
        found, anchor = led
        assert found.exists(), f"{page} links {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", found.read_text(), re.MULTILINE)
            assert anchor in map(slug, headings), f"{page} links {target}"


_FOLDERS = "tests|scripts|benchmarks|docs|django_slidingwindow|example_project"


@pytest.mark.parametrize("page", pages())
def test_files_that_a_page_names_exist(page: str) -> None:
    named = re.findall(rf"`((?:{_FOLDERS})/[\w./-]+)`", pages()[page])
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_links_of_the_readme_work_on_pypi() -> None:
    """PyPI shows only the README, so relative links would be broken."""
    assert all(target.startswith("https://") for target in links("README.md"))
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", pages()["README.md"])
    raw = repository().replace("github.com", "raw.githubusercontent.com")
    assert pictures
    assert all(picture.startswith(f"{raw}/main/") for picture in pictures)


@pytest.mark.parametrize("page", [page for page in pages() if page.startswith("docs/")])
def test_links_of_the_docs_stay_inside_docs(page: str) -> None:
    """The built docs contain no files outside the folder docs."""
    for target in links(page):
        led = in_checkout(page, target)
        if led is not None and not target.startswith("https://"):
            assert led[0].resolve().is_relative_to(DOCS), f"{page} links {target}"


def test_index_lists_every_page() -> None:
    listed = {
        line
        for block in blocks("docs/index.md", "{toctree}")
        for line in block.code.splitlines()
        if line and not line.startswith(":")
    }
    written = {str(path.relative_to(DOCS).with_suffix("")) for path in DOCS.rglob("*.md")}
    assert listed == written - {"index"}
    found = [in_checkout("README.md", target) for target in links("README.md")]
    assert {DOCS / f"{name}.md" for name in listed} <= {led[0] for led in found if led}


def test_pictures_and_numbers_are_up_to_date() -> None:
    from docs.pictures import drawing
    from docs.pictures.__main__ import numbers

    for name in ("edge", "attack", "architecture"):
        picture = (DOCS / "pictures" / f"{name}.svg").read_text()
        assert picture == getattr(drawing, name)().text(), f"{name}: python -m docs.pictures"
    assert "\n".join(numbers()) in pages()["docs/algorithms.md"], "python -m docs.pictures"


def test_memory_is_close_to_the_tables(fresh_server: RedisServer, settings: Any) -> None:
    """Servers differ by some bytes per key, so the comparison is rough."""
    from docs.pictures.memory import HITS, bytes_a_key

    # A new server, because another one may free memory of earlier tests at any time.
    alias = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": fresh_server.url}
    settings.CACHES = {"default": alias}
    rows = table("docs/algorithms.md", "In numbers", number=2)
    for name, *cells in rows:
        sizes = dict(zip(HITS, (int(cell.replace(",", "")) for cell in cells), strict=True))
        found = bytes_a_key(code_in(name)[0], 100, keys=400)
        # The server's own memory changes too, by up to 100 bytes per key.
        assert abs(found - sizes[100]) < 0.5 * sizes[100] + 100, name
