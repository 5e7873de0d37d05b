"""The URLs that a load test may use."""

from __future__ import annotations

import pytest

from django_slidingwindow.load.target import Target, TargetError


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000/a/?b=c", Target("http", "127.0.0.1", 8000, "/a/?b=c")),
        ("https://shop.example", Target("https", "shop.example", 443, "/")),
        ("HTTP://[::1]/é", Target("http", "::1", 80, "/%C3%A9")),
    ],
)
def test_target_has_the_parts_of_the_url(url: str, expected: Target) -> None:
    assert Target.of(url) == expected


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("ftp://127.0.0.1/", "is not an address such as"),
        ("127.0.0.1:8000", "is not an address such as"),
        ("http:///path", "is not an address such as"),
        ("http://127.0.0.1:99999/", "is not an address: Port"),
        ("http://[::1/", "is not an address: Invalid IPv6"),
        ("http://me:secret@127.0.0.1/", "--header 'Authorization"),
        ("http://:secret@127.0.0.1/", "--header 'Authorization"),
    ],
)
def test_target_raises_for_other_urls(url: str, problem: str) -> None:
    with pytest.raises(TargetError, match=problem) as caught:
        Target.of(url)
    assert "me:secret" not in str(caught.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "[::1]", "localhost", "a.localhost"])
def test_loopback_hosts_are_own_hosts(host: str) -> None:
    assert Target.of(f"http://{host}/").is_own([])


@pytest.mark.parametrize(
    ("host", "own"),
    [("shop.example", True), ("a.example.org", True), ("example.org", True),
     ("other.example", False), ("192.0.2.1", False), ("localhost.example", False)],
)  # fmt: skip
def test_hosts_in_allowed_hosts_are_own_hosts(host: str, own: bool) -> None:
    allowed = ["*", "shop.example", ".example.org"]
    assert Target.of(f"http://{host}/").is_own(allowed) is own
