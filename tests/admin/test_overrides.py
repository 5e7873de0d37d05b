"""The admin of overrides: permissions, form errors, history and the links on other pages."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from django_slidingwindow import limits
from django_slidingwindow.admin import OverrideAdmin
from django_slidingwindow.core.keys import identifier_in
from django_slidingwindow.guard import override_snapshot
from django_slidingwindow.models import Override
from tests.support.rejection_factories import row

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("redis")]

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e"
SHOWN = "&lt;script&gt;alert(1)&lt;/script&gt;%1B[31m%E2%80%AE"
PROFILES: dict[str, Any] = {
    "api": {"axis": "tenant", "rate": "4/h"},
    "login": {"axis": "ip", "rates": ["2/m", "20/h"]},
    "keys": {"axis": "header:X-API-Key", "rate": "4/h"},
    "plans": {
        "axis": "tenant",
        "tiers": {"free": "100/d", "internal": None},
        "tier": lambda identifier, request: "free",
    },
    "broken": {"axis": "ip", "rate": "many"},
}


@pytest.fixture(autouse=True)
def _profiles(settings: Any) -> Iterator[None]:
    settings.SLIDING_WINDOW = {
        "PROFILES": PROFILES,
        "IDENTITIES": {"tenant": "shop.tenant"},
        "LATENCY_BUDGET": 5.0,
    }
    yield
    override_snapshot.publish(None)


def address(page: str, *args: Any, model: str = "override") -> str:
    return reverse(f"admin:django_slidingwindow_{model}_{page}", args=args)


def filled(**values: str) -> dict[str, str]:
    """Return the data that the form sends."""
    form = {"profile": "api", "identifier": "acme", "action": "block", "limit": "", "note": ""}
    return {**form, "until_0": "", "until_1": "", **values}


def errors(response: Any) -> dict[str, list[str]]:
    assert response.status_code == 200
    return dict(response.context["adminform"].form.errors)


def test_added_override_applies_at_once_and_is_in_the_history(admin_client: Client) -> None:
    response = admin_client.post(address("add"), filled(note="abuse", until_0="2999-01-01"))
    assert "until" in errors(response)
    until = {"until_0": "2999-01-01", "until_1": "12:00"}
    assert admin_client.post(address("add"), filled(note="abuse", **until)).status_code == 302
    override = Override.objects.get()
    assert (override.created_by, override.note) == ("admin", "abuse")
    assert limits.check("api", "acme").reason == "block"
    entry = LogEntry.objects.get()
    assert entry.is_addition()
    assert str(entry) == "Added “api acme: block”."


def test_override_can_be_edited_ended_and_deleted(admin_client: Client) -> None:
    override = Override.objects.create(profile="api", identifier="acme", action="block")
    change = address("change", override.pk)
    form = filled(action="limit", limit="9", note="x")
    assert admin_client.post(change, form).status_code == 302
    assert limits.check("api", "acme").limit == 9
    page = admin_client.get(change).content.decode()
    assert 'name="_end"' in page
    assert admin_client.post(change, {**form, "_end": "End now"}).status_code == 302
    assert limits.check("api", "acme").limit == 4
    assert 'name="_end"' not in admin_client.get(change).content.decode()
    # An override that has ended can still be edited, if its end is not changed.
    override.refresh_from_db()
    moment = timezone.localtime(override.until)
    old = {"until_0": f"{moment:%Y-%m-%d}", "until_1": f"{moment:%H:%M:%S}"}
    assert "until" in errors(
        admin_client.post(change, {**form, "until_0": "2001-01-01", "until_1": "00:00"})
    )
    assert admin_client.post(change, {**form, **old, "note": "y"}).status_code == 302
    assert admin_client.post(address("delete", override.pk), {"post": "yes"}).status_code == 302
    assert not Override.objects.exists()
    messages = [entry.get_change_message() for entry in LogEntry.objects.order_by("id")]
    assert messages[1] == "Ended."
    assert len(messages) == 4


def test_form_of_a_new_override_has_no_default_profile(admin_client: Client) -> None:
    form = admin_client.get(address("add")).context["adminform"].form
    assert form["profile"].value() is None
    assert form.fields["profile"].choices[0] == ("", "---------")
    assert "profile" in errors(admin_client.post(address("add"), filled(profile="")))


def test_list_links_to_other_pages_when_the_user_may_view_them(client: Client) -> None:
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_override"))
    client.force_login(user)
    others = [
        f'href="{address(page, model="rejection")}"' for page in ("changelist", "live", "profiles")
    ]
    page = client.get(address("changelist")).content.decode()
    assert [link for link in others if link in page] == []
    user.user_permissions.add(Permission.objects.get(codename="view_rejection"))
    page = client.get(address("changelist")).content.decode()
    assert [link for link in others if link in page] == others


def test_end_now_ends_only_overrides_in_force(admin_client: Client) -> None:
    first = Override.objects.create(profile="api", identifier="acme", action="block")
    ended = timezone.now() - timedelta(days=1)
    second = Override.objects.create(profile="api", action="block", until=ended)
    chosen = {"action": "end_now", "_selected_action": [first.pk, second.pk]}
    response = admin_client.post(address("changelist"), chosen, follow=True)
    assert b"1 override was ended." in response.content
    assert limits.check("api", "acme").allowed
    second.refresh_from_db()
    assert second.until == ended
    assert LogEntry.objects.get().object_id == str(first.pk)


def test_end_now_warns_when_all_have_ended(admin_client: Client) -> None:
    first, second = (
        Override.objects.create(profile="api", action="block", until=timezone.now())
        for _ in range(2)
    )
    form = filled(profile="api", action="block", identifier="", _end="End now")
    response = admin_client.post(address("change", first.pk), form, follow=True)
    assert [(str(m), m.level_tag) for m in response.context["messages"]] == [
        ("This override has already ended.", "warning")
    ]
    chosen = {"action": "end_now", "_selected_action": [first.pk, second.pk]}
    response = admin_client.post(address("changelist"), chosen, follow=True)
    assert [(str(m), m.level_tag) for m in response.context["messages"]] == [
        ("These overrides have already ended.", "warning")
    ]
    assert not LogEntry.objects.exists()


def test_list_can_be_filtered_by_a_profile_whose_name_looks_escaped(
    admin_client: Client, settings: Any
) -> None:
    name = "100%ab\u202e"
    settings.SLIDING_WINDOW = {"PROFILES": {name: {"axis": "ip", "rate": "4/h"}}}
    admin_client.post(address("add"), filled(profile=name))
    response = admin_client.get(address("changelist"), {"profile": name})
    assert [one.profile for one in response.context["cl"].result_list] == [name]


def test_list_applies_the_filters_and_escapes_text(admin_client: Client) -> None:
    Override.objects.create(profile="api", identifier=HOSTILE, action="block")
    Override.objects.create(profile="login", action="limit", limit="9/m", until=timezone.now())

    def found(query: str) -> list[str]:
        response = admin_client.get(address("changelist") + query)
        return [one.profile for one in response.context["cl"].result_list]

    assert found("") == ["login", "api"]
    assert found("?state=in-force") == ["api"]
    assert found("?state=ended") == ["login"]
    assert found("?profile=api") == ["api"]
    assert found("?q=script") == ["api"]
    assert found("?profile=api%00") == []
    page = admin_client.get(address("changelist")).content.decode()
    assert SHOWN in page
    assert "<script>alert(1)" not in page
    assert "(all)" in page
    assert "limit 9/m" in page


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"profile": "gone"}, "profile"),
        ({"profile": "broken"}, "profile"),
        ({"action": "destroy"}, "action"),
        ({"action": "limit"}, "limit"),
        ({"action": "limit", "limit": "many"}, "limit"),
        ({"action": "limit", "limit": "5/d"}, "limit"),
        ({"profile": "login", "action": "limit", "limit": "5"}, "limit"),
        ({"until_0": "2001-01-01", "until_1": "00:00"}, "until"),
        ({"until_0": "9999-12-31", "until_1": "23:59"}, "until"),
        ({"identifier": "x" * 201}, "identifier"),
        ({"note": "x" * 201}, "note"),
        ({"identifier": "a\x00b"}, "identifier"),
    ],
)
def test_form_shows_an_error_at_the_invalid_field(
    admin_client: Client, values: dict[str, str], field: str
) -> None:
    assert field in errors(admin_client.post(address("add"), filled(**values)))
    assert not Override.objects.exists()


def test_form_shows_the_profile_when_it_was_removed(admin_client: Client) -> None:
    override = Override.objects.create(profile="gone", action="block")
    page = admin_client.get(address("change", override.pk)).content.decode()
    assert '<option value="gone" selected>' in page


def test_end_now_works_when_the_override_does_not_fit_its_profile(admin_client: Client) -> None:
    for profile, limit in (("gone", ""), ("api", "9/d")):
        action = "limit" if limit else "block"
        override = Override.objects.create(profile=profile, action=action, limit=limit)
        form = filled(profile=profile, action=action, limit=limit, identifier="", _end="End now")
        response = admin_client.post(address("change", override.pk), form, follow=True)
        assert b"1 override was ended." in response.content
        override.refresh_from_db()
        assert not override.in_force


@pytest.mark.parametrize("hours", ["", "0", "-1", "x", "9" * 30, "000000001999999999"])
def test_form_ignores_invalid_hours(admin_client: Client, hours: str) -> None:
    page = admin_client.get(address("add"), {"hours": hours, "profile": "login"})
    initial = page.context["adminform"].form.initial
    assert "until" not in initial
    assert initial["profile"] == "login"


# The links on other pages


def links(client: Client, url: str) -> list[str]:
    """Return the links of a page to the form of a new override."""
    page = client.get(url).content.decode()
    assert "<script>alert(1)" not in page
    return [html.unescape(one) for one in re.findall(rf'href="({address("add")}[?][^"]*)"', page)]


def test_live_key_links_to_filled_in_forms(admin_client: Client) -> None:
    key = limits.check("api", HOSTILE).key
    url = address("key", model="rejection") + "?key=" + key.replace("%", "%25")
    limit, exempt, block = links(admin_client, url)
    form = admin_client.get(exempt).context["adminform"].form
    assert form.initial["action"] == "exempt"
    assert abs(form.initial["until"] - timezone.now() - timedelta(hours=1)) < timedelta(minutes=1)
    page = admin_client.get(block).content.decode()
    assert SHOWN in page
    shown = admin_client.get(block).context["adminform"].form.initial
    admin_client.post(address("add"), filled(identifier=shown["identifier"]))
    assert limits.check("api", HOSTILE).reason == "block"
    assert "action=limit" in limit
    page = admin_client.get(url).content.decode()
    assert "yes, by an override" in page
    assert f'href="{address("changelist")}?state=in-force&amp;profile=api">block</a>' in page
    assert "Unblock" not in page
    live = admin_client.get(address("live", model="rejection")).content.decode()
    assert "override: block" in live


def test_live_key_shows_the_limit_in_force(admin_client: Client) -> None:
    key = limits.check("api", "acme").key
    Override.objects.create(
        profile="api",
        identifier="acme",
        action="limit",
        limit="500",
        until=timezone.now() + timedelta(hours=2),
    )
    page = admin_client.get(address("key", model="rejection") + f"?key={key}").content.decode()
    assert "500 / 1 h" in page
    assert re.search(r">limit, ends in (2 h|1 h 59 min)[^<]*</a>", page)


def test_live_key_of_an_empty_identifier_has_no_links(admin_client: Client) -> None:
    # The forms would be about all identifiers.
    key = limits.check("api", "").key
    url = f"{address('key', model='rejection')}?{urlencode({'key': key})}"
    assert links(admin_client, url) == []
    assert "4 / 1 h" in admin_client.get(url).content.decode()


def test_rejection_links_to_filled_in_forms_unless_identifiers_are_hashed(
    admin_client: Client, settings: Any
) -> None:
    saved = row(profile="api", axis="tenant", identifier="a%1Bb", override="limit")
    saved.save()
    url = address("change", saved.pk, model="rejection")
    found = links(admin_client, url)
    assert len(found) == 3
    form = admin_client.get(found[2]).context["adminform"].form
    assert (form.initial["profile"], form.initial["identifier"]) == ("api", "a%1Bb")
    assert "(by an override)" in admin_client.get(url).content.decode()
    settings.SLIDING_WINDOW = {**settings.SLIDING_WINDOW, "LOG_IDENTIFIERS": "hash"}
    assert links(admin_client, url) == []


@pytest.mark.parametrize("model", ["live key", "rejection"])
def test_forms_block_the_secret_whose_hash_is_shown(admin_client: Client, model: str) -> None:
    key = limits.check("keys", "s3cret").key
    hashed = identifier_in(key)
    if model == "live key":
        url = f"{address('key', model='rejection')}?{urlencode({'key': key})}"
    else:
        saved = row(profile="keys", axis="header:X-API-Key", identifier=hashed)
        saved.save()
        url = address("change", saved.pk, model="rejection")
    _limit, _exempt, block = links(admin_client, url)
    initial = admin_client.get(block).context["adminform"].form.initial
    assert initial["identifier"] == f"hash:{hashed}"
    sent = filled(profile="keys", identifier=initial["identifier"])
    assert admin_client.post(address("add"), sent).status_code == 302
    assert limits.check("keys", "s3cret").reason == "block"
    assert limits.check("keys", hashed).reason == "allowed"


def test_profiles_page_links_to_forms_and_shows_tiers(admin_client: Client) -> None:
    url = address("profiles", model="rejection")
    found = links(admin_client, url)
    assert [one for one in found if "profile=broken" in one] == []
    assert len([one for one in found if "profile=api" in one]) == 3
    page = admin_client.get(url).content.decode()
    assert "free: 100/d" in page
    assert "internal: no limit" in page


def test_pages_and_links_need_their_permissions(client: Client) -> None:
    override = Override.objects.create(profile="api", identifier="acme", action="block")
    saved = row(profile="api")
    saved.save()
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_rejection"))
    client.force_login(user)
    key = limits.check("api", "globex").key
    pages = [
        address("profiles", model="rejection"),
        address("key", model="rejection") + f"?key={key}",
        address("change", saved.pk, model="rejection"),
    ]
    assert [links(client, page) for page in pages] == [[], [], []]
    overrides = f'href="{address("changelist")}"'
    assert overrides not in client.get(pages[0]).content.decode()
    for page in (address("add"), address("changelist"), address("change", override.pk)):
        assert client.get(page).status_code == 403
    assert client.post(address("add"), filled()).status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="view_override"))
    user = User.objects.get(pk=user.pk)
    assert overrides in client.get(pages[0]).content.decode()
    seen = client.get(address("change", override.pk)).content.decode()
    assert 'name="_end"' not in seen
    chosen = {"action": "end_now", "_selected_action": [override.pk]}
    client.post(address("changelist"), chosen)
    assert client.post(address("change", override.pk), filled(_end="x")).status_code == 403
    override.refresh_from_db()
    assert override.in_force
    user.user_permissions.add(Permission.objects.get(codename="add_override"))
    assert [len(links(client, page)) for page in pages[1:]] == [3, 3]


def test_profiles_page_has_no_links_when_overrides_are_not_registered(admin_client: Client) -> None:
    admin.site.unregister(Override)
    try:
        page = admin_client.get(address("profiles", model="rejection")).content.decode()
    finally:
        admin.site.register(Override, OverrideAdmin)
    assert "Change the limit" not in page
