"""The texts that explain how a request was identified."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from django_slidingwindow.inspection.identification import client, how_found
from django_slidingwindow.inspection.sample_request import request_of
from django_slidingwindow.policies import Policy, Profile

PROXIES = ["10.0.0.0/8"]


def tenant(request: Any) -> None: ...


def asked(ip: str = "10.0.0.1", forwarded: str | None = None, **options: Any) -> Any:
    headers = [] if forwarded is None else [("X-Forwarded-For", forwarded)]
    return request_of("GET", "/nowhere/", ip=ip, headers=headers, **options)


@pytest.mark.parametrize(
    ("proxies", "ip", "forwarded", "address", "why"),
    [
        ([], "10.0.0.1", None, "10.0.0.1", "no forwarding header was sent"),
        ([], "10.0.0.1", "203.0.113.9", "10.0.0.1", "because TRUSTED_PROXIES is empty"),
        (PROXIES, "198.51.100.7", "203.0.113.9", "198.51.100.7", "198.51.100.7 is not in TRUSTED"),
        (PROXIES, "", "203.0.113.9", None, "a unix socket is not in TRUSTED_PROXIES"),
        (PROXIES, "", None, None, "REMOTE_ADDR is not an address"),
        (["unix"], "", None, "unix", "it sent no x-forwarded-for: it is the client itself"),
        (["unix"], "", "203.0.113.9", "203.0.113.9", "written by a trusted proxy"),
        (PROXIES, "10.0.0.1", None, "10.0.0.1", "it is the client itself"),
        (PROXIES, "10.0.0.1", "203.0.113.9, x", "10.0.0.1", "has 'x', which is not an address"),
        (PROXIES, "10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3", "names trusted proxies only"),
        (PROXIES, "10.0.0.1", "6.6.6.6, 203.0.113.9, 10.0.0.2", "203.0.113.9", "the first hop"),
    ],
)
def test_client_says_why_it_is_the_client(
    settings: Any, proxies: list[str], ip: str, forwarded: str | None, address: Any, why: str
) -> None:
    settings.SLIDING_WINDOW = {"TRUSTED_PROXIES": proxies}
    found = client(asked(ip, forwarded))
    assert found.address == found.counted == address
    assert why in found.why
    assert (found.passed[0].where, found.passed[0].text) == ("REMOTE_ADDR", ip)


@pytest.mark.parametrize(
    ("axis", "anonymous", "expected"),
    [
        ("ip", "ip", ["ip: the address of the client"]),
        ("global", "ip", ["global: the same for all"]),
        ("user", "ip", ["user: no user, so the address of the client"]),
        ("user", "skip", ["user: no user, so the profile does not count it"]),
        ("user_or_ip", "skip", ["user_or_ip: no user, so the address of the client"]),
        ("endpoint", "ip", ["endpoint: no view has this path"]),
        (
            "session",
            "skip",
            ["session: a made-up request has no session, so the profile does not count it"],
        ),
        (
            "header:X-Forwarded-For",
            "ip",
            ["header:X-Forwarded-For: a keyed hash of the header"],
        ),
        (
            "header:X-Key+tenant+plan",
            "ip",
            [
                "header:X-Key: a keyed hash of the header, which was not sent",
                f"tenant: IDENTITIES, {__name__}.tenant",
                "plan: given",
            ],
        ),
    ],
)
def test_how_found_describes_each_part_of_an_axis(
    settings: Any, axis: str, anonymous: str, expected: list[str]
) -> None:
    settings.SLIDING_WINDOW = {"IDENTITIES": {"tenant": tenant, "plan": "shop.plan"}}
    policies = (Policy(limit=1, window=60),)
    profile = Profile(name="one", axis=axis, policies=policies, anonymous=anonymous)
    given = {"plan": "paid"}
    assert list(how_found(profile, asked(forwarded="x"), given)) == expected


def test_how_found_names_the_user_when_authenticated(settings: Any) -> None:
    settings.SLIDING_WINDOW = {"IDENTITIES": {"plan": "shop.plan"}}
    profile = Profile(name="one", axis="user+plan", policies=(Policy(limit=1, window=60),))
    user = SimpleNamespace(pk=7, is_authenticated=True)
    assert how_found(profile, asked(user=user), {}) == (
        "user: the primary key of the user",
        "plan: IDENTITIES, shop.plan",
    )
