"""A small SaaS API with limits. What this app needs stands first, and is there to be copied."""

import os
from pathlib import Path

import dj_database_url
import django

from config.secret import kept_secret

BASE_DIR = Path(__file__).resolve().parent.parent

# 1. A cache alias of django-redis: the windows live in that server.
CACHES = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0"),
    },
}

# 2. The limits. Five profiles are built in and used here as they are: ip_public,
#    tenant_free, tenant_paid, endpoint_expensive and endpoint_lightweight.
SLIDING_WINDOW = {
    "PROFILES": {
        # Several rates at once: each must admit. The view counts failures alone. Who goes on after
        # three refusals is blocked, longer with each offence.
        "login": {
            "axis": "ip",
            "rates": ["5/m", "20/h"],
            "penalty": {"after": "3/10m", "steps": ["1m", "10m", "1d"]},
        },
        # At most two reports of a tenant are made at once, and those of dead processes end.
        "report_slots": {"axis": "tenant", "inflight": 2, "hold": "30s"},
        # No view: a job waits here before it calls a service that has a quota.
        "upstream": {"axis": "global", "rates": ["2/s", "30/m"]},
        # A limit on trial: it counts and logs what it would refuse, and refuses nothing. It logs
        # admitted requests as well, so that the admin can tell what another limit would do.
        "tenant_soon": {"axis": "tenant", "rate": "40/m", "mode": "observe", "log": "all"},
    },
    # Who a tenant is, only the project knows: a function of the request.
    "IDENTITIES": {"tenant": "shop.tenants.identity"},
    # The middleware applies these to all views, in one call with their own limits.
    "RULES": [
        {"path": r"^/api/", "profiles": ["ip_public", "tenant_soon"]},
    ],
    # Behind a proxy, name it; otherwise X-Forwarded-For is ignored, as it must be. A server
    # in front of Django must not read it either: uvicorn has proxy_headers for that.
    # "TRUSTED_PROXIES": ["10.0.0.0/8"],
}

# 3. The app, and the middleware for RULES.
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "ninja",  # serves the scripts of its docs page
    "rest_framework",
    "django_slidingwindow",
    "shop",
    "live",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "live.middleware.tell_source",  # only for the page at /
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django_slidingwindow.middleware.RateLimitMiddleware",
]

# The rest is any Django project's.
DATABASES = {"default": dj_database_url.config(default=f"sqlite:///{BASE_DIR / 'db.sqlite3'}")}
# Safe as it is: DEBUG=1 asks for error pages that show code and settings, and without a
# SECRET_KEY of the environment each copy of this project makes its own.
DEBUG = os.environ.get("DEBUG") == "1"
SECRET_KEY = os.environ.get("SECRET_KEY") or kept_secret(BASE_DIR / ".secret_key")
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "config.urls"
STATIC_URL = "static/"
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
if django.VERSION >= (6, 0):
    # Only files of this site: no inline scripts or styles, and nothing from other hosts.
    from django.utils.csp import CSP

    MIDDLEWARE.insert(1, "django.middleware.csp.ContentSecurityPolicyMiddleware")
    SECURE_CSP = {
        "default-src": [CSP.SELF],
        "base-uri": [CSP.NONE],
        "form-action": [CSP.SELF],
        "frame-ancestors": [CSP.NONE],
        "object-src": [CSP.NONE],
    }
