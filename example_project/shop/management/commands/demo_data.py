"""Create tenants, an admin, a day of traffic and two overrides for the demo."""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand
from django.utils import timezone

from django_slidingwindow.core.keys import make_key
from django_slidingwindow.models import Override, Rejection, Usage
from django_slidingwindow.registry import registry
from django_slidingwindow.rejections.rows import Group, Tally
from django_slidingwindow.rejections.usage_rows import UsageGroup, UsageTally
from shop.models import Tenant, digest

TENANTS = (
    ("acme", "Acme Rockets", "free", "demo-key-of-acme"),
    ("initech", "Initech", "free", "demo-key-of-initech"),
    ("globex", "Globex", "paid", "demo-key-of-globex"),
)
DAY = 24 * 60

# Refused clients: profile, identifier, view, method, the chance of refusals in a minute at the
# busiest time of the day, and the most refusals in such a minute.
OFFENDERS = (
    ("tenant_free", "acme", "api/orders/", "GET", 0.35, 14),
    ("tenant_free", "initech", "api/v2/parcels", "GET", 0.12, 6),
    ("tenant_soon", "globex", "api/customers/", "GET", 0.20, 9),
    ("ip_public", "203.0.113.9", "status/", "GET", 0.10, 25),
    ("ip_public", "2001:db8:7::/64", "status/", "GET", 0.06, 12),
    ("login", "198.51.100.23", "api/login/", "POST", 0.08, 4),
    ("endpoint_expensive", "reports@shop.views.reports", "api/reports/", "POST", 0.15, 3),
)
# Tenants whose requests are all logged: identifier, view, and requests in the busiest minute.
BUSY = (
    ("acme", "api/orders/", 30),
    ("initech", "api/v2/parcels", 12),
    ("globex", "api/customers/", 55),
)
# A client that guessed passwords for half an hour, and was blocked; and how many minutes ago.
ATTACK = ("login", "192.0.2.66", "api/login/", "POST", 20)
ATTACK_MINUTES = range(401, 431)
# Overrides of operators: profile, identifier, action, limit, days, and the reason.
OVERRIDES = (
    ("ip_public", "203.0.113.9", "limit", "300", 7, "an office behind one address"),
    ("login", "192.0.2.66", "block", "", 1, "guesses passwords"),
)


class Command(BaseCommand):
    help = (
        "Creates the example's tenants, its admin (and prints the password), a log and overrides. "
        "Tenants and users that exist are left as they are."
    )

    def handle(self, *args: Any, **options: Any) -> str:
        """Return the password of the admin; empty if there was one already."""
        for slug, name, plan, key in TENANTS:
            fields = {"name": name, "plan": plan, "key_digest": digest(key)}
            Tenant.objects.get_or_create(slug=slug, defaults=fields)
        Rejection.objects.bulk_create(_log(), ignore_conflicts=True)
        Usage.objects.bulk_create(_usage(), ignore_conflicts=True)
        if not Override.objects.exists():
            for profile, who, action, limit, days, note in OVERRIDES:
                Override.objects.create(
                    profile=profile,
                    identifier=who,
                    action=action,
                    limit=limit,
                    until=timezone.now() + timedelta(days=days),
                    note=note,
                    created_by="demo",
                )
        User = get_user_model()  # noqa: N806
        if User.objects.filter(username="demo").exists():
            self.stderr.write("The user demo exists, and keeps its password.")
            return ""
        password = secrets.token_urlsafe(9)
        User.objects.create_superuser("demo", password=password)
        return password


def _log() -> Iterator[Rejection]:
    """Yield refusals after the newest row of the log, of one day at most."""
    minutes = _minutes_after(Rejection.objects.first())
    for minute in minutes:
        # The minute is the seed, so that it has the same refusals in each run.
        chance = random.Random(minute)  # noqa: S311
        busy = _busyness(minute)
        for profile, who, view, method, likely, hits in OFFENDERS:
            if chance.random() < likely * busy:
                yield _row(minute, profile, who, view, method, 1 + chance.randrange(hits))
        if minutes.stop - minute in ATTACK_MINUTES:
            *target, hits = ATTACK
            yield _row(minute, *target, hits + chance.randrange(hits), "penalty")


def _usage() -> Iterator[Usage]:
    """Yield admitted requests after the newest row of the log, of one day at most."""
    profile = registry.get("tenant_soon")
    for minute in _minutes_after(Usage.objects.order_by("-minute").first()):
        chance = random.Random(minute)  # noqa: S311
        for who, view, most in BUSY:
            hits = round(most * _busyness(minute) * chance.random())
            if hits:
                key = make_key("throttle", profile.axis, who, profile.scope, profile.policies[0])
                group = UsageGroup(minute, profile.name, key, view)
                yield group.row(UsageTally(hits, hits))


def _minutes_after(newest: Rejection | Usage | None) -> range:
    """Return the minutes of the past day after the newest row of a log."""
    now = int(timezone.now().timestamp() // 60)
    first = now - DAY
    if newest is not None:
        first = max(first, int(newest.minute.timestamp() // 60) + 1)
    return range(first, now)


def _busyness(minute: int) -> float:
    """Return a factor from 0.1 at four in the morning (UTC) to 1 at four in the afternoon."""
    hour = minute / 60 % 24
    return 0.55 - 0.45 * math.cos(math.tau * (hour - 4) / 24)


def _row(
    minute: int, name: str, who: str, view: str, method: str, hits: int, reason: str = ""
) -> Rejection:
    profile = registry.get(name)
    policy = profile.policies[0]
    group = Group(
        minute=minute,
        profile=name,
        policy=policy,
        key=make_key("throttle", profile.axis, who, profile.scope, policy),
        view=view,
        method=method,
        reason=reason or ("observe" if profile.observed else "limit"),
        source="redis",
    )
    # The penalty of the login ends its first block after a minute.
    wait = 60.0 if reason else policy.window * 0.4
    return group.row(Tally(hits, minute * 60 + 1.0, minute * 60 + 58.0, wait))
