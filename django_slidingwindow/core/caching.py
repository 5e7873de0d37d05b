"""A bounded cache for values that are prepared once and looked up at every request."""

from __future__ import annotations

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(dict[Key, Value]):
    """A dict that starts again from empty when it is full.

    A lookup costs the same as in a plain dict. Most caches never get full: a project has far
    fewer profiles and views than the bound. Values that clients choose can fill one, and are cheap
    to make again.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def keep(self, key: Key, value: Value) -> Value:
        """Store the value and return it."""
        if len(self) >= self.size:
            self.clear()
        self[key] = value
        return value
