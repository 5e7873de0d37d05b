"""Pictures are well-formed, say what they show, and hold no text but escaped."""

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


def test_columns_stand_on_one_another_to_scale() -> None:
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


def test_picture_has_a_name_and_a_description_for_a_screen_reader() -> None:
    root = parsed(chart(Series(name="one", values=(1, 2, 3))).svg)
    assert root.get("role") == "img"
    assert root.find(f"*[@id='{root.get('aria-labelledby')}']").text == "<Title>"  # type: ignore[union-attr]
    assert root.find(f"*[@id='{root.get('aria-describedby')}']").text == "& more"  # type: ignore[union-attr]


def test_table_has_the_numbers_and_leaves_out_what_is_empty() -> None:
    picture = chart(Series(name="one", values=(4, 0, 2)), Series(name="two", values=(6, 0, 0)))
    assert list(picture.rows) == [("10:00", (4, 6)), ("12:00", (2, 0))]
    assert picture.legend == [("sw-0", "one", "6"), ("sw-1", "two", "6")]


def test_large_totals_are_easy_to_read() -> None:
    picture = chart(Series(name="one", values=(4_000, 0, 925)))
    assert picture.legend == [("sw-0", "one", "4,925")]


def test_names_cannot_leave_the_picture() -> None:
    picture = chart(Series(name="</title><script>", values=(1, 1, 1)))
    assert not list(parsed(picture.svg).iter("script"))
    assert "<script>" not in picture.svg


def test_picture_of_nothing_is_a_picture() -> None:
    root = parsed(chart().svg)
    assert not list(root.iter("rect"))
    assert [text.text for text in root.iter("text")][:3] == ["0", "1", "2"]
    assert list(chart(labels=()).rows) == []
    assert parsed(chart(labels=()).svg).tag == "svg"


def test_many_labels_leave_room_for_one_another() -> None:
    labels = tuple(str(i) for i in range(60))
    root = parsed(chart(Series(name="one", values=(1,) * 60), labels=labels).svg)
    marks = [text.text for text in root.iter("text") if "sw-middle" in text.get("class", "")]
    assert marks == [str(i) for i in range(0, 60, 5)]


def test_right_end_has_a_label_of_its_own() -> None:
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
def test_meter_shows_how_near_the_limit_is(
    use: float, blocked: bool, level: str, percent: str
) -> None:
    text = meter(use, blocked=blocked)
    assert f'class="{level}" width="{use * 100:g}"' in text
    assert percent in text


def test_meter_without_a_limit_says_so() -> None:
    assert "no limit" in meter(None, blocked=False)


def test_share_is_a_part_of_the_most() -> None:
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
def test_top_of_the_scale_is_easy_to_read(value: int, top: int) -> None:
    assert round_up(value) == top


@pytest.mark.parametrize(
    ("value", "text"),
    [(999, "999"), (1_000, "1k"), (1_250, "1.2k"), (3_000_000, "3M"), (10**10, "10G")],
)
def test_large_numbers_are_short(value: int, text: str) -> None:
    assert short_number(value) == text


def test_colours_end_with_the_last() -> None:
    assert [color(0), color(7), color(99)] == ["sw-0", "sw-7", "sw-7"]
