"""Texts are English strings that remember their template and values."""

from __future__ import annotations

import pickle

import pytest
from django.utils import translation

from django_slidingwindow.exceptions import (
    PolicyError,
    Text,
    gettext_noop,
    pgettext_noop,
    text_of,
    translated,
)
from django_slidingwindow.registry import profile_problems


def test_text_keeps_its_template_and_values() -> None:
    text = Text("limit {value!r} is not a whole number.", value="{ten}")
    assert text == "limit '{ten}' is not a whole number."
    assert (text.template, text.values) == (
        "limit {value!r} is not a whole number.",
        {"value": "{ten}"},
    )


def test_text_without_values_may_have_braces() -> None:
    assert Text("{1: 2} is a dict") == "{1: 2} is a dict"


@pytest.mark.parametrize("value", ["ten", "{ten}"])
def test_error_can_be_pickled(value: str) -> None:
    error = PolicyError("limit {value!r} is not a whole number.", value=value)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is PolicyError
    assert str(copy) == str(error) == f"limit {value!r} is not a whole number."


def test_text_of_returns_the_text_of_an_error() -> None:
    found = text_of(PolicyError("unknown key: {hint}", hint="x"))
    assert isinstance(found, Text)
    assert found.template == "unknown key: {hint}"
    assert text_of(ValueError("plain")) == "plain"
    assert text_of(KeyError("a")) == "'a'"
    assert text_of(ValueError()) == ""


def test_noop_functions_return_the_text() -> None:
    assert gettext_noop("a text") == pgettext_noop("a context", "a text") == "a text"


def test_translated_also_translates_nested_texts() -> None:
    config = {"axis": "ip", "rate": "1/m", "skope": "a", "mode": "watch"}
    with translation.override("de"):
        found = [translated(text) for _, text in profile_problems("a", config)]
    assert found == [
        "unbekannter Schlüssel: meinten Sie 'scope'?",
        "'watch' ist keiner von enforce, observe, deferred.",
    ]


def test_translated_keeps_values() -> None:
    text = Text("limit {value!r} is out of range: use 0 to {highest:,}.", value=-1, highest=9_999)
    with translation.override("pt-br"):
        assert translated(text) == "limit -1 está fora do intervalo: use de 0 a 9,999."


def test_translated_keeps_plain_text() -> None:
    with translation.override("de"):
        assert translated("Search") == "Search"
        assert translated(Text("No module named '{x}'")) == "No module named '{x}'"
