"""`printable` makes untrusted text safe to show, and can be reversed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_slidingwindow.rejections.text import printable, restored


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("m\u00fcller@b\u00fcro.example", "m\u00fcller@b\u00fcro.example"),
        ("\u05d0\u05d1", "\u05d0\u05d1"),
        ("a\x00b\x1b[31m", "a%00b%1B[31m"),
        ("line\nline\r\x85\u2028", "line%0Aline%0D%C2%85%E2%80%A8"),
        ("\u202egnp.exe", "%E2%80%AEgnp.exe"),
        ("\u200bhidden\ufeff", "%E2%80%8Bhidden%EF%BB%BF"),
        ("\ud800", "%ED%A0%80"),
        ("100%", "100%"),
        ("%41", "%2541"),
        ("<b>&amp;", "<b>&amp;"),
    ],
)
def test_printable_escapes_unprintable_characters(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters()))
def test_restored_reverses_printable(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert restored(shown) == text


def test_restored_keeps_text_that_printable_did_not_make() -> None:
    assert [restored(text) for text in ("100%", "%FF", "%41")] == ["100%", "%FF", "%41"]
