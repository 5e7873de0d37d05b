"""Exit codes of the command. argparse also uses 2 for wrong arguments."""

from __future__ import annotations

NOT_FOUND, WRONG, AWAY = 1, 2, 3
