"""What `./scripts/demo` shows: a sliding window does not forget at the full minute."""

from __future__ import annotations

import os
import time

import django
from django.conf import settings

PROFILES = {
    "burst": {"axis": "tenant", "limit": 3, "window": 2},
    "import": {"axis": "tenant", "rates": ["3/2s", "5/m"]},
}


def configure() -> None:
    alias = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": os.environ["REDIS_URL"]}
    settings.configure(
        SECRET_KEY="only for the demonstration",
        INSTALLED_APPS=["django_slidingwindow"],
        CACHES={"default": alias},
        SLIDING_WINDOW={"PROFILES": PROFILES},
    )
    django.setup()


def ask(profile: str, tenant: str, cost: int = 1) -> float:
    """Check once, print the answer; the seconds to wait for the next try."""
    from django_slidingwindow import limits

    decision = limits.check(profile, tenant, cost=cost)
    answer = "allowed" if decision.allowed else "REFUSED"
    wait = decision.retry_after
    when = "" if decision.allowed else "  never" if wait is None else f"  again in {wait:.3f} s"
    print(
        f"  {tenant:<8} cost {cost}  {answer}  {decision.remaining} of {decision.limit} left"
        f"{when}  (from {decision.source})"
    )
    return wait or 0.0


def main() -> None:
    configure()
    print("3 requests in any 2 seconds: the fourth has to wait, another tenant has not")
    for _ in range(3):
        ask("burst", "acme")
    wait = ask("burst", "acme")
    ask("burst", "globex")

    print(f"after {wait:.3f} s, as the answer said, and not before")
    time.sleep(wait)
    ask("burst", "acme")

    print("a cost of 2 is all or nothing; one above the limit can never pass")
    ask("burst", "initech", cost=2)
    ask("burst", "initech", cost=2)
    ask("burst", "initech", cost=4)

    print("two limits at once, 3 in 2 seconds and 5 a minute: one script call, the strictest wins")
    for _ in range(3):
        ask("import", "umbrella")
    time.sleep(2)
    for _ in range(3):
        ask("import", "umbrella")


if __name__ == "__main__":
    main()
