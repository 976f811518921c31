"""TB009: the port of a rank to the switch inside its host sends or receives most of the time."""

from __future__ import annotations

from typing import Final

import numpy as np

from tailback.diagnosis.activity import messages_within_hosts
from tailback.diagnosis.model import Finding
from tailback.diagnosis.rules import RULES
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.units import percent

IN_HOST: Final = "In-host limit: messages within a host fill the port of a rank"


SEND_LESS_WITHIN_HOSTS: Final = (
    "Send less within the host, overlap it with computation, or use a faster switch in the host."
)

PORT_BOUND = 0.5
"""The port limits the run from this share of the time, as adapters do in TB008."""


@RULES.register("TB009")
def in_host(evidence: RunAnalysis) -> Finding | None:
    """In-host limit: messages within a host fill the port of a rank.

    ## What it does
    Fires with `[engine] local_sharing = "ports"` when the port of a rank to the switch inside its
    host (such as NVSwitch) sends, or receives, for at least half of the run time. It needs the
    message log.

    ## Why it matters
    These messages do not enter the network: another placement on the same hosts, other routes or
    quieter neighbours do not make them faster.

    ## Example
    Eight accelerators sum 1 GiB with a ring inside a host: each port sends 1.75 GiB, 4.2 ms at
    3600 Gb/s, and the step takes 5 ms.

    ## What to do
    Send less within the host (a smaller degree of tensor parallelism, lower precision), overlap it
    with computation, or use a faster switch in the host.
    """
    engine = evidence.run.scenario.engine
    if engine.local_sharing != "ports" or evidence.run.elapsed_ps <= 0:
        return None
    log = messages_within_hosts(evidence.run.tables)
    if log.is_empty():
        return None
    # A message begins when its ports are free, and ends a latency after its last byte.
    busy = (log["arrival_ps"] - log["start_ps"]).to_numpy().astype(np.float64) - engine.local_delay
    count = log["copies"].to_numpy()
    busy = busy * count
    through = [np.bincount(log[end].to_numpy(), weights=busy) for end in ("src_rank", "dst_rank")]
    direction = int(through[1].max() > through[0].max())
    rank = int(through[direction].argmax())
    share = float(through[direction][rank]) / evidence.run.elapsed_ps
    if share < PORT_BOUND:
        return None
    mine = log[("src_rank", "dst_rank")[direction]].to_numpy() == rank
    gbps = (
        float((log["size_bytes"].to_numpy() * count)[mine].sum()) * 8000.0 / float(busy[mine].sum())
    )
    return evidence.finding(
        "TB009",
        "in-host",
        IN_HOST,
        in_host_sentence(rank, ("send", "receive")[direction], share, gbps),
        evidence.roots.clear(),
        SEND_LESS_WITHIN_HOSTS,
    )


def in_host_sentence(rank: int, does: str, share: float, rate_gbps: float) -> str:
    """TB009: the busiest rank within a host, what its port does, for how long, its rate."""
    return (
        f"The port of rank {rank} to the switch inside its host takes {percent(share)} of the time "
        f"to {does} the messages of its host at {rate_gbps:g} Gb/s: they do not enter the network."
    )
