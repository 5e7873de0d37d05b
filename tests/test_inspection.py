"""Live windows are found, read and forgotten."""

from __future__ import annotations

import pytest
from django.test import override_settings

from django_slidingwindow import inspection, limits
from django_slidingwindow.policies import ALGORITHMS

PROFILES = {
    **{name: {"axis": "tenant", "rate": "10/h", "algorithm": name} for name in ALGORITHMS},
    "many": {"axis": "tenant", "rate": "1000/h"},
    "shut": {"axis": "tenant", "rate": "0/h"},
}

pytestmark = pytest.mark.usefixtures("redis", "profiles")


@pytest.fixture
def profiles():
    with override_settings(SLIDING_WINDOW={"PROFILES": PROFILES}):
        yield


def only(profile):
    page = inspection.scan(profile=profile, count=1000)
    assert page.cursor == "0"
    (state,) = page.states
    return state


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_state_tells_what_the_window_holds(algorithm):
    for _ in range(4):
        limits.check(algorithm, "acme")
    state = only(algorithm)
    assert (state.hits, state.remaining, state.limit, state.use) == (4, 6, 10, 0.4)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("count", [1, 3, 64, 65, 300])
def test_hits_add_up_to_the_state(algorithm, count):
    with override_settings(
        SLIDING_WINDOW={"PROFILES": {"p": {"axis": "t", "rate": "1000/h", "algorithm": algorithm}}}
    ):
        for _ in range(count):
            limits.check("p", "acme")
        state = only("p")
        found = inspection.hits(state.key)
        assert sum(n for _, n in found) == state.hits == count
        assert [age for age, _ in found] == sorted((age for age, _ in found), reverse=True)
        assert all(0 <= age <= 3600 for age, _ in found)
