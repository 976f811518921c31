"""Traffic from many nodes to few: senders and volume of the traffic to a congested endpoint."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import polars as pl

from tailback.diagnosis.activity import observed_messages
from tailback.run.run import Run

MIN_SENDERS = 8
"""Smallest number of senders that counts as many-to-one instead of neighbour exchange."""

HOT = 2.0
"""Smallest ratio of a node's received bytes in a phase to the mean over the nodes of the job at
which it is a hot receiver: in neighbour exchange, all nodes receive about the same."""

COLLECTIVES = (
    "reduce",
    "gather",
    "alltoall",
    "bcast",
    "scatter",
    "scan",
    "barrier",
    "allgather",
)


@dataclass(frozen=True)
class FanIn:
    """Traffic into one node in some phases.

    Attributes:
        senders: Distinct nodes that send to it.
        sender_ranks: Distinct ranks that send to it.
        receiver: Rank on the node that receives the most bytes (number within its job).
        call: Call that sends most of the bytes.
        peers: Distinct ranks that the median of its senders sends to, in the same phases.
        ranks_on_node: Receiving ranks on the node.
    """

    senders: int
    sender_ranks: int
    receiver: int
    call: str
    peers: float
    ranks_on_node: int

    @property
    def collective(self) -> bool:
        """True if the call is an MPI collective."""
        return any(word in self.call.lower() for word in COLLECTIVES)


def fan_in(run: Run, node: int, phases: Collection[str]) -> FanIn | None:
    """Describe who sends to ``node`` in ``phases``; None without a message log."""
    labels = run.tables["labels"].select("label", "phase", "call")
    names = pl.Series(sorted(phases), dtype=pl.String)
    log = (
        observed_messages(run.tables)
        .join(labels, on="label", how="left")
        .filter(pl.col("phase").is_in(names.implode()))
    )
    into = log.filter(pl.col("dst") == node)
    if not into.height:
        return None
    calls = (
        into.group_by("call").agg(n=pl.col("size_bytes").sum()).sort("n", "call", descending=True)
    )
    receivers = into.group_by("dst_rank").agg(n=pl.col("size_bytes").sum())
    receivers = receivers.sort("n", "dst_rank", descending=[True, False])
    rank = receivers["dst_rank"][0]
    job_rank = run.tables["ranks"].filter(pl.col("rank") == rank)["job_rank"][0]
    senders = into["src_rank"].unique()
    peers = (
        log.filter(pl.col("src_rank").is_in(senders.implode()))
        .group_by("src_rank")
        .agg(pl.col("dst_rank").n_unique().alias("peers"))
    )
    return FanIn(
        senders=into["src"].n_unique(),
        sender_ranks=len(senders),
        receiver=int(job_rank),
        call=str(calls["call"][0] or ""),
        peers=float(peers["peers"].cast(pl.Float64).quantile(0.5) or 0.0),
        ranks_on_node=receivers.height,
    )


def hot_receiver_share(run: Run) -> float:
    """Share of the congestion between switches due to traffic to hot receivers, 0–1.

    The congestion of each phase is weighted by the share of its bytes sent to nodes that receive
    at least ``HOT`` times the mean. 0 without samples or messages.
    """
    log = observed_messages(run.tables)
    phases = run.tables["labels"].select("label", "phase")
    samples = run.tables["samples"]
    if not log.height or not samples.height:
        return 0.0
    jobs = run.tables["jobs"].filter("observed")["job"]
    ranks = run.tables["ranks"].filter(pl.col("job").is_in(jobs.implode()))
    nodes = ranks["node"].n_unique()
    bytes_in = (
        log.join(phases, on="label")
        .group_by("phase", "dst")
        .agg(bytes=pl.col("size_bytes").sum().cast(pl.Float64))
        .with_columns(mean=pl.col("bytes").sum().over("phase") / nodes)
    )
    hot = bytes_in.group_by("phase").agg(
        hot=pl.col("bytes").filter(pl.col("bytes") >= HOT * pl.col("mean")).sum()
        / pl.col("bytes").sum().clip(lower_bound=1.0)
    )
    links = run.tables["links"].filter(~pl.col("from_node") & ~pl.col("to_node")).select("link")
    congested = (
        samples.join(links, on="link", how="semi")
        .join(phases, on="label")
        .group_by("phase")
        .agg(weight=pl.col("congested_weight").sum().cast(pl.Float64))
        .join(hot, on="phase", how="left")
    )
    total = float(congested["weight"].sum())
    if total <= 0:
        return 0.0
    return float((congested["weight"] * congested["hot"].fill_null(0.0)).sum()) / total
