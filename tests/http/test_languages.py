"""A refusal is in the language of its request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polib
import pytest
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, RequestFactory, override_settings
from django.urls import path
from django.utils import translation

from django_slidingwindow.decisions import DENY, IDENTITY_ERROR
from django_slidingwindow.decorators import rate_limit
from django_slidingwindow.http import refusal as responses
from django_slidingwindow.testing import limits_in_memory
from tests.support.rejection_factories import refusal, verdict

TEXTS = {
    "en": ("Too many requests", "Please try again in 2 minutes."),
    "de": ("Zu viele Anfragen", "Bitte versuchen Sie es in 2 Minuten erneut."),
    "fr": ("Trop de requêtes", "Veuillez réessayer dans 2 minutes."),
    "es": ("Demasiadas solicitudes", "Vuelva a intentarlo dentro de 2 minutos."),
    "pt-br": ("Muitas requisições", "Tente novamente em 2 minutos."),
    "ja": ("リクエストが多すぎます", "2 分後にもう一度お試しください。"),
    "zh-hans": ("请求过多", "请在 2 分钟后重试。"),
}
FORMATS = {"page": "text/html", "problem": "application/json", "line": "*/*"}
MIDDLEWARE = [
    "django_slidingwindow.middleware.RateLimitMiddleware",
    "django.middleware.locale.LocaleMiddleware",
]


def page(request: HttpRequest) -> HttpResponse:
    return HttpResponse()


urlpatterns = [path("decorated/", rate_limit("slow")(page)), path("ruled/", page)]


@pytest.fixture(autouse=True)
def _site() -> Iterator[None]:
    limits = {
        "PROFILES": {"slow": {"axis": "ip+endpoint", "rate": "1/2m"}},
        "RULES": [{"path": "^/ruled/", "profiles": "slow"}],
    }
    site = {"ROOT_URLCONF": __name__, "MIDDLEWARE": MIDDLEWARE, "SLIDING_WINDOW": limits}
    with override_settings(**site), limits_in_memory():
        yield
    # The language of the last request stays active in this thread.
    translation.deactivate()


def texts(response: Any) -> tuple[str, ...]:
    """Return title and advice of a response in any format."""
    text = response.content.decode()
    kind = response.headers["Content-Type"].partition(";")[0]
    if kind == "application/problem+json":
        problem = json.loads(text)
        return problem["title"], problem["detail"]
    if kind == "text/html":
        title = text.partition("<h1>")[2].partition("</h1>")[0]
        return title, text.rpartition("<p>")[2].partition("</p>")[0]
    title, _, advice = text.partition(". ")
    return title, advice.removesuffix("\n")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("address", ["/decorated/", "/ruled/"])
def test_refusal_is_in_the_language_that_the_client_accepts(
    client: Client, address: str, form: str
) -> None:
    """In two rounds, so that the second would show what the first stored for another language."""
    assert client.get(address).status_code == 200
    for language in [*TEXTS, *TEXTS]:
        headers = {"Accept-Language": language, "Accept": FORMATS[form]}
        response = client.get(address, headers=headers)
        assert response.status_code == 429
        assert texts(response) == TEXTS[language]
        assert response.headers["Content-Language"] == language
        assert "Accept-Language" in response.headers["Vary"]
        assert response.headers["Cache-Control"] == "no-store"
        if form == "page":
            assert f'<html lang="{language}">' in response.content.decode()


async def test_concurrent_requests_keep_their_languages(async_client: AsyncClient) -> None:
    await async_client.get("/decorated/")

    async def ask(language: str, accept: str) -> tuple[str, ...]:
        headers = {"Accept-Language": language, "Accept": accept}
        return texts(await async_client.get("/decorated/", headers=headers))

    asked = [(language, accept) for accept in FORMATS.values() for language in TEXTS]
    found = await asyncio.gather(*(ask(*one) for one in asked))
    assert found == [TEXTS[language] for language, _ in asked]


def test_refusal_is_in_the_projects_language_when_the_clients_is_unknown(client: Client) -> None:
    client.get("/decorated/")
    headers = {"Accept-Language": "tlh, fi;q=0.5", "Accept": "application/json"}
    with override_settings(LANGUAGE_CODE="fr", LANGUAGES=[("fr", "Français"), ("de", "Deutsch")]):
        assert texts(client.get("/decorated/", headers=headers)) == TEXTS["fr"]


@pytest.mark.parametrize("language", TEXTS)
def test_every_refusal_is_translated(language: str) -> None:
    """Seconds in singular and plural, the other units, no end, and both reasons for a 503."""
    waits = [1, 2, 120, 7_200, 172_800, None]
    decisions = [refusal(verdict(retry_after=seconds)) for seconds in waits]
    decisions.append(refusal(source=DENY, reason=DENY))
    decisions.append(refusal(verdict(retry_after=None), source=DENY, reason=IDENTITY_ERROR))

    def answers() -> list[tuple[str, ...]]:
        request = RequestFactory().get("/", headers={"Accept": "application/json"})
        return [texts(responses.refusal(request, decision)) for decision in decisions]

    with translation.override("en"):
        english = answers()
    with translation.override(language):
        found = answers()
    assert len({advice for _, advice in found}) == len(decisions)
    for (title, advice), (in_english, advice_in_english) in zip(found, english, strict=True):
        assert (title == in_english) == (advice == advice_in_english) == (language == "en")


def test_project_can_override_a_text(client: Client, tmp_path: Path) -> None:
    folder = tmp_path / "en" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    catalogue = polib.POFile()
    catalogue.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    catalogue.append(polib.POEntry(msgid="Too many requests", msgstr="Slow down, please"))
    catalogue.save_as_mofile(str(folder / "django.mo"))
    client.get("/decorated/")
    headers = {"Accept-Language": "en", "Accept": "application/json"}
    assert texts(client.get("/decorated/", headers=headers)) == TEXTS["en"]
    with override_settings(LOCALE_PATHS=[str(tmp_path)]):
        response = client.get("/decorated/", headers=headers)
        assert texts(response) == ("Slow down, please", TEXTS["en"][1])
    assert texts(client.get("/decorated/", headers=headers)) == TEXTS["en"]
