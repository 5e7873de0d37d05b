"""The example's settings for a machine that may be slow: no answer depends on its speed."""

import django
from config.settings import *  # noqa: F403
from config.settings import MIDDLEWARE as _MIDDLEWARE
from config.settings import SLIDING_WINDOW as _LIMITS

from tests.support.content_security import strict

SLIDING_WINDOW = {
    **_LIMITS,
    "LATENCY_BUDGET": 10.0,
    "PROFILES": {
        **_LIMITS["PROFILES"],
        "tenant_soon": {**_LIMITS["PROFILES"]["tenant_soon"], "rate": "4/h"},
    },
}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
if django.VERSION < (6, 0):  # else the example has a policy of its own
    globals().update(strict(_MIDDLEWARE))
