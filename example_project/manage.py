"""Django's command line. `./scripts/demo` starts all of it; with a Redis of your own:

DEBUG=1 REDIS_URL=redis://127.0.0.1:6379/0 python example_project/manage.py runserver
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    execute_from_command_line(sys.argv)
