"""Charts are well-formed SVG with a description, and escape all text."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from django_slidingwindow.admin_views.charts import (
    Chart,
    Series,
    color,
    meter,
    round_up,
    share,
    short_number,
)

SVG = "{http://www.w3.org/2000/svg}"


def chart(
    *series: Series, labels: tuple[str, ...] = ("10:00", "11:00", "12:00"), end: str = ""
) -> Chart:
    return Chart(
        id="x", title="<Title>", description="& more", labels=labels, series=series, end=end
    )


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)


def test_svg_stacks_columns_to_scale() -> None:
    one = Series(name="one", values=(4, 0, 2))
    two = Series(name="two", values=(6, 0, 2))
    picture = chart(one, two)
    bars = [
        (bar.get("class"), float(bar.get("y", 0)), float(bar.get("height", 0)))
        for bar in parsed(picture.svg).iter("rect")
    ]
    assert [bar[0] for bar in bars] == ["sw-0", "sw-1", "sw-0", "sw-1"]
    (_, low, height), (_, high, other) = bars[:2]
    assert height / other == pytest.approx(4 / 6, abs=0.01)
    assert high + other == pytest.approx(low, abs=0.02)
    assert bars[2][2] == pytest.approx(height / 2, abs=0.02)


def test_svg_has_a_title_and_a_description() -> None:
    root = parsed(chart(Series(name="one", values=(1, 2, 3))).svg)
    assert root.get("role") == "img"
    assert root.find(f"*[@id='{root.get('aria-labelledby')}']").text == "<Title>"  # type: ignore[union-attr]
    assert root.find(f"*[@id='{root.get('aria-describedby')}']").text == "& more"  # type: ignore[union-attr]


def test_rows_skip_empty_columns() -> None:
    picture = chart(Series(name="one", values=(4, 0, 2)), Series(name="two", values=(6, 0, 0)))
    assert list(picture.rows) == [("10:00", (4, 6)), ("12:00", (2, 0))]
    assert picture.legend == [("sw-0", "one", "6"), ("sw-1", "two", "6")]


def test_legend_groups_digits() -> None:
    picture = chart(Series(name="one", values=(4_000, 0, 925)))
    assert picture.legend == [("sw-0", "one", "4,925")]


def test_svg_escapes_names() -> None:
    picture = chart(Series(name="</title><script>", values=(1, 1, 1)))
    assert not list(parsed(picture.svg).iter("script"))
    assert "<script>" not in picture.svg


def test_svg_is_valid_when_there_is_no_data() -> None:
    root = parsed(chart().svg)
    assert not list(root.iter("rect"))
    assert [text.text for text in root.iter("text")][:3] == ["0", "1", "2"]
    assert list(chart(labels=()).rows) == []
    assert parsed(chart(labels=()).svg).tag == "svg"


def test_svg_skips_labels_when_there_are_many() -> None:
    labels = tuple(str(i) for i in range(60))
    root = parsed(chart(Series(name="one", values=(1,) * 60), labels=labels).svg)
    marks = [text.text for text in root.iter("text") if "sw-middle" in text.get("class", "")]
    assert marks == [str(i) for i in range(0, 60, 5)]


def test_svg_labels_the_right_end() -> None:
    root = parsed(chart(Series(name="one", values=(1, 1, 1)), end="now").svg)
    last = list(root.iter("text"))[-1]
    assert (last.text, last.get("class")) == ("now", "sw-text sw-end")


@pytest.mark.parametrize(
    ("use", "blocked", "level", "percent"),
    [
        (0.07, False, "sw-calm", "7%"),
        (0.8, False, "sw-near", "80%"),
        (0.999, False, "sw-near", "99%"),
        (1.0, True, "sw-full", "100%"),
    ],
)
def test_meter_shows_the_used_share(use: float, blocked: bool, level: str, percent: str) -> None:
    text = meter(use, blocked=blocked)
    assert f'class="{level}" width="{use * 100:g}"' in text
    assert percent in text


def test_meter_says_no_limit_when_there_is_none() -> None:
    assert "no limit" in meter(None, blocked=False)


def test_share_is_relative_to_the_largest() -> None:
    assert 'width="50"' in share(5, 10)
    assert 'width="0"' in share(0, 0)


@pytest.mark.parametrize(
    ("value", "top"),
    [
        (0, 2),
        (2, 2),
        (3, 4),
        (9, 10),
        (11, 12),
        (13, 16),
        (17, 20),
        (99, 100),
        (1_113, 1_200),
        (401, 600),
    ],
)
def test_round_up_returns_an_easy_number(value: int, top: int) -> None:
    assert round_up(value) == top


@pytest.mark.parametrize(
    ("value", "text"),
    [(999, "999"), (1_000, "1k"), (1_250, "1.2k"), (3_000_000, "3M"), (10**10, "10G")],
)
def test_short_number_shortens_large_numbers(value: int, text: str) -> None:
    assert short_number(value) == text


def test_color_repeats_the_last_one() -> None:
    assert [color(0), color(7), color(99)] == ["sw-0", "sw-7", "sw-7"]
