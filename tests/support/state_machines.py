"""The settings of state machines, and a store for them."""

from __future__ import annotations

from hypothesis import settings

from django_slidingwindow.stores.memory import MemoryStore

QUICK = settings(max_examples=40, stateful_step_count=50)


class Unswept(MemoryStore):
    """A memory store that keeps expired windows, for clocks that step back."""

    swept = 0
