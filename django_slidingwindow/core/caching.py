"""A dict for what is prepared once and looked up at every request."""

from __future__ import annotations

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(dict[Key, Value]):
    """A dict that starts again from empty when it is full.

    A lookup costs what it costs in a plain dict. Filling it again is cheap, and a project has
    far fewer entries than the bound; only identifiers of clients can fill it.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def keep(self, key: Key, value: Value) -> Value:
        """Store the value and return it."""
        if len(self) >= self.size:
            self.clear()
        self[key] = value
        return value
