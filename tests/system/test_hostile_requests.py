"""Requests that try to bypass a limit, to use another client's window, or to cause an error."""

from __future__ import annotations

from itertools import product

import pytest
from asgiref.testing import ApplicationCommunicator
from django.contrib.sessions.backends.signed_cookies import SessionStore as CookieStore
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpResponse
from django.test import Client
from django.urls import path

from django_slidingwindow.core.keys import MAX_IDENTIFIER
from django_slidingwindow.decorators import rate_limit

LIMIT = 3
PROXY, CLIENT = "10.0.0.1", "203.0.113.9"


def tenant(request):
    return request.GET.get("tenant")


def seen(request, **kwargs):
    return HttpResponse("seen")


urlpatterns = [
    path("ip/", rate_limit("ip")(seen)),
    path("tenant/", rate_limit("tenant")(seen)),
    path("key/", rate_limit("key")(seen)),
    path("authorization/", rate_limit("authorization")(seen)),
    path("pair/", rate_limit("pair")(seen)),
    path("session/", rate_limit("session")(seen)),
    path("endpoint/<path:rest>", rate_limit("endpoint")(seen)),
    path("items/<str:name>", seen),
]
SETTINGS = {
    "LOG": False,
    "LATENCY_BUDGET": 10,
    "IDENTITIES": {"tenant": tenant, "other": lambda request: request.GET.get("other")},
    "PROFILES": {
        "ip": {"axis": "ip", "limit": LIMIT, "window": 60},
        "tenant": {"axis": "tenant", "limit": LIMIT, "window": 60},
        "key": {"axis": "header:X-API-Key", "limit": LIMIT, "window": 60},
        "authorization": {"axis": "header:Authorization", "limit": LIMIT, "window": 60},
        "pair": {"axis": "tenant+other", "limit": 1, "window": 60},
        "session": {"axis": "session", "limit": LIMIT, "window": 60},
        "endpoint": {"axis": "ip+endpoint", "limit": LIMIT, "window": 60},
    },
}

pytestmark = pytest.mark.urls(__name__)


@pytest.fixture(autouse=True)
def site(settings, redis):
    settings.SLIDING_WINDOW = SETTINGS
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.cache"
    settings.ALLOWED_HOSTS = ["*"]
    return settings


def behind_proxies(settings, **more):
    settings.SLIDING_WINDOW = {**SETTINGS, "TRUSTED_PROXIES": ["10.0.0.0/8"], **more}


def admitted(requests):
    """Return how many of the requests pass. No request may cause an error."""
    statuses = [Client().get(url, **extra).status_code for url, extra in requests]
    assert set(statuses) <= {200, 429}
    return statuses.count(200)


def windows(redis):
    return sorted(redis.keys("throttle:*"))


# Addresses

SPOOFED = [
    "1.1.1.{n}",
    "1.1.1.{n}, 10.0.0.7",
    "1.1.1.{n}, 2.2.2.{n}, 3.3.3.{n}",
    "10.0.0.{n}",
    "127.0.0.{n}",
    "::ffff:1.1.1.{n}",
    "2001:db8:{n}::1",
    "unknown{n}",
    "_secret{n}",
    "for=1.1.1.{n}",
    '"1.1.1.{n}"',
    "1.1.1.{n}:80{n}",
    "[2001:db8:{n}::1]:443",
    "',1.1.1.{n}",
    "{n}," * 2_000,
    "\x00{n}",
    "\u202e{n}".encode().decode("latin-1"),
]


@pytest.mark.parametrize("spoofed", SPOOFED)
def test_spoofed_header_is_no_bypass_without_proxies(spoofed):
    """django-smart-ratelimit trusts X-Forwarded-For by default: 5 of 5 bypassed."""
    requests = [
        ("/ip/", {"REMOTE_ADDR": CLIENT, "HTTP_X_FORWARDED_FOR": spoofed.format(n=number)})
        for number in range(6)
    ]
    assert admitted(requests) == LIMIT


@pytest.mark.parametrize("spoofed", SPOOFED)
def test_spoofed_start_of_the_chain_is_no_bypass_behind_a_proxy(site, spoofed):
    behind_proxies(site)
    requests = [
        (
            "/ip/",
            {
                "REMOTE_ADDR": PROXY,
                "HTTP_X_FORWARDED_FOR": f"{spoofed.format(n=number)}, {CLIENT}",
            },
        )
        for number in range(6)
    ]
    assert admitted(requests) == LIMIT


@pytest.mark.parametrize(
    "spoofed",
    [
        "for=1.1.1.{n}",
        'for="1.1.1.{n}',
        'for="[2001:db8:{n}::1]:443"',
        "for=1.1.1.{n};for=2.2.2.{n}",
        'for="\\"1.1.1.{n}',
        'for=1.1.1.{n};x="',
        'for=1.1.1.{n};x="\\',
        "by=1.1.1.{n}",
    ],
)
def test_spoofed_start_of_forwarded_is_no_bypass(site, spoofed):
    behind_proxies(site, FORWARDED_HEADER="forwarded")
    requests = [
        (
            "/ip/",
            {
                "REMOTE_ADDR": PROXY,
                "HTTP_FORWARDED": f"{spoofed.format(n=number)}, for={CLIENT}",
            },
        )
        for number in range(6)
    ]
    assert admitted(requests) == LIMIT


def test_host_that_a_proxy_quotes_in_forwarded_is_no_bypass(site, redis):
    behind_proxies(site, FORWARDED_HEADER="forwarded")
    requests = [
        (
            "/ip/",
            {
                "REMOTE_ADDR": PROXY,
                "HTTP_FORWARDED": f'for={CLIENT};host="x,for=6.6.6.{number};y"',
            },
        )
        for number in range(6)
    ]
    assert admitted(requests) == LIMIT
    assert windows(redis) == [f"throttle:ip:{{{CLIENT}}}:ip:c60"]


@pytest.mark.parametrize(
    "addresses",
    [
        [
            "2001:db8::1",
            "2001:0db8::0001",
            "2001:DB8:0:0:0:0:0:1",
            "2001:db8::1%eth0",
            "2001:db8::1%1",
            "2001:db8:0:0::0.0.0.1",
        ],
        [f"2001:db8::{number:x}" for number in range(6)],
        [f"2001:db8::{number}.2.3.4" for number in range(6)],
        [f"2002:cb00:7109:{number:x}::1" for number in range(6)],
        [f"2001:0:4136:e378:8000:{number:x}:34ff:8ef6" for number in range(6)],
        [
            "203.0.113.9",
            "::ffff:203.0.113.9",
            "::FFFF:cb00:7109",
            "0:0:0:0:0:ffff:cb00:7109",
            "::ffff:203.0.113.9%eth0",
        ],
        ["9.9.9.9", "::ffff:9.9.9.9", "64:ff9b::9.9.9.9", "64:ff9b::909:909"],
        [f"64:ff9b::10.0.0.{number}" for number in range(6)],
    ],
    ids=[
        "spellings",
        "hosts of a /64",
        "dotted",
        "6to4",
        "teredo ports",
        "mapped",
        "translated",
        "translated private",
    ],
)
def test_one_client_has_one_window_by_all_its_addresses(site, redis, addresses):
    """express-rate-limit skipped the subnet of addresses such as 2001:db8::1.2.3.4."""
    assert admitted([("/ip/", {"REMOTE_ADDR": address}) for address in addresses]) == LIMIT
    assert len(windows(redis)) == 1
    redis.flushall()
    behind_proxies(site)
    forwarded = [
        ("/ip/", {"REMOTE_ADDR": PROXY, "HTTP_X_FORWARDED_FOR": address}) for address in addresses
    ]
    assert admitted(forwarded) == LIMIT
    assert len(windows(redis)) == 1


@pytest.mark.parametrize(
    "addresses",
    [
        [f"::ffff:203.0.113.{number}" for number in range(6)],
        [f"64:ff9b::9.9.9.{number}" for number in range(6)],
        [f"2001:0:4136:e378:8000:63bf:34ff:8ef{number}" for number in range(6)],
        [f"2002:cb00:710{number}::1" for number in range(6)],
        [f"2001:db8:0:{number}::1" for number in range(6)],
    ],
    ids=["mapped", "translated", "teredo", "6to4", "networks"],
)
def test_many_clients_do_not_share_one_window(redis, addresses):
    """django-ratelimit masks ::ffff:a.b.c.d to ::, so that all of them share one bucket."""
    assert admitted([("/ip/", {"REMOTE_ADDR": address}) for address in addresses * LIMIT]) == 18
    assert len(windows(redis)) == 6


def test_entry_with_port_or_brackets_means_its_address(site, redis):
    behind_proxies(site)
    entries = ["203.0.113.9", "203.0.113.9:1", "203.0.113.9:65535", "[203.0.113.9]:1"]
    requests = [("/ip/", {"REMOTE_ADDR": PROXY, "HTTP_X_FORWARDED_FOR": e}) for e in entries]
    assert admitted(requests) == LIMIT
    assert windows(redis) == ["throttle:ip:{203.0.113.9}:ip:c60"]


async def test_header_with_underscores_is_no_bypass_under_asgi(site):
    """Django before 5.2.13 joins X_Forwarded_For to the header that the proxy writes."""
    behind_proxies(site)
    statuses = []
    for number in range(6):
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/ip/",
            "query_string": b"",
            "client": (PROXY, 4711),
            "headers": [
                (b"host", b"testserver"),
                (b"x-forwarded-for", CLIENT.encode()),
                # Behind the real header, and therefore closer to the server.
                (b"x_forwarded_for", b"1.1.1.%d" % number),
            ],
        }
        server = ApplicationCommunicator(ASGIHandler(), scope)
        await server.send_input({"type": "http.request", "body": b"", "more_body": False})
        statuses.append((await server.receive_output(timeout=30))["status"])
        await server.wait(timeout=30)
    assert statuses == [200] * LIMIT + [429] * LIMIT


@pytest.mark.parametrize("garbage", ["garbage", "1.2.3.4.5", "\x00", "[", "x" * 10_000, "%"])
def test_garbage_that_a_proxy_wrote_counts_against_the_proxy(site, redis, garbage):
    behind_proxies(site)
    requests = [
        ("/ip/", {"REMOTE_ADDR": PROXY, "HTTP_X_FORWARDED_FOR": f"{n}.1.1.1, {garbage}"})
        for n in range(1, 6)
    ]
    assert admitted(requests) == LIMIT
    assert windows(redis) == [f"throttle:ip:{{{PROXY}}}:ip:c60"]


@pytest.mark.parametrize(
    "header",
    [None, "", "unknown", "garbage", f"{CLIENT},", f"{CLIENT}, garbage, 10.0.0.2", "10.0.0.2"],
)
@pytest.mark.parametrize("more", [{}, {"EXEMPT": ["10.0.0.0/8", lambda request: False]}])
def test_proxy_that_names_no_client_is_not_exempt(site, header, more):
    behind_proxies(site, **{"EXEMPT": ["10.0.0.0/8"], **more})
    extra = {"REMOTE_ADDR": PROXY}
    if header is not None:
        extra["HTTP_X_FORWARDED_FOR"] = header
    assert admitted([("/ip/", extra)] * (LIMIT + 2)) == LIMIT


def test_client_that_a_proxy_names_is_exempt_by_its_address(site):
    behind_proxies(site, EXEMPT=[f"{CLIENT}/32"])
    extra = {"REMOTE_ADDR": PROXY, "HTTP_X_FORWARDED_FOR": CLIENT}
    assert admitted([("/ip/", extra)] * (LIMIT + 2)) == LIMIT + 2
    assert admitted([("/ip/", {"REMOTE_ADDR": CLIENT})] * (LIMIT + 2)) == LIMIT + 2


WRAPPED = {
    "64:ff9b::10.0.0.1": "NAT64",
    "64:ff9b:1::10.0.0.1": "NAT64, local",
    "64:ff9b:1:a00:0:100::": "NAT64, local, /48",
    "2002:a00:1::1": "6to4",
    "2001:0:4136:e378:8000:63bf:f5ff:fffe": "Teredo",
    "::10.0.0.1": "compatible",
    "::ffff:0:10.0.0.1": "translated",
    "fe80::5efe:10.0.0.1": "ISATAP",
}


@pytest.mark.parametrize("wrapped", WRAPPED, ids=WRAPPED.values())
def test_private_address_inside_another_is_neither_trusted_nor_exempt(site, wrapped):
    behind_proxies(site)
    spoofed = [
        ("/ip/", {"REMOTE_ADDR": wrapped, "HTTP_X_FORWARDED_FOR": f"1.1.1.{n}"}) for n in range(5)
    ]
    assert admitted(spoofed) == LIMIT
    chained = [
        ("/ip/", {"REMOTE_ADDR": PROXY, "HTTP_X_FORWARDED_FOR": f"1.1.2.{n}, {wrapped}"})
        for n in range(5)
    ]
    assert admitted(chained) == 0
    site.SLIDING_WINDOW = {**SETTINGS, "EXEMPT": ["10.0.0.0/8"]}
    assert admitted([("/ip/", {"REMOTE_ADDR": wrapped})] * (LIMIT + 2)) == 0


def test_peer_without_an_address_is_refused_without_an_error():
    response = Client().get("/ip/", REMOTE_ADDR="")
    assert response.status_code == 503
    assert "Retry-After" not in response.headers


# Identifiers

IDENTIFIERS = [
    "",
    "acme",
    "ACME",
    " acme",
    "acme ",
    "a:b",
    "a}:b",
    "{acme}",
    "{",
    "}",
    "}{",
    "acme}:tenant:c60",
    "acme}:tenant:c60\n",
    "a\r\nb",
    "a\nb",
    "a\x00b",
    "\x00",
    "a\tb",
    "%",
    "%25",
    "%7B",
    "#",
    "a+b",
    "a%2Bb",
    "*",
    "?",
    "[a]",
    "\\",
    "'",
    '"',
    "\u202eacme",
    "acme\u200f",
    "\u200bacme",
    "café",
    "cafe\u0301",
    "\U0001f600",
    "\ufeff",
    "x" * MAX_IDENTIFIER,
    "x" * (MAX_IDENTIFIER + 1),
    "x" * 10_000,
    "x" * 10_001,
    "\x00" * 10_000,
]


@pytest.mark.parametrize("identifier", IDENTIFIERS, ids=lambda text: ascii(text[:20]))
def test_every_identifier_is_limited_without_an_error(identifier):
    assert admitted([("/tenant/", {"query_params": {"tenant": identifier}})] * (LIMIT + 2)) == LIMIT


def test_no_two_identifiers_share_a_window(redis):
    requests = [("/tenant/", {"query_params": {"tenant": name}}) for name in IDENTIFIERS]
    assert admitted(requests * LIMIT) == LIMIT * len(IDENTIFIERS)
    keys = windows(redis)
    assert len(keys) == len(IDENTIFIERS)
    for key in keys:
        assert key.startswith("throttle:tenant:{")
        assert key.endswith("}:tenant:c60")
        assert key.count("{") == key.count("}") == 1
        assert key.isprintable()
        assert len(key) < 2 * MAX_IDENTIFIER


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (("a+b", "c"), ("a", "b+c")),
        (("a%2Bb", "c"), ("a+b", "c")),
        (("a", "+"), ("a+", "")),
        (("", "a+b"), ("+a", "b")),
    ],
)
def test_pairs_that_read_alike_do_not_share_a_window(one, two):
    for name, other in (one, two):
        params = {"tenant": name, "other": other}
        assert admitted([("/pair/", {"query_params": params})] * 2) == 1


@pytest.mark.parametrize(
    "secret", ["key-1", "a:b}{", "x" * 10_000, "\x00", "k\xe9y", "throttle:ip:{203.0.113.9}"]
)
def test_api_key_is_limited_and_never_stored(redis, secret):
    assert admitted([("/key/", {"HTTP_X_API_KEY": secret})] * (LIMIT + 2)) == LIMIT
    (key,) = windows(redis)
    assert secret not in key
    assert key.isascii()


ENGINES = ["db", "cached_db", "cache", "file", "signed_cookies"]


def test_spellings_of_the_scheme_are_no_bypass(redis):
    cases = ["".join(letters) for letters in product(*zip("bear", "BEAR", strict=True))]
    requests = [
        ("/authorization/", {"HTTP_AUTHORIZATION": f"{case}er{blank}secret"})
        for case in cases
        for blank in (" ", "  ", "\t")
    ]
    assert admitted(requests) == LIMIT
    assert len(windows(redis)) == 1


@pytest.mark.django_db
@pytest.mark.parametrize("engine", ENGINES)
def test_invented_session_ids_are_no_bypass(site, engine):
    site.SESSION_ENGINE = f"django.contrib.sessions.backends.{engine}"
    requests = [("/session/", {"HTTP_COOKIE": f"sessionid={n:032}"}) for n in range(6)]
    assert admitted(requests) == LIMIT


def test_old_sessions_in_signed_cookies_are_no_bypass(site):
    """Every change gives a new cookie, and the old ones stay valid."""
    site.SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
    cookies = []
    for number in range(6):
        session = CookieStore()
        session["cart"] = number
        session.save()
        cookies.append(session.session_key)
    assert len(set(cookies)) == 6
    requests = [("/session/", {"HTTP_COOKIE": f"sessionid={cookie}"}) for cookie in cookies]
    assert admitted(requests) == LIMIT


def test_paths_of_one_route_are_no_bypass():
    paths = ["a", "b", "a/b", "..", "%2e%2e", "A", "a;x=1", "a?x=1", "%00", "\u202e"]
    requests = [(f"/endpoint/{text}", {"REMOTE_ADDR": CLIENT}) for text in paths]
    assert admitted(requests) == LIMIT


@pytest.mark.parametrize(
    "rule",
    [
        "^/items/.*$",
        "^/items/.+$",
        r"^/items/.*\Z",
        "^/(?!items/free$)",
        "(?m)^/(?!items/free$)",
        "^/items/[^/]*$",
    ],
)
@pytest.mark.parametrize("name", ["a%0Ab", "%0Aa", "a%0A", "free%0A", "%0A", "a%0D%0Ab"])
def test_newline_in_a_path_does_not_escape_a_rule(site, rule, name):
    site.MIDDLEWARE = ["django_slidingwindow.middleware.RateLimitMiddleware"]
    site.SLIDING_WINDOW = {**SETTINGS, "RULES": [{"path": rule, "profiles": ["ip"]}]}
    assert admitted([(f"/items/{name}", {})] * (LIMIT + 2)) == LIMIT


def test_rule_for_a_whole_path_does_not_match_the_same_path_with_a_newline(site):
    site.MIDDLEWARE = ["django_slidingwindow.middleware.RateLimitMiddleware"]
    site.SLIDING_WINDOW = {**SETTINGS, "RULES": [{"path": "^/items/a$", "profiles": ["ip"]}]}
    assert admitted([("/items/a%0A", {})] * (LIMIT + 2)) == LIMIT + 2
    assert admitted([("/items/a", {})] * (LIMIT + 2)) == LIMIT


def test_method_in_another_case_is_the_same_method():
    statuses = [
        Client().generic(method, "/ip/").status_code for method in ("GET", "get", "Get", "gEt")
    ]
    assert statuses == [200] * LIMIT + [429]
