"""Sync and async views, and the static files of the admin and the live page."""

import os

from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

application = ASGIStaticFilesHandler(get_asgi_application())
