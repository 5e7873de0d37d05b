"""Validate what people write into an override, and bring it into the form that is stored."""

from __future__ import annotations

import re
from urllib.parse import unquote

from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.utils.translation import gettext as _

from ..core.keys import escape, unescape
from ..core.tiers import windows_of
from ..decisions import LIMIT
from ..durations import duration_exact
from ..exceptions import PolicyError, Text, text_of
from ..guard.identity import EVERYBODY, HEADER, canonical
from ..guard.override import Limits
from ..guard.overriding import ACTIONS
from ..policies import IN_FLIGHT, Profile
from ..rates import parse_limit, parse_rate
from ..registry import registry
from ..rejections.text import printable

# How a secret stands in keys and logs.
_is_hash = re.compile(r"[0-9a-f]{32}").fullmatch
_is_in_flight = re.compile(r"(\d{1,18}) in flight", re.ASCII).fullmatch


def cleaned(profile: str, identifier: str, action: str, limit: str) -> tuple[str, str]:
    """Return identifier and limit in the form that is stored; ValidationError if one is wrong."""
    problems: dict[str, str] = {}
    if action not in ACTIONS:
        problems["action"] = _("Choose one of %(names)s.") % {"names": ", ".join(ACTIONS)}
    try:
        known = registry.get(profile)
    except ImproperlyConfigured as error:
        raise ValidationError({"profile": str(error), **problems}) from error
    if known.axis == "global" and identifier not in ("", EVERYBODY):
        problems["identifier"] = _("This profile counts all requests together: leave it empty.")
    limit = str(limit).strip() if action == LIMIT else ""
    if action == LIMIT and (problem := _limit_problem(known, limit)):
        problems["limit"] = problem
    if problems:
        raise ValidationError(problems)
    return stored_identifier(known, identifier), limit


def stored_identifier(profile: Profile, text: str) -> str:
    """Return an identifier, as a person writes or the admin shows it, as it is stored.

    It is printable, in the spelling that requests have, and never a secret.
    """
    identifier = _unquoted(text)
    if not identifier:
        return ""
    secrets = [axis for axis in profile.axis.split("+") if _hides(axis)]
    # In a combination, nothing shows which part is already a hash.
    if not secrets or (profile.axis in secrets and not _is_hash(identifier)):
        identifier = canonical(profile.axis, identifier)
    # Keys hold a long one as its beginning and a hash.
    return printable(unescape(escape(identifier)))


def spellings(profile: Profile, stored: str) -> set[str]:
    """Return the identifiers of requests that a stored identifier may stand for."""
    identifier = _unquoted(stored)
    return {identifier, canonical(profile.axis, identifier)}


def _hides(axis: str) -> bool:
    """Return whether identifiers of the axis are hashes of secrets."""
    return axis == "session" or axis.startswith(HEADER)


def _unquoted(text: str) -> str:
    try:
        return unquote(text, errors="surrogatepass")
    except UnicodeDecodeError:
        return text


def parse_limits(text: str) -> Limits:
    """Return the limits in a text such as "500" or "40/s, 8 in flight"; raise PolicyError."""
    found: list[tuple[int, float | None]] = []
    for part in str(text).split(","):
        one = part.strip()
        if one.isascii() and one.isdecimal():
            found.append((parse_limit(int(one[:18])), None))
        elif in_flight := _is_in_flight(one):
            found.append((parse_limit(int(in_flight[1])), IN_FLIGHT))
        else:
            found.append(parse_rate(one))
    windows = [window for _limit, window in found]
    if len(set(windows)) < len(windows) or (len(found) > 1 and None in windows):
        raise PolicyError(
            "{text!r} needs one rate for each window, such as 40/s, 20000/d.", text=text
        )
    return tuple(found)


def _translated(text: str) -> str:
    """Return a problem of a rate in the current language."""
    return _(text.template).format(**text.values) if isinstance(text, Text) else text


def _limit_problem(profile: Profile, text: str) -> str:
    """Return what is wrong with a limit for a profile; empty if nothing is."""
    if not text:
        return _("The action limit needs a limit, such as 500 or 40/s.")
    try:
        limits = parse_limits(text)
    except PolicyError as error:
        return _translated(text_of(error))
    windows = windows_of(profile)
    if windows is None:
        # A function says the rates, so any window may exist.
        if limits[0][1] is None and profile.window is None:
            return _("A function returns the rates of this profile: write a rate, such as 500/d.")
        return ""
    names = ", ".join(duration_exact(window) if window else "in flight" for window in windows)
    if limits[0][1] is None and len(windows) > 1:
        return _(
            "This profile has several windows (%(names)s): write a rate for each to change."
        ) % {"names": names}
    for _limit, window in limits:
        if window is not None and window not in windows:
            return _("Only the limit can change, not the window: this profile has %(names)s.") % {
                "names": names
            }
    return ""
