"""What the time in MPI calls that move no data is, in words."""

from __future__ import annotations

import numpy as np

from tailback.evidence.split import PART_NAMES, kind_of_rest
from tailback.traffic.readers.otf2.names import normalised_call
from tailback.traffic.readers.recorded_run import RecordedRun

_WORTH_A_NOTE = 0.05
"""Share of the measured time from which on it is explained."""

_NAMED = 3
_ENDS = ("mpi_init", "mpi_init_thread", "mpi_finalize")


def note_on_other_calls(recorded: RecordedRun, elapsed_ps: int) -> list[str]:
    """A line on which calls these are, and that no verdict covers them; empty if they take little.

    Args:
        recorded: The run.
        elapsed_ps: Its measured time.
    """
    calls, n = recorded.calls, len(recorded.names)
    inside = np.bincount(calls.name, weights=calls.leave_ps - calls.enter_ps, minlength=n)
    other = [
        kind_of_rest(name) == "other_mpi" and normalised_call(name) not in _ENDS
        for name in recorded.names
    ]
    inside[~np.array(other, bool)] = 0
    total = max(elapsed_ps * recorded.n_ranks, 1)
    if inside.sum() < _WORTH_A_NOTE * total:
        return []
    longest = np.argsort(-inside, kind="stable")[:_NAMED]
    shares = ", ".join(
        f"{recorded.names[name]} {100 * inside[name] / total:.2g} %"
        for name in longest.tolist()
        if inside[name] > 0
    )
    return [
        f"{PART_NAMES['other_mpi']}: {shares} of the time. They send none of the program's data, "
        "and no verdict covers them"
    ]
