"""manage.py slidingwindow with plain, rich and JSON output, on a pipe and on a terminal."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from django_slidingwindow import limits
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.inspection import windows
from django_slidingwindow.inspection.profiles import profiles as all_profiles
from django_slidingwindow.management.commands.slidingwindow import Command
from django_slidingwindow.management.console import text
from django_slidingwindow.registry import register, unregister
from tests.support.terminal import Terminal

# A large budget: a busy machine must not look like an outage.
PATIENT = {"LATENCY_BUDGET": 5.0}
HOSTILE = "evil\x1b]0;owned\x07\x1b[31m\n\u202e[bold]<b>"
HARMLESS = "evil%1B]0;owned%07%1B[31m%0A%E2%80%AE[bold]<b>"
PROFILES: dict[str, dict[str, Any]] = {
    "api": {"axis": "tenant", "rate": "4/h"},
    "login": {"axis": "ip", "rates": ["2/m", "20/h"], "algorithm": "log", "mode": "observe"},
}
FORMATS = ("plain", "rich", "json")
DOCS = Path(__file__).parent.parent.parent / "docs"

pytestmark = pytest.mark.usefixtures("redis", "profiles")


@pytest.fixture
def profiles(monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with override_settings(SLIDING_WINDOW={**PATIENT, "PROFILES": PROFILES}):
        yield


@pytest.fixture
def hits(redis, profiles):
    for identifier, count in (("acme", 5), ("globex", 1), (HOSTILE, 3)):
        for _ in range(count):
            limits.check("api", identifier)
    limits.check("login", "203.0.113.9")


def run(*arguments: str, **options: Any) -> str:
    stream = io.StringIO()
    call_command("slidingwindow", *arguments, stdout=stream, **options)
    return stream.getvalue()


def objects(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments, "--json").splitlines()]


def plain(*arguments: str) -> list[str]:
    return run(*arguments, "--format", "plain").splitlines()


def rich(*arguments: str) -> str:
    """Return the output of rich without its colours."""
    printed = run(*arguments, "--format", "rich")
    return re.sub(r"\x1b\[[\d;]*m", "", printed)


def fails(*arguments: str) -> tuple[int, str]:
    with pytest.raises(CommandError) as caught:
        run(*arguments)
    return caught.value.returncode, str(caught.value)


@pytest.mark.usefixtures("hits")
class TestKeys:
    def test_json_is_one_object_per_line(self):
        found = {item["identifier"]: item for item in objects("keys", "--profile", "api")}
        assert found.keys() == {"acme", "globex", HOSTILE}
        acme = found["acme"]
        assert acme["blocked"] is True
        assert (acme["hits"], acme["limit"], acme["use"], acme["profile"]) == (4, 4, 1.0, "api")
        assert set(acme) == {*windows.KeyState.__dataclass_fields__}

    def test_plain_prints_a_header_and_a_line_per_window(self):
        header, *lines = plain("keys", "--profile", "api")
        assert header.split()[:3] == ["USE", "HITS", "LIMIT"]
        assert len(lines) == 3
        (acme,) = (line for line in lines if "{acme}" in line)
        assert re.match(
            r"100% +4 +4 +- +(1 h|59 min( \d+ s)?) +api +acme +throttle:tenant:{acme}", acme
        )
        (globex,) = (line for line in lines if "globex" in line)
        assert re.match(r" 25% +1 +4 +- +- +api", globex)

    @pytest.mark.parametrize("arguments", [("keys", "--top", "9"), ("watch", "--count", "1")])
    def test_plain_columns_fit_all_rows_when_they_are_known(self, arguments):
        limits.check("api", "a-tenant-with-quite-a-long-name-of-45-letters")
        header, *lines = [line for line in plain(*arguments) if line]
        at = header.index("KEY")
        assert len(lines) == 6
        assert {line[at:].startswith("throttle:") for line in lines} == {True}

    def test_rich_has_bars_and_colours(self):
        assert "\x1b[1;31m" in run("keys", "--format", "rich")
        assert "\x1b[1;31m" not in run("keys", "--format", "rich", no_color=True)
        acme = next(line for line in rich("keys").splitlines() if "{acme}" in line)
        assert "██████████" in acme

    def test_window_is_not_blocked_when_only_observed(self):
        limits.check("login", "203.0.113.9")
        (line,) = (line for line in plain("keys", "--profile", "login") if line.endswith(":l60"))
        assert re.match(r"100% +2 +2 +- +observed +login", line)
        assert objects("keys", "--profile", "login", "--blocked") == []

    @pytest.mark.parametrize("columns", [20, 44, 80, 100, 120, 140])
    def test_rich_cuts_nothing_when_the_terminal_is_narrow(self, columns, monkeypatch):
        monkeypatch.setenv("COLUMNS", str(columns))
        printed = rich("keys", "--profile", "api")
        for shown in ("identifier", "blocked for", "100%", "██████████", "globex"):
            assert shown in printed
        key = "throttle:tenant:{globex}:api:c3600"
        # A row is on one line, or only its long texts are folded.
        assert key in printed or max(map(len, printed.splitlines())) <= columns

    def test_rich_starts_another_table_when_the_list_is_long(self):
        for number in range(600):
            limits.check("api", f"t{number}")
        printed = rich("keys", "--profile", "api")
        assert printed.count("identifier") == 2
        assert printed.count("throttle:tenant:{t") == 600

    def test_error_is_printed_without_a_header(self):
        stream = io.StringIO()
        with pytest.raises(CommandError, match="unknown rate-limit profile 'nope'"):
            call_command("slidingwindow", "keys", "--profile", "nope", stdout=stream)
        assert stream.getvalue() == ""

    def test_empty_list_prints_a_header_or_nothing(self):
        assert len(plain("keys", "--id", "nobody")) == 1
        assert "identifier" in rich("keys", "--id", "nobody")
        assert objects("keys", "--id", "nobody") == []

    def test_options_filter_and_limit_the_list(self):
        assert [o["identifier"] for o in objects("keys", "--top", "2")] == ["acme", HOSTILE]
        assert [o["identifier"] for o in objects("keys", "--blocked")] == ["acme"]
        assert {o["window"] for o in objects("keys", "--axis", "ip")} == {60.0, 3600.0}
        assert [o["identifier"] for o in objects("keys", "--id", "glo*")] == ["globex"]
        assert len(objects("keys", "--limit", "2")) == 2
        top = objects("keys", "--top", "3", "--limit", "2")
        assert [o["identifier"] for o in top] == ["acme", HOSTILE]

    @pytest.mark.parametrize("action", ["keys", "watch"])
    @pytest.mark.parametrize("option", ["--id", "--axis", "--profile"])
    def test_empty_filter_is_an_error(self, action, option):
        parser = Command().create_parser("manage.py", "slidingwindow")
        with pytest.raises(CommandError, match="the value is empty"):
            parser.parse_args([action, option, ""])

    def test_progress_is_drawn_on_a_terminal_only(self, monkeypatch):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal.screen)
        run("keys", "--top", "2")
        printed = terminal.close()
        assert "5 of about 5 keys" in printed
        assert printed.endswith("\r\x1b[2K")
        monkeypatch.setattr(sys, "stderr", io.StringIO())
        run("keys", "--top", "2")
        assert sys.stderr.getvalue() == ""

    def test_progress_is_not_drawn_when_rows_go_to_a_terminal(self, monkeypatch):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal.screen)
        call_command("slidingwindow", "keys", "--format", "plain", stdout=terminal.screen)
        run("keys")
        assert terminal.close().count("of about") == 1

    def test_terminal_gets_rich_when_installed_otherwise_plain(self, monkeypatch):
        terminal = Terminal()
        call_command("slidingwindow", "keys", stdout=terminal.screen)
        assert "█" in terminal.close()
        monkeypatch.setitem(sys.modules, "rich", None)
        terminal = Terminal()
        call_command("slidingwindow", "keys", stdout=terminal.screen)
        printed = terminal.close()
        assert "█" not in printed
        assert " USE  " in printed

    def test_rich_format_fails_with_advice_when_not_installed(self, monkeypatch):
        module = "django_slidingwindow.management.console.rich_output"
        monkeypatch.delitem(sys.modules, module, raising=False)
        monkeypatch.setitem(sys.modules, "rich", None)
        monkeypatch.setitem(sys.modules, "rich.box", None)
        assert fails("keys", "--format", "rich") == (
            2,
            "import of rich.box halted; None in sys.modules: pip install rich",
        )

    def test_command_succeeds_when_the_reader_closes_the_pipe(self, redis_server):
        for number in range(1000):
            limits.check("api", f"tenant-with-quite-a-long-name-{number:060}")
        done = subprocess.run(
            f"{sys.executable} -m django slidingwindow keys | head -n 1",
            shell=True,
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split()[0] == "USE"
        # Its database has no tables, so it logs that it cannot read the overrides.
        assert [line for line in done.stderr.splitlines() if "the overrides" not in line] == []


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "PYTHONPATH": str(DOCS.parent),
    }


@pytest.mark.usefixtures("hits")
class TestShow:
    def test_plain_prints_facts_and_a_plot(self):
        lines = plain("show", "--profile", "api", "--id", "acme")
        facts = dict(re.split(r"  +", line, maxsplit=1) for line in lines[:-1])
        assert facts["algorithm"] == "compact"
        assert (facts["limit"], facts["hits"], facts["remaining"], facts["use"]) == (
            "4",
            "4",
            "0",
            "100%",
        )
        assert facts["key"] == "throttle:tenant:{acme}:api:c3600"
        assert facts["memory"].endswith(" B")
        assert re.fullmatch(r"1 h ago \| {59}█\| now", lines[-1])

    def test_json_has_the_hits_by_age(self):
        (shown,) = objects("show", "throttle:tenant:{acme}:api:c3600")
        assert sum(count for _, count in shown["log"]) == shown["hits"] == 4

    def test_rich_shows_a_bar(self):
        printed = rich("show", "--profile", "api", "--id", "globex")
        assert "██░░░░░░░░" in printed
        assert "| now" in printed

    def test_show_prints_all_windows_of_an_identifier(self):
        assert [
            o["window"] for o in objects("show", "--profile", "login", "--id", "203.0.113.9")
        ] == [
            60.0,
            3600.0,
        ]

    def test_plain_separates_windows_with_an_empty_line(self):
        assert plain("show", "--profile", "login", "--id", "203.0.113.9").count("") == 1

    def test_show_says_how_many_hits_may_be_leased(self):
        profiles = {"leased": {"axis": "tenant", "rate": "10000/d", "lease": 1_000}}
        with override_settings(SLIDING_WINDOW={**PATIENT, "PROFILES": profiles}):
            for _ in range(2):
                limits.check("leased", "acme")
            printed = "\n".join(plain("show", "--profile", "leased", "--id", "acme"))
            assert "4, at most 4 of them leased and not used yet" in printed
            assert objects("show", "--profile", "leased", "--id", "acme")[0]["leased"] == 4

    def test_keys_and_show_print_requests_in_flight_and_their_age(self, redis):
        profiles = {"slots": {"axis": "tenant", "rate": "9/m", "inflight": 2, "hold": "1h"}}
        key = "throttle:tenant:{acme}:slots:i3600"
        with override_settings(SLIDING_WINDOW={**PATIENT, "PROFILES": profiles}):
            with limits.hold("slots", "acme"), limits.hold("slots", "acme"):
                # Make the oldest request five minutes old.
                ((member, began),) = redis.zrange(key, 0, 0, withscores=True)
                redis.zadd(key, {member: began - 300_000_000})
                (listed,) = [line for line in plain("keys") if line.endswith("i3600")]
                assert re.search(r"100% .* 2 \(5 min( \d s)?\) +2 +- +one ends +slots", listed)
                shown = "\n".join(plain("show", key))
                assert "2 in flight, the oldest for 5 min" in shown
                assert 300 <= objects("show", key)[0]["in_flight_for"] < 360
                (rate,) = [one for one in objects("keys") if one["key"].endswith("c60")]
                assert rate["in_flight_for"] is None
            assert fails("show", key)[0] == 1

    def test_show_exits_1_when_nothing_is_found(self):
        assert fails("show", "--profile", "api", "--id", "nobody")[0] == 1
        assert fails("show", "throttle:tenant:{nobody}:api:c3600")[0] == 1

    @pytest.mark.parametrize(
        "arguments",
        [[], ["--id", "acme"], ["--profile", "api"], ["key", "--profile", "api", "--id", "acme"]],
    )
    def test_show_exits_2_when_the_target_is_ambiguous(self, arguments):
        assert fails("show", *arguments) == (2, "Give either keys, or --profile and --id.")


@pytest.mark.usefixtures("hits")
class TestReset:
    key = "throttle:tenant:{acme}:api:c3600"

    def test_yes_deletes_the_window(self):
        assert objects("reset", self.key, "--yes") == [
            {"key": self.key, "hits": 4, "reset": True, "dry_run": False}
        ]
        assert limits.check("api", "acme").allowed

    @pytest.mark.parametrize("output", ["plain", "rich"])
    def test_reset_prints_what_was_deleted(self, output):
        printed = run("reset", self.key, "--yes", "--format", output)
        assert "deleted" in printed
        assert "{acme}" in printed

    def test_dry_run_deletes_nothing(self):
        assert "no, dry run" in plain("reset", self.key, "--dry-run")[1]
        assert "no, dry run" in rich("reset", self.key, "--dry-run")
        assert objects("reset", self.key, "--dry-run")[0]["reset"] is False
        assert not limits.check("api", "acme").allowed

    def test_reset_prints_not_found_when_the_window_has_expired(self, monkeypatch):
        monkeypatch.setattr(windows, "reset_key", lambda key: False)
        assert plain("reset", self.key, "--yes")[1].startswith("not found")

    def test_reset_exits_2_when_there_is_no_terminal(self, monkeypatch):
        for stdin in (io.StringIO("y\n"), None):
            monkeypatch.setattr(sys, "stdin", stdin)
            assert fails("reset", self.key) == (
                2,
                "Cannot ask for confirmation without a terminal: use --yes or --dry-run.",
            )
        assert windows.describe(self.key) is not None

    @pytest.mark.parametrize(
        ("answer", "left"), [("y", False), ("YES", False), ("n", True), ("", True)]
    )
    def test_reset_asks_for_confirmation_on_a_terminal(self, monkeypatch, capsys, answer, left):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stdin", terminal.keyboard)
        terminal.press(answer.encode() + b"\n")
        if left:
            assert fails("reset", self.key) == (1, "Nothing was deleted.")
        else:
            run("reset", self.key)
        terminal.close()
        assert (windows.describe(self.key) is not None) is left
        assert f"{self.key}: 4 hits\nDelete this window? [y/N] " in capsys.readouterr().err


class TestProfiles:
    def test_json_has_the_whole_configuration(self):
        found = {item["name"]: item for item in objects("profiles")}
        assert found["api"] == {
            "name": "api",
            "origin": "settings",
            "axis": "tenant",
            "scope": "api",
            "mode": "enforce",
            "fallback": "local",
            "count_rejected": False,
            "penalty": None,
            "anonymous": "ip",
            "log": "refused",
            "dynamic": False,
            "tiers": None,
            "policies": [
                {
                    "limit": 4,
                    "window": 3600.0,
                    "algorithm": "compact",
                    "resolution": 60,
                    "lease": 0,
                    "lease_seconds": 0.0,
                }
            ],
            "problems": [],
        }
        assert found["ip_public"]["origin"] == "built in"

    def test_tables_show_rates_modes_and_problems(self):
        profiles = {
            **PROFILES,
            "leased": {"axis": "tenant", "rate": "10000/d", "lease": 1_000},
            "dynamic": {"axis": "tenant", "rate": lambda identifier, request: "5/m"},
            "sharing": {"axis": "tenant", "rate": "5/s", "scope": "api"},
            "skip": {"axis": "user", "rate": "7/s", "anonymous": "skip"},
            "slots": {"axis": "tenant", "rate": "5/m", "inflight": 1_000, "hold": "1h"},
            "dynamic_slots": {
                "axis": "tenant",
                "rate": lambda identifier, request: "5/m",
                "inflight": 3,
            },
            "wrong": {"axis": "tenant"},
        }
        with override_settings(SLIDING_WINDOW={**PATIENT, "PROFILES": profiles}):
            for printed in ("\n".join(plain("profiles")), rich("profiles")):
                assert re.search(r"login +ip +observe +local +2 / 1 min log, 20 / 1 h log", printed)
                assert re.search(r"dynamic +tenant +enforce +local +by identifier", printed)
                assert "needs exactly one of limit" in printed
                assert "10,000 / 1 d compact lease 1,000" in printed
                assert re.search(r"5 / 1 s compact +scope: api *$", printed, re.MULTILINE)
                # The name of a profile is the default of its scope alone.
                assert re.search(r"7 / 1 s compact +anonymous: skip *$", printed, re.MULTILINE)
                assert "5 / 1 min compact, 1,000 in flight hold 1 h" in printed
                assert "by identifier, 3 in flight hold 2 min" in printed

    def test_plain_columns_line_up_when_a_text_is_long(self):
        profiles = {
            "long": {"axis": "ip", "rates": ["1000/m", "10000/h"], "log": "all"},
            "short": {"axis": "ip", "rate": "5/s", "log": "all"},
            "wrong": {"axis": "ip", "rate": "5/s", "anonymous": "x" * 100},
        }
        with override_settings(SLIDING_WINDOW={**PATIENT, "PROFILES": profiles}):
            header, *lines = plain("profiles")
        (column,) = {line.index("log: all") for line in lines if "log: all" in line}
        assert header.index("OTHER KEYS") == column

    def test_registered_profile_has_its_own_origin(self):
        register("of_an_app", {"axis": "ip", "rate": "1/s"})
        try:
            origins = {state.name: state.origin for state in all_profiles()}
        finally:
            unregister("of_an_app")
        assert origins["of_an_app"] == "registered"


@pytest.mark.usefixtures("hits")
class TestWatch:
    def test_json_has_the_number_of_the_view(self):
        found = objects("watch", "--count", "2", "--interval", "0.01", "--top", "2")
        assert [(o["view"], o["identifier"]) for o in found] == [
            (0, "acme"),
            (0, HOSTILE),
            (1, "acme"),
            (1, HOSTILE),
        ]

    @pytest.mark.parametrize("output", ["plain", "rich"])
    def test_pipe_gets_one_table_per_view(self, output):
        printed = run("watch", "--count", "2", "--interval", "0.01", "--format", output)
        assert printed.count("{acme}") == 2
        assert "\x1b[?1049h" not in printed

    @pytest.mark.parametrize("key", [b"q", b"Q"])
    def test_terminal_is_redrawn_until_q(self, monkeypatch, key):
        terminal = Terminal()
        before = termios.tcgetattr(terminal.keyboard)
        monkeypatch.setattr(sys, "stdin", terminal.keyboard)
        terminal.press(b"x" + key)
        call_command("slidingwindow", "watch", "--interval", "60", stdout=terminal.screen)
        assert termios.tcgetattr(terminal.keyboard) == before
        printed = terminal.close()
        assert "\x1b[?1049h" in printed
        assert "{acme}" in printed
        assert "press q to quit" in printed
        assert printed.endswith("\x1b[?25h\x1b[?1049l")

    def test_terminal_is_redrawn_when_no_key_is_pressed(self, monkeypatch):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stdin", terminal.keyboard)
        arguments = ("watch", "--interval", "0.01", "--count", "3")
        call_command("slidingwindow", *arguments, stdout=terminal.screen)
        assert terminal.close().count("\x1b[H\x1b[2J") == 3

    def test_interrupt_quits_like_q(self, monkeypatch):
        def interrupted(*arguments: object, **options: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(windows, "keys_top", interrupted)
        terminal = Terminal()
        call_command("slidingwindow", "watch", stdout=terminal.screen)
        assert terminal.close().endswith("\x1b[?25h\x1b[?1049l")

    def test_watch_works_without_standard_input(self, monkeypatch):
        monkeypatch.setattr(sys, "stdin", None)
        assert len(objects("watch", "--count", "1", "--top", "1")) == 1

    def test_watch_continues_when_redis_is_down(self, redis_down):
        assert [line[:14] for line in plain("watch", "--count", "2", "--interval", "0.01")] == [
            "Redis is away:",
            "Redis is away:",
        ]


@pytest.fixture
def redis_down(fresh_server):
    caches = {"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": fresh_server.url}}
    with override_settings(CACHES=caches):
        fresh_server.kill()
        yield


@pytest.mark.usefixtures("redis_down")
@pytest.mark.parametrize(
    "arguments",
    [["keys"], ["keys", "--top", "1"], ["show", "--profile", "api", "--id", "x"]],
)
def test_command_exits_3_when_redis_is_down(arguments):
    code, message = fails(*arguments)
    assert code == 3
    assert message.startswith("Redis is away:")


def test_show_exits_1_when_the_key_is_not_a_window(redis):
    redis.lpush("throttle:tenant:{acme}:api:c3600", "x")
    assert fails("show", "throttle:tenant:{acme}:api:c3600")[0] == 1


def test_command_exits_3_when_redis_refuses_the_command(monkeypatch):
    def refused(*args: object, **options: object) -> None:
        raise StoreError("NOSUCH: command", outage=False)

    monkeypatch.setattr(windows, "walk", refused)
    assert fails("keys") == (3, "Redis refused the command: NOSUCH: command")


def test_command_exits_2_when_the_profile_is_unknown():
    code, message = fails("keys", "--profile", "apy")
    assert (code, "did you mean 'api'" in message) == (2, True)


def test_command_exits_2_when_the_cache_is_not_redis():
    caches = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    with override_settings(CACHES=caches):
        assert fails("keys")[0] == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["keys", "--top", "0"],
        ["keys", "--limit", "many"],
        ["keys", "--limit", "99999999999999999999"],
        ["watch", "--interval", "0"],
        ["watch", "--interval", "soon"],
        ["watch", "--interval", "inf"],
        ["watch", "--count", "1", "--interval", "1e300"],
        ["purge", "--days", "1e300"],
        ["purge", "--batch", "-1"],
        ["dance"],
        [],
    ],
)
def test_command_rejects_wrong_arguments(arguments):
    with pytest.raises(CommandError):
        run(*arguments)


@pytest.mark.usefixtures("hits")
@pytest.mark.parametrize("output", FORMATS)
@pytest.mark.parametrize("arguments", [["keys"], ["show", "--profile", "api", "--id", HOSTILE]])
def test_output_escapes_a_hostile_identifier(arguments, output):
    printed = run(*arguments, "--format", output)
    without_colours = re.sub(r"\x1b\[[\d;]*m", "", printed) if output == "rich" else printed
    assert "\x1b[31m" not in printed
    assert all(char.isprintable() or char == "\n" for char in without_colours)
    assert "\u202e" not in printed
    if output != "json":
        assert HARMLESS in without_colours


@pytest.mark.usefixtures("hits")
def test_show_accepts_a_listed_key():
    (key,) = (line.split()[-1] for line in plain("keys", "--id", HOSTILE)[1:])
    assert objects("show", key)[0]["identifier"] == HOSTILE


def test_output_escapes_the_key_of_another_application(redis):
    redis.set("throttle:tenant:{a\x1b[2J}:api:w3600", bytes(20))
    (line,) = plain("keys")[1:]
    assert line.endswith("throttle:tenant:{a%1B[2J}:api:w3600")


@pytest.mark.usefixtures("hits")
@pytest.mark.parametrize("output", ["plain", "rich"])
def test_output_is_ascii_when_the_stream_is(output):
    limits.check("api", "café")
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    call_command(
        "slidingwindow",
        "show",
        "--profile",
        "api",
        "--id",
        "café",
        "--format",
        output,
        stdout=stream,
    )
    stream.flush()
    printed = raw.getvalue().decode("ascii")
    assert r"caf\xe9" in printed
    assert "@| now" in printed


def test_wait_is_never_when_there_is_no_end():
    assert [text.wait(seconds) for seconds in (None, 250.0)] == ["never", "4 min 10 s"]


def test_counted_uses_the_singular_for_one():
    assert [text.counted(n, "hit") for n in (0, 1, 1_200)] == ["0 hits", "1 hit", "1,200 hits"]


def test_size_and_percent_are_short():
    assert [text.size(n) for n in (None, 80, 20_480, 41 * 1024**2)] == [
        "-",
        "80 B",
        "20.0 KiB",
        "41.0 MiB",
    ]
    assert [text.percent(use) for use in (None, 0.0, 0.29, 0.999, 1.0)] == [
        "-",
        "0%",
        "29%",
        "99%",
        "100%",
    ]


def test_density_starts_with_the_oldest():
    assert text.density([(9.99, 1), (5.0, 2), (0.0, 3)], 10.0, width=4) == [1, 2, 0, 3]
    assert text.sparkline([0, 1, 8]) == " ▁█"
    assert text.sparkline([]) == ""


def test_docs_describe_every_sub_command_and_option():
    described = (DOCS / "commands.md").read_text()
    parser = Command().create_parser("manage.py", "slidingwindow")
    (actions,) = (a.choices for a in parser._actions if a.dest == "action")
    for name, action in actions.items():
        section = described.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert section, name
        own = {o for a in action._actions for o in a.option_strings if o.startswith("--")}
        common = {o for a in parser._actions for o in a.option_strings} | {"--format", "--json"}
        shared = set() if name == "keys" else {"--profile", "--axis", "--id", "--blocked"}
        missing = [option for option in own - common - shared if option not in section]
        assert not missing, f"{name}: {missing}"


def actions() -> list[str]:
    parser = Command().create_parser("manage.py", "slidingwindow")
    (found,) = [action for action in parser._actions if action.dest == "action"]
    return sorted(found.choices or ())


@pytest.mark.parametrize("action", actions())
def test_help_of_an_action_has_examples_that_can_be_parsed(
    action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = Command().create_parser("manage.py", "slidingwindow")
    with pytest.raises(SystemExit) as ended:
        parser.parse_args([action, "--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    examples = re.findall(r"^  manage\.py slidingwindow (.+)$", printed, re.MULTILINE)
    assert examples
    for example in examples:
        assert parser.parse_args(shlex.split(example)).action == action


_WITHOUT_DATABASE = """
import sys

import django
from django.conf import settings
from django.core.management import execute_from_command_line

settings.configure(
    SECRET_KEY="only for a test",
    INSTALLED_APPS=["django_slidingwindow"],
    CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis:///0"}},
    SLIDING_WINDOW={"PROFILES": {"few": {"axis": "ip", "rate": "5/m"}}},
)
django.setup()
execute_from_command_line(["manage.py", "slidingwindow", *sys.argv[1:]])
"""


@pytest.mark.parametrize(
    ("action", "code", "text"),
    [("profiles", 0, "few"), ("doctor", 1, "cannot read the table in the database 'default'")],
)
def test_command_works_when_the_project_has_no_users_and_no_database(
    action: str, code: int, text: str
) -> None:
    command = [sys.executable, "-c", _WITHOUT_DATABASE, action]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert text in done.stdout
