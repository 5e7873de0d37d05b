"""manage.py slidingwindow override and overrides."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone as clock

from django_slidingwindow import limits
from django_slidingwindow.guard import override_snapshot
from django_slidingwindow.models import Override
from django_slidingwindow.overrides.changes import parse_until
from django_slidingwindow.testing import limits_in_memory

pytestmark = pytest.mark.django_db

HOSTILE = "evil\x1b]0;owned\x07\n\u202e<b>"
HARMLESS = "evil%1B]0;owned%07%0A%E2%80%AE<b>"
PROFILES = {
    "api": {"axis": "tenant", "rate": "4/h"},
    "two": {"axis": "ip", "rates": ["4/m", "9/h"]},
}


@pytest.fixture(autouse=True)
def _profiles(settings: Any) -> Iterator[None]:
    settings.SLIDING_WINDOW = {"PROFILES": PROFILES, "IDENTITIES": {"tenant": "shop.tenant"}}
    with limits_in_memory():
        yield
    override_snapshot.publish(None)


def run(*arguments: str) -> str:
    stream = io.StringIO()
    call_command("slidingwindow", *arguments, stdout=stream)
    return stream.getvalue()


def objects(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments, "--json").splitlines()]


def fails(*arguments: str) -> tuple[int, str]:
    with pytest.raises(CommandError) as caught:
        run(*arguments)
    return caught.value.returncode, str(caught.value)


def test_override_is_made_listed_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    made = objects(
        *("override", "--profile", "api", "--id", "acme", "--limit", "500"),
        *("--until", "+2h", "--note", "launch"),
    )
    (listed,) = objects("overrides")
    assert made == [listed]
    until = datetime.fromisoformat(listed.pop("until"))
    assert abs(until - clock.now() - timedelta(hours=2)) < timedelta(minutes=1)
    assert listed.pop("created_at")
    assert listed == {
        "id": Override.objects.get().pk,
        "profile": "api",
        "identifier": "acme",
        "action": "limit",
        "limit": "500",
        "in_force": True,
        "note": "launch",
        "created_by": "ada",
    }
    assert limits.check("api", "acme").limit == 500
    (ended,) = objects("override", "--profile", "api", "--id", "acme", "--end")
    assert not ended["in_force"]
    assert limits.check("api", "acme").limit == 4
    assert objects("overrides") == []
    assert len(objects("overrides", "--ended")) == 1
    assert fails("override", "--profile", "api", "--id", "acme", "--end")[0] == 1


@pytest.mark.parametrize("error", [KeyError, OSError])
def test_created_by_is_empty_when_the_user_has_no_name(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown() -> str:
        raise error("getpwuid(): uid not found: 12345")

    monkeypatch.setattr("getpass.getuser", unknown)
    (made,) = objects("override", "--profile", "api", "--block")
    assert made["created_by"] == ""


@pytest.mark.parametrize("action", ["exempt", "observe", "block"])
def test_action_applies_to_all_identifiers(action: str) -> None:
    (made,) = objects("override", "--profile", "api", f"--{action}")
    assert (made["action"], made["identifier"], made["limit"]) == (action, "", "")
    assert limits.check("api", "anybody").override == action


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--profile", "apii", "--block"), "did you mean 'api'"),
        (("--profile", "api", "--limit", "many"), "has no '/'"),
        (("--profile", "two", "--limit", "5"), "several windows"),
        (("--profile", "api"), "required"),
        (("--block",), "--profile"),
        (("--profile", "api", "--block", "--exempt"), "not allowed with"),
        (("--profile", "api", "--id", "", "--block"), "--id: the value is empty"),
        (("--profile", "api", "--block", "--until", "soon"), "neither a duration"),
        (("--profile", "api", "--block", "--until", "+soon"), "unit"),
        (("--profile", "api", "--block", "--until", "2999-13-01T00:00Z"), "neither a duration"),
        (("--profile", "api", "--block", "--until", "9999-12-31T23:59-12:00"), "neither"),
        (("--profile", "api", "--block", "--until", "2001-01-01T00:00"), "has passed"),
        (("--profile", "api", "--block", "--until", "9999-12-31T23:59Z"), "too late: leave it out"),
        (("--profile", "api", "--block", "--note", "x" * 201), "at most 200"),
    ],
)
def test_wrong_arguments_save_nothing(arguments: tuple[str, ...], problem: str) -> None:
    code, text = fails("override", *arguments)
    assert code in (1, 2)
    assert problem in text
    assert not Override.objects.exists()


def test_end_keeps_the_override_for_all_when_the_identifier_is_empty() -> None:
    run("override", "--profile", "api", "--limit", "9")
    assert "--id: the value is empty" in fails("override", "--profile", "api", "--id=", "--end")[1]
    assert limits.check("api", "acme").limit == 9


def test_end_finds_an_override_that_code_has_saved_in_another_spelling() -> None:
    Override.objects.create(profile="two", identifier="2001:DB8::7", action="block")
    assert not limits.check("two", "2001:db8::5").allowed
    (ended,) = objects("override", "--profile", "two", "--id", "2001:db8::5", "--end")
    assert ended["identifier"] == "2001:DB8::7"
    assert limits.check("two", "2001:db8::5").allowed


def test_hostile_identifier_is_escaped_and_blocked() -> None:
    run("override", "--profile", "api", "--id", HOSTILE, "--block")
    assert limits.check("api", HOSTILE).reason == "block"
    shown = run("overrides", "--format", "plain")
    assert HARMLESS in shown
    assert "\x1b" not in shown
    assert run("override", "--profile", "api", "--id", HARMLESS, "--end")
    assert limits.check("api", HOSTILE).allowed
    Override.objects.create(profile="api", identifier="a\x1bb", action="destroy")
    assert "a%1Bb" in run("overrides", "--format", "plain")


def test_plain_list_marks_overrides_for_all() -> None:
    run("override", "--profile", "two", "--limit", "5/m, 90/h")
    assert "(all)" in run("overrides", "--format", "plain")


def test_plain_list_lines_up_with_a_long_limit() -> None:
    run("override", "--profile", "two", "--limit", "400000/m, 9000000/h", "--note", "first")
    run("override", "--profile", "api", "--id", "acme", "--block", "--note", "second")
    header, second, first = run("overrides", "--format", "plain").splitlines()
    assert header.index("NOTE") == second.index("second") == first.index("first")
    ended = run("override", "--profile", "two", "--end", "--format", "plain").splitlines()
    assert ended[0].index("NOTE") == ended[1].index("first")


def test_until_follows_the_time_zone_of_the_project(settings: Any) -> None:
    settings.TIME_ZONE = "Europe/Berlin"
    moment = datetime(2999, 1, 1, 11, tzinfo=timezone.utc)
    assert parse_until("2999-01-01T12:00") == moment
    assert parse_until("2999-01-01T11:00+00:00") == moment
    assert parse_until("2999-01-01T11:00Z") == moment
    settings.USE_TZ = False
    assert parse_until("2999-01-01T11:00+00:00") == datetime(2999, 1, 1, 12)
    assert parse_until("2999-01-01T11:00Z") == datetime(2999, 1, 1, 12)
    assert parse_until("2999-01-01T12:00") == datetime(2999, 1, 1, 12)
