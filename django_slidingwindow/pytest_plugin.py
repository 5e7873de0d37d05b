"""Fixtures for the tests of projects that use limits.

pytest loads this before Django has its settings, so the imports stand inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .testing import FrozenClock


@pytest.fixture
def rate_limits_off() -> Iterator[None]:
    """Nothing is limited, and nothing is asked of Redis."""
    from .testing import limits_disabled

    with limits_disabled():
        yield


@pytest.fixture
def rate_limit_clock() -> FrozenClock:
    """The clock of `rate_limits_in_memory`: it moves when `advance(seconds)` is called."""
    from .testing import FrozenClock

    return FrozenClock()


@pytest.fixture
def rate_limits_in_memory(rate_limit_clock: FrozenClock) -> Iterator[FrozenClock]:
    """Count limits from nothing, without Redis; give the clock that they go by."""
    from .testing import limits_in_memory

    with limits_in_memory(rate_limit_clock) as clock:
        yield clock
