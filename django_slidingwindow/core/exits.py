"""What a process does before it ends."""

from __future__ import annotations

import atexit
import multiprocessing
from collections.abc import Callable
from multiprocessing.util import Finalize


def at_exit(function: Callable[[], object]) -> None:
    """Call a function when this process ends, also if multiprocessing has forked it."""
    atexit.register(function)
    if multiprocessing.parent_process() is not None:
        # A child that multiprocessing forked does not run atexit handlers.
        Finalize(None, function, exitpriority=0)
