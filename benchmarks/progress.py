"""A progress bar on the terminal."""

from __future__ import annotations

import sys
import time
from typing import TextIO

WIDTH = 30


class Progress:
    """One bar for each section; without a terminal, one line at its end."""

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._title = ""
        self._steps = 1
        self._done = 0
        self._start = time.monotonic()

    def begin(self, title: str, steps: int) -> None:
        """Begin a bar with this number of steps."""
        self.end()
        self._title, self._steps, self._done = title, max(steps, 1), 0
        self._start = time.monotonic()
        self._draw("")

    def step(self, what: str = "") -> None:
        self._done += 1
        self._draw(what)

    def end(self) -> None:
        """End the bar, and write the time that it took."""
        if self._title:
            took = time.monotonic() - self._start
            self._stream.write(f"{self._start_of_line}{self._title}: {took:.1f} s\n")
            self._stream.flush()
            self._title = ""

    @property
    def _start_of_line(self) -> str:
        return "\r\x1b[K" if self._live else ""

    def _draw(self, what: str) -> None:
        if not self._live:
            return
        share = min(1.0, self._done / self._steps)
        bar = "█" * round(WIDTH * share)
        self._stream.write(f"\r\x1b[K{bar:░<{WIDTH}} {share:4.0%} {self._title} {what}")
        self._stream.flush()
