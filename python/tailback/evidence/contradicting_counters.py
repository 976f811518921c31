"""Port counters that contradict where the ranks of a job ran, or how its network is cabled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from tailback.errors import option
from tailback.evidence.counter_alignment import JoinError, Sent
from tailback.evidence.link_counters import LinkCounters
from tailback.evidence.silent_counters import UNCOUNTED, exits
from tailback.fabric.model import Fabric
from tailback.names.ports import port_name
from tailback.port_counters.schema import exact_data
from tailback.units import format_bytes

_COVERED = 0.99
"""Share of the job's time that the counters of a link must cover: in the rest, messages may have
crossed it uncounted."""


def require_counted_messages(
    intervals: pl.DataFrame, counters: LinkCounters, fabric: Fabric, sent: Sent, file: str | Path
) -> None:
    """Require that ports counted as much as crossed them by the trace, the hosts and the fabric.

    Which ports counted the bytes of a message follows from the host of its sender, that of its
    receiver, and the cables of their leaf switches. In all of the files, whatever the clocks say,
    these counted no less than the messages, unless one of the inputs is of another run.

    Args:
        intervals: Rows of ``counter_intervals`` with ``node_name``, ``port`` and ``link``, null
            where the fabric lacks the port.
        counters: Counters of links during the job.
        fabric: The fabric.
        sent: The messages of the job.
        file: Where the counters are from.

    Raises:
        JoinError: The ports of a host or leaf switch counted less.
    """
    # Which ranks a library sends the messages of a collective to is not recorded.
    recorded = sent if sent.assumed is None else sent.of(~sent.assumed)
    rows = intervals.filter(pl.col("link").is_not_null()).group_by("link")
    total = np.full(fabric.n_links, np.nan)
    sums = rows.agg(exact_data("data_bytes").cast(pl.Float64).sum().alias("total"))
    total[sums["link"].to_numpy()] = sums["total"].to_numpy()
    usable = (counters.covered >= _COVERED) & ~np.isnan(counters.sent_bytes)
    for links, own_bytes in exits(fabric, recorded):
        counted_bytes = float(total[links].sum())
        if usable[links].all() and counted_bytes < own_bytes * (1.0 - UNCOUNTED):
            message, remedy = _contradiction(links[0], counted_bytes, own_bytes, intervals, fabric)
            raise JoinError(message, file=file, remedy=remedy)


def _contradiction(
    link: int, counted_bytes: float, own_bytes: float, intervals: pl.DataFrame, fabric: Fabric
) -> tuple[str, str]:
    """Message and remedy on a host or leaf switch, by a link by which messages leave or enter."""
    src, dst = int(fabric.link_src[link]), int(fabric.link_dst[link])
    nodes = fabric.n_nodes
    of_host = min(src, dst) < nodes
    leaf = set(fabric.node_switch.tolist())
    leaves = src < nodes or (dst >= nodes and src - nodes in leaf)
    at = src if leaves else dst
    name = fabric.host_name[fabric.node_host[at]] if of_host else fabric.vertex_name(at)
    who, others = ("ranks", "other hosts") if of_host else ("hosts", "other leaf switches")
    lacking = _unlisted_port(name, intervals)
    message = (
        f"the {who} of {name} {'sent' if leaves else 'received'} {format_bytes(own_bytes)} "
        f"{'to' if leaves else 'from'} {others}, but its ports counted "
        f"{format_bytes(counted_bytes)} in total"
    )
    if lacking:
        return f"{message}; {lacking} is not in the fabric", f"give its cable in {option('fabric')}"
    return message, (
        f"check that the hosts of the ranks ({option('rankfile')}), {option('fabric')} and "
        f"{option('counters')} are of this run; without counters the trace is diagnosed alone"
    )


def _unlisted_port(device: str, intervals: pl.DataFrame) -> str:
    """The busiest counted port of a device that the fabric lacks; empty if there is none."""
    ports = (
        intervals.filter(pl.col("link").is_null() & (pl.col("node_name") == device))
        .group_by("node_name", "port", "interface")
        .agg(exact_data("data_bytes").cast(pl.Float64).sum().alias("total"))
        .filter(pl.col("total") > 0)
        .sort("total", "port", descending=[True, False])
    )
    if ports.is_empty():
        return ""
    _, port, interface, _ = ports.row(0)
    return port_name(device, port, interface)
