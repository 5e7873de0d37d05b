"""Load callables that the project names by dotted path, and check their arguments."""

from __future__ import annotations

import inspect
from typing import Any

from django.utils.module_loading import import_string


def load(value: Any) -> tuple[Any, str | None]:
    """Return the callable that a value is or names, and its problem; None for no problem."""
    if not isinstance(value, str):
        return value, None if callable(value) else f"{value!r} is not callable."
    try:
        target = import_string(value)
    except Exception as error:  # noqa: BLE001 -- the project's module may raise anything
        return None, f"{type(error).__name__}: {error}"
    return target, None if callable(target) else f"{value!r} is not callable."


def accepts(function: Any, *arguments: str) -> bool:
    """Return whether a function takes these positional arguments; True if it has no signature."""
    try:
        signature = inspect.signature(function)
    except (ValueError, TypeError):
        return True
    try:
        signature.bind(*arguments)
    except TypeError:
        return False
    return True


def name_of(function: Any) -> str:
    """Return the dotted name of a function, or its repr."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    return f"{module}.{name}" if module and name else repr(function)
