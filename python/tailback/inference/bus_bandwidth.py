"""Bus bandwidth of collectives, measured and expected on this fabric.

As nccl-tests defines it (``src/util.cu`` of NVIDIA/nccl-tests), with the time of the last rank to
begin: others wait for it, which is no time of the network. Every rank's clock times its own call,
so clocks need not agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from tailback.arrays import Floats, Ints
from tailback.diagnosis.explanation import BusBandwidth
from tailback.evidence import MeasuredRun
from tailback.evidence.call_profile import times_between_computations
from tailback.fabric.model import Fabric
from tailback.run.run import Run
from tailback.traffic.nccl.messages import bus_factor
from tailback.traffic.program import Program

_ROWS: Final = 12
"""Kinds of collectives, those with most bytes first."""


def bus_bandwidths(
    measured: MeasuredRun, program: Program, fabric: Fabric, node: Ints, runs: Sequence[Run]
) -> tuple[BusBandwidth, ...]:
    """Bandwidth of each kind of NCCL's collectives, by size and group.

    Args:
        measured: The measured run.
        program: Its program.
        fabric: The network.
        node: Node of each rank, shape (R,).
        runs: The expected run without faults, and that with all that was found.
    """
    calls = measured.tables["calls"]
    rows = (
        measured.tables["collectives"]
        .join(calls.select("call", "name"), on="call")
        .filter(pl.col("name").str.starts_with("nccl") & (pl.col("sent_bytes") > 0))
    )
    if not rows.height:
        return ()
    took = [_simulated(calls, program, run) for run in runs]
    if any(each is None for each in took):
        return ()
    simulated = pl.DataFrame({f"expected_{k}": each for k, each in enumerate(took)})
    rows = rows.join(calls.select("call").with_columns(simulated), on="call").with_columns(
        measured=(pl.col("leave_ps") - pl.col("enter_ps")).cast(pl.Float64)
    )
    columns = ["measured", *simulated.columns]
    each = rows.group_by("instance").agg(
        pl.col("name").first(),
        pl.col("communicator").first(),
        pl.col("sent_bytes").max(),
        pl.col("rank").sort().alias("members"),
        pl.col("measured").median().alias("with_waits"),
        *(pl.col(column).min() for column in columns),
    )
    kinds = (
        each.drop_nulls()
        .group_by("name", "sent_bytes", "members")
        .agg(
            pl.len(),
            pl.col("communicator").first(),
            *(pl.col(column).median() for column in (*columns, "with_waits")),
        )
        .sort(pl.col("sent_bytes") * pl.col("len"), "name", descending=[True, False])
    )
    return tuple(_row(kind, fabric, node) for kind in kinds.head(_ROWS).iter_rows(named=True))


def _row(kind: dict[str, object], fabric: Fabric, node: Ints) -> BusBandwidth:
    members = np.array(kind["members"], np.int64)
    bus_bytes = int(str(kind["sent_bytes"])) * bus_factor(
        str(kind["name"]).removeprefix("nccl"), len(members)
    )

    def rate(column: str) -> float:
        """GB/s: bytes in a nanosecond."""
        return 1000.0 * bus_bytes / max(float(str(kind[column])), 1.0)

    hosts = np.unique(fabric.node_host[node[members]])
    return BusBandwidth(
        call=str(kind["name"]),
        size_bytes=int(str(kind["sent_bytes"])),
        communicator=str(kind["communicator"]),
        n_ranks=len(members),
        n_hosts=len(hosts),
        count=int(str(kind["len"])),
        line_gbytes=_line_rate(fabric, node[members]) / 8.0 if len(hosts) > 1 else None,
        expected_gbytes=rate("expected_0"),
        explained_gbytes=rate("expected_1"),
        measured_gbytes=rate("measured"),
        with_waits_gbytes=rate("with_waits"),
    )


def _line_rate(fabric: Fabric, nodes: Ints) -> float:
    """Rate at which the slowest host sends over the adapters of these nodes, Gb/s."""
    used = np.unique(nodes)
    from_node = fabric.link_src < fabric.n_nodes
    rate = np.bincount(
        fabric.link_src[from_node], fabric.link_gbps[from_node], minlength=fabric.n_nodes
    )
    by_host = np.bincount(fabric.node_host[used], rate[used])
    return float(by_host[by_host > 0].min(initial=np.inf))


def _simulated(calls: pl.DataFrame, program: Program, run: Run) -> Floats | None:
    """Simulated time of each measured call, NaN unless it is between two computations, shape (C,).

    None if the simulation does not match the measured run.
    """
    times = times_between_computations(run, program)
    if times is None:
        return None
    duration, stretches = times
    first = np.cumsum(stretches) - stretches
    rank = calls["rank"].to_numpy().astype(np.int64)
    enter, leave = (calls[name].to_numpy() for name in ("enter_ps", "leave_ps"))
    out = np.full(len(rank), np.nan)
    for number in np.unique(rank).tolist():
        mine = np.flatnonzero(rank == number)
        gap = np.append(True, enter[mine][1:] > leave[mine][:-1])
        stretch = np.cumsum(gap)
        alone = np.bincount(stretch)[stretch] == 1
        # The first stretch of a simulation is that before the first computation.
        offset = int(stretches[number]) - int(stretch[-1]) - 1
        if offset not in (-1, 0):
            continue
        at = stretch + min(offset, 0)
        out[mine[alone]] = duration[first[number] + at[alone]]
    return out
