"""When requests are kept away from a store, and when one of them finds it again."""

from __future__ import annotations

import pytest

from django_slidingwindow.core.breaker import (
    CLOSED,
    HALF_OPEN,
    OPEN,
    Breaker,
    Breakers,
    most_probes,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def make(clock: Clock, jitter: float = 0.0) -> Breaker:
    return Breaker(clock=clock, jitter=lambda: jitter)


def opened(clock: Clock, jitter: float = 0.0) -> Breaker:
    breaker = make(clock, jitter)
    while not breaker.failed():
        pass
    return breaker


def test_closed_breaker_lets_all_ask(clock: Clock) -> None:
    breaker = make(clock)
    assert all(breaker.permits() for _ in range(10))
    assert breaker.state == CLOSED
    assert breaker.open_for == 0.0


def test_third_failure_in_a_row_opens(clock: Clock) -> None:
    breaker = make(clock)
    assert [breaker.failed() for _ in range(4)] == [False, False, True, False]
    assert breaker.state == OPEN


def test_failures_of_one_incident_count_once(clock: Clock) -> None:
    breaker = make(clock)
    assert not any(breaker.failed(incident) for incident in (1, 1, 2, 1, 2) * 10)
    assert breaker.state == CLOSED
    assert breaker.failed(3)
    assert breaker.state == OPEN


def test_failures_without_an_incident_each_count(clock: Clock) -> None:
    breaker = make(clock)
    assert [breaker.failed(incident) for incident in (1, None, None)] == [False, False, True]


def test_answer_makes_the_breaker_forget_incidents(clock: Clock) -> None:
    breaker = make(clock)
    for _ in range(10):
        assert not breaker.failed(1)
        assert not breaker.failed(2)
        assert breaker.succeeded() is None
    assert breaker.state == CLOSED


def test_probe_that_fails_with_a_known_incident_delays_the_next_one(clock: Clock) -> None:
    breaker = make(clock)
    assert [breaker.failed(incident) for incident in (1, 2, 3)] == [False, False, True]
    clock.now += 0.2
    assert breaker.permits()
    assert not breaker.failed(3)
    assert breaker.state == OPEN
    assert breaker.probe_in == pytest.approx(0.2)


def test_an_answer_in_between_starts_the_count_again(clock: Clock) -> None:
    breaker = make(clock)
    for _ in range(10):
        assert not breaker.failed()
        assert not breaker.failed()
        assert breaker.succeeded() is None
    assert breaker.state == CLOSED


def test_open_breaker_lets_nobody_ask_until_the_probe_is_due(clock: Clock) -> None:
    breaker = opened(clock)
    assert not breaker.permits()
    assert breaker.probe_in == pytest.approx(0.1)
    clock.now += 0.0999
    assert not breaker.permits()
    clock.now += 0.0002
    assert breaker.probe_in == 0.0
    assert breaker.permits()


def test_only_one_probe_at_a_time(clock: Clock) -> None:
    breaker = opened(clock)
    clock.now += 0.2
    assert breaker.permits()
    assert breaker.state == HALF_OPEN
    assert not any(breaker.permits() for _ in range(10))


def test_successful_probe_closes_and_returns_the_seconds_open(clock: Clock) -> None:
    breaker = opened(clock)
    clock.now += 2
    assert breaker.permits()
    clock.now += 0.5
    assert breaker.succeeded() == pytest.approx(2.5)
    assert breaker.state == CLOSED
    assert breaker.permits()
    assert not breaker.failed(), "failures are counted anew"


def test_probes_back_off_but_stay_within_a_second(clock: Clock) -> None:
    breaker = opened(clock)
    delays = []
    for _ in range(6):
        delays.append(round(breaker.probe_in, 6))
        clock.now += breaker.probe_in
        assert breaker.permits()
        assert not breaker.failed()
    assert delays == [0.1, 0.2, 0.4, 0.8, 0.8, 0.8]


def test_recovery_starts_with_short_delays_again(clock: Clock) -> None:
    breaker = opened(clock)
    for _ in range(4):
        clock.now += breaker.probe_in
        breaker.permits()
        breaker.failed()
    clock.now += breaker.probe_in
    assert breaker.permits()
    assert breaker.succeeded() is not None
    while not breaker.failed():
        pass
    assert breaker.probe_in == pytest.approx(0.1)


def test_jitter_only_shortens_the_delay_by_up_to_a_quarter(clock: Clock) -> None:
    assert opened(clock, jitter=1.0).probe_in == pytest.approx(0.075)
    assert opened(clock, jitter=0.5).probe_in == pytest.approx(0.0875)


def test_late_answer_does_not_close_the_breaker(clock: Clock) -> None:
    breaker = opened(clock)
    assert breaker.succeeded() is None
    assert breaker.state == OPEN


def test_late_failure_does_not_delay_the_probe(clock: Clock) -> None:
    breaker = opened(clock)
    due = breaker.probe_in
    assert not breaker.failed()
    assert breaker.probe_in == due


def test_abandoned_probe_lets_the_next_one_ask(clock: Clock) -> None:
    breaker = opened(clock)
    clock.now += 1
    assert breaker.permits()
    breaker.abandoned()
    assert breaker.state == OPEN
    assert breaker.permits()


def test_probe_that_never_reports_is_given_up(clock: Clock) -> None:
    breaker = opened(clock)
    clock.now += 1
    assert breaker.permits()
    clock.now += 4.9
    assert not breaker.permits()
    clock.now += 0.2
    assert breaker.permits()


def test_caller_that_waits_while_the_breaker_closes_may_ask(clock: Clock) -> None:
    class Closing:
        """A lock that another thread held, and closed the breaker under it."""

        def __enter__(self) -> None:
            breaker._opened_at = None

        def __exit__(self, *_: object) -> None:
            pass

    breaker = opened(clock)
    clock.now += 1
    breaker._lock = Closing()  # type: ignore[assignment]
    assert breaker.permits()


NODES = ("a", "b")


def breakers(clock: Clock) -> Breakers:
    return Breakers(lambda: make(clock))


def fail(some: Breakers, node: str) -> int:
    return [some.failed(node) for _ in range(3)][-1]


def test_failing_node_does_not_block_another(clock: Clock) -> None:
    some = breakers(clock)
    assert fail(some, "a")
    assert not some.permit(["a"])
    assert some.permit(["b"])
    assert some.state == OPEN


def test_outage_lasts_from_the_first_open_node_to_the_last(
    clock: Clock,
) -> None:
    some = breakers(clock)
    assert fail(some, "a") == 1
    clock.now += 3
    assert fail(some, "b") == 2, "the outage has begun before"
    assert fail(some, "b") == 0, "it is open already"
    clock.now += 1
    assert some.permit(["a", "b"])
    assert some.state == HALF_OPEN
    assert some.succeeded("b", lambda: NODES) is None
    assert some.succeeded("a", lambda: NODES) == pytest.approx(4)
    assert some.state == CLOSED
    assert some.probe_in == 0.0


def test_removed_node_does_not_keep_the_outage_open(clock: Clock) -> None:
    some = breakers(clock)
    fail(some, "a")
    clock.now += 7
    assert some.succeeded("b", lambda: NODES) is None
    assert some.succeeded("b", lambda: ["b", "c"]) == pytest.approx(7)
    assert some.state == CLOSED
    assert some.of("a").state == CLOSED, "should it come back, it starts anew"


def test_failure_of_a_removed_node_is_forgotten(clock: Clock) -> None:
    some = breakers(clock)
    some.failed("a")
    some.succeeded("b", lambda: NODES)
    assert not some.is_healthy
    some.succeeded("b", lambda: ["b", "c"])
    assert some.is_healthy, "successes are not reported any more"


def test_caller_without_all_permits_does_not_probe(clock: Clock) -> None:
    some = breakers(clock)
    fail(some, "a")
    clock.now += 1
    fail(some, "b")
    assert not some.permit(["a", "b"]), "b is not due"
    assert some.of("a").state == OPEN
    assert some.permit(["a"])


def test_next_probe_is_that_of_the_first_node_that_is_due(clock: Clock) -> None:
    some = breakers(clock)
    fail(some, "a")
    clock.now += 0.04
    fail(some, "b")
    assert some.probe_in == pytest.approx(0.06)


def test_outage_that_another_thread_has_ended_is_reported_once(clock: Clock) -> None:
    some = breakers(clock)
    fail(some, "a")
    clock.now += 1
    some.permit(["a"])

    class Ending:
        """A lock that another thread held, and ended the outage under it."""

        def __enter__(self) -> None:
            some.of("a").succeeded()
            some.open.clear()

        def __exit__(self, *_: object) -> None:
            pass

    some._lock = Ending()  # type: ignore[assignment]
    assert some.succeeded("a", lambda: NODES) is None


@pytest.mark.parametrize("seconds", [0.01, 0.3, 1.5, 5.0])
def test_most_probes_is_what_a_breaker_sends_with_the_shortest_delays(
    clock: Clock, seconds: float
) -> None:
    breaker = opened(clock, jitter=1.0)
    end, probes = clock.now + seconds, 0
    while clock.now + breaker.probe_in <= end:
        clock.now += breaker.probe_in
        assert breaker.permits()
        breaker.failed()
        probes += 1
    assert most_probes(seconds) == probes
