"""What port counters show beyond stalls, and what they cannot show.

A stalled port waits for another port further along the path. The port where the congestion begins
is fully used and does not wait itself (Taffet, 2019, theorem 4.2), so counters of stall *and* bytes
together point to it. No counter shows whose bytes they were or what would help.
"""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from tailback.port_counters.analysis.verdict import FULL_COUNTER, Verdict
from tailback.port_names import some_ports
from tailback.units import counted, format_time, percent

FULL_UTILIZATION: Final = 0.7
"""Share of its rate at which a port counts as full: the same as for roots of congestion trees."""


def full_ports(verdict: Verdict) -> pl.DataFrame:
    """Ports that were full and hardly waited: the likely start of the congestion, busiest first."""
    waits = pl.col("stall_fraction").fill_null(0.0) >= verdict.threshold
    waits |= FULL_COUNTER
    return verdict.ports.filter((pl.col("utilization") >= FULL_UTILIZATION) & ~waits).sort(
        "utilization", "node_name", "port", descending=[True, False, False]
    )


def roots(verdict: Verdict) -> str:
    """Where the waiting may begin, in one sentence; empty where nothing stalls."""
    if verdict.kind != "stalls":
        return ""
    if verdict.ports["utilization"].null_count() == verdict.ports.height:
        return "it is unknown where the waiting begins: no port has data on how full it was"
    full = full_ports(verdict)
    if not full.height:
        return (
            f"no port that was read was {percent(FULL_UTILIZATION)} full without waiting itself, "
            "so the "
            "waiting begins at ports that were not read, in bursts within an interval, or at a "
            "cable that serves less than its rate"
        )
    return (
        f"{counted(full.height, 'port')} {'was' if full.height == 1 else 'were'} "
        f"{percent(FULL_UTILIZATION)} "
        f"full or more without waiting, like {some_ports(full)}: the waiting may begin there"
    )


def cannot_tell(verdict: Verdict) -> list[str]:
    """What these counters leave open, each in a few words; to answer it, a trace is needed."""
    open_ = [
        "whose data waited: ours or another job's",
        "why: a pattern, a placement, static routes and a slow cable stall the same ports",
        "what a change would gain",
    ]
    mean_ps = 1e12 * float(verdict.ports["seconds"].sum() or 0.0) / max(verdict.intervals, 1)
    if mean_ps > 0:
        open_.append(f"what happened within an interval ({format_time(round(mean_ps))})")
    return open_


def limits(verdict: Verdict) -> dict[str, Any]:
    """Likely start, full ports and open questions as plain values, for ``--format json``."""
    return {
        "may_begin": roots(verdict),
        "full_ports": full_ports(verdict).select("node_name", "port", "utilization").to_dicts(),
        "cannot_tell": cannot_tell(verdict),
    }
