"""Settings of the demo with the admin theme whose app is in the environment variable THEME."""

import os

from tests.support.sites.demo_settings import *  # noqa: F403
from tests.support.sites.demo_settings import INSTALLED_APPS as _APPS

INSTALLED_APPS = [os.environ["THEME"], *_APPS]
# Themes use inline scripts and styles.
SECURE_CSP: dict[str, list[str]] = {}
CONTENT_SECURITY_POLICY = None
JAZZMIN_SETTINGS = {"use_google_fonts_cdn": False}
