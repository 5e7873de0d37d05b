"""All spellings of a header that identifies a client are one value."""

from __future__ import annotations

from base64 import b64encode

import pytest

from django_slidingwindow.guard.credentials import is_token, meta_key, one_spelling

AUTHORIZATION = "HTTP_AUTHORIZATION"


@pytest.mark.parametrize("text", ["GET", "M-SEARCH", "X-API-Key", "x_1.a", "!#$%&'*+-.^_`|~"])
def test_names_of_headers_and_methods_are_tokens(text: str) -> None:
    assert is_token(text)


@pytest.mark.parametrize("text", ["", "G T", "GET,POST", "GÉT", "GET\n", "X:Y", "X\0", "²"])
def test_text_with_another_character_is_not_a_token(text: str) -> None:
    assert not is_token(text)


@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("X-API-Key", "HTTP_X_API_KEY"),
        (" authorization ", AUTHORIZATION),
        ("Content-Type", "CONTENT_TYPE"),
        ("content-length", "CONTENT_LENGTH"),
    ],
)
def test_meta_key_is_the_key_of_the_request(header: str, key: str) -> None:
    assert meta_key(header) == key


@pytest.mark.parametrize("key", [AUTHORIZATION, "HTTP_PROXY_AUTHORIZATION"])
def test_scheme_has_any_case_and_any_space_around_it(key: str) -> None:
    spellings = {
        one_spelling(key, f"{before}{scheme}{between}t0Ken{after}")
        for scheme in ("Bearer", "bearer", "BEARER", "bEaReR")
        for before in ("", " ", "\t")
        for between in (" ", "  ", "\t", " \t ", "\x0b")
        for after in ("", " ", "\t ")
    }
    assert spellings == {"bearer t0Ken"}


def test_credentials_that_differ_stay_different() -> None:
    values = ["Bearer a", "Bearer A", "Token a", "Bearer", "a", "Bearer a b", "Bearer a, b"]
    assert len({one_spelling(AUTHORIZATION, value) for value in values}) == len(values)


def test_basic_credentials_are_the_same_in_all_spellings_of_base64() -> None:
    plain = b64encode(b"ada:s3cret").decode()
    spellings = {
        one_spelling(AUTHORIZATION, f"{scheme} {text}")
        for scheme in ("Basic", "BASIC")
        for padded in (plain, f"!{plain}", "-".join(plain), f"{plain}\xe9", f"\udc80{plain}")
        for text in (padded, padded.replace("=", ""))
    }
    assert spellings == {"basic ada:s3cret"}


def test_basic_credentials_that_are_not_base64_stay_as_they_are() -> None:
    assert one_spelling(AUTHORIZATION, "Basic abcde") == "basic abcde"


def test_other_header_loses_only_the_space_around_it() -> None:
    assert one_spelling("HTTP_X_API_KEY", " Basic  Abc\t") == "Basic  Abc"


@pytest.mark.parametrize("value", ["", " ", "\t "])
def test_header_without_a_value_is_empty(value: str) -> None:
    assert one_spelling(AUTHORIZATION, value) == one_spelling("HTTP_X_API_KEY", value) == ""
