"""`printable` makes untrusted text safe to show, and can be reversed."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_slidingwindow.rejections.text import printable


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
def test_printable_is_reversed_by_unquote(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert unquote(shown, errors="surrogatepass") == text
