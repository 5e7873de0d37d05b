"""All spellings of an address are packed alike, and a client with many addresses counts as one."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_slidingwindow.guard.addresses import counted_address, is_usual_ipv4, pack_address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("203.0.113.9", "203.0.113.9"),
        (" 203.0.113.9\t", "203.0.113.9"),
        ("203.0.113.9:8080", "203.0.113.9"),
        ("2001:db8::1", "2001:db8::1"),
        ("2001:DB8:0:0:0:0:0:1", "2001:db8::1"),
        ("2001:0db8:0000:0000:0000:0000:0000:0001", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:443", "2001:db8::1"),
        ("[2001:db8::1]:_port", "2001:db8::1"),
        ("2001:db8::1.2.3.4", "2001:db8::102:304"),
        ("fe80::1%eth0", "fe80::1"),
        ("[fe80::1%25eth0]:443", "fe80::1"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("::FFFF:cb00:7109", "203.0.113.9"),
        ("0:0:0:0:0:ffff:203.0.113.9", "203.0.113.9"),
        ("[::ffff:203.0.113.9]:80", "203.0.113.9"),
        ("64:ff9b::9.9.9.9", "9.9.9.9"),
    ],
)
def test_all_spellings_of_an_address_are_packed_alike(text, address):
    assert pack_address(text) == ip_address(address).packed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "unknown",
        "_hidden",
        "010.0.0.1",
        "1.2.3",
        "1.2.3.4.5",
        "256.1.1.1",
        "0x7f.1",
        "2130706433",
        "[2001:db8::1",
        "2001:db8::1]",
        "[[2001:db8::1]]",
        "2001:db8:::1",
        "\u0661.2.3.4",
        "1.2.3.4\x00",
        "\u202e1.2.3.4",
        "1.2.3.4/32",
        "localhost",
        "9" * 10_000,
    ],
)
def test_text_that_is_not_an_address_is_none(text):
    assert pack_address(text) is None


@given(st.ip_addresses())
def test_pack_address_agrees_with_ipaddress(address: IPv4Address | IPv6Address) -> None:
    inside = getattr(address, "ipv4_mapped", None)
    if inside is None and address in IPv6Network("64:ff9b::/96"):
        inside = IPv4Address(address.packed[12:])
        inside = inside if inside.is_global else None
    expected = (inside or address).packed
    for text in (str(address), address.exploded, address.exploded.upper()):
        assert pack_address(text) == expected


@given(
    st.one_of(
        st.ip_addresses().map(str),
        st.from_regex(r"\A([0-9]{1,3}\.){2,4}[0-9]{1,3}\Z"),
        st.from_regex(r"\A[0-9x. \x00]{1,15}\Z"),
    )
)
def test_usual_ipv4_is_the_spelling_of_ipaddress(text: str) -> None:
    try:
        usual = str(IPv4Address(text)) == text
    except ValueError:
        usual = False
    assert is_usual_ipv4(text) is usual


@given(st.ip_addresses(v=4))
def test_ipv4_client_is_counted_by_its_address(address: IPv4Address) -> None:
    assert counted_address(address.packed, 64) == str(address)


# Random addresses would hardly ever be in the networks of Teredo and 6to4: draw these often.
_IPV6 = st.one_of(
    st.ip_addresses(v=6),
    st.ip_addresses(network="2001::/32"),
    st.ip_addresses(network="2002::/16"),
)


@given(_IPV6, st.integers(1, 128))
def test_ipv6_client_is_counted_by_its_network(address: IPv6Address, prefix: int) -> None:
    network = IPv6Network((address.packed, prefix), strict=False)
    if address.sixtofour is not None and prefix > 48:
        network = IPv6Network((address.packed, 48), strict=False)
    expected = str(network) if address.teredo is None else f"teredo:{address.teredo[1]}"
    assert counted_address(address.packed, prefix) == expected
