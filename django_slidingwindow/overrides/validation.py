"""Validate the fields of an override as people write them, and return them as they are stored."""

from __future__ import annotations

import re

from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.utils.translation import gettext as _

from ..core.keys import escape, escape_shortened, unescape
from ..core.tiers import windows_of
from ..decisions import LIMIT
from ..durations import duration_exact
from ..exceptions import PolicyError, text_of, translated
from ..guard.identity import EVERYBODY, HEADER, by_part, canonical
from ..guard.override import Limits
from ..guard.override_snapshot import ACTIONS
from ..policies import IN_FLIGHT, Profile
from ..rates import parse_limit, parse_rate
from ..registry import registry
from ..rejections.text import printable, restored

_MARK = "hash:"
is_hash = re.compile(r"[0-9a-f]{32}").fullmatch
"""Return None if a text cannot be the hash that keys and logs have in place of an identifier."""
_match_in_flight = re.compile(r"(\d{1,18}) in flight", re.ASCII).fullmatch


def cleaned(profile: str, identifier: str, action: str, limit: str) -> tuple[str, str]:
    """Return identifier and limit as they are stored. Raise ValidationError with all problems."""
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
    """Return the stored form of an identifier that a person writes or the admin shows.

    The stored form is printable, spelled as in requests, and never a secret.
    """
    written = restored(text)
    if not written:
        return ""
    # A long identifier is stored as in keys: its beginning and a hash.
    identifier = unescape(escape(request_identifier(profile.axis, written)))
    return printable(marked(profile.axis, identifier))


def spellings(profile: Profile, stored: str) -> set[str]:
    """Return the identifiers of requests for which a stored identifier may stand."""
    written = restored(stored)
    identifier = request_identifier(profile.axis, written)
    # Requests never have the identifier as it is written if that is a secret.
    secret = any(map(_hides, profile.axis.split("+")))
    return {identifier} if secret else {identifier, written}


def marked(axis: str, identifier: str) -> str:
    """Return an identifier of requests as people write it: with a mark before the hash of a secret.

    A secret may look like a hash. Without the mark, the override of a hash would also apply to a
    client that sends the hash, which everybody knows who reads the log.
    """
    axes, parts = axis.split("+"), identifier.split("+")
    if len(axes) != len(parts):
        return identifier
    return "+".join(
        _MARK + part if _hides(each) and is_hash(part) else part
        for each, part in zip(axes, parts, strict=True)
    )


def request_identifier(axis: str, written: str) -> str:
    """Return the identifier that requests have: undo `marked`, and hash a secret without a mark."""
    if "+" not in axis:
        return _request_part(axis, written)
    without_marks = written.replace(_MARK, "")
    if escape_shortened(written) is not None and marked(axis, without_marks) == written:
        # Its last part is cut, so it is not spelled again.
        return without_marks
    return by_part(_request_part, axis, written)


def _request_part(axis: str, written: str) -> str:
    found = written.removeprefix(_MARK)
    return found if marked(axis, found) == written != found else canonical(axis, written)


def _hides(axis: str) -> bool:
    """Return whether identifiers of the axis are hashes of secrets."""
    return axis == "session" or axis.startswith(HEADER)


def parse_limits(text: str) -> Limits:
    """Return the limits in a text such as "500" or "40/s, 8 in flight".

    Raise PolicyError if it is wrong.
    """
    limits: list[tuple[int, float | None]] = []
    for part in map(str.strip, str(text).split(",")):
        if part.isascii() and part.isdecimal():
            # More digits are out of range as well, and int() raises another error for thousands.
            limits.append((parse_limit(int(part[:18])), None))
        elif in_flight := _match_in_flight(part):
            limits.append((parse_limit(int(in_flight[1])), IN_FLIGHT))
        else:
            limits.append(parse_rate(part))
    windows = [window for _limit, window in limits]
    if len(set(windows)) < len(windows) or (len(limits) > 1 and None in windows):
        raise PolicyError(
            "{text!r} needs one rate for each window, such as 40/s, 20000/d.", text=text
        )
    return tuple(limits)


def _limit_problem(profile: Profile, text: str) -> str:
    """Return why a profile cannot have this limit; empty if it can."""
    if not text:
        return _("The action limit needs a limit, such as 500 or 40/s.")
    try:
        limits = parse_limits(text)
    except PolicyError as error:
        return translated(text_of(error))
    windows = windows_of(profile)
    if windows is None:
        # A function returns the rates, so the profile may have any window.
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
