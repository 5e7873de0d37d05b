"""Patterns of requests, on a clock of their own and against limiters in memory."""

from __future__ import annotations

from collections import deque
from http.client import HTTPMessage
from typing import TYPE_CHECKING, Any

import pytest

from django_slidingwindow.load.bounds import most_in_window
from django_slidingwindow.load.client import Answer, Client
from django_slidingwindow.load.patterns import Pattern
from django_slidingwindow.load.target import Target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT, WINDOW, TAKES = 10, 60.0, 0.01


class Site(Client):
    """A client that answers its own requests, one after the other. Each takes `TAKES` seconds."""

    def __init__(self, admit: Callable[[float], bool], *, seconds: float, wait: int = 0) -> None:
        self.now = 1000.0
        self.admit = admit
        self.wait_seconds = wait
        super().__init__(Target.of("http://127.0.0.1/"), seconds=seconds, clock=lambda: self.now)

    def _exchange(self) -> Answer:
        headers = HTTPMessage()
        allowed = self.admit(self.now)
        if not allowed and self.wait_seconds:
            headers["Retry-After"] = str(self.wait_seconds)
        self.now += TAKES
        return Answer(self.now - TAKES, self.now, 200 if allowed else 429, headers)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Sliding:
    def __init__(self) -> None:
        self.hits: deque[float] = deque()

    def __call__(self, now: float) -> bool:
        while self.hits and self.hits[0] <= now - WINDOW:
            self.hits.popleft()
        if len(self.hits) < LIMIT:
            self.hits.append(now)
            return True
        return False


class Fixed:
    def __init__(self, phase: float) -> None:
        self.phase = phase
        self.window = self.hits = 0

    def __call__(self, now: float) -> bool:
        window = int((now - self.phase) // WINDOW)
        self.hits = self.hits + 1 if window == self.window else 1
        self.window = window
        return self.hits <= LIMIT


@pytest.fixture
def sites() -> Iterator[Callable[..., Site]]:
    made: list[Site] = []

    def make(*arguments: Any, **options: Any) -> Site:
        made.append(Site(*arguments, **options))
        return made[-1]

    yield make
    for site in made:
        site.close()


def run(site: Site, burst: int = LIMIT + 1) -> tuple[int, int]:
    Pattern(site, sleep=site.sleep).boundary(burst, WINDOW)
    admitted = [(a.sent, a.came) for a in site.answers if a.admitted]
    return most_in_window(admitted, WINDOW)


@pytest.mark.parametrize("wait", [0, 60])
@pytest.mark.parametrize("phase", [0.0, 13.0, 41.5, 59.9])
def test_bursts_find_the_boundary_of_a_fixed_window(
    phase: float, wait: int, sites: Callable[..., Site]
) -> None:
    least, most = run(sites(Fixed(phase), seconds=190, wait=wait))
    assert least == most
    assert least > 1.5 * LIMIT


def test_sliding_window_admits_its_limit(sites: Callable[..., Site]) -> None:
    site = sites(Sliding(), seconds=190)
    least, most = run(site)
    assert least == LIMIT
    assert most <= LIMIT + 1, "hits one window apart"
    assert site.now - 1000 < 2.1 * WINDOW


def test_boundary_sends_fewer_requests_when_refusals_have_retry_after(
    sites: Callable[..., Site],
) -> None:
    many, few = sites(Sliding(), seconds=190), sites(Sliding(), seconds=190, wait=60)
    run(many)
    run(few)
    assert len(few.answers) < len(many.answers) / 2


def test_boundary_stops_when_nothing_is_refused(sites: Callable[..., Site]) -> None:
    site = sites(Sliding(), seconds=190)
    run(site, burst=3)
    assert len(site.answers) == 4


@pytest.mark.parametrize(("seconds", "bursts"), [(30, 1), (90, 1), (119.9, 2)], ids="{}".format)
def test_boundary_ends_when_the_time_is_over(
    seconds: float, bursts: int, sites: Callable[..., Site]
) -> None:
    site = sites(Sliding(), seconds=seconds)
    run(site)
    assert site.now <= 1000 + seconds + TAKES
    assert len(site.answers) >= bursts * (LIMIT + 1)
    assert len([a for a in site.answers if a.admitted]) <= bursts * (LIMIT + 1)


def test_boundary_ends_when_no_request_is_left(
    sites: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django_slidingwindow.load.client.MAX_REQUESTS", 15)
    site = sites(lambda now: False, seconds=190)
    run(site)
    assert len(site.answers) == 15


def test_steady_rate_is_kept_until_the_end(sites: Callable[..., Site]) -> None:
    site = sites(Sliding(), seconds=10)
    Pattern(site, sleep=site.sleep).steady(2)
    assert len(site.answers) == 20
