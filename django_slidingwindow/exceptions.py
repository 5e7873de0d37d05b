"""The errors that this package raises, and texts that can be shown in other languages."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext


class Text(str):
    """An English text that remembers its template and values.

    Errors, checks and commands show the text. The admin translates the template.
    """

    __slots__ = ("template", "values")

    template: str
    """A format string, and the message id of its translations. Without values, plain text."""
    values: dict[str, Any]
    """The values for the template. A value may be a `Text` as well."""

    def __new__(cls, template: str, /, **values: Any) -> Text:  # noqa: PYI034 -- Self needs 3.11
        text = super().__new__(cls, template.format(**values) if values else template)
        text.template, text.values = template, values
        return text

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def text_of(error: Exception) -> str:
    """Return the message of an error, as a `Text` if it was raised with one."""
    message = error.args[0] if error.args else ""
    return message if isinstance(message, Text) else str(error)


def translated(text: str) -> str:
    """Translate a `Text` into the current language. Return any other text unchanged."""
    if not isinstance(text, Text):
        return text
    template = gettext(text.template)
    values = {
        name: translated(value) if isinstance(value, str) else value
        for name, value in text.values.items()
    }
    return template.format(**values) if values else template


def gettext_noop(text: str) -> str:
    """Mark a text for translation. Django's own function would read the settings too early."""
    return text


def pgettext_noop(context: str, text: str) -> str:
    """Mark a text that has a context for translation."""
    return text


class SlidingWindowError(Exception):
    """The base class of all errors of this package."""


class PolicyError(SlidingWindowError, ValueError):
    """A rate, window, limit or algorithm is not valid. The text says what is allowed."""

    def __init__(self, template: str, /, **values: Any) -> None:
        super().__init__(Text(template, **values))


class StoreError(SlidingWindowError):
    """The store could not answer. Always raised from the error that caused it."""

    outage: bool
    """Whether the store as a whole cannot answer now; False if only this call failed."""

    incident: int | None
    """Equal for all calls that failed with one lost connection; None if only this call failed."""

    def __init__(self, message: str, *, outage: bool = True, incident: int | None = None) -> None:
        super().__init__(message)
        self.outage = outage
        self.incident = incident
