"""The distributed form of the assignment: announce, collect and leave packets.

Birk and Zdornov (2009).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tailback import _core
from tailback.fabric.core_errors import translate_core_error
from tailback.fluid.paths import FlowPaths

NEVER = np.uint64(2**64 - 1)
"""Value of a time that was never reached."""


@dataclass(frozen=True)
class ProtocolRun:
    """Results of the protocol for F flows.

    Attributes:
        announcements: Announce packets, one a flow.
        collections: Collections; they ride on data packets.
        leaves: Leave packets, one a flow.
        link_visits: Links those packets passed: announce, collect, leave.
        announced_ps: When the last announcement had passed its last link.
        first_leave_ps: When the first flow ended.
        initial_ps: When each flow got its first rate, shape (F,).
        final_ps: When each first had, after the last announcement, the rate that the assignment of
            all flows gives it, shape (F,); NEVER where flows left before.
        probes: Collections each flow began after the last announcement until then, shape (F,).
        end_ps: When each flow ended, shape (F,).
        overload: Highest sum of rates on a link by its capacity: until all have their final rate,
            and afterwards.
    """

    announcements: int
    collections: int
    leaves: int
    link_visits: tuple[int, int, int]
    announced_ps: int
    first_leave_ps: int
    initial_ps: NDArray[np.uint64]
    final_ps: NDArray[np.uint64]
    probes: NDArray[np.uint32]
    end_ps: NDArray[np.uint64]
    overload: tuple[float, float]


def run_protocol(
    capacity_gbps: ArrayLike,
    paths: FlowPaths,
    size_bytes: ArrayLike,
    start_ps: ArrayLike,
    hop_ps: int,
    probe_ps: int,
) -> ProtocolRun:
    """Run the protocol until every flow has left.

    Data is fluid and control packets meet no queues: they take ``hop_ps`` from link to link.

    Args:
        capacity_gbps: Capacity of each link, shape (L,).
        paths: Links of the flows.
        size_bytes: What each flow carries, shape (F,).
        start_ps: When each starts, shape (F,).
        hop_ps: Time of a control packet from link to link.
        probe_ps: From the return of one collection to the start of the next.

    Raises:
        ScenarioError: A number that is not positive, or a link that does not exist.
    """
    with translate_core_error("the fluid model"):
        out = _core.fluid_protocol(
            np.ascontiguousarray(capacity_gbps, np.float64),
            start_ps=np.ascontiguousarray(start_ps, np.uint64),
            bytes=np.ascontiguousarray(size_bytes, np.uint64),
            paths=paths.columns,
            hop_ps=hop_ps,
            probe_ps=probe_ps,
        )
    return ProtocolRun(**out)
