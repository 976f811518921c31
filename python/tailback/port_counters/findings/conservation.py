"""Conservation on a cable: what one end received against what the other end sent.

The ends are not read at the same instants. In the time that only one of them covers, the link
carried no more than in the intervals of that end, and where an interval is unknown no more than its
rate allows. Both together are the error of the comparison. A difference beyond it means that
packets vanished between the ends, that a counter is wrong, or that the two ports are not the ends
of one cable.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from tailback.names.ports import Peers, link_name, port_name
from tailback.run.schema import Column, Table
from tailback.units import counted

LEAST_SHARE: Final = 1e-3
"""Share of what was sent below which a difference is not told.

Ports differ in whether they count packets that are repeated or damaged on the link."""

LEAST_TESTED: Final = 4
"""Directed links, those of two cables, that are needed to tell wrong pairs from an ill cable."""

BALANCES: Final = Table(
    "link_balances",
    "what was sent into a directed link, and what arrived at its other end",
    (
        Column("link", pl.String, "the link by its ends, in the direction of the data"),
        Column("node_name", pl.String, "device that sent"),
        Column("port", pl.UInt16, "its port"),
        Column("interface", pl.String, "its interface, null where ports have numbers alone"),
        Column("peer", pl.String, "port that received"),
        Column("sent_bytes", pl.UInt64, "bytes sent"),
        Column("received_bytes", pl.UInt64, "bytes received"),
        Column("error_bytes", pl.Float64, "most that differing times of the readings explain"),
        Column("seconds", pl.Float64, "time that both ends cover"),
        Column("missing_bytes", pl.Float64, "sent less received; null unless beyond the error"),
    ),
)


def link_balances(ports: pl.DataFrame, peers: Peers) -> pl.DataFrame:
    """Compare both ends of each directed link.

    Args:
        ports: Table of ``verdict.by_port``.
        peers: Port at the far end of each port, where known.

    Returns:
        Rows of :data:`BALANCES`, of the links whose ends are both counted over a common time.
    """
    key = ("node_name", "port", "interface")
    names = [port_name(*place) for place in ports.select(key).iter_rows()]
    numbers = [port_name(name, port) for name, port in ports.select(key[:2]).iter_rows()]
    received = ports.select(
        *("received_bytes", "received_ns", "received_peak_gbps"),
        *("start_ns", "end_ns", "seconds", "intervals"),
    )
    receivers = (
        pl.concat(
            [
                received.with_columns(peer=pl.Series(ends, dtype=pl.String))
                for ends in (names, numbers)
            ]
        )
        .unique()
        .filter(pl.col("received_ns") > 0)
        .unique("peer", keep="none")
    )
    far = [peers.get((name, port)) for name, port in ports.select(key[:2]).iter_rows()]
    links = [link_name(name, peer) for name, peer in zip(names, far, strict=True)]
    pairs = (
        ports.with_columns(
            peer=pl.Series(far, dtype=pl.String), link=pl.Series(links, dtype=pl.String)
        )
        .drop("received_bytes", "received_ns", "received_peak_gbps")
        .filter(pl.col("sent_ns") > 0, pl.col("capacity_gbps") > 0)
        .join(receivers, on="peer", suffix="_far")
    )
    overlap = pl.min_horizontal("end_ns", "end_ns_far") - pl.max_horizontal(
        "start_ns", "start_ns_far"
    )
    apart = [
        (pl.col(name) - pl.col(f"{name}_far")).abs().cast(pl.Float64)
        for name in ("start_ns", "end_ns")
    ]
    unknown = [
        (pl.col(f"end_ns{end}") - pl.col(f"start_ns{end}") - pl.col(counted)).abs()
        for end, counted in (("", "sent_ns"), ("_far", "received_ns"))
    ]
    # All bytes of an interval may have passed in the part of it that one end covers alone.
    length = [1e9 * pl.col(f"seconds{end}") / pl.col(f"intervals{end}") for end in ("", "_far")]
    peak = pl.max_horizontal("sent_peak_gbps", "received_peak_gbps")
    apart_bits = pl.sum_horizontal(*apart, 2 * pl.max_horizontal(length)) * peak
    error = (apart_bits + pl.sum_horizontal(*unknown) * pl.col("capacity_gbps")) / 8
    missing = pl.col("sent_bytes").cast(pl.Float64) - pl.col("received_bytes").cast(pl.Float64)
    least = LEAST_SHARE * pl.max_horizontal("sent_bytes", "received_bytes")
    return (
        pairs.with_columns(error_bytes=error, seconds=overlap / 1e9)
        .filter(pl.col("seconds") > 0)
        .with_columns(
            missing_bytes=pl.when(missing.abs() > pl.max_horizontal("error_bytes", least)).then(
                missing
            )
        )
        .select(pl.col(name).cast(dtype) for name, dtype in BALANCES.polars_schema.items())
        .sort("node_name", "port")
    )


def are_credible(balances: pl.DataFrame) -> bool:
    """Whether the ends of most links agree: where most differ, the pairs or counters are wrong."""
    tested = _tested(balances)
    return tested.height < LEAST_TESTED or 2 * tested["missing_bytes"].count() <= tested.height


def wrong_pairs_note(balances: pl.DataFrame) -> str:
    """A note on balances that are not credible."""
    tested = _tested(balances)
    return (
        f"{tested['missing_bytes'].count()} of {tested.height} busy links received another amount "
        "than was sent into them: the cables of this fabric are not those that were counted"
    )


def not_compared(balances: pl.DataFrame) -> str:
    """What the balances leave open, as a note; empty if all busy links can be compared.

    Two readings, not taken at the same instants, leave one interval, of which any part may have
    passed in the time that one end covers alone.
    """
    busy = balances.filter(pl.max_horizontal("sent_bytes", "received_bytes") > 0).height
    open_ = busy - _tested(balances).height
    if not open_:
        return ""
    links = "it" if busy == 1 else "they" if open_ == busy else "these"
    return (
        f"whether {open_} of {counted(busy, 'link')} with traffic lost bytes is unknown: both ends "
        f"were counted, but {links} carried less than readings at different instants may differ "
        "by; more readings, at shorter intervals, would tell"
    )


def _tested(balances: pl.DataFrame) -> pl.DataFrame:
    """The links that carried more than the error of the comparison."""
    larger = pl.max_horizontal("sent_bytes", "received_bytes")
    return balances.filter(larger > pl.col("error_bytes"))
