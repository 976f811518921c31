"""Number of threads of the engine; results do not depend on it."""

from __future__ import annotations

import os

from tailback.errors import ScenarioError

THREADS_VARIABLE = "TAILBACK_THREADS"
"""Environment variable that sets the number of threads."""


NODES_A_THREAD = 256
"""Nodes of the network for each thread, at least. With this many, four threads are faster than one;
with half as many, two threads take more than twice the processor time of one
(docs/measurements/speed.md)."""


def thread_count(asked: int | None = None, nodes: int | None = None) -> int:
    """Number of threads: ``asked``, else ``TAILBACK_THREADS``, else the number of idle cores.

    Threads synchronize every few microseconds, so one that is preempted delays all others.
    Therefore cores that were busy during the last minute are not used, and a small network has
    one thread for every :data:`NODES_A_THREAD` of its ``nodes``.

    Raises:
        ScenarioError: Fewer than 1 thread, or the variable is not a positive whole number.
    """
    if asked is not None:
        if asked < 1:
            raise ScenarioError(f"threads = {asked} is less than 1", remedy="give 1 or more")
        return asked
    text = os.environ.get(THREADS_VARIABLE)
    if text is None:
        idle = _idle_cores()
        return idle if nodes is None else max(1, min(idle, nodes // NODES_A_THREAD))
    if not text.isdecimal() or int(text) < 1:
        raise ScenarioError(
            f"{THREADS_VARIABLE} = {text!r} is not a number of threads",
            remedy=f"for example {THREADS_VARIABLE}=4",
        )
    return int(text)


def _idle_cores() -> int:
    try:
        cores = len(os.sched_getaffinity(0))
        busy = round(os.getloadavg()[0])
    except (AttributeError, OSError):  # not available on every system
        return 1
    return max(1, cores - busy)
