"""The example with a theme of the admin, whose app the environment variable THEME names."""

import os

from tests.support.demo_settings import *  # noqa: F403
from tests.support.demo_settings import INSTALLED_APPS as _APPS

INSTALLED_APPS = [os.environ["THEME"], *_APPS]
# The scripts and styles of themes are inline.
SECURE_CSP: dict[str, list[str]] = {}
CONTENT_SECURITY_POLICY = None
JAZZMIN_SETTINGS = {"use_google_fonts_cdn": False}
