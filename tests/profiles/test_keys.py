"""The table of profile keys, which says how each key is read, checked and shown."""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

import pytest
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.test import Client, override_settings
from django.urls import reverse

from django_slidingwindow import registry as registry_module
from django_slidingwindow.algorithms.penalties import Penalty
from django_slidingwindow.exceptions import PolicyError
from django_slidingwindow.inspection.profiles import ProfileState, remarks
from django_slidingwindow.policies import Policy, Profile
from django_slidingwindow.profiles.keys import IN_POLICIES, POLICIES, PROFILE_KEYS, TIER, ProfileKey
from django_slidingwindow.profiles.values import read_penalty
from django_slidingwindow.registry import profile_problems, read_profile, registry
from tests.support.docs_pages import table

GOOD = {"axis": "ip", "rate": "5/m", "jitter": 4, "region": "eu"}
WRONG = {"axis": "ip", "rate": "5/m", "jitter": -1}


@dataclass(frozen=True, slots=True, kw_only=True)
class WiderProfile(Profile):
    """The profile of a package with two more keys."""

    jitter: int = 0
    region: str = "any"


def read_jitter(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"jitter {value!r} is not a number of seconds from 0.")
    return value


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add two keys: one without a column, and one with a column."""
    jitter = ProfileKey(
        name="jitter", field="jitter", read=read_jitter, default=0, description="seconds to add"
    )
    region = ProfileKey(
        name="region",
        field="region",
        read=str,
        default="any",
        description="where",
        heading="Region",
        width=6,
        alert="eu",
    )
    monkeypatch.setitem(PROFILE_KEYS, "jitter", jitter)
    monkeypatch.setitem(PROFILE_KEYS, "region", region)
    monkeypatch.setattr(registry_module, "Profile", WiderProfile)
    with override_settings(SLIDING_WINDOW={"PROFILES": {"good": GOOD, "wrong": WRONG}}):
        yield


def printed(output: str) -> str:
    stream = io.StringIO()
    call_command("slidingwindow", "profiles", "--format", output, stdout=stream)
    return stream.getvalue()


def docs_row(key: ProfileKey) -> list[str]:
    """Return the cells of the key in docs/profiles.md."""
    default = key.default_text
    if not default and key.default is not None:
        value = key.default
        default = f'`"{value}"`' if isinstance(value, str) else f"`{value}`"
    return [f"`{key.name}`", default, key.description]


def test_docs_have_the_table_of_keys() -> None:
    rows = [docs_row(key) for key in PROFILE_KEYS.values()]
    written = table("docs/profiles.md", "Keys of a profile")
    lines = "\n".join(f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows)
    assert written == rows, f"docs/profiles.md needs these rows:\n{lines}"


def test_every_field_of_a_profile_has_a_key() -> None:
    named = {field.name for field in fields(Profile)}
    # The name is the key of the dict in the settings; limit, rate and tiers set limit_for.
    assert {key.field for key in PROFILE_KEYS.values()} - {TIER} == named - {"name", "limit_for"}
    # Only an override sets `override`.
    policy = {"limit", *IN_POLICIES, "override"}
    assert {field.name for field in fields(Policy) if field.init} == policy


def test_defaults_are_those_of_the_fields() -> None:
    defaults = {field.name: field.default for field in fields(Profile)}
    for key in PROFILE_KEYS.values():
        if key.field not in (POLICIES, TIER) and not key.default_text:
            assert key.default == defaults[key.field]


def test_every_key_has_a_description_of_one_line() -> None:
    for name, key in PROFILE_KEYS.items():
        assert name == key.name
        assert key.description
        assert "\n" not in key.description
        assert bool(key.heading) == bool(key.width)


@pytest.mark.usefixtures("added")
class TestAddedKey:
    def test_added_key_is_validated(self) -> None:
        assert list(profile_problems("good", GOOD)) == []
        assert list(profile_problems("wrong", WRONG)) == [
            (
                "SLIDING_WINDOW['PROFILES']['wrong']['jitter']",
                "jitter -1 is not a number of seconds from 0.",
            )
        ]
        with pytest.raises(ImproperlyConfigured, match=r"jitter -1 is not a number"):
            registry.get("wrong")

    def test_added_key_is_suggested_for_a_typo(self) -> None:
        ((_, problem),) = profile_problems("typo", {"axis": "ip", "rate": "5/m", "jittr": 1})
        assert problem == "unknown key: did you mean 'jitter'?"

    def test_added_key_is_checked_by_the_system_checks(self) -> None:
        found = [message for message in checks.run_checks() if "jitter" in message.msg]
        assert [message.id for message in found] == ["django_slidingwindow.E021"]

    def test_added_key_is_a_field_of_the_profile(self) -> None:
        profile = read_profile("good", GOOD)
        assert profile == WiderProfile(
            name="good", axis="ip", policies=(Policy.parse("5/m"),), jitter=4, region="eu"
        )
        assert registry.get("ip_public") == WiderProfile(
            name="ip_public", axis="ip", policies=(Policy.parse("120/m"),)
        )

    def test_added_key_is_in_json(self) -> None:
        records = {
            record["name"]: record for record in map(json.loads, printed("json").split("\n")[:-1])
        }
        assert (records["good"]["jitter"], records["good"]["region"]) == (4, "eu")
        assert (records["ip_public"]["jitter"], records["ip_public"]["region"]) == (0, "any")
        assert (records["wrong"]["jitter"], records["wrong"]["region"]) == (None, None)

    @pytest.mark.parametrize("output", ["plain", "rich"])
    def test_added_key_is_printed(self, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
        monkeypatch.setenv("COLUMNS", "200")
        text = printed(output)
        lines = {line.split()[0]: line for line in text.splitlines() if line.strip()}
        assert "region" in text.lower()
        assert "jitter: 4" in lines["good"]
        assert "eu" in lines["good"]
        assert "any" in lines["ip_public"]
        assert "jitter" not in lines["ip_public"]

    @pytest.mark.django_db
    def test_added_key_is_in_the_admin(self, admin_client: Client) -> None:
        page = admin_client.get(reverse("admin:django_slidingwindow_rejection_profiles"))
        text = page.content.decode()
        assert '<th scope="col">Region</th>' in text
        assert "<td><strong>eu</strong></td>" in text
        assert '<div class="sw-quiet">jitter: 4</div>' in text
        assert "jitter: 0" not in text
        assert "jitter -1 is not a number of seconds from 0." in text

    def test_docs_test_fails_when_an_added_key_is_missing(self) -> None:
        with pytest.raises(AssertionError, match=r"\| `jitter` \| `0` \| seconds to add \|"):
            test_docs_have_the_table_of_keys()


class TestPenalty:
    """The one key whose value has parts."""

    @staticmethod
    def problems(penalty: Any) -> list[tuple[str, str]]:
        config = {"axis": "ip", "rate": "5/m", "penalty": penalty}
        start = "SLIDING_WINDOW['PROFILES']['login']['penalty']"
        found = list(profile_problems("login", config))
        assert all(path.startswith(start) for path, _ in found)
        return [(path[len(start) :], str(problem)) for path, problem in found]

    def test_read_profile_reads_a_penalty(self) -> None:
        penalty = {"after": "3/10m", "steps": ["1m", 600, timedelta(days=1)]}
        profile = read_profile("login", {"axis": "ip", "rate": "5/m", "penalty": penalty})
        assert profile.penalty == Penalty(limit=3, window=600, steps=(60.0, 600.0, 86_400.0))
        assert hash(profile.penalty) == hash(pickle.loads(pickle.dumps(profile.penalty)))

    def test_penalty_is_shown_as_text(self) -> None:
        penalty = {"after": "3/10m", "steps": ["1m", "90s"]}
        config = {"axis": "ip", "rate": "5/m", "penalty": penalty}
        state = ProfileState(name="login", origin="settings", profile=read_profile("login", config))
        assert remarks(state.record()) == ["penalty: 3 / 10 min, then 1 min, 1 min 30 s"]
        assert json.dumps(state.record())

    @pytest.mark.parametrize("penalty", [None, "3/10m", ["1m"]])
    def test_penalty_must_be_a_dict(self, penalty: Any) -> None:
        [(path, problem)] = self.problems(penalty)
        assert path == ""
        assert problem.startswith("must be a dict such as")

    @pytest.mark.parametrize(
        ("change", "path", "problem"),
        [
            ({"after": None}, "['after']", "rate None is not a string"),
            ({"after": "3/month"}, "['after']", "unknown unit 'month'"),
            ({"after": "1001/d"}, "['after']", "tolerates at most 1,000 refusals."),
            ({"steps": "1m"}, "['steps']", "must be a list of 1 to 20 durations"),
            ({"steps": []}, "['steps']", "must be a list of 1 to 20 durations"),
            ({"steps": ["1m"] * 21}, "['steps']", "must be a list of 1 to 20 durations"),
            ({"steps": ["1m", "soon"]}, "['steps'][1]", "unknown unit 'soon'"),
            ({"steps": ["1h", "1m"]}, "['steps'][1]", "must not be shorter than the step before."),
            ({"stops": 1}, "['stops']", "is unknown: a penalty has after and steps."),
        ],
    )
    def test_penalty_problems_names_the_path_and_the_problem(
        self, change: Any, path: str, problem: str
    ) -> None:
        penalty = {"after": "1000/10m", "steps": ["1m"] * 20, **change}
        [(found_path, found)] = self.problems(penalty)
        assert found_path == path
        assert found.startswith(problem)
        with pytest.raises(PolicyError, match=re.escape(problem)):
            read_penalty(penalty)
