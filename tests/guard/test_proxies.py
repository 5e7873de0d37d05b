"""The client's address: as much of a forwarding header as trusted proxies wrote."""

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
    """Asks for the client of a request, behind the proxies 10.0.0.0/8 and fd00::/8."""

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
        # All of them trusted: the first is the one that asked.
        (f"10.9.9.9, {OUTER}", "10.9.9.9"),
    ],
)
def test_client_is_the_first_from_the_right_that_is_no_proxy(client, header, expected):
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
def test_entry_that_is_no_address_ends_the_walk_at_the_proxy_that_wrote_it(
    client, header, expected
):
    assert client(HTTP_X_FORWARDED_FOR=header) == expected


def test_trusted_proxy_without_a_header_is_the_client_itself(client):
    assert client() == PROXY


def test_mapped_peer_is_trusted_as_the_address_that_it_is(client):
    assert client(f"::ffff:{PROXY}", HTTP_X_FORWARDED_FOR=CLIENT) == CLIENT


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
def test_forwarded_of_rfc_7239_is_read_where_it_is_chosen(client, header, expected):
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


def test_trust_in_the_unix_socket_is_no_trust_in_addresses(client):
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


def test_header_without_declared_proxies_is_warned_of_once_a_process(client, caplog, monkeypatch):
    monkeypatch.setattr(proxies, "_warned", False)
    with caplog.at_level(logging.WARNING, "django_slidingwindow"):
        client(CLIENT, trusted=())
        assert not caplog.records
        for _ in range(3):
            client(CLIENT, trusted=(), HTTP_X_FORWARDED_FOR=LIE)
    (record,) = caplog.records
    assert "TRUSTED_PROXIES" in record.getMessage()


def test_addresses_that_are_known_are_bounded_and_text_that_is_long_is_not_kept(
    client, monkeypatch
):
    monkeypatch.setattr(proxies._hops, "size", 8)
    client()
    # Without a change of the settings, which would begin anew by itself.
    for number in range(50):
        request = RequestFactory().get("/", REMOTE_ADDR=f"192.0.2.{number}")
        assert str(client_address(request)) == f"192.0.2.{number}"
        assert 0 < len(proxies._hops) <= 8
    client(HTTP_X_FORWARDED_FOR=f"{LIE}, {'9' * 500}")
    assert all(len(text) <= 128 for text in proxies._hops)


def test_what_a_client_invents_in_the_header_is_not_kept(client):
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


def test_ipv4_client_without_a_proxy_needs_no_hop_and_those_that_are_known_are_bounded(
    settings, monkeypatch
):
    monkeypatch.setattr(proxies._counted, "size", 8)
    settings.SLIDING_WINDOW = {}
    for number in range(50):
        address = f"192.0.2.{number}"
        request = RequestFactory().get("/", REMOTE_ADDR=address)
        assert proxies.counted_client(request) == proxies.canonical_ip(address) == address
        assert 0 < len(proxies._counted) <= 8
    assert not proxies._hops


def test_counted_network_follows_the_settings(settings):
    for prefix in (64, 48):
        settings.SLIDING_WINDOW = {"IPV6_PREFIX": prefix}
        assert proxies.canonical_ip("2001:db8:1:2::3").endswith(f"::/{prefix}")


def test_text_that_is_not_an_address_stays_as_it_is_and_is_not_kept():
    assert proxies.canonical_ip("somebody") == "somebody"
    assert "somebody" not in proxies._counted


def test_who_is_trusted_is_asked_again_when_the_settings_change(client):
    assert client(HTTP_X_FORWARDED_FOR=CLIENT) == CLIENT
    assert client(trusted=("192.0.2.0/24",), HTTP_X_FORWARDED_FOR=CLIENT) == PROXY
    assert client(HTTP_X_FORWARDED_FOR=CLIENT) == CLIENT


def test_errors_of_wrong_network_and_header_name_their_setting(client):
    with pytest.raises(ImproperlyConfigured, match=r"\['TRUSTED_PROXIES'\] has '10.0.0.1/8'"):
        client(trusted=["10.0.0.1/8"])
    with pytest.raises(ImproperlyConfigured, match=r"\['FORWARDED_HEADER'\] is 'x-real-ip'"):
        client(kind="x-real-ip")
