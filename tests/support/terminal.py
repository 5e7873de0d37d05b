"""A pseudo-terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import threading


class Terminal:
    """A pseudo-terminal with the keyboard and the screen of a program."""

    def __init__(self) -> None:
        self._master, slave = pty.openpty()
        self.keyboard = os.fdopen(slave, encoding="utf-8")
        self.screen = os.fdopen(os.dup(slave), "w", encoding="utf-8")
        self._shown = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def close(self) -> str:
        """Close the terminal and return everything that the screen has shown."""
        self.keyboard.close()
        self.screen.close()
        self._reader.join()
        os.close(self._master)
        return self._shown.decode()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # raised by Linux when the other end is closed
            while chunk := os.read(self._master, 65536):
                self._shown += chunk
