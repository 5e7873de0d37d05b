"""For the path that every request takes."""

from __future__ import annotations

new = tuple.__new__
"""A named tuple, of its class and its values, in half the time that its own constructor takes."""
