"""The example's settings for a machine that may be slow: no answer depends on its speed."""

from config.settings import *  # noqa: F403
from config.settings import SLIDING_WINDOW as _LIMITS

SLIDING_WINDOW = {
    **_LIMITS,
    "LATENCY_BUDGET": 10.0,
    "PROFILES": {
        **_LIMITS["PROFILES"],
        "tenant_soon": {**_LIMITS["PROFILES"]["tenant_soon"], "rate": "4/h"},
    },
}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
