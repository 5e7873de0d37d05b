"""The client's address comes from the part of a forwarding header that trusted proxies wrote."""

from __future__ import annotations

import logging
import time

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import RequestFactory

from django_slidingwindow.guard import proxies
from django_slidingwindow.guard.proxies import UnknownClientError, client_address

PROXY, OUTER, CLIENT, LIE = "10.0.0.1", "10.0.0.2", "203.0.113.9", "198.51.100.66"


@pytest.fixture
def client(settings):
    """Return the client of a request behind the proxies 10.0.0.0/8 and fd00::/8."""

    def ask(peer=PROXY, *, trusted=("10.0.0.0/8", "fd00::/8"), kind="x-forwarded-for", **meta):
        settings.SLIDING_WINDOW = {"TRUSTED_PROXIES": list(trusted), "FORWARDED_HEADER": kind}
        return str(client_address(RequestFactory().get("/", REMOTE_ADDR=peer, **meta)))

    return ask


def test_forwarding_header_is_ignored_until_proxies_are_named(client):
    assert client(CLIENT, trusted=(), HTTP_X_FORWARDED_FOR=LIE) == CLIENT


def test_forwarding_header_of_an_untrusted_peer_is_ignored(client):
    assert client(CLIENT, HTTP_X_FORWARDED_FOR=LIE) == CLIENT


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (CLIENT, CLIENT),
        (f"{LIE}, {CLIENT}", CLIENT),
        (f"{LIE},{LIE} , {CLIENT}", CLIENT),
        (f"{LIE}, {CLIENT}, {OUTER}", CLIENT),
        (f"{OUTER}, {CLIENT}, {OUTER}, {PROXY}", CLIENT),
        (f"{CLIENT}:51234", CLIENT),
        ("[2001:db8::7]:443", "2001:db8::7"),
        (f"::ffff:{CLIENT}", CLIENT),
        (f"{CLIENT}, ::ffff:{OUTER}", CLIENT),
        (f"{CLIENT}, fd00::5", CLIENT),
        # All of them are trusted: the first one sent the request.
        (f"10.9.9.9, {OUTER}", "10.9.9.9"),
    ],
)
def test_client_is_the_first_from_the_right_that_is_not_a_proxy(client, header, expected):
    assert client(HTTP_X_FORWARDED_FOR=header) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("unknown", PROXY),
        (f"{CLIENT}, unknown", PROXY),
        (f"{CLIENT}, garbage, {OUTER}", OUTER),
        ("", PROXY),
        (",,,", PROXY),
        (f"{CLIENT},", PROXY),
    ],
)
def test_proxy_that_wrote_an_invalid_entry_is_the_client(client, header, expected):
    assert client(HTTP_X_FORWARDED_FOR=header) == expected


def test_trusted_proxy_without_a_header_is_the_client_itself(client):
    assert client() == PROXY


def test_mapped_peer_is_trusted_by_its_ipv4_address(client):
    assert client(f"::ffff:{PROXY}", HTTP_X_FORWARDED_FOR=CLIENT) == CLIENT


@pytest.mark.parametrize("peer", [PROXY, f"::ffff:{PROXY}"])
@pytest.mark.parametrize("trusted", [f"::ffff:{PROXY}", "::ffff:10.0.0.0/104", "::ffff:a00:0/120"])
def test_proxy_may_be_named_by_its_mapped_address(client, peer, trusted):
    assert client(peer, trusted=[trusted], HTTP_X_FORWARDED_FOR=CLIENT) == CLIENT


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (f"for={CLIENT}", CLIENT),
        (f"For={CLIENT};proto=https;by=10.0.0.1", CLIENT),
        (f"proto=https; for={CLIENT} ;by=10.0.0.1", CLIENT),
        (f'for="{CLIENT}:4711"', CLIENT),
        ('for="[2001:db8::1]:443"', "2001:db8::1"),
        (f"for={LIE}, for={CLIENT}", CLIENT),
        (f"for={LIE}, for={CLIENT}, for={OUTER}", CLIENT),
        # A client's open quote does not hide what the proxy appends.
        (f'for="{LIE}, for={CLIENT}', CLIENT),
        (f'for="{LIE};x=", for={CLIENT}', CLIENT),
        (f'for="{LIE}, for="[2001:db8::1]"', "2001:db8::1"),
        # Separators and escapes inside quotes are text.
        (f'for={CLIENT};host="x,for={LIE};y"', CLIENT),
        (f'host="x,for={LIE};y";for={CLIENT}', CLIENT),
        (f'for={CLIENT};host="\\",for={LIE};x=\\""', CLIENT),
        (f'for={LIE}, for="{CLIENT[:-1]}\\{CLIENT[-1]}"', CLIENT),
        ("for=_secret", PROXY),
        ("for=unknown", PROXY),
        ("proto=https", PROXY),
        (f"for={LIE};for={CLIENT}", PROXY),
        (f"xfor={LIE}", PROXY),
        (f"for={CLIENT};broken", PROXY),
        (f'for={CLIENT};host="x"y', PROXY),
        (f'for={CLIENT};"host"=x', PROXY),
    ],
)
def test_forwarded_of_rfc_7239_is_read_when_it_is_chosen(client, header, expected):
    assert client(kind="forwarded", HTTP_FORWARDED=header) == expected


def test_forwarded_of_16_kb_of_spaces_is_read_in_little_time(client):
    """A quadratic expression took five seconds."""
    before = time.thread_time()
    assert client(kind="forwarded", HTTP_FORWARDED=f'for={" " * 16_384}"') == PROXY
    assert time.thread_time() - before < 1


def test_only_the_chosen_header_is_read(client):
    assert client(HTTP_FORWARDED=f"for={LIE}") == PROXY
    assert client(kind="Forwarded", HTTP_X_FORWARDED_FOR=LIE) == PROXY


def test_unix_socket_is_trusted_only_by_name(client):
    with pytest.raises(UnknownClientError, match="unix socket"):
        client("", HTTP_X_FORWARDED_FOR=CLIENT)
    assert client("", trusted=["unix"], HTTP_X_FORWARDED_FOR=f"{LIE}, {CLIENT}") == CLIENT
    assert client(
        "", trusted=["unix", "10.0.0.0/8"], HTTP_X_FORWARDED_FOR=f"{CLIENT}, {OUTER}"
    ) == (CLIENT)


def test_unix_among_trusted_proxies_does_not_trust_addresses(client):
    assert client(LIE, trusted=["unix"], HTTP_X_FORWARDED_FOR=CLIENT) == LIE


def test_unix_socket_that_names_no_client_counts_as_one(client):
    assert client("", trusted=["unix"]) == "unix"
    assert client("", trusted=["unix"], HTTP_X_FORWARDED_FOR="unknown") == "unix"


def test_request_without_any_address_is_unknown(settings):
    settings.SLIDING_WINDOW = {}
    request = RequestFactory().get("/")
    del request.META["REMOTE_ADDR"]
    with pytest.raises(UnknownClientError, match="TRUSTED_PROXIES"):
        client_address(request)


def test_warns_once_when_a_header_comes_without_trusted_proxies(client, caplog, monkeypatch):
    monkeypatch.setattr(proxies, "_warned", False)
    with caplog.at_level(logging.WARNING, "django_slidingwindow"):
        client(CLIENT, trusted=())
        assert not caplog.records
        for _ in range(3):
            client(CLIENT, trusted=(), HTTP_X_FORWARDED_FOR=LIE)
    (record,) = caplog.records
    assert "TRUSTED_PROXIES" in record.getMessage()


def test_cache_of_hops_is_bounded_and_does_not_keep_long_texts(client, monkeypatch):
    monkeypatch.setattr(proxies._hops, "size", 8)
    client()
    # The settings do not change, because that would clear the cache.
    for number in range(50):
        request = RequestFactory().get("/", REMOTE_ADDR=f"192.0.2.{number}")
        assert str(client_address(request)) == f"192.0.2.{number}"
        assert 0 < len(proxies._hops) <= 8
    client(HTTP_X_FORWARDED_FOR=f"{LIE}, {'9' * 500}")
    assert all(len(text) <= 128 for text in proxies._hops)


def test_cache_of_hops_does_not_keep_what_a_client_invents(client):
    client()
    for number in range(20):
        header = f"198.51.100.{number}, junk{number}, {CLIENT}"
        request = RequestFactory().get("/", REMOTE_ADDR=PROXY, HTTP_X_FORWARDED_FOR=header)
        assert str(client_address(request)) == CLIENT
        assert set(proxies._hops) == {PROXY, CLIENT}


@pytest.mark.parametrize("peer", [CLIENT, "::ffff:203.0.113.9"])
def test_client_without_a_proxy_is_counted_as_behind_one(client, peer):
    assert client(PROXY, HTTP_X_FORWARDED_FOR=peer) == CLIENT
    assert client(peer, trusted=()) == CLIENT
    assert proxies.counted_client(RequestFactory().get("/", REMOTE_ADDR=peer)) == CLIENT


def test_cache_of_counted_addresses_is_bounded_and_needs_no_hop_for_ipv4(settings, monkeypatch):
    monkeypatch.setattr(proxies._counted_addresses, "size", 8)
    settings.SLIDING_WINDOW = {}
    for number in range(50):
        address = f"192.0.2.{number}"
        request = RequestFactory().get("/", REMOTE_ADDR=address)
        assert proxies.counted_client(request) == proxies.canonical_ip(address) == address
        assert 0 < len(proxies._counted_addresses) <= 8
    assert not proxies._hops


def test_counted_network_follows_the_settings(settings):
    for prefix in (64, 48):
        settings.SLIDING_WINDOW = {"IPV6_PREFIX": prefix}
        assert proxies.canonical_ip("2001:db8:1:2::3").endswith(f"::/{prefix}")


def test_text_that_is_not_an_address_is_unchanged_and_not_kept():
    assert proxies.canonical_ip("somebody") == "somebody"
    assert "somebody" not in proxies._counted_addresses


def test_trusted_proxies_follow_the_settings(client):
    assert client(HTTP_X_FORWARDED_FOR=CLIENT) == CLIENT
    assert client(trusted=("192.0.2.0/24",), HTTP_X_FORWARDED_FOR=CLIENT) == PROXY
    assert client(HTTP_X_FORWARDED_FOR=CLIENT) == CLIENT


def test_errors_of_invalid_network_and_header_name_their_setting(client):
    with pytest.raises(ImproperlyConfigured, match=r"\['TRUSTED_PROXIES'\] has '10.0.0.1/8'"):
        client(trusted=["10.0.0.1/8"])
    with pytest.raises(ImproperlyConfigured, match=r"\['FORWARDED_HEADER'\] is 'x-real-ip'"):
        client(kind="x-real-ip")
