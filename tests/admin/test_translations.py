"""The pages of the admin in every language that has a catalogue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import messages
import polib
import pytest
from django.conf import settings
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import translation
from django.utils.translation import to_language

from django_slidingwindow import limits
from django_slidingwindow.admin_views import formatting
from django_slidingwindow.models import Rejection
from tests.support.rejection_factories import row

pytestmark = pytest.mark.django_db

LANGUAGES = sorted(messages.PLURALS)
PROFILES: dict[str, Any] = {
    "login": {"axis": "ip", "rates": ["2/m", "2000/h"]},
    "watched": {"axis": "ip", "rate": "1/m", "mode": "observe"},
    "asked": {"axis": "tenant", "limit": lambda identifier, request: 3, "window": 60},
    "broken": {"axis": "ip", "rate": "many"},
}
PAGES = ("changelist", "change", "live", "key", "watched", "unblock", "profiles", "index")
# Words that a page also shows untranslated: the code of a reason, and texts of Django.
OTHERS = {"limit", "all", "view"}
# The minimum number of our texts on each page, so that the test cannot pass without any.
MIN_TEXTS = {"changelist": 25, "change": 20, "live": 10, "key": 20, "watched": 20, "unblock": 8}


@pytest.fixture(autouse=True)
def _site() -> Iterator[None]:
    middleware = [*settings.MIDDLEWARE, "django.middleware.locale.LocaleMiddleware"]
    rules = [{"profiles": ["login"]}]
    # A large budget: a busy machine must not look like an outage.
    limits_of_site = {"PROFILES": PROFILES, "RULES": rules, "LATENCY_BUDGET": 5.0}
    with override_settings(MIDDLEWARE=middleware, SLIDING_WINDOW=limits_of_site):
        yield
    # The language of the last request stays active in this thread.
    translation.deactivate()


class _Texts(HTMLParser):
    """Collects the texts of a page, and the attributes that people see or hear."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_data(self, data: str) -> None:
        self._add(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("aria-label", "title") or (name, tag) == ("value", "input"):
                self._add(value or "")

    def _add(self, text: str) -> None:
        # Django writes labels with a capital letter and a colon.
        self.found.add(text.strip().rstrip(":\uff1a\xa0…").lower())


def texts(html: str) -> set[str]:
    parser = _Texts()
    parser.feed(html)
    return parser.found


def translations(language: str) -> dict[str, set[str]]:
    """Return the translations of each text without a placeholder, both in lower case."""
    path = messages.LOCALE / language / "LC_MESSAGES" / "django.po"
    found = defaultdict(set)
    for entry in polib.pofile(str(path)):
        if not entry.flags:
            found[entry.msgid.lower()].add(entry.msgstr.lower())
    return found


@pytest.fixture
def addresses(redis: Any) -> dict[str, str]:
    """Return the address of each page, and fill the pages with data."""
    for _ in range(3):
        decision = limits.check("login", "203.0.113.9")
        watched = limits.check("watched", "203.0.113.9")
    assert not decision.allowed
    shown = row(hits=1_234, profile="login")
    Rejection.objects.bulk_create([shown, row(identifier="", reason="overflow", view="")])
    pk = Rejection.objects.get(hits=1_234).pk
    names = "django_slidingwindow_rejection_"
    key = f"?key={decision.verdicts[0].key}"
    return {
        "changelist": reverse(f"admin:{names}changelist"),
        "change": reverse(f"admin:{names}change", args=[pk]),
        "live": reverse(f"admin:{names}live"),
        "key": reverse(f"admin:{names}key") + key,
        "watched": reverse(f"admin:{names}key") + f"?key={watched.verdicts[0].key}",
        "unblock": reverse(f"admin:{names}unblock") + key,
        "profiles": reverse(f"admin:{names}profiles"),
        "index": reverse("admin:index"),
    }


def test_every_text_of_every_page_is_translated(
    admin_client: Client, addresses: dict[str, str]
) -> None:
    """Each text that the English page shows has its translation on the other one."""

    def seen(address: str, language: str) -> set[str]:
        response = admin_client.get(address, headers={"Accept-Language": language})
        assert response.status_code == 200
        assert response.headers["Content-Language"] == language
        return texts(response.content.decode())

    for page in PAGES:
        english = seen(addresses[page], "en")
        for language in LANGUAGES:
            known = translations(language)
            shown = (english & set(known)) - OTHERS
            assert len(shown) >= MIN_TEXTS.get(page, 1), (page, sorted(shown))
            found = seen(addresses[page], to_language(language))
            missing = {text for text in shown if not known[text] & found}
            assert missing == set(), (page, language)
            # An English word may be a word of the language as well: "Profile" is plural in German.
            left = (shown & found) - set().union(*known.values())
            assert left == set(), (page, language)


def test_numbers_and_dates_are_written_as_in_the_language(
    admin_client: Client, addresses: dict[str, str]
) -> None:
    def html(page: str, language: str) -> str:
        response = admin_client.get(addresses[page], headers={"Accept-Language": language})
        return response.content.decode()

    assert "1,235 requests refused" in html("changelist", "en")
    assert "1.235 Anfragen abgelehnt" in html("changelist", "de")
    assert "1\xa0235 requêtes rejetées" in html("changelist", "fr")
    assert "2.000 / 1 h" in html("profiles", "de")
    day = Rejection.objects.get(hits=1_234).minute
    with translation.override("de"):
        assert formatting.day_of_month(day).startswith(f"{day.day}. ")
    with translation.override("ja"):
        assert formatting.day_of_month(day) == f"{day.month}月{day.day}日"


def test_problem_of_a_profile_is_translated(
    admin_client: Client, addresses: dict[str, str]
) -> None:
    response = admin_client.get(addresses["profiles"], headers={"Accept-Language": "de"})
    text = response.content.decode()
    assert "enthält kein &#x27;/&#x27;: eine Rate ist eine ganze Zahl" in text
    assert "has no &#x27;/&#x27;" not in text


def test_message_after_unblocking_counts_windows(
    admin_client: Client, addresses: dict[str, str]
) -> None:
    headers = {"Accept-Language": "fr"}
    response = admin_client.post(addresses["unblock"], headers=headers, follow=True)
    assert "2 fenêtres ont été supprimées." in response.content.decode()
