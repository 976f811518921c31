"""Importing libraries when a command needs them: all of them together take seconds."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from tailback.cli.interrupt import ended_by_sigterm


@contextmanager
def loading() -> Iterator[None]:
    """Import without garbage collection, a sixth of the time that frees nothing.

    Later collections also skip the objects of modules, which live as long as the process. SIGTERM
    ends the process at once. A command imports its libraries within such a block, after its
    options are read, so that its help needs none of them.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with ended_by_sigterm():
            yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()
