"""A strict Content Security Policy, by Django from 6.0 on and by django-csp before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import django

if TYPE_CHECKING:
    from selenium.webdriver.remote.webdriver import WebDriver

DJANGO = "django.middleware.csp.ContentSecurityPolicyMiddleware"
DJANGO_CSP = "csp.middleware.CSPMiddleware"
TOOLS = (DJANGO, DJANGO_CSP) if django.VERSION >= (6, 0) else (DJANGO_CSP,)
DIRECTIVES = {
    "default-src": ["'self'"],
    "base-uri": ["'none'"],
    "form-action": ["'self'"],
    "frame-ancestors": ["'none'"],
    "object-src": ["'none'"],
}


def strict(middleware: Sequence[str], tool: str = TOOLS[0]) -> dict[str, Any]:
    """Return the settings that give every response the policy."""
    return {
        "MIDDLEWARE": [tool, *middleware],
        "SECURE_CSP": DIRECTIVES,
        "CONTENT_SECURITY_POLICY": {"DIRECTIVES": DIRECTIVES},
    }


def errors(browser: WebDriver) -> list[str]:
    """Return the browser's console errors since the last call, with violations of the policy."""
    return [
        entry["message"]
        for entry in browser.get_log("browser")
        if entry["level"] == "SEVERE" and "favicon" not in entry["message"]
    ]
