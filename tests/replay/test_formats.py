"""Formats of logs: from lines to fields."""

from __future__ import annotations

import pytest

from django_slidingwindow.replay.formats import (
    COMBINED,
    FormatError,
    Names,
    detect,
    nginx_format,
    nginx_pattern,
    parser,
    value_of,
)

LINE = '203.0.113.9 - ann [17/Nov/2026:03:12:45 +0000] "GET /a?b=c HTTP/1.1" 200 512'
AGENT = ' "https://example.org/" "curl \\"8\\""'
JSON = '{"time": 1794885165.123456789, "ip": "203.0.113.9", "n": 1, "ok": true, "no": null}'


def fields(name: str, line: str, *before: str) -> dict[str, str] | None:
    parse, header = parser(name, [*before, line])
    assert header == len(before)
    found = parse(line)
    return None if found is None else dict(found)


@pytest.mark.parametrize("line", [LINE, LINE + AGENT, LINE + AGENT + ' 0.004 "more"'])
def test_common_and_combined_formats_are_recognised(line: str) -> None:
    found = fields("auto", line)
    assert found is not None
    assert (found["ip"], found["user"], found["status"]) == ("203.0.113.9", "ann", "200")
    assert found["time"] == "17/Nov/2026:03:12:45 +0000"
    assert Names().request_line(found) == ("GET", "/a?b=c")


@pytest.mark.parametrize("host", ["example.org:443", "127.0.1.1:80"])
@pytest.mark.parametrize("address", ["203.0.113.9", "2001:db8::9", "::1"])
def test_virtual_host_in_front_is_not_the_address(host: str, address: str) -> None:
    found = fields("auto", f"{host} {LINE}{AGENT}".replace("203.0.113.9", address))
    assert found is not None
    assert (found["ip"], found["user"]) == (address, "ann")


@pytest.mark.parametrize(
    ("address", "user"), [("203.0.113.9:4711", "ann"), ("2001:db8::80", "bob lee"), ("a:1", "-")]
)
def test_address_with_a_port_or_colons_is_not_a_virtual_host(address: str, user: str) -> None:
    found = fields("auto", LINE.replace("203.0.113.9 - ann", f"{address} - {user}"))
    assert found is not None
    assert (found["ip"], found["user"]) == (address, user)


def test_combined_format_reads_escaped_quotes() -> None:
    found = fields(COMBINED, LINE.replace("/a?b=c", r"/\"x\" y"))
    assert found is not None
    assert found["request"] == r"GET /\"x\" y HTTP/1.1"


def test_common_format_rejects_additional_fields() -> None:
    assert fields("common", LINE + AGENT) is None


def test_json_keeps_all_digits_of_a_number() -> None:
    found = fields("auto", JSON)
    assert found is not None
    names = Names()
    assert names.find(found, "time") == "1794885165.123456789"
    assert [value_of(found, name) for name in ("n", "ok", "no", "gone")] == [
        "1",
        "true",
        None,
        None,
    ]


@pytest.mark.parametrize("line", ["[1]", "1", "{", "[" * 100_000, ""])
def test_json_returns_none_when_the_line_is_not_an_object(line: str) -> None:
    assert fields("json", line) is None


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_csv_has_named_columns(mark: str) -> None:
    header, row = f"time{mark}ip{mark}path", f'2026-11-17{mark}::1{mark}"/a{mark}b"'
    found = fields("auto", row, header)
    assert found == {"time": "2026-11-17", "ip": "::1", "path": f"/a{mark}b"}
    assert fields("csv", "only one", header) is None
    assert fields("csv", 'a,b,"c', header) is None


def test_detect_raises_and_says_what_to_do_when_the_format_is_unknown() -> None:
    with pytest.raises(FormatError, match="choose it with --log-format"):
        detect(["hello", "world"])
    with pytest.raises(FormatError):
        detect([""])


def test_detect_recognises_the_format_when_the_first_line_is_damaged() -> None:
    assert detect(["\x00garbage", LINE]) == COMBINED


def test_nginx_format_is_read_by_its_variables() -> None:
    text = (
        '$remote_addr [$time_local] "$request" $status $msec "$http_user_agent" '
        '"${http_x_forwarded_for}" $status $request_time'
    )
    line = (
        '::1 [17/Nov/2026:03:12:45 +0000] "GET /a HTTP/1.1" 200 1794885165.123 "x y" '
        '"192.0.2.1, 10.0.0.1" 200 0.003'
    )
    found = fields(text, line)
    assert found is not None
    names = Names()
    assert names.find(found, "ip") == "::1"
    # Of two stamps, the one with fractions of a second.
    assert names.find(found, "time") == "1794885165.123"
    assert names.find(found, "forwarded") == "192.0.2.1, 10.0.0.1"
    assert found["request_time"] == "0.003"
    assert fields(text, "something else") is None


def test_nginx_stamp_needs_no_brackets() -> None:
    found = fields("$time_local $remote_addr", "17/Nov/2026:03:12:45 +0000 ::1")
    assert found == {"time_local": "17/Nov/2026:03:12:45 +0000", "remote_addr": "::1"}


def test_nginx_capture_has_no_name() -> None:
    assert fields("$1 $msec", "x 1794885165.123") == {"msec": "1794885165.123"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [("$msec$status x", "nothing stands between"), ("$remote_addr $status", "has no .time_local")],
)
def test_nginx_format_that_cannot_be_read_is_an_error(text: str, problem: str) -> None:
    with pytest.raises(FormatError, match=problem):
        nginx_pattern(text)


CONF = r"""
http {
    log_format main '$remote_addr - $remote_user [$time_local] '
                    '"$request" $status';
    log_format other escape=json "$msec \"$request\"";
}
"""


def test_nginx_format_is_found_by_its_name() -> None:
    assert nginx_format(CONF, "main") == (
        '$remote_addr - $remote_user [$time_local] "$request" $status'
    )
    assert nginx_format(CONF, "other") == '$msec "$request"'
    with pytest.raises(FormatError, match="known are: main, other"):
        nginx_format(CONF, "mine")
    with pytest.raises(FormatError, match="known are: none"):
        nginx_format("", "mine")


def test_names_can_replace_the_usual_ones() -> None:
    names = Names({"ip": "client"})
    assert names.find({"client": "::1", "ip": "::2"}, "ip") == "::1"
    assert names.find({"ip": "::2"}, "ip") is None
    assert names.find({"client": "-"}, "ip") is None


def test_request_line_prefers_the_fields_of_method_and_path() -> None:
    names = Names()
    assert names.request_line({"method": "PUT", "uri": "/x"}) == ("PUT", "/x")
    assert names.request_line({"method": "PUT", "request": "GET /y HTTP/2"}) == ("PUT", "/y")
    assert names.request_line({"request": "rubbish"}) == (None, None)
