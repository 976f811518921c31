"""How many threads the engine uses. Results do not depend on this."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tailback.errors import ScenarioError

THREADS_VARIABLE = "TAILBACK_THREADS"
"""Environment variable that sets the number of threads."""

_chosen: ContextVar[int | None] = ContextVar("threads", default=None)


def use_threads(count: int | None) -> None:
    """Use ``count`` threads from now on; ``None`` leaves it to the environment and the machine."""
    _chosen.set(count)


@contextmanager
def engine_threads(count: int | None) -> Iterator[None]:
    """Use ``count`` threads within a ``with`` block; ``None`` changes nothing.

    Raises:
        ScenarioError: ``count`` is below 1.
    """
    if count is None:
        yield
        return
    if count < 1:
        raise ScenarioError(f"threads = {count} is less than 1", remedy="give 1 or more")
    before = _chosen.set(count)
    try:
        yield
    finally:
        _chosen.reset(before)


def threads() -> int:
    """Threads to use: what was chosen, else ``TAILBACK_THREADS``, else the cores that are idle.

    Threads wait for one another every few microseconds: one that loses its core in the middle of
    its work holds up all, so cores that were busy during the last minute are left alone.

    Raises:
        ScenarioError: The variable is not a positive whole number.
    """
    chosen = _chosen.get()
    if chosen is not None:
        return chosen
    text = os.environ.get(THREADS_VARIABLE)
    if text is None:
        return _idle_cores()
    if not text.isdecimal() or int(text) < 1:
        raise ScenarioError(
            f"{THREADS_VARIABLE} = {text!r} is not a number of threads",
            remedy=f"set {THREADS_VARIABLE}=4, say",
        )
    return int(text)


def _idle_cores() -> int:
    try:
        cores = len(os.sched_getaffinity(0))
        busy = round(os.getloadavg()[0])
    except (AttributeError, OSError):  # neither is known on every system
        return 1
    return max(1, cores - busy)
