"""A small SaaS API with limits. The settings of this app come first, and are made to be copied."""

import os
from pathlib import Path

import dj_database_url
import django

from config.secret import kept_secret

BASE_DIR = Path(__file__).resolve().parent.parent

# 1. A cache alias of django-redis: the windows are stored in that server.
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
        # Several rates at once: each must admit. The view only counts failures. A client that goes
        # on after three refusals is blocked, each time for longer.
        "login": {
            "axis": "ip",
            "rates": ["5/m", "20/h"],
            "penalty": {"after": "3/10m", "steps": ["1m", "10m", "1d"]},
        },
        # A tenant can make two reports at once. Slots of a dead process are free after 30 s.
        "report_slots": {"axis": "tenant", "inflight": 2, "hold": "30s"},
        # Not for a view: a job waits for this limit before it calls a service with a quota.
        "upstream": {"axis": "global", "rates": ["2/s", "30/m"]},
        # A limit on trial: it counts, and logs what it would refuse, but refuses nothing. It also
        # logs admitted requests, so that the admin can show what another limit would do.
        "tenant_soon": {"axis": "tenant", "rate": "40/m", "mode": "observe", "log": "all"},
    },
    # Only the project knows its tenants: this function returns the tenant of a request.
    "IDENTITIES": {"tenant": "shop.tenants.identity"},
    # The middleware applies these to all views, in one call with their own limits.
    "RULES": [
        {"path": r"^/api/", "profiles": ["ip_public", "tenant_soon"]},
    ],
    # Behind a proxy, name it here. Otherwise X-Forwarded-For is ignored, because clients can forge
    # it. The server must not read it either: for uvicorn, set proxy_headers to False.
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

# The rest is as in any Django project.
DATABASES = {"default": dj_database_url.config(default=f"sqlite:///{BASE_DIR / 'db.sqlite3'}")}
# The defaults are safe. DEBUG=1 turns on error pages that show code and settings. Without a
# SECRET_KEY in the environment, each copy of this project makes its own.
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
