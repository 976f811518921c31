"""Durations of sends by sender and partners, measured and simulated.

Ranks that wait for one another spend equally long in MPI, whichever of them is slow. Sends
distinguish them: only those over a slow link take longer. A call that completes sends ends when the
last message that it waits for has arrived; it is compared with the same messages of a simulation,
each by the clock of the sender.

Measured from its first send, the duration of such a call includes delays of partners that post
late. Measured from the last post of all of its messages, it includes only network delays: that
distinguishes a slow link from the ranks waiting for it, as far as host clocks are synchronised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from tailback.arrays import Floats, Ints
from tailback.evidence.site_quantiles import alternate, site_quantiles
from tailback.identity_cache import PerObject
from tailback.run.run import Run


@dataclass(frozen=True)
class SendProfile:
    """Sends of all ranks, by sender and partners.

    Attributes:
        count: Repetitions of each site, shape (K,).
        quantiles_ps: Quantiles of the time from the first send to the completion of all sends,
            shape (K, Q).
        posted_quantiles_ps: Quantiles of the time from the last post of all messages that the call
            waits for, including received ones, shape (K, Q).
    """

    count: Floats
    quantiles_ps: Floats
    posted_quantiles_ps: Floats
    _messages: pl.DataFrame
    """One row per message and waiting call: ``src``, ``dst``, ``nth`` (index within the pair),
    ``call`` (the waiting call), ``sent`` (whether the waiting rank sends it), ``site``."""
    _simulated_messages: PerObject[tuple[Floats, Floats] | None]
    """Both quantiles of a simulation, shape (K, Q): every kind of evidence uses them."""

    @property
    def pairs(self) -> pl.DataFrame:
        """Ranks whose messages the calls of each site wait for: ``site``, ``src``, ``dst``."""
        return self._messages.select("site", "src", "dst").unique(maintain_order=True)

    @property
    def senders(self) -> Ints:
        """Rank that sends at each site, shape (K,)."""
        sent = self._messages.filter("sent").group_by("site").agg(pl.col("src").first())
        return sent.sort("site")["src"].to_numpy().astype(np.int64)

    def of_run(self, run: Run, *, posted: bool = False) -> Floats | None:
        """Quantiles of the same sends in a simulation, shape (K, Q); None if messages are missing.

        Args:
            run: The simulation.
            posted: Whether to measure from the last post of all messages that the call waits for,
                instead of from its first send.
        """
        times = self._simulated_messages(run)
        return None if times is None else times[posted]

    def of_alternating(
        self, run: Run, other: Run, share: float, *, posted: bool = False
    ) -> Floats | None:
        """The same with a share of the repetitions as in another simulation, shape (K, Q)."""
        calls, other_calls = (
            _times_of_calls(self._messages, run),
            _times_of_calls(self._messages, other),
        )
        if calls is None or other_calls is None:
            return None
        site, column = calls["site"].to_numpy().astype(np.int64), "posted" if posted else "began"
        mixed = alternate(site, calls[column].to_numpy(), other_calls[column].to_numpy(), share)
        return site_quantiles(site, mixed, len(self.count))


def send_profile(tables: Mapping[str, pl.DataFrame], run: Run) -> SendProfile | None:
    """Compute the send profile of a measured run.

    Args:
        tables: Tables ``transfers`` and ``calls`` of the run.
        run: A simulation of the same program with a table of messages.

    Returns:
        The profile; None if there are no sends, or the simulated messages do not match.
    """
    transfers = tables["transfers"].filter(
        pl.col("send_done_call").is_not_null() & (pl.col("src_rank") != pl.col("dst_rank"))
    )
    if not transfers.height:
        return None
    numbered = _number_messages(
        tables["transfers"].select(
            "send_done_call",
            "recv_done_call",
            "send_enter_ps",
            src="src_rank",
            dst="dst_rank",
            at="send_enter_ps",
        )
    )
    message_counts = (
        numbered.group_by("src", "dst")
        .len()
        .join(
            _simulated_messages(run).group_by("src", "dst").len(),
            on=("src", "dst"),
            how="left",
            suffix="_simulated",
        )
    )
    if not message_counts["len"].eq_missing(message_counts["len_simulated"]).all():
        return None
    sent = numbered.filter(pl.col("send_done_call").is_not_null()).with_columns(
        call="send_done_call", sent=True
    )
    received = numbered.filter(
        pl.col("recv_done_call").is_in(sent["call"].unique().implode())
    ).with_columns(call="recv_done_call", sent=False)
    if run.scenario.engine.eager_sends == "copied":
        # A call that waits for nothing else ends before the messages arrive.
        sent = sent.filter(pl.col("call").is_in(received["call"].unique().implode()))
    if sent.is_empty():
        return None
    rows = pl.concat([sent, received])
    ends = tables["calls"].select("call", "rank", "leave_ps")
    partners = pl.col("dst").filter("sent").sort().cast(pl.String).str.join(",")
    calls = (
        rows.group_by("call")
        .agg(
            partners=partners,
            sources=pl.col("src").filter(~pl.col("sent")).sort().cast(pl.String).str.join(","),
            began=_begin("send_enter_ps", posted=False),
            posted=_begin("send_enter_ps", posted=True),
        )
        .join(ends, on="call")
        .with_columns((-(pl.col("began", "posted") - pl.col("leave_ps"))).clip(0).cast(pl.Float64))
        .with_columns(
            site=pl.struct("rank", "partners", "sources").rank("dense").cast(pl.Int64) - 1
        )
    )
    site = calls["site"].to_numpy()
    count = np.bincount(site)
    messages = rows.join(calls.select("call", "site"), on="call").select(
        "src", "dst", "nth", "call", "sent", "site"
    )
    return SendProfile(
        count.astype(np.float64),
        site_quantiles(site, calls["began"].to_numpy(), len(count)),
        site_quantiles(site, calls["posted"].to_numpy(), len(count)),
        messages,
        PerObject(partial(_times_in, messages, len(count))),
    )


def _times_in(messages: pl.DataFrame, sites: int, run: Run) -> tuple[Floats, Floats] | None:
    """Quantiles of the times in a simulation, from the first send and from the last post."""
    calls = _times_of_calls(messages, run)
    if calls is None:
        return None
    site = calls["site"].to_numpy().astype(np.int64)
    began, posted = (calls[name].to_numpy() for name in ("began", "posted"))
    return site_quantiles(site, began, sites), site_quantiles(site, posted, sites)


def _times_of_calls(messages: pl.DataFrame, run: Run) -> pl.DataFrame | None:
    """Site of each waiting call, and its time from the first send and from the last post."""
    rows = messages.join(_simulated_messages(run), on=("src", "dst", "nth"), how="left")
    if rows["arrival_ps"].null_count():
        return None
    arrived = pl.col("arrival_ps").max()
    return (
        rows.group_by("call")
        .agg(
            pl.col("site").first(),
            began=arrived - _begin("post_ps", posted=False),
            posted=arrived - _begin("post_ps", posted=True),
        )
        .with_columns(pl.col("began", "posted").cast(pl.Float64).clip(0.0))
        .sort("call")
    )


def _begin(post: str, *, posted: bool) -> pl.Expr:
    """Start of a call's duration: its first send, or the last post of all of its messages."""
    return pl.col(post).max() if posted else pl.col(post).filter("sent").min()


def _simulated_messages(run: Run) -> pl.DataFrame:
    """Point-to-point messages of the observed job: ``src``, ``dst``, ``nth``, post and arrival."""
    observed = run.tables["jobs"].filter("observed").select("job")
    ranks = run.tables["ranks"].join(observed, on="job", how="semi").select("rank", "job_rank")
    point_to_point = run.tables["labels"].filter(is_point_to_point("call"))
    messages = (
        run.tables["messages"]
        .join(point_to_point.select("label"), on="label", how="semi")
        .join(ranks.rename({"rank": "src_rank", "job_rank": "src"}), on="src_rank")
        .join(ranks.rename({"rank": "dst_rank", "job_rank": "dst"}), on="dst_rank")
        .select(
            "src",
            "dst",
            pl.col("post_ps", "arrival_ps").cast(pl.Int64),
            at=pl.col("post_ps").cast(pl.Int64),
        )
    )
    return _number_messages(messages).drop("at")


_POINT_TO_POINT = r"(?i)^(MPI_(I?[bsr]?send|Sendrecv(_replace)?|Start(all)?|I?Recv)|ncclSendRecv$)"


def is_point_to_point(column: str) -> pl.Expr:
    """Whether the calls of a column are sends or receives."""
    return pl.col(column).str.contains(_POINT_TO_POINT)


def _number_messages(rows: pl.DataFrame) -> pl.DataFrame:
    """Number the messages of each pair in the order of their sends, as ``nth``."""
    return rows.sort("src", "dst", "at", maintain_order=True).with_columns(
        nth=pl.int_range(pl.len()).over("src", "dst")
    )
