"""Read what is left of a request's limits, in one call to the store that charges nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..conf import conf
from ..decisions import Decision, Verdict
from ..profiles.user_code import in_thread
from .binding import bind
from .current_limiter import aget_limiter, get_limiter
from .requirements import Requirements
from .resolve import resolve

if TYPE_CHECKING:
    from django.http import HttpRequest

    from ..core.windows import WindowSet
    from ..policies import Policy
    from .state import Resolved


class PeekedWindow(NamedTuple):
    """A window that counts the request."""

    profile: str
    policy: Policy
    verdict: Verdict | None
    """The verdict on a request of cost 1; None if the store is away and nothing is counted."""
    left: int | None
    """Hits that are left now; None if `verdict` is None."""


class Peek(NamedTuple):
    """The limits of a request now. Each decision is about a request of cost 1."""

    decided: tuple[Decision, ...]
    """Decisions without a window: exempt, blocked, unlimited, or an identity error."""
    decision: Decision | None
    """The decision of all windows together; None if there are no windows."""
    windows: tuple[PeekedWindow, ...]
    """The windows that are enforced. Those of observing profiles are not shown to clients."""


def peek(request: HttpRequest, requirements: Sequence[Requirements]) -> Peek:
    """Return what is left of the limits. The items of `requirements` are resolved one by one."""
    limiter, resolved = get_limiter(), []
    for each in requirements if conf.enabled else ():
        resolved.append(resolve(request, bind(each, limiter), None))
    windows = _windows_of(resolved)
    return _peek(resolved, windows, windows and limiter.peek(windows))


async def apeek(request: HttpRequest, requirements: Sequence[Requirements]) -> Peek:
    """Do what `peek` does, without blocking the event loop."""
    limiter, resolved = await aget_limiter(), []
    for each in requirements if conf.enabled else ():
        binding = bind(each, limiter)
        if await binding.prepare(request):
            resolved.append(await in_thread(resolve, request, binding, None))
        else:
            resolved.append(resolve(request, binding, None))
    windows = _windows_of(resolved)
    return _peek(resolved, windows, windows and await limiter.apeek(windows))


def _windows_of(resolved: Sequence[Resolved]) -> WindowSet | None:
    """Return all windows as one set; None if there are none."""
    found = [each.windows for each in resolved if each.windows is not None and each.windows.keys]
    return get_limiter().join(found) if found else None


def _peek(resolved: Sequence[Resolved], windows: WindowSet | None, peeked: Decision | None) -> Peek:
    decided = [each.decision for each in resolved if each.decision is not None]
    for each in resolved:
        if each.windows is not None and not each.windows.keys:
            # The template decides; this does not ask the store.
            decided.append(get_limiter().peek(each.windows))
    found = () if windows is None or peeked is None else tuple(_peeked_windows(windows, peeked))
    return Peek(tuple(decided), peeked, found)


def _peeked_windows(windows: WindowSet, peeked: Decision) -> Iterator[PeekedWindow]:
    # The rules that were applied, not those of the template: a hit that a lease holds costs 0.
    rules = peeked.answer.rules
    verdicts: dict[tuple[str, Policy, str], tuple[Verdict | None, int | None]] = {}
    for verdict, rule in zip(peeked.verdicts, rules, strict=True):
        charged = rule.cost if peeked.allowed and verdict.allowed else 0
        left = min(verdict.limit, verdict.remaining + charged)
        verdicts[verdict.profile, verdict.policy, verdict.key] = verdict, left
    template, keys = windows
    shown: set[tuple[str, Policy, str]] = set()
    for i in template.shown:
        (profile, policy), key = template.named[i], keys[i]
        window = profile, policy, key
        # A function may choose a profile that is named as well.
        if not template.rules[i].observed and window not in shown:
            shown.add(window)
            yield PeekedWindow(profile, policy, *verdicts.get(window, (None, None)))
