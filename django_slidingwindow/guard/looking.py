"""What is left of a request's limits, in one call to the store that charges nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..conf import conf
from ..decisions import Decision, Verdict
from .binding import bind
from .current_limiter import get_limiter
from .requirements import Requirements
from .resolve import resolve
from .user_code import in_thread

if TYPE_CHECKING:
    from django.http import HttpRequest

    from ..core.windows import WindowSet
    from ..policies import Policy
    from .state import Resolved


class Seen(NamedTuple):
    """One window that counts the request."""

    profile: str
    policy: Policy
    verdict: Verdict | None
    """About a request of cost 1; None if the store is away and nothing is counted."""
    left: int | None
    """Hits that are left now."""


class Look(NamedTuple):
    """What was found. Each decision is about a request of cost 1."""

    decided: tuple[Decision, ...]
    """What is decided without a window: exempt, blocked, unlimited, or unknown."""
    peeked: Decision | None
    """The decision of all windows together; None if there are none."""
    seen: tuple[Seen, ...]
    """The windows that are enforced: what an observing profile counts is not for clients."""


def look(request: HttpRequest, requirements: Sequence[Requirements]) -> Look:
    """Return what is left of the limits. Each of the requirements is resolved by itself."""
    limiter, resolved = get_limiter(), []
    for each in requirements if conf.enabled else ():
        resolved.append(resolve(request, bind(each, limiter), None))
    windows = _counting(resolved)
    return _found(resolved, windows, windows and limiter.peek(windows))


async def alook(request: HttpRequest, requirements: Sequence[Requirements]) -> Look:
    """Do what `look` does, without blocking the event loop."""
    limiter, resolved = get_limiter(), []
    for each in requirements if conf.enabled else ():
        binding = bind(each, limiter)
        if await binding.prepare(request):
            resolved.append(await in_thread(resolve, request, binding, None))
        else:
            resolved.append(resolve(request, binding, None))
    windows = _counting(resolved)
    return _found(resolved, windows, windows and await limiter.apeek(windows))


def _counting(resolved: Sequence[Resolved]) -> WindowSet | None:
    """Return the windows to look at."""
    found = [each.windows for each in resolved if each.windows is not None and each.windows.keys]
    return get_limiter().join(found) if found else None


def _found(
    resolved: Sequence[Resolved], windows: WindowSet | None, peeked: Decision | None
) -> Look:
    decided = [each.decision for each in resolved if each.decision is not None]
    for each in resolved:
        if each.windows is not None and not each.windows.keys:
            # Decided by its template: the store is not asked.
            decided.append(get_limiter().peek(each.windows))
    seen = () if windows is None or peeked is None else tuple(_seen(windows, peeked))
    return Look(tuple(decided), peeked, seen)


def _seen(windows: WindowSet, peeked: Decision) -> Iterator[Seen]:
    # With the rules that were applied: what a lease holds costs nothing more.
    rules = peeked.answer[2] or ()
    verdicts: dict[tuple[str, Policy, str], tuple[Verdict | None, int | None]] = {}
    for verdict, rule in zip(peeked.verdicts, rules, strict=True):
        charged = rule.cost if peeked.allowed and verdict.allowed else 0
        left = min(verdict.limit, verdict.remaining + charged)
        verdicts[verdict.profile, verdict.policy, verdict.key] = verdict, left
    template, keys = windows
    for (profile, policy), rule, key in zip(template.named, template.rules, keys, strict=True):
        if not rule.observed:
            yield Seen(profile, policy, *verdicts.get((profile, policy, key), (None, None)))
