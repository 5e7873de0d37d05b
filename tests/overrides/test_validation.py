"""The fields of an override are validated, and identifiers are stored in one spelling."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.utils import translation
from hypothesis import given
from hypothesis import strategies as st

from django_slidingwindow.core.keys import escape, join_identifiers, unescape
from django_slidingwindow.exceptions import PolicyError
from django_slidingwindow.guard.identity import canonical, keyed_hash
from django_slidingwindow.overrides.validation import (
    cleaned,
    marked,
    parse_limits,
    spellings,
    stored_identifier,
)
from django_slidingwindow.policies import Policy, Profile
from django_slidingwindow.registry import registry
from django_slidingwindow.rejections.text import printable

PROFILES = {
    "one": {"axis": "ip", "rate": "3/m"},
    "two": {"axis": "ip", "rates": ["3/m", "8/h"]},
    "function": {"axis": "ip", "rate": lambda identifier, request: "3/m"},
    "bare": {"axis": "ip", "limit": lambda identifier, request: 3, "window": 60},
    "tiered": {
        "axis": "ip",
        "tiers": {"free": "1/d", "paid": ["5/s", "9/d"], "internal": None},
        "tier": lambda identifier, request: "free",
    },
    "slots": {"axis": "ip", "inflight": 5},
    "mixed": {"axis": "ip", "rate": "3/2m", "inflight": 5},
    "tiered_slots": {
        "axis": "ip",
        "tiers": {"free": "1/d"},
        "tier": lambda identifier, request: "free",
        "inflight": 5,
    },
    "site": {"axis": "global", "rate": "3/m"},
    "session": {"axis": "session", "rate": "3/m"},
    "key": {"axis": "header:X-API-Key", "rate": "3/m"},
    "both": {"axis": "ip+header:X-API-Key", "rate": "3/m"},
}


@pytest.fixture(autouse=True)
def _profiles(settings: Any) -> None:
    settings.SLIDING_WINDOW = {"PROFILES": PROFILES}


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("500", ((500, None),)),
        (" 0 ", ((0, None),)),
        ("40/s", ((40, 1.0),)),
        ("40/s, 20000/d", ((40, 1.0), (20_000, 86_400.0))),
        ("8 in flight", ((8, 0.0),)),
        ("40/s, 8 in flight", ((40, 1.0), (8, 0.0))),
    ],
)
def test_parse_limits_returns_limits_and_windows(text: str, limits: Any) -> None:
    assert parse_limits(text) == limits


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "-1",
        "1.5",
        "5/",
        "/s",
        "1,2",
        "1, 2/s",
        "1/s, 2/s",
        "5 in",
        "5 in flight, 6 in flight",
        "9" * 30,
        "٣",
        "1/s,",
    ],
)
def test_parse_limits_raises_when_a_text_is_wrong(text: str) -> None:
    with pytest.raises(PolicyError):
        parse_limits(text)


@pytest.mark.parametrize(
    ("profile", "limit"),
    [
        ("one", "500"),
        ("one", "500/m"),
        ("two", "5/h"),
        ("two", "5/m, 50/h"),
        ("function", "5/d"),
        ("bare", "5"),
        ("bare", "5/s"),
        ("tiered", "5/s"),
        ("slots", "8"),
        ("slots", "8 in flight"),
        ("mixed", "8 in flight"),
        ("mixed", "8 in flight, 6/2m"),
        ("tiered_slots", "8 in flight"),
    ],
)
def test_cleaned_accepts_limits_that_fit_the_profile(profile: str, limit: str) -> None:
    assert cleaned(profile, "", "limit", limit) == ("", limit)


@pytest.mark.parametrize(
    ("profile", "limit", "problem"),
    [
        ("one", "", "needs a limit"),
        ("one", "many", "has no '/'"),
        ("one", "5/h", "this profile has 1 min"),
        ("two", "5", "several windows (1 min, 1 h)"),
        ("two", "5/m, 5/d", "this profile has 1 min, 1 h"),
        ("function", "5", "write a rate"),
        ("tiered", "5", "several windows (1 s, 1 d)"),
        ("tiered", "5/m", "this profile has 1 s, 1 d"),
        ("mixed", "8", "several windows (in flight, 2 min)"),
        ("slots", "8/2m", "this profile has in flight"),
        ("one", "8 in flight", "this profile has 1 min"),
    ],
)
def test_cleaned_raises_when_limits_do_not_fit_the_profile(
    profile: str, limit: str, problem: str
) -> None:
    with pytest.raises(ValidationError) as error:
        cleaned(profile, "", "limit", limit)
    assert [*error.value.message_dict] == ["limit"]
    assert problem in error.value.message_dict["limit"][0]


def test_cleaned_reports_all_problems() -> None:
    with pytest.raises(ValidationError) as error:
        cleaned("site", "acme", "limit", "x")
    assert set(error.value.message_dict) == {"identifier", "limit"}
    with pytest.raises(ValidationError) as error:
        cleaned("onne", "", "destroy", "")
    assert set(error.value.message_dict) == {"profile", "action"}
    assert "did you mean 'one'" in error.value.message_dict["profile"][0]


def test_cleaned_drops_the_limit_of_other_actions() -> None:
    assert cleaned("one", "", "block", "500") == ("", "")


@pytest.mark.parametrize("identifier", ["", "all"])
def test_cleaned_accepts_the_only_identifier_of_a_global_profile(identifier: str) -> None:
    assert cleaned("site", identifier, "block", "")[0] == identifier


HASH = f"hash:{keyed_hash('s3cret')}"
# A key that looks like a hash.
HEX = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("profile", "written", "stored"),
    [
        ("one", "203.0.113.9", "203.0.113.9"),
        ("one", "2001:DB8:0::17", "2001:db8::/64"),
        ("one", "2001:db8::/64", "2001:db8::/64"),
        ("key", "s3cret", HASH),
        ("key", HASH, HASH),
        ("key", HEX, f"hash:{keyed_hash(HEX)}"),
        ("key", "hash:s3cret", f"hash:{keyed_hash('hash:s3cret')}"),
        ("key", "a+b", f"hash:{keyed_hash('a+b')}"),
        ("session", "abc", f"hash:{keyed_hash('abc')}"),
        ("session", "ip:2001:DB8::17", "ip:2001:db8::/64"),
        ("one", HASH, HASH),
        ("both", f"203.0.113.9+{HASH}", f"203.0.113.9+{HASH}"),
        ("both", "2001:db8::17+s3cret", f"2001:db8::/64+{HASH}"),
        ("both", f"203.0.113.9+{HEX}", f"203.0.113.9+hash:{keyed_hash(HEX)}"),
        ("both", f"a%2Bb+{HASH}", f"a%252Bb+{HASH}"),
        ("one", "a%0Ab", "a%0Ab"),
        ("one", "%ff", "%25ff"),
        ("one", "100%", "100%"),
        ("one", "", ""),
    ],
)
def test_identifier_is_stored_in_one_spelling(profile: str, written: str, stored: str) -> None:
    known = registry.get(profile)
    assert stored_identifier(known, written) == stored
    # The stored form may be shown and written again.
    assert stored_identifier(known, stored) == stored
    assert len(stored) <= 200


@pytest.mark.parametrize("secret", ["s3cret", HEX, keyed_hash("s3cret"), HASH, "a+b%"])
@pytest.mark.parametrize("kind", ["key", "session", "both", "long"])
def test_override_applies_to_the_secret_and_not_to_its_hash(kind: str, secret: str) -> None:
    """Whether it is written, or comes from the log or a live key."""
    if kind == "long":
        profile = Profile(name="long", axis="header:X-API-Key+tenant", policies=OWN.policies)
    else:
        profile = registry.get(kind)

    def of_client(sent: str) -> str:
        parts = {"ip": "203.0.113.9", "tenant": f"%2{'x%' * 100}"}
        found = [parts.get(axis) or canonical(axis, sent) for axis in profile.axis.split("+")]
        return join_identifiers(found) if len(found) > 1 else found[0]

    shown = unescape(escape(of_client(secret)))
    stored = stored_identifier(profile, printable(marked(profile.axis, shown)))
    assert stored_identifier(profile, stored) == stored
    assert spellings(profile, stored) == {shown}
    assert shown != unescape(escape(of_client(keyed_hash(secret))))
    if kind == "key" and secret != HASH:
        assert stored_identifier(profile, secret) == stored


OWN = Profile(name="own", axis="tenant", policies=(Policy(limit=1, window=1),))


@given(st.text(min_size=1, max_size=300))
def test_identifier_in_the_admin_finds_its_requests(identifier: str) -> None:
    shown = printable(unescape(escape(identifier)))
    stored = stored_identifier(OWN, shown)
    assert len(stored) <= 200
    found = spellings(OWN, stored)
    assert identifier in found or unescape(escape(identifier)) in found


def test_problem_of_a_limit_is_translated_as_a_whole() -> None:
    with translation.override("de"), pytest.raises(ValidationError) as raised:
        cleaned("one", "", "limit", "many")
    (problem,) = raised.value.message_dict["limit"]
    assert "enthält kein '/': eine Rate ist eine ganze Zahl" in problem
