"""Check a limit with the installed package: run as `python -I`, away from the checkout.

REDIS_URL names the server. It exits with an error if anything is not as it should be.
"""

import os
import sysconfig

import django
from django.conf import settings

settings.configure(
    SECRET_KEY="only for this check",
    INSTALLED_APPS=["django_slidingwindow"],
    CACHES={
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": os.environ["REDIS_URL"],
        }
    },
    SLIDING_WINDOW={"PROFILES": {"wheel": {"axis": "tenant", "limit": 3, "window": 60}}},
)
django.setup()

import django_slidingwindow  # noqa: E402
from django_slidingwindow import limits  # noqa: E402

place = os.path.dirname(django_slidingwindow.__file__)
if os.path.dirname(place) != sysconfig.get_path("purelib"):
    raise SystemExit(f"imported from {place}, not from the installed wheel")

decisions = [limits.check("wheel", "acme") for _ in range(5)]
allowed = [decision.allowed for decision in decisions]
sources = {decision.source for decision in decisions[:4]}
if allowed != [True] * 3 + [False] * 2 or sources != {"redis"}:
    raise SystemExit(f"3 of 5 should have passed, by Redis: {decisions}")
print(f"{place}: 3 of 5 requests passed at a limit of 3")
