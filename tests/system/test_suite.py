"""The suite itself: its report, skips, selections and coverage gate."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.suite import coverage_exclusions, needs, selection
from tests.support.suite.needs import CHROMIUM, MARIADB, Need, install_command, need_of

ROOT = Path(__file__).parent.parent.parent
SUITE = """
import pytest
from tests.support.suite.needs import Need, require, CHROMIUM, skip

def test_runs(): pass
def test_skips(): {skip}
"""


def run_suite(folder: Path, body: str, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run a suite of two tests with the plugin of this suite."""
    (folder / "test_small.py").write_text(SUITE.format(skip=body))
    command = [sys.executable, "-m", "pytest", "-p", "tests.plugin"]
    variables = {
        **{name: value for name, value in os.environ.items() if name != "CI"},
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'scripts'}",
        "TEST_SUMMARY": str(folder / "summary.json"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        **environment,
    }
    done = subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_report_names_the_packages_that_skipped_tests_need(tmp_path: Path) -> None:
    code, output = run_suite(tmp_path, 'skip(CHROMIUM, "there is no chromium")', "--progress")
    assert code == 0
    assert "Ran 1 tests" in output
    assert "    1  Chromium" in output
    assert "apt-get install chromium chromium-driver" in output
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["ran"], summary["skipped"]) == (1, 1)


def test_skip_for_another_reason_fails(tmp_path: Path) -> None:
    code, output = run_suite(tmp_path, 'pytest.skip("no time today")')
    assert code == 1
    assert "no time today" in output


def test_skip_fails_in_ci(tmp_path: Path) -> None:
    code, output = run_suite(tmp_path, 'skip(CHROMIUM, "there is no chromium")', CI="true")
    assert code == 1
    assert "CI=true: a skipped test is a failure." in output


def test_report_says_that_nothing_was_skipped(tmp_path: Path) -> None:
    code, output = run_suite(tmp_path, "pass", CI="true")
    assert code == 0
    assert "Nothing was skipped." in output


def test_progress_names_a_failed_test(tmp_path: Path) -> None:
    code, output = run_suite(tmp_path, "assert False", "--progress")
    assert code == 1
    assert "FAILED test_small.py::test_skips" in output


def test_require_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "PATH", "")
    with pytest.raises(pytest.skip.Exception, match="there is no chromium and no chromedriver"):
        needs.require(CHROMIUM)
    with pytest.raises(pytest.skip.Exception) as skipped:
        needs.require(needs.TLS, False)
    assert need_of(f"Skipped: {skipped.value}") is needs.TLS
    assert need_of("Skipped: another reason") is None


def test_install_command_names_each_package_once() -> None:
    other = Need(name="other", packages=("mariadb-server",))
    assert install_command([MARIADB, other]) == "apt-get install mariadb-server"


@pytest.mark.parametrize(
    ("skipped", "code", "text"), [(0, 2, "gate of 100 % applies"), (1, 0, "does not apply")]
)
def test_coverage_gate_applies_only_if_nothing_was_skipped(
    tmp_path: Path, skipped: int, code: int, text: str
) -> None:
    config = (ROOT / "setup.cfg").read_text()
    named = config.replace("source_pkgs = django_slidingwindow", "source_pkgs = half")
    (tmp_path / "setup.cfg").write_text(named)
    (tmp_path / "half.py").write_text("import sys\nif len(sys.argv) > 5:\n    print('never')\n")
    path = tmp_path / "summary.json"
    path.write_text(json.dumps({"ran": 1, "skipped": skipped, "complete": True, "lines": []}))
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("COV")},
        "PYTHONPATH": str(ROOT),
        "TEST_SUMMARY": str(path),
    }
    run = [sys.executable, "-m"]
    measure = ["coverage", "run", "-m", "half"]
    subprocess.run([*run, *measure], cwd=tmp_path, env=environment, check=True)
    done = subprocess.run(
        [*run, "tests.support.suite.coverage_gate"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, text in done.stdout) == (code, True), done.stdout + done.stderr
    assert text in json.loads(path.read_text())["lines"][-1]


def test_selections_and_exclusions_name_existing_modules() -> None:
    named = selection.STARTING_MODULES | selection.SLOW_MODULES | coverage_exclusions.UNMEASURED
    assert named <= {path.stem for path in ROOT.glob("tests/**/test_*.py")}


def test_coverage_exclusions_name_existing_tests() -> None:
    sources = [path.read_text() for path in ROOT.glob("tests/**/test_*.py")]
    defined = set(re.findall(r"def (test_\w+)", "\n".join(sources)))
    assert defined >= coverage_exclusions.UNMEASURED_TESTS
