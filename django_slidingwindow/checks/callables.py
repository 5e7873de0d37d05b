"""What the project names by dotted path: is it there, and can it be called?"""

from __future__ import annotations

import inspect
from typing import Any

from django.utils.module_loading import import_string


def found(value: Any) -> tuple[Any, str | None]:
    """What a dotted path names, or what is wrong with the path."""
    if not isinstance(value, str):
        return value, None if callable(value) else f"{value!r} is no callable."
    try:
        target = import_string(value)
    except Exception as error:  # noqa: BLE001 -- the project's module may raise anything
        return None, f"{type(error).__name__}: {error}"
    return target, None if callable(target) else f"{value!r} is no callable."


def accepts(function: Any, *arguments: str) -> bool:
    """Whether it can be called with so many positional arguments; True if nobody knows."""
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
    """What people call it."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    return f"{module}.{name}" if module and name else repr(function)
