"""The errors that this package raises, and texts that can be shown in other languages."""

from __future__ import annotations

from typing import Any


class Text(str):
    """A problem in English, with the template and the values from which it was made.

    Errors, checks and commands show it as it is. The admin translates the template.
    """

    __slots__ = ("template", "values")

    template: str
    """A format string, which is a message id of the catalogues. Plain text if it has no values."""
    values: dict[str, Any]
    """Values for the template. They may be texts as well."""

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


def gettext_noop(text: str) -> str:
    """Mark a text for translation. Django's own function reads the settings, too early here."""
    return text


def pgettext_noop(context: str, text: str) -> str:
    """Mark a text that has a context for translation."""
    return text


class SlidingWindowError(Exception):
    """Base of every error of this package."""


class PolicyError(SlidingWindowError, ValueError):
    """A rate, window, limit or algorithm that cannot be used; says what is allowed."""

    def __init__(self, template: str, /, **values: Any) -> None:
        super().__init__(Text(template, **values))


class StoreError(SlidingWindowError):
    """The store could not answer. Always raised from the cause."""

    outage: bool
    """The store as a whole cannot answer now, rather than this one call."""

    incident: int | None
    """Equal for all the calls that failed with one lost connection; None for this call alone."""

    def __init__(self, message: str, *, outage: bool = True, incident: int | None = None) -> None:
        super().__init__(message)
        self.outage = outage
        self.incident = incident
