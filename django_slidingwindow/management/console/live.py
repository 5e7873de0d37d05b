"""Draw a view repeatedly until q is pressed."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

try:
    import termios
    import tty
except ImportError:  # pragma: no cover -- Windows: Ctrl-C quits
    termios = tty = None  # type: ignore[assignment]

# Switch to the alternate screen and hide the cursor; undo both.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_CLEAR = "\x1b[H\x1b[2J"


def repeat(
    draw: Callable[[int], None], *, stream: TextIO, interval: float, count: int | None
) -> None:
    """Call `draw` with a running number every `interval` seconds, `count` times.

    On a terminal each view replaces the previous one.
    """
    with _screen(stream) as clear, _keyboard() as wait:
        number = 0
        while True:
            clear()
            draw(number)
            stream.flush()
            number += 1
            if number == count or wait(interval):
                return


@contextmanager
def _screen(stream: TextIO) -> Iterator[Callable[[], object]]:
    """Yield a function that clears the screen; it does nothing if the stream is not a terminal."""
    if not stream.isatty():
        yield lambda: None
        return
    stream.write(_ENTER)
    try:
        yield lambda: stream.write(_CLEAR)
    finally:
        stream.write(_LEAVE)
        stream.flush()


@contextmanager
def _keyboard() -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits for some seconds, and returns True at once if q is pressed."""
    try:
        keyboard = sys.stdin.fileno()
        is_terminal = termios is not None and os.isatty(keyboard)
    except (AttributeError, OSError, ValueError):
        # There is no standard input, as in a service or a test.
        is_terminal = False
    if not is_terminal:
        yield _sleep
        return
    before = termios.tcgetattr(keyboard)

    def wait(seconds: float) -> bool:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            ready, _, _ = select.select([keyboard], [], [], left)
            if ready and os.read(keyboard, 1) in (b"q", b"Q", b"\x04", b""):
                return True
        return False

    # TCSANOW keeps keys that were pressed before this call.
    tty.setcbreak(keyboard, termios.TCSANOW)
    try:
        yield wait
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False
