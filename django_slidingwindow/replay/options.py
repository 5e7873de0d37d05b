"""Turn the options of `slidingwindow replay` into values; raise ValueError for wrong options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ..policies import Profile, rates_of
from . import filters, formats, identify
from .candidates import Candidate, from_profile, parse_try
from .formats import Names
from .readers import ReadError, Reading
from .times import NAMED, Stamps


def candidates(options: Mapping[str, Any], profile: Profile | None) -> list[Candidate]:
    """Return the profile's own rates first, then the candidates of --try."""
    rates = () if profile is None else rates_of(profile.policies)
    own = [from_profile(profile)] if profile is not None and rates else []
    shared: dict[str, Any] = {}
    if profile is not None:
        # A profile without rates has an algorithm and a resolution of its own.
        model = rates[0] if rates else profile
        shared = {"algorithm": model.algorithm, "resolution": model.resolution}
        shared["count_rejected"] = profile.count_rejected
    if options["algorithm"]:
        shared["algorithm"] = options["algorithm"]
    tried = [parse_try(text, **shared) for text in options["tries"]]
    if own or tried:
        return own + tried
    if profile is not None:
        why = "depends on the identifier" if profile.limit_for else "is on requests in flight"
        raise ValueError(f"the limit of profile {profile.name!r} {why}: give --try")
    raise ValueError("there is nothing to try: give --try RATES or --profile NAME")


def reading(options: Mapping[str, Any], profile: Profile | None) -> Reading:
    """Return how the lines of the logs are read."""
    names = Names(dict(options["field"]))
    stamps = _stamps(options)
    if options["identify"] is not None:
        find_identifier = identify.identify_by(options["identify"], names)
    elif profile is not None:
        find_identifier = identify.by_profile(profile, names)
    else:
        find_identifier = identify.by_ip(names)
    return Reading(
        log_format=_log_format(options),
        stamps=stamps,
        names=names,
        identify=find_identifier,
        filters=tuple(_filters(options, names, profile)),
    )


def _stamps(options: Mapping[str, Any]) -> Stamps:
    form = options["time"]
    if form not in NAMED and "%" not in form:
        raise ValueError(f"--time {form!r} is not one of {', '.join(NAMED)} or a format with %")
    if form not in NAMED:
        try:
            datetime.strptime(datetime.now(timezone.utc).strftime(form), form)
        except ValueError as error:
            raise ValueError(f"--time {form!r} is not a format of strptime: {error}") from error
    return Stamps(form, options["timezone"])


def _log_format(options: Mapping[str, Any]) -> str:
    name: str = options["log_format"]
    if options["nginx_conf"]:
        try:
            conf = Path(options["nginx_conf"]).read_text("utf-8", "replace")
        except OSError as error:
            raise ReadError(f"cannot read {options['nginx_conf']}: {error.strerror}.") from error
        return formats.nginx_format(conf, name)
    if name not in formats.NAMED and "$" not in name:
        raise ValueError(
            f"--log-format {name!r} is not one of {', '.join(formats.NAMED)} or a text with "
            "nginx's $variables; --nginx-conf says where a name is defined"
        )
    return name


def _filters(
    options: Mapping[str, Any], names: Names, profile: Profile | None
) -> Iterator[filters.Filter]:
    parse_time = Stamps(zone=options["timezone"])
    if options["since"]:
        yield filters.since(parse_time(options["since"]))
    if options["until"]:
        yield filters.until(parse_time(options["until"]))
    if options["method"]:
        yield filters.by_method(_split(options["method"]), names)
    if options["status"]:
        yield filters.by_status(_split(options["status"]), names)
    if options["path"]:
        yield filters.by_path(options["path"], names)
    if options["rules"]:
        if profile is None:
            raise ValueError("--rules needs --profile")
        yield identify.by_rules(profile, names)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def field_name(text: str) -> tuple[str, str]:
    """Return ("ip", "client") for the text "ip=client"."""
    what, _, name = text.partition("=")
    if what not in formats.ALIASES or not name:
        raise ValueError(f"{text!r} is not WHAT=NAME: WHAT is {', '.join(formats.ALIASES)}")
    return what, name


def zone(name: str) -> tzinfo:
    """Return a time zone by its name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{name!r} is not a time zone such as Europe/Berlin") from error
