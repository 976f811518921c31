"""Ctrl-C ends the process also while compiled code runs that does not look for signals.

Python handles a signal between two of its own instructions. Reading a large trace, or solving for
rates, is one call of compiled code. It may take minutes, and only the packet engine checks for
signals meanwhile.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from tailback.cli.result import EXIT_INTERRUPTED

GRACE_S = 2.0
"""Time for Python to handle the signal. The packet engine checks about every 50 ms."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SHOW_CURSOR = "\x1b[?25h"


def end_on_signals() -> None:
    """Have SIGINT and SIGTERM raise KeyboardInterrupt, and end the process if that takes too long.

    SIGTERM is what a batch system sends when time is up. A signal whose handler is not Python's
    default is left alone, as is one for which a command installs its own later.
    """
    handled = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        handled.set()
        signal.default_int_handler(number, frame)

    for number in _SIGNALS:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, interrupt)
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def watch() -> None:
        while select.select([reading], [], []):
            received = set(os.read(reading, 64))
            ours = any(signal.getsignal(number) is interrupt for number in received)
            if ours and not handled.wait(GRACE_S):
                _end()
            # Python handles signals that came together once.
            with suppress(BlockingIOError):
                os.read(reading, 64)
            handled.clear()

    threading.Thread(target=watch, name="signals", daemon=True).start()


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Have SIGTERM end the process at once during a ``with`` block: while libraries are loaded.

    Their initialisation is compiled code that holds Python's lock, so Python cannot handle a
    signal. No file is incomplete at that time.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if handler is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


def _end() -> None:
    """End the process at once, without leaving incomplete files."""
    # Deferred: it takes a tenth of the time in which the help is there.
    from tailback.io.atomic_exchange import discard_unfinished

    discard_unfinished()
    cursor = _SHOW_CURSOR if sys.stderr is not None and sys.stderr.isatty() else ""
    # Not by sys.stderr: the main thread may hold its lock.
    os.write(2, f"{cursor}tailback: error: interrupted\n".encode())
    os._exit(EXIT_INTERRUPTED)
