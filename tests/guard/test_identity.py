"""The identifier of a request by each axis, in sync and in async code."""

from __future__ import annotations

import threading

import pytest
from django.conf.urls.i18n import i18n_patterns
from django.contrib.auth.models import AnonymousUser, User
from django.contrib.sessions.backends.cache import SessionStore
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore
from django.contrib.sessions.backends.signed_cookies import SessionStore as CookieStore
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import RequestFactory
from django.urls import include, path, resolve
from django.utils import translation
from django.utils.functional import SimpleLazyObject

from django_slidingwindow.guard.identity import canonical, keyed_hash, resolver
from django_slidingwindow.profiles.user_code import in_thread
from tests.support.lazy_users import set_lazy_user

CLIENT = "203.0.113.9"


def view(request, **kwargs):
    return HttpResponse()


def other_view(request):
    return HttpResponse()


shop = [path("orders/<int:pk>/", view, name="order"), path("index/", other_view, name="index")]
urlpatterns = [
    path("index/", view, name="index"),
    path("unnamed/<int:pk>/", view),
    path("en/bilingual/", view, name="bilingual"),
    path("de/zweisprachig/", view, name="bilingual"),
    path("shop/", include((shop, "shop"))),
    path("other/", other_view, name="index"),
    *i18n_patterns(path("reports/", view), prefix_default_language=False),
]

pytestmark = pytest.mark.urls(__name__)


@pytest.fixture(autouse=True)
def settings_of_the_test(settings):
    settings.SLIDING_WINDOW = {}
    return settings


def get(url="/", **extra):
    return RequestFactory().get(url, REMOTE_ADDR=CLIENT, **extra)


def identifier(request, axis, anonymous="ip"):
    return resolver(axis, anonymous).find(request)


async def aidentifier(request, axis, anonymous="ip"):
    """Find the identifier as an async check does: prepare, and use a thread if it may block."""
    find, prepare, blocks = resolver(axis, anonymous)
    if prepare is not None:
        await prepare(request)
    return await in_thread(find, request) if blocks else find(request)


# Addresses


@pytest.mark.parametrize(
    ("spelling", "counted"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:DB8:0:0:FFFF:FFFF:FFFF:FFFF", "2001:db8::/64"),
        ("2001:db8::1%eth0", "2001:db8::/64"),
        ("2001:db8::1.2.3.4", "2001:db8::/64"),
        ("2001:db8:0:1::1", "2001:db8:0:1::/64"),
        # A 6to4 site owns 65,536 networks of /64, and is still one client.
        ("2002:cb00:7109::1", "2002:cb00:7109::/48"),
        ("2002:cb00:7109:ffff::1", "2002:cb00:7109::/48"),
        # Teredo clients of one server share its /64, and are still many clients.
        ("2001:0:4136:e378:8000:63bf:34ff:8ef6", "teredo:203.0.113.9"),
        ("2001:0:4136:e378:8000:1234:34ff:8ef6", "teredo:203.0.113.9"),
        ("2001:0:4136:e378:8000:63bf:34ff:8ef5", "teredo:203.0.113.10"),
        # IPv4 clients behind a translator are many clients too.
        ("64:ff9b::9.9.9.9", "9.9.9.9"),
        ("64:ff9b::9.9.9.8", "9.9.9.8"),
        # Translators have no private addresses, so one client has made these up.
        ("64:ff9b::10.0.0.1", "64:ff9b::/64"),
        ("64:ff9b::127.0.0.1", "64:ff9b::/64"),
        ("64:ff9b:1::10.0.0.1", "64:ff9b:1::/64"),
        ("::10.0.0.1", "::/64"),
        ("no address", "no address"),
    ],
)
def test_all_spellings_of_an_address_count_as_one_client(spelling, counted):
    assert canonical("ip", spelling) == counted


def test_canonical_does_not_change_a_canonical_identifier():
    for text in ("203.0.113.9", "2001:db8::/64", "2002:cb00:7109::/48", "teredo:203.0.113.9"):
        assert canonical("ip", text) == text


@pytest.mark.parametrize(
    ("prefix", "address", "counted"),
    [
        (48, "2001:db8:0:1::1", "2001:db8::/48"),
        (128, "2001:db8::1", "2001:db8::1/128"),
        (32, "2002:cb00:7109::1", "2002:cb00::/32"),
    ],
)
def test_prefix_of_ipv6_is_a_setting(settings, prefix, address, counted):
    settings.SLIDING_WINDOW = {"IPV6_PREFIX": prefix}
    assert canonical("ip", address) == counted


def test_request_counts_by_its_address():
    assert identifier(get(), "ip") == CLIENT
    assert identifier(RequestFactory().get("/", REMOTE_ADDR="2001:db8::5"), "ip") == "2001:db8::/64"


# Secrets


def test_secret_is_replaced_by_a_keyed_hash(settings):
    one = keyed_hash("secret")
    assert "secret" not in one
    assert len(one) == 32
    settings.SLIDING_WINDOW = {"HASH_KEY": "another key of this project"}
    assert keyed_hash("secret") != one


def test_header_counts_by_its_hash_and_a_request_without_it_not_at_all():
    request = get(HTTP_X_API_KEY="secret")
    assert identifier(request, "header:X-API-Key") == keyed_hash("secret")
    assert canonical("header:X-API-Key", "secret") == keyed_hash("secret")
    assert identifier(get(), "header:X-API-Key") is None
    assert identifier(get(HTTP_X_API_KEY=""), "header:X-API-Key") is None


def test_all_spellings_of_authorization_count_as_one():
    axis = "header:Authorization"
    values = ["Bearer secret", "bearer secret", "BEARER  secret", " Bearer\tsecret "]
    found = {identifier(get(HTTP_AUTHORIZATION=value), axis) for value in values}
    assert found == {canonical(axis, value) for value in values} == {keyed_hash("bearer secret")}
    assert identifier(get(HTTP_AUTHORIZATION=" "), axis) is None


def test_header_that_wsgi_keeps_elsewhere_is_found():
    request = RequestFactory().post("/", b"{}", content_type="application/json")
    assert identifier(request, "header:Content-Type") == keyed_hash("application/json")


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_session_that_exists_counts_by_its_hash(redis, way):
    session = SessionStore()
    session["cart"] = 5
    await session.asave()
    request = get()
    request.session = SessionStore(session.session_key)
    found = await both(way, request, "session")
    assert found == keyed_hash(session.session_key) == canonical("session", session.session_key)


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_invented_session_counts_by_address(redis, way):
    request = get()
    request.session = SessionStore("inventedinventedinventedinvented")
    assert await both(way, request, "session") == f"ip:{CLIENT}"
    assert await both(way, request, "session", "skip") is None


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_empty_session_counts_by_address(redis, way):
    session = SessionStore()
    await session.asave()
    request = get()
    request.session = SessionStore(session.session_key)
    assert await both(way, request, "session") == f"ip:{CLIENT}"


class KeepingStore(SessionStore):
    """Keeps the key that a client invents, as some engines do."""

    def load(self):
        return {}

    async def aload(self):
        return {}


class OwnCookieStore(CookieStore):
    """A project's variant of sessions in signed cookies."""


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize("store", [KeepingStore, CookieStore, OwnCookieStore])
async def test_invented_session_counts_by_address_when_the_engine_keeps_its_key(way, store):
    request = get()
    request.session = store("inventedinventedinventedinvented")
    assert await both(way, request, "session") == f"ip:{CLIENT}"
    assert await both(way, request, "session", "skip") is None


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_session_in_a_signed_cookie_counts_by_address_and_is_not_loaded(way):
    saved = CookieStore()
    saved["cart"] = 5
    await saved.asave()
    request = get()
    request.session = CookieStore(saved.session_key)
    assert await both(way, request, "session") == f"ip:{CLIENT}"
    assert not request.session.accessed


@pytest.mark.django_db
def test_session_is_loaded_by_one_query_which_the_view_does_not_repeat(
    django_assert_num_queries,
):
    saved = DatabaseStore()
    saved["cart"] = 5
    saved.save()
    request = get()
    request.session = DatabaseStore(saved.session_key)
    with django_assert_num_queries(1):
        assert identifier(request, "session") == keyed_hash(saved.session_key)
        assert request.session["cart"] == 5


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_request_without_sessions_counts_by_address(way):
    assert await both(way, get(), "session") == f"ip:{CLIENT}"


async def both(way, request, axis, anonymous="ip"):
    if way == "async":
        return await aidentifier(request, axis, anonymous)
    result = []
    thread = threading.Thread(target=lambda: result.append(identifier(request, axis, anonymous)))
    thread.start()
    thread.join()
    return result[0]


# Users


@pytest.mark.parametrize("axis", ["user", "user_or_ip"])
def test_user_counts_by_primary_key(axis):
    request = get()
    request.user = User(pk=17)
    assert identifier(request, axis) == "17"


@pytest.mark.parametrize("user", [AnonymousUser(), None])
def test_anonymous_counts_by_address_or_not_at_all(user):
    request = get()
    if user is not None:
        request.user = user
    assert identifier(request, "user") == f"ip:{CLIENT}"
    assert identifier(request, "user", "skip") is None
    assert identifier(request, "user_or_ip", "skip") == f"ip:{CLIENT}"
    assert canonical("user", "ip:::ffff:203.0.113.9") == f"ip:{CLIENT}"


def test_user_key_that_looks_like_an_address_has_another_window():
    found = set()
    for key in (f"ip:{CLIENT}", f"user:ip:{CLIENT}"):
        request = get()
        request.user = User(pk=key)
        found.add(identifier(request, "user"))
    found.add(identifier(get(), "user"))
    assert len(found) == 3


async def test_lazy_user_is_loaded_by_auser_in_async_code():
    async def auser():
        return User(pk=17)

    request = get()
    set_lazy_user(request, auser)
    assert await aidentifier(request, "user") == "17"


@pytest.mark.parametrize("has_auser", [False, True])
async def test_lazy_user_of_another_middleware_is_loaded_in_a_thread(has_auser):
    loaded_in = []

    def load():
        loaded_in.append(threading.current_thread())
        return User(pk=17)

    async def auser():
        return AnonymousUser()

    request = get()
    if has_auser:
        set_lazy_user(request, auser)
    request.user = SimpleLazyObject(load)
    assert await aidentifier(request, "user") == "17"
    assert request.user.pk == 17
    assert loaded_in[0] is not threading.current_thread()


async def test_user_that_is_loaded_is_not_loaded_again():
    async def auser():
        raise AssertionError("asked in vain")

    request = get()
    request.user, request.auser = User(pk=17), auser
    assert await aidentifier(request, "user") == "17"


# Endpoints and everybody


def endpoint(url):
    request = get(url)
    request.resolver_match = resolve(request.path_info)
    return identifier(request, "endpoint")


def test_endpoint_is_the_route_and_not_the_path():
    assert endpoint("/shop/orders/1/") == endpoint("/shop/orders/2/?x=1")
    assert endpoint("/unnamed/1/") == endpoint("/unnamed/2/")
    assert endpoint("/shop/orders/1/") != endpoint("/unnamed/1/")


def test_endpoint_in_several_languages_is_one():
    assert endpoint("/en/bilingual/") == endpoint("/de/zweisprachig/")


def test_endpoint_without_a_name_is_one_in_all_languages():
    found = set()
    for language, url in [("en-us", "/reports/"), ("de", "/de/reports/"), ("ja", "/ja/reports/")]:
        with translation.override(language):
            found.add(endpoint(url))
    assert found == {"reports/@tests.guard.test_identity.view"}


def test_endpoints_with_one_name_for_two_views_are_two():
    assert len({endpoint("/index/"), endpoint("/other/"), endpoint("/shop/index/")}) == 3


def test_endpoint_has_the_name_and_the_path_of_the_view():
    assert endpoint("/shop/orders/1/") == "shop:order@tests.guard.test_identity.view"
    assert endpoint("/unnamed/1/") == "unnamed/<int:pk>/@tests.guard.test_identity.view"


def test_request_without_a_view_has_no_endpoint():
    assert identifier(get(), "endpoint") is None


def test_everybody_shares_the_global_axis():
    assert identifier(get(), "global") == identifier(get("/other"), "global") == "all"


# Combined axes, and axes of the project


def test_combination_counts_each_pair():
    request = get("/index/")
    request.resolver_match = resolve("/index/")
    assert identifier(request, "ip+endpoint") == f"{CLIENT}+index@tests.guard.test_identity.view"


def test_combination_with_a_missing_part_is_skipped():
    assert identifier(get(), "ip+endpoint") is None


def test_combination_is_canonical_in_each_part():
    assert canonical("ip+tenant", "2001:db8::1+acme") == "2001:db8::/64+acme"
    assert canonical("tenant+ip", "a%2Bb%25+::ffff:1.2.3.4") == "a%2Bb%25+1.2.3.4"
    assert canonical("ip+tenant", "no pair") == "no pair"


def tenant(request):
    return request.headers.get("X-Tenant")


async def atenant(request):
    return request.headers.get("X-Tenant")


class CallableTenant:
    async def __call__(self, request):
        return request.headers.get("X-Tenant")


@pytest.mark.parametrize("way", ["sync", "async"])
@pytest.mark.parametrize(
    "resolver", [tenant, f"{__name__}.tenant", f"{__name__}.atenant", CallableTenant()]
)
async def test_own_resolver_may_be_a_path_a_function_or_async(settings, resolver, way):
    settings.SLIDING_WINDOW = {"IDENTITIES": {"tenant": resolver}}
    assert await both(way, get(HTTP_X_TENANT="acme"), "tenant") == "acme"
    assert await both(way, get(), "tenant") is None


async def test_sync_resolver_runs_in_a_thread_and_an_async_one_on_the_loop(settings):
    threads = {}

    def blocking(request):
        threads["sync"] = threading.current_thread()
        return "x"

    async def quick(request):
        threads["async"] = threading.current_thread()
        return "x"

    settings.SLIDING_WINDOW = {"IDENTITIES": {"one": blocking, "two": quick}}
    assert await aidentifier(get(), "one+two") == "x+x"
    assert threads["sync"] is not threading.current_thread()
    assert threads["async"] is threading.current_thread()


def test_own_resolver_replaces_a_built_in_one_and_its_identifiers_are_canonical(settings):
    settings.SLIDING_WINDOW = {"IDENTITIES": {"ip": lambda request: "2001:db8::1"}}
    assert identifier(get(), "ip") == "2001:db8::/64"


def test_identifier_that_is_not_a_string_becomes_one(settings):
    settings.SLIDING_WINDOW = {"IDENTITIES": {"tenant": lambda request: 5}}
    assert identifier(get(), "tenant") == "5"


@pytest.mark.parametrize(
    ("axis", "hint"),
    [
        ("tenant", "the known names are"),
        ("usr", "'user'"),
        ("header:", "the known names are"),
        ("header:X API Key", "the known names are"),
    ],
)
def test_axis_without_a_resolver_raises_an_error_with_a_hint(axis, hint):
    with pytest.raises(ImproperlyConfigured, match=f"no '{axis}'.*{hint}"):
        resolver(axis)
