"""A random SECRET_KEY for a project that has none in its environment."""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path


def kept_secret(path: Path) -> str:
    """Return the secret in the file, which is made if it is missing. Only this user can read it."""
    if not path.exists():
        handle, new = tempfile.mkstemp(dir=path.parent)  # mode 0600
        with open(handle, "w") as file:
            file.write(secrets.token_urlsafe(50))
        # Another process may do the same: the first one wins, and no process reads half a file.
        with suppress(FileExistsError):
            os.link(new, path)
        os.unlink(new)
    return path.read_text()
