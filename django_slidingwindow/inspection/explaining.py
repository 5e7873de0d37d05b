"""Explain what limits would say about a request: nothing is charged, and no view runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..conf import NAME, conf
from ..core.keys import identifier_in
from ..decisions import ALLOW, ALLOWED, BLOCK, DENY, FALLBACK, IDENTITY_ERROR, LOCAL, OBSERVED
from ..guard import overriding
from ..guard.exemptions import exemptions
from ..guard.requirements import Requirement, is_exempt
from ..guard.rules import rules
from ..guard.user_code import path_of
from ..http.refusal import status_of
from ..registry import registry
from .explanations import Explanation, ProfileState, RuleState, WindowState
from .foreseeing import Foresight
from .identifying import client, how_found
from .places import INSIDE, THROTTLE, Place, UnknownThrottlesError, has_middleware, places

# Sources and reasons of the fallback.
_AWAY = {(LOCAL, ALLOWED), (LOCAL, OBSERVED), (LOCAL, FALLBACK), (ALLOW, ALLOWED), (DENY, DENY)}

if TYPE_CHECKING:
    from django.http import HttpRequest

    from ..decisions import Decision, Verdict
    from ..guard.state import Check
    from ..policies import Policy, Profile


def explain(request: HttpRequest, given: Mapping[str, str] | None = None) -> Explanation:
    """Return which profiles would count a request, and what they would decide.

    `given`: identifiers by axis, for those that a made-up request does not have.
    """
    given = given or {}
    match, exempt = request.resolver_match, exemptions()
    found = Explanation(
        method=request.method or "",
        path=request.path_info,
        view=None if match is None else match._func_path,
        client=client(request),
        exempt="" if exempt is None else exempt.covers(request),
        rules=list(_rules(request)),
    )
    found.unknown.append("Other middleware was not run: it may answer first or change the request.")
    if match is None:
        found.unknown.append(
            "No view has this path, so the middleware charges its rules after the response; not "
            "if the response is a stream."
        )
    foresight = Foresight(request, given)
    met: list[Requirement] = []
    decision = None
    try:
        for place in places(request):
            if found.refused:
                found.profiles += _not_reached(place, met)
                continue
            checked = foresight.check(place.requirements)
            if checked is None:
                continue
            met += checked.requirements
            found.profiles += _profiles(request, place, checked, given, found.exempt)
            decision = foresight.decision(place.requirements)
            found.refused = decision is not None and not decision.allowed
    except UnknownThrottlesError as error:
        found.unknown.append(f"The throttles of the view are unknown: {error}.")
    if not found.refused:
        decision = foresight.strictest
    found.decision = None if decision is None else _decision(decision)
    found.unknown += _doubts(found)
    return found


def _rules(request: HttpRequest) -> Iterator[RuleState]:
    match, installed = request.resolver_match, has_middleware()
    exempt_view = match is not None and is_exempt(match.func)
    for rule in rules():
        requirement, condition = rule.requirement, rule.mismatch(request)
        if not conf.enabled:
            why = f"{NAME}['ENABLED'] is False"
        elif not installed:
            why = "RateLimitMiddleware is not in MIDDLEWARE"
        elif condition:
            why = f"the {condition} does not match"
        elif not requirement.covers(request):
            why = _of_methods(requirement)
        else:
            why = "the view is rate_limit_exempt" if exempt_view else ""
        assert isinstance(requirement.profiles, tuple)
        yield RuleState(
            rule=requirement.origin,
            profiles=requirement.profiles,
            applies=not why,
            why=why or "it matches",
        )


def _of_methods(requirement: Requirement) -> str:
    return f"it is for {', '.join(sorted(requirement.methods or ()))}"


def _not_reached(place: Place, met: list[Requirement]) -> Iterator[ProfileState]:
    for requirement in place.requirements:
        if not any(requirement is each for each in met):
            met.append(requirement)
            for name in _names(requirement, None):
                yield _absent(name, place, requirement, "the request is refused before")


def _profiles(
    request: HttpRequest, place: Place, checked: Check, given: Mapping[str, str], exempt: str
) -> Iterator[ProfileState]:
    """Yield the profiles that a place has checked, each once."""
    seen: set[str] = set()
    for requirement in checked.requirements:
        for name in _names(requirement, checked):
            if checked.exempt:
                why = f"EXEMPT has {exempt}" if exempt else "the request is exempt"
            elif not requirement.covers(request):
                why = _of_methods(requirement)
            elif not name:
                why = "no profile was chosen"
            elif name in seen:
                why = "it is named at this place before"
            elif name not in checked.counted:
                why = "the request is charged for it already"
            else:
                seen.add(name)
                yield _counted(request, place, requirement, registry.get(name), checked, given)
                continue
            yield _absent(name, place, requirement, why)


def _names(requirement: Requirement, checked: Check | None) -> tuple[str, ...]:
    """Return the profiles of a requirement; an empty name if a function has chosen none."""
    if isinstance(requirement.profiles, tuple):
        return requirement.profiles
    chosen = () if checked is None else checked.chosen.get(id(requirement), ())
    return chosen or ("",)


def _absent(name: str, place: Place, requirement: Requirement, why: str) -> ProfileState:
    origin = requirement.origin
    if not isinstance(requirement.profiles, tuple):
        origin = f"{origin}, chosen by {path_of(requirement.profiles)}"
    return ProfileState(profile=name, place=place.name, origin=origin, counts=False, why=why)


def _counted(
    request: HttpRequest,
    place: Place,
    requirement: Requirement,
    profile: Profile,
    checked: Check,
    given: Mapping[str, str],
) -> ProfileState:
    """Return what is known about a profile that was looked at."""
    counted, decision = checked.counted[profile.name], checked.decision
    identifier, cost = counted or (None, 0)
    found_by = how_found(profile, request, given)
    windows: tuple[WindowState, ...] = ()
    why = "it counts the request"
    if counted is None:
        why = f"no identifier: {found_by[-1]}"
    elif decision is not None and decision.reason in (BLOCK, IDENTITY_ERROR):
        # Nothing was counted: one profile decides for all.
        identifier, decides = None, decision.profile == profile.name
        if decides and decision.reason == BLOCK:
            identifier, why = identifier_in(decision.key), "an override blocks the identifier"
        elif decides:
            why = "the identifier or the limit could not be found: see the log; or use --identify"
        else:
            why = f"{decision.profile or 'the choice of profiles'} decides before it"
    override = None if identifier is None else overriding.find(profile.name, identifier)
    if identifier is not None and (override is None or override.counts):
        windows = tuple(_windows(profile, checked))
        if not windows:
            why = "it has no limit for this identifier"
        elif profile.observed or (override is not None and override.action == OBSERVED):
            why = "it counts the request, and never refuses it: observe"
    elif override is not None and not override.refuses:
        why = "an override exempts the identifier"
    return ProfileState(
        profile=profile.name,
        place=place.name,
        origin=_absent(profile.name, place, requirement, "").origin,
        counts=bool(windows),
        why=why,
        axis=profile.axis,
        mode=profile.mode,
        identifier=identifier,
        found_by=found_by,
        cost=cost,
        override="" if override is None else override.action,
        windows=windows,
    )


def _windows(profile: Profile, checked: Check) -> Iterator[WindowState]:
    assert checked.windows is not None
    assert checked.decision is not None
    verdicts: dict[tuple[str, Policy, str], Verdict] = {
        (verdict.profile, verdict.policy, verdict.key): verdict
        for verdict in checked.decision.verdicts
    }
    template, keys = checked.windows
    for (name, policy), rule, key in zip(template.named, template.rules, keys, strict=True):
        if name == profile.name:
            verdict = verdicts.get((name, policy, key))
            yield WindowState(
                key=key,
                limit=policy.limit if verdict is None else verdict.limit,
                window=policy.window,
                algorithm=policy.algorithm,
                allowed=None if verdict is None else verdict.allowed,
                observed=rule.observed,
                remaining=None if verdict is None else verdict.remaining,
                retry_after=None if verdict is None else verdict.retry_after,
                reset_after=None if verdict is None else verdict.reset_after,
            )


def _decision(decision: Decision) -> dict[str, Any]:
    return {
        "allowed": decision.allowed,
        "status": None if decision.allowed else status_of(decision),
        "profile": decision.profile,
        "reason": decision.reason,
        "source": decision.source,
        "retry_after": decision.retry_after,
    }


def _doubts(found: Explanation) -> Iterator[str]:
    """Yield what may be different for the real request."""
    counting = [state for state in found.profiles if state.counts]
    for place, text in {
        INSIDE: "inside of other code (a decorator such as login_required, or a class)",
        THROTTLE: "in a framework that authenticates by itself",
    }.items():
        names = dict.fromkeys(state.profile for state in counting if state.place == place)
        if names:
            yield f"Counted {text}, and only if the request gets there: {', '.join(names)}."
    for state in counting:
        profile = registry.get(state.profile)
        if profile.deferred:
            yield f"{state.profile} is deferred: a process decides by what it knew before."
        if any(policy.lease for policy in profile.policies):
            yield f"{state.profile} is leased: hits that processes hold count as used here."
    decision = found.decision
    if decision is not None and (decision["source"], decision["reason"]) in _AWAY:
        yield (
            f"Redis is away, so the fallback decides ({decision['source']}). Each process has its "
            "own windows."
        )
