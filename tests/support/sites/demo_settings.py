"""Settings of the demo for tests: no decision depends on the speed of the machine."""

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
if django.VERSION < (6, 0):  # from 6.0 on, the example sets a policy itself
    globals().update(strict(_MIDDLEWARE))
