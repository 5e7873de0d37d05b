"""Fixtures for the tests of projects that use limits.

pytest loads this module before Django has its settings, so the fixtures import what they need.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .testing import FrozenClock


@pytest.fixture
def rate_limits_off() -> Iterator[None]:
    """Switch all limits off. Redis is not asked."""
    from .testing import limits_disabled

    with limits_disabled():
        yield


@pytest.fixture
def rate_limit_clock() -> FrozenClock:
    """Return the clock of `rate_limits_in_memory`, which `advance(seconds)` moves."""
    from .testing import FrozenClock

    return FrozenClock()


@pytest.fixture
def rate_limits_in_memory(rate_limit_clock: FrozenClock) -> Iterator[FrozenClock]:
    """Count in memory, starting with empty windows. Yield the clock of the limits."""
    from .testing import limits_in_memory

    with limits_in_memory(rate_limit_clock) as clock:
        yield clock
