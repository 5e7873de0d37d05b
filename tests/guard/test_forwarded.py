"""The header `Forwarded` of RFC 7239: well-formed, malformed and hostile."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from django_slidingwindow.guard.forwarded import forwarded_for


class MalformedError(Exception):
    """The header is not what RFC 7239 describes."""


def read_slowly(header: str) -> list[str]:
    """Return the `for` of each element from left to right, one character at a time."""
    elements: list[list[tuple[str, str]]] = [[]]
    rest = list(header)

    def blanks() -> None:
        while rest and rest[0] in " \t":
            rest.pop(0)

    def token(ends: str) -> str:
        text = ""
        while rest and rest[0] not in ends:
            text += rest.pop(0)
        if '"' in text:
            raise MalformedError
        return text.strip(" \t")

    def quoted() -> str:
        text = ""
        rest.pop(0)
        while rest:
            character = rest.pop(0)
            if character == '"':
                blanks()
                return text
            if character == "\\":
                if not rest:
                    break
                character = rest.pop(0)
            text += character
        raise MalformedError

    while True:
        blanks()
        if rest and rest[0] not in ",;":
            name = token("=,;")
            if not rest or rest.pop(0) != "=":
                raise MalformedError
            blanks()
            value = quoted() if rest and rest[0] == '"' else token(",;")
            elements[-1].append((name.lower(), value))
        if not rest:
            break
        separator = rest.pop(0)
        if separator == ",":
            elements.append([])
        elif separator != ";":
            raise MalformedError
    found = [[value for name, value in element if name == "for"] for element in elements]
    return [values[0] if len(values) == 1 else "" for values in found]


blank = st.sampled_from(["", "", " ", "\t", "  "])
token = st.text("abfor1.:[]_\\", min_size=1, max_size=6)
text = st.text('for=1.2,;" \t\\x', max_size=12)
quoted = text.map(lambda value: '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"')
name = st.sampled_from(["for", "For", "FOR", "by", "host", "proto"])
pair = st.builds("{}{}{}={}{}{}".format, blank, name, blank, blank, st.one_of(token, quoted), blank)
element = st.lists(st.one_of(pair, blank), min_size=1, max_size=3).map(";".join)
wellformed = st.lists(element, min_size=1, max_size=4).map(",".join)
hostile = st.text('for=1.2,;"" \t\\x', max_size=24)


@given(wellformed)
@example('for=203.0.113.9;host="x,for=6.6.6.6;y"')
@example(r'for="a\\";by="\\\"",for="\"b"')
def test_wellformed_header_is_parsed_the_same_from_both_sides(header: str) -> None:
    assert list(forwarded_for(header)) == read_slowly(header)[::-1]


@given(hostile)
def test_header_that_the_slow_parser_accepts_is_parsed_the_same(header: str) -> None:
    found = list(forwarded_for(header))
    try:
        expected = read_slowly(header)[::-1]
    except MalformedError:
        assert "" in found
    else:
        assert found == expected


@given(hostile, element)
@example('for="', 'for="[2001:db8::1]"')
@example('for=6.6.6.6;x="', "for=203.0.113.9")
@example('for=6.6.6.6;x="\\', 'for="203.0.113.9"')
def test_element_that_a_proxy_appends_is_read_whatever_stands_before_it(
    sent: str, appended: str
) -> None:
    (expected,) = read_slowly(appended)
    assert next(forwarded_for(f"{sent},{appended}")) == expected


@pytest.mark.parametrize(
    "unit",
    [" ", "\t", '"', "\\", '\\"', ",", ";", "=", "for=", 'for="', '";', "a", ' "', "= ", '",'],
)
def test_hostile_header_takes_time_in_proportion_to_its_length(unit: str) -> None:
    """A quadratic expression took 3.8 s for 8 kB, which would be a minute for these 32 kB."""
    for start in ("", "for", "for=", 'for="', "for=1;"):
        for end in ("", "x", '"', "="):
            header = start + unit * (32_768 // len(unit)) + end
            before = time.thread_time()
            assert sum(1 for _ in forwarded_for(header))
            assert time.thread_time() - before < 1
