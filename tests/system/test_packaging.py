"""The distributions contain all files of the package, including Lua files."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "django_slidingwindow"
FILES = {
    str(path.relative_to(ROOT))
    for path in PACKAGE.rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}

# One xdist worker runs all tests of this module, so that the wheel is built only once.
pytestmark = pytest.mark.xdist_group("packaging")


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--quiet", "--outdir", folder, ROOT, cwd=folder)
    return folder


def test_wheel_holds_every_file_of_the_package(distributions: Path) -> None:
    (wheel,) = distributions.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert any(name.endswith(".lua") for name in names)
    assert names == FILES


def test_sdist_holds_every_file_of_the_package(distributions: Path) -> None:
    (sdist,) = distributions.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= FILES


def test_both_can_be_uploaded(distributions: Path) -> None:
    every = sorted(distributions.iterdir())
    said = run(sys.executable, "-m", "twine", "check", "--strict", *every, cwd=distributions)
    assert said.count("PASSED") == len(every) == 2


def test_sdist_holds_what_a_reader_needs(distributions: Path) -> None:
    (sdist,) = distributions.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"CHANGELOG.md", "LICENSE", "README.md", "SECURITY.md", "docs/index.md"}
    wanted |= {"CODE_OF_CONDUCT.md", "CONTRIBUTING.md", "docs/contributing.md"}
    assert wanted | {"docs/pictures/edge.svg", "tests/conftest.py", "scripts/demo"} <= names
