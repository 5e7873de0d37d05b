"""Exit codes of the command."""

from __future__ import annotations

FAILED = 1
"""The command ran, and its result is negative: nothing was found, or a limit was exceeded."""
INVALID = 2
"""The arguments or the settings are invalid. argparse uses the same code."""
AWAY = 3
"""Redis, the database or the site cannot be reached."""
