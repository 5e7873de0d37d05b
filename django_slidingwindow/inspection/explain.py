"""Explain which limits would apply to a request, without charging it or running its view."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ..conf import NAME, conf
from ..core.keys import identifier_in
from ..decisions import ALLOW, ALLOWED, BLOCK, DENY, FALLBACK, IDENTITY_ERROR, LOCAL, OBSERVED
from ..guard import override_snapshot
from ..guard.exemptions import exemptions
from ..guard.installation import has_middleware
from ..guard.requirements import Requirement, is_exempt
from ..guard.rules import rules
from ..http.headers import waits_for_slot
from ..http.refusal import status_of
from ..profiles.user_code import path_of
from ..registry import registry
from .explanation import Explanation, ProfileState, RuleState, WindowState
from .forecast import Forecast
from .identification import client, how_found
from .places import INSIDE, THROTTLE, Place, UnknownPlacesError, places

if TYPE_CHECKING:
    from django.http import HttpRequest

    from ..decisions import Decision, Verdict
    from ..guard.state import Check
    from ..policies import Policy, Profile

# Source and reason of the decisions that the fallback makes while Redis is away.
_BY_FALLBACK = {
    (LOCAL, ALLOWED),
    (LOCAL, OBSERVED),
    (LOCAL, FALLBACK),
    (ALLOW, ALLOWED),
    (DENY, DENY),
}


def explain(request: HttpRequest, given: Mapping[str, str] | None = None) -> Explanation:
    """Return which profiles would count a request, and what they would decide.

    `given`: identifiers by axis, for axes that need more than a made-up request has. They take
    precedence over those of the request.
    """
    given = given or {}
    match, exempt = request.resolver_match, exemptions()
    explanation = Explanation(
        method=request.method or "",
        path=request.path_info,
        view=None if match is None else match._func_path,
        client=client(request),
        exempt="" if exempt is None else exempt.covers(request),
        rules=list(_rules(request)),
    )
    explanation.unknown.append(
        "Other middleware was not run: it may answer first or change the request."
    )
    if match is None:
        explanation.unknown.append(
            "No view has this path, so the middleware charges its rules after the response; not "
            "if the response is a stream."
        )
    forecast = Forecast(request, given)
    # The requirements whose profiles are in the explanation already.
    listed: list[Requirement] = []
    decision = None
    try:
        for place in places(request):
            if explanation.refused:
                explanation.profiles += _unreached_profiles(place, listed)
                continue
            check = forecast.check(place.requirements)
            if check is None:
                continue
            listed += check.requirements
            explanation.profiles += _profiles(request, place, check, given, explanation.exempt)
            decision = forecast.decision(place.requirements)
            explanation.refused = decision is not None and not decision.allowed
    except UnknownPlacesError as error:
        explanation.unknown.append(f"The limits inside the view are unknown: {error}.")
    if not explanation.refused:
        decision = forecast.strictest
    explanation.decision = None if decision is None else _decision(decision)
    explanation.unknown += _uncertainties(explanation)
    return explanation


def _rules(request: HttpRequest) -> Iterator[RuleState]:
    """Yield each rule of the middleware, and whether it applies to the request."""
    match, installed = request.resolver_match, has_middleware()
    exempt_view = match is not None and is_exempt(match.func)
    for rule in rules():
        requirement, mismatch = rule.requirement, rule.mismatch(request)
        if not conf.enabled:
            why = f"{NAME}['ENABLED'] is False"
        elif not installed:
            why = "RateLimitMiddleware is not in MIDDLEWARE"
        elif mismatch:
            why = f"the {mismatch} does not match"
        elif not requirement.covers(request):
            why = _other_methods(requirement)
        else:
            why = "the view is rate_limit_exempt" if exempt_view else ""
        assert isinstance(requirement.profiles, tuple)
        yield RuleState(
            rule=requirement.origin,
            profiles=requirement.profiles,
            applies=not why,
            why=why or "it matches",
        )


def _other_methods(requirement: Requirement) -> str:
    return f"it is for {', '.join(sorted(requirement.methods or ()))}"


def _unreached_profiles(place: Place, listed: list[Requirement]) -> Iterator[ProfileState]:
    """Yield the profiles of a place that comes after the refusal, and add to `listed`."""
    for requirement in place.requirements:
        if not any(requirement is each for each in listed):
            listed.append(requirement)
            for name in _names(requirement, None):
                yield _not_counting(name, place, requirement, "the request is refused before")


def _profiles(
    request: HttpRequest, place: Place, check: Check, given: Mapping[str, str], exempt: str
) -> Iterator[ProfileState]:
    """Yield each profile that a place requires, and whether it counts the request."""
    seen: set[str] = set()
    for requirement in check.requirements:
        for name in _names(requirement, check):
            if check.exempt:
                why = f"EXEMPT has {exempt}" if exempt else "the request is exempt"
            elif not requirement.covers(request):
                why = _other_methods(requirement)
            elif not name:
                why = "no profile was chosen"
            elif name in seen:
                why = "this place has already named it"
            elif name not in check.counted:
                why = "the request was already charged for it"
            else:
                seen.add(name)
                yield _checked(request, place, requirement, registry.get(name), check, given)
                continue
            yield _not_counting(name, place, requirement, why)


def _names(requirement: Requirement, check: Check | None) -> tuple[str, ...]:
    """Return the profiles of a requirement; an empty name if a function has chosen none."""
    if isinstance(requirement.profiles, tuple):
        return requirement.profiles
    chosen = () if check is None else check.chosen.get(id(requirement), ())
    return chosen or ("",)


def _origin(requirement: Requirement) -> str:
    if isinstance(requirement.profiles, tuple):
        return requirement.origin
    return f"{requirement.origin}, chosen by {path_of(requirement.profiles)}"


def _not_counting(name: str, place: Place, requirement: Requirement, why: str) -> ProfileState:
    return ProfileState(
        profile=name, place=place.name, origin=_origin(requirement), counts=False, why=why
    )


def _checked(
    request: HttpRequest,
    place: Place,
    requirement: Requirement,
    profile: Profile,
    check: Check,
    given: Mapping[str, str],
) -> ProfileState:
    """Return the state of a profile for which the place has made a check."""
    counted, decision = check.counted[profile.name], check.decision
    identifier, cost = counted or (None, 0)
    found_by = how_found(profile, request, given)
    windows: tuple[WindowState, ...] = ()
    why = "it counts the request"
    if counted is None:
        why = f"no identifier: {found_by[-1]}"
    elif decision is not None and decision.reason in (BLOCK, IDENTITY_ERROR):
        # No profile counts the request, because one profile has decided without a window.
        identifier, decides = None, decision.profile == profile.name
        if decides and decision.reason == BLOCK:
            identifier, why = identifier_in(decision.key), "an override blocks the identifier"
        elif decides:
            why = "the identifier or the limit could not be found: see the log; or use --identify"
        else:
            why = f"{decision.profile or 'the choice of profiles'} decides before it"
    override = None if identifier is None else override_snapshot.find(profile.name, identifier)
    if identifier is not None and (override is None or override.counts):
        windows = tuple(_windows(profile, check))
        if not windows:
            why = "it has no limit for this identifier"
        elif profile.observed or (override is not None and override.action == OBSERVED):
            why = "it counts the request, and never refuses it: observe"
    elif override is not None and not override.refuses:
        why = "an override exempts the identifier"
    return ProfileState(
        profile=profile.name,
        place=place.name,
        origin=_origin(requirement),
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


def _windows(profile: Profile, check: Check) -> Iterator[WindowState]:
    """Yield the windows of a profile. Those that Redis did not read have no verdict."""
    assert check.windows is not None
    assert check.decision is not None
    verdicts: dict[tuple[str, Policy, str], Verdict] = {
        (verdict.profile, verdict.policy, verdict.key): verdict
        for verdict in check.decision.verdicts
    }
    template, keys = check.windows
    for i in template.shown:
        (name, policy), key = template.named[i], keys[i]
        if name == profile.name:
            verdict = verdicts.get((name, policy, key))
            yield WindowState(
                key=key,
                limit=policy.limit if verdict is None else verdict.limit,
                window=policy.window,
                algorithm=policy.algorithm,
                allowed=None if verdict is None else verdict.allowed,
                observed=template.rules[i].observed,
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
        "waits_for_slot": waits_for_slot(decision),
    }


def _uncertainties(explanation: Explanation) -> Iterator[str]:
    """Yield sentences about what may be different for the real request."""
    counting = [state for state in explanation.profiles if state.counts]
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
        if profile.lease or any(policy.lease for policy in profile.policies):
            yield f"{state.profile} is leased: hits that processes hold count as used here."
    decision = explanation.decision
    if decision is not None and (decision["source"], decision["reason"]) in _BY_FALLBACK:
        yield (
            f"Redis is away, so the fallback decides ({decision['source']}). Each process has its "
            "own windows."
        )
