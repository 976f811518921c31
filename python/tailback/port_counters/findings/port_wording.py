"""Sentences of the verdict on the ports of a lossy network.

``port_verdict`` selects the sentence; this module formats it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from tailback.names.ports import Peers, link_name, port_name
from tailback.port_counters.findings.port_event_wording import event_port
from tailback.units import counted, percent, rate_of_rate

LINKS_SHOWN: Final = 3
"""Maximum number of degraded links named in a sentence."""


def cannot_tell(events: pl.DataFrame) -> list[str]:
    """What counters cannot show.

    Args:
        events: Table ``port_events``: with pauses in it, they are no open question.
    """
    why = "why a link serves less: a cable or transceiver, or a shaper"
    if not (events["finding"] == "paused").any():
        why += ", or pause frames of the far end, of which none were counted"
    return ["whose packets waited: ours or another job's", why, "what a change would gain"]


def port_label(row: Mapping[str, Any], peers: Peers) -> str:
    """Name of a port and, if known, of the port at the other end of its link."""
    device, port = str(row["node_name"]), int(row["port"])
    return link_name(port_name(device, port, row["interface"]), peers.get((device, port)))


def degraded_links(rows: pl.DataFrame, peers: Peers) -> str:
    """Links that serve less than their nominal rate although packets wait; rows worst first."""
    shown = [
        f"{port_label(row, peers)} serves "
        f"{rate_of_rate(row['served_gbps'], row['nominal_gbps'])} while it queues"
        for row in rows.head(LINKS_SHOWN).iter_rows(named=True)
    ]
    more = f"; and {rows.height - LINKS_SHOWN} more" if rows.height > LINKS_SHOWN else ""
    return "; ".join(shown) + more


def ports_paused(rows: pl.DataFrame, ports: int, peers: Peers) -> str:
    """Ports, of ``ports``, that their far ends paused; rows of ``port_events``, longest first."""
    worst = rows.row(0, named=True)
    longest = f"{event_port(worst, peers)}, {percent(min(worst['paused_share'], 1.0))} of the time"
    if rows.height == 1:
        text = f"1 of {counted(ports, 'port')} was paused by its far end: {longest}"
    else:
        text = f"{rows.height} of {counted(ports, 'port')} were paused by their far ends, longest "
        text += longest
    return f"{text}. A queue was full there or further on: the link itself is not at fault"


def ports_dropped(rows: pl.DataFrame, ports: int, peers: Peers) -> str:
    """Ports, of ``ports``, that dropped packets; rows worst first."""
    worst = rows.row(0, named=True)
    text = (
        f"{rows.height} of {counted(ports, 'port')} dropped {rows['drops'].sum():,} packets, "
        f"most of them {port_label(worst, peers)}: {worst['drops']:,}"
    )
    share = worst["drop_share"]
    return text if share is None else f"{text} ({percent(share)} of its own)"


def links_full(rows: pl.DataFrame, ports: int, peers: Peers) -> str:
    """Links, of ``ports``, that sent at their rate while packets waited; rows worst first."""
    return (
        f"{rows.height} of {counted(ports, 'link')} sent at the nominal rate with packets "
        f"waiting, such as {port_label(rows.row(0, named=True), peers)}: more traffic was "
        "offered than they can carry"
    )


def ports_queued(rows: pl.DataFrame, ports: int, peers: Peers) -> str:
    """Ports, of ``ports``, with packets waiting at some readings; rows worst first."""
    worst = rows.row(0, named=True)
    return (
        f"{rows.height} of {counted(ports, 'port')} had packets waiting at times, most "
        f"often {port_label(worst, peers)}: in {percent(worst['queued_share'])} of its readings"
    )


def none_queued(ports: int, threshold: float) -> str:
    """No port dropped packets or queued for ``threshold`` (0–1) of its time."""
    return (
        f"none of {counted(ports, 'port')} dropped packets or had any waiting for "
        f"{percent(threshold)} of its time"
    )


def no_slow_link(ports: int, rated: int) -> str:
    """No link serves less than its rate, as far as rates are known (of ``rated`` ports)."""
    if not rated:
        return "Whether a link is slower than its rate is unknown: no source states the rates"
    if rated < ports:
        return f"No link serves less than its rate; the rate of {ports - rated} is unknown"
    return "No link serves less than its rate"
