"""Workflows and other configuration files are valid, and agree with setup.cfg and tox.ini."""

from __future__ import annotations

import configparser
import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from trove_classifiers import classifiers as known_classifiers

from tests.support.docs_pages import ROOT
from tests.support.suite.needs import NEEDS

GITHUB = ROOT / ".github"
SCHEMAS = {
    ".github/workflows/*.yml": "vendor.github-workflows",
    ".github/dependabot.yml": "vendor.dependabot",
    ".github/ISSUE_TEMPLATE/config.yml": "vendor.github-issue-config",
    ".github/ISSUE_TEMPLATE/*_*.yml": "vendor.github-issue-forms",
    ".readthedocs.yaml": "vendor.readthedocs",
    "compose.yaml": "vendor.compose-spec",
}
FILES = [
    (path, schema) for pattern, schema in SCHEMAS.items() for path in sorted(ROOT.glob(pattern))
]
# BaseLoader: every scalar is a string, so that `on` is not True and 3.10 is not 3.1.
WORKFLOWS = {
    path.name: yaml.load(path.read_text(), yaml.BaseLoader)
    for path in sorted((GITHUB / "workflows").iterdir())
}
JOBS = [
    pytest.param(job, id=f"{file}-{name}")
    for file, workflow in WORKFLOWS.items()
    for name, job in workflow["jobs"].items()
]
STEPS = [step for job in JOBS for step in job.values[0].get("steps", ())]
SUITE = WORKFLOWS["tests.yml"]["jobs"]["suite"]
MATRIX = SUITE["strategy"]["matrix"]["include"]
# A release tag, PyPI's branch of releases, or a commit; never a moving branch.
PINNED = re.compile(r"[\w.-]+/[\w./-]+@(v\d+(\.\d+){0,2}|release/v\d+|[0-9a-f]{40})")


def read(name: str) -> configparser.ConfigParser:
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / name)
    return config


SETUP, TOX = read("setup.cfg"), read("tox.ini")


def expand(line: str) -> list[str]:
    """Return the names that a line of env_list such as py{310,311}-django52 expands to."""
    parts = re.split(r"\{([^}]*)\}", line)
    choices = [
        part.split(",") if odd else [part] for part, odd in zip(parts, itertools.cycle((0, 1)))
    ]
    return ["".join(each) for each in itertools.product(*choices)]


ENVIRONMENTS = {name for line in TOX["tox"]["env_list"].split() for name in expand(line)}
OF_SUITE = {name for name in ENVIRONMENTS if name.startswith("py")} | {"oldest"}


def classifiers(prefix: str) -> set[str]:
    """Return the versions of the classifiers with a prefix."""
    lines = SETUP["metadata"]["classifiers"].splitlines()
    return {line.removeprefix(prefix) for line in lines if re.fullmatch(rf"{prefix}\d+\.\d+", line)}


PYTHONS = classifiers("Programming Language :: Python :: ")


def dotted(digits: str) -> str:
    """Return "3.10" for "310"."""
    return f"{digits[0]}.{digits[1:]}"


def validate(path: Path, schema: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("path", "schema"), FILES, ids=[path.name for path, _ in FILES])
def test_file_is_valid(path: Path, schema: str) -> None:
    done = validate(path, schema)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_file_has_a_schema() -> None:
    yamls = {path for ending in ("yml", "yaml") for path in GITHUB.rglob(f"*.{ending}")}
    assert yamls | {ROOT / ".readthedocs.yaml", ROOT / "compose.yaml"} == {
        path for path, _ in FILES
    }


def test_invalid_workflow_is_found(tmp_path: Path) -> None:
    path = tmp_path / "tests.yml"
    path.write_text("on: push\njobs: {one: {runs-on: ubuntu-24.04, step: [{run: ls}]}}\n")
    done = validate(path, "vendor.github-workflows")
    assert done.returncode == 1, done.stdout + done.stderr


@pytest.mark.parametrize("job", JOBS)
def test_job_names_its_machine_and_its_time(job: dict[str, Any]) -> None:
    if "uses" in job:  # the jobs of the called workflow have them
        assert (ROOT / job["uses"]).is_file()
        return
    assert re.fullmatch(r"ubuntu-\d+\.04", job["runs-on"])
    assert 1 <= int(job["timeout-minutes"]) <= 60


@pytest.mark.parametrize("step", [step for step in STEPS if "uses" in step])
def test_action_is_pinned_and_keeps_no_credentials(step: dict[str, Any]) -> None:
    assert PINNED.fullmatch(step["uses"])
    if step["uses"].startswith("actions/checkout@"):
        assert step["with"]["persist-credentials"] == "false"


@pytest.mark.parametrize("step", [step for step in STEPS if "run" in step])
def test_command_holds_no_expression(step: dict[str, Any]) -> None:
    """GitHub inserts the value of an expression into the script as code. A variable is data."""
    assert "${{" not in step["run"]


def test_permissions_are_minimal() -> None:
    assert [flow["permissions"] for flow in WORKFLOWS.values()] == [{"contents": "read"}] * 2
    extended = [job.values[0] for job in JOBS if "permissions" in job.values[0]]
    (publish,) = extended
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"]["name"] == "pypi"
    assert not any("checkout" in step["uses"] for step in publish["steps"]), (
        "it runs no code of the repository"
    )
    assert set(publish["needs"]) == {"tests", "build"}


def test_suite_runs_in_every_environment_of_tox() -> None:
    usual = [entry["env"] for entry in MATRIX if "server" not in entry]
    assert sorted(usual) == sorted(OF_SUITE)


@pytest.mark.parametrize("entry", MATRIX, ids=lambda entry: "-".join(entry.values()))
def test_entry_runs_on_the_python_of_its_environment(entry: dict[str, str]) -> None:
    found = re.match(r"py(\d+)-", entry["env"])
    assert entry["python"] == (dotted(found[1]) if found else floor("python_requires"))


def test_suite_runs_on_every_promised_server() -> None:
    servers = {
        (entry["server"], entry["ref"].split(".")[0]) for entry in MATRIX if "server" in entry
    }
    assert servers == {("redis/redis", major) for major in "678"} | {("valkey-io/valkey", "9")}


def test_suite_installs_what_the_tests_need() -> None:
    (install,) = (step["run"] for step in SUITE["steps"] if "apt-get" in step.get("run", ""))
    assert {package for need in NEEDS for package in need.packages} <= set(install.split())


def test_other_jobs_run_the_other_environments_of_tox() -> None:
    jobs = WORKFLOWS["tests.yml"]["jobs"]
    ran = set(jobs["checks"]["strategy"]["matrix"]["env"])
    text = "".join(path.read_text() for path in (GITHUB / "workflows").iterdir())
    ran |= set(re.findall(r"tox run -e (\w+)", text))
    assert ran == ENVIRONMENTS - OF_SUITE


def test_versions_are_those_of_the_classifiers() -> None:
    factors = {name: re.fullmatch(r"py(\d+)-django(\d+)", name) for name in OF_SUITE - {"oldest"}}
    assert {dotted(match[1]) for match in factors.values() if match} == PYTHONS
    djangos = {dotted(match[2]) for match in factors.values() if match}
    assert djangos == classifiers("Framework :: Django :: ")
    wheel = WORKFLOWS["tests.yml"]["jobs"]["wheel"]
    assert set(wheel["strategy"]["matrix"]["python"]) == PYTHONS
    setups = [
        step["with"]["python-version"] for step in STEPS if "python-version" in step.get("with", {})
    ]
    assert {each for each in setups if "${{" not in each} <= PYTHONS
    assert min(PYTHONS, key=lambda each: int(each.split(".")[1])) == floor("python_requires")


def test_index_knows_the_classifiers() -> None:
    """PyPI refuses releases with unknown classifiers."""
    assert set(SETUP["metadata"]["classifiers"].split("\n")[1:]) <= known_classifiers


@pytest.mark.parametrize(("series", "fixed"), [("5.2", 13), ("6.0", 4), ("6.1", 0)])
def test_floor_of_django_is_the_release_that_fixes_header_smuggling(
    series: str, fixed: int
) -> None:
    """CVE-2026-3902: under ASGI, X_Forwarded_For joined X-Forwarded-For."""
    lines = SETUP["options"]["install_requires"].splitlines()
    (line,) = (line for line in lines if line.startswith("django>"))
    allowed = Requirement(line).specifier
    assert all(f"{series}.{patch}" not in allowed for patch in range(fixed))
    assert all(f"{series}.{patch}" in allowed for patch in range(fixed, fixed + 20))
    assert series in classifiers("Framework :: Django :: ")


def floor(name: str) -> str:
    """Return the lowest version that an entry of [options] with one requirement allows."""
    return SETUP["options"][name].removeprefix(">=")


def test_oldest_releases_are_the_floors() -> None:
    """The environment `oldest` of tox pins the lowest versions that setup.cfg allows."""
    extras = SETUP["options.extras_require"]
    pinned = [extras[name] for name in ("drf", "ninja", "spectacular", "toolbar")]
    required = "\n".join([SETUP["options"]["install_requires"], *pinned])
    floors = dict(re.findall(r"^([\w-]+)>=([\d.]+)", required, re.MULTILINE))
    pins = dict(re.findall(r"^([\w-]+)==([\d.]+)$", TOX["testenv:oldest"]["deps"], re.MULTILINE))
    assert set(pins) == set(floors)
    for name, pin in pins.items():
        assert pin in (floors[name], f"{floors[name]}.0"), name


def test_hooks_use_the_versions_of_tox() -> None:
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"
    hooks = {hook["id"]: hook for hook in local["hooks"]}
    assert set(hooks) == {"ruff-check", "ruff-format", "mypy"}
    for name in ("ruff-check", "ruff-format"):
        assert hooks[name]["additional_dependencies"] == [TOX["testenv:ruff"]["deps"]]
    assert hooks["mypy"]["entry"].endswith(" -e mypy")
    assert hooks["mypy"]["additional_dependencies"] == [f"tox>={TOX['tox']['min_version']}"]


def test_hosted_docs_are_those_of_tox() -> None:
    config = yaml.safe_load((ROOT / ".readthedocs.yaml").read_text())["build"]
    assert config["tools"]["python"] in PYTHONS
    commands = " ".join(config["jobs"]["build"]["html"])
    assert "tox run -e docs" in commands
    assert TOX["testenv:docs"]["commands"].endswith("{env_dir}/html")
    assert ".tox/docs/html" in commands


def test_servers_for_contributors_listen_only_on_this_machine() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    assert set(services) == {"redis", "postgres", "mariadb"}
    for service in services.values():
        assert re.fullmatch(r"[a-z]+:[\d.]+", service["image"])
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
