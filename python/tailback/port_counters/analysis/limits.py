"""Origins of stalls in the fabric, and the limits of port counters.

A stalled port waits for another port further along the path. The port where the congestion begins
is fully used and does not wait itself (Taffet, 2019, theorem 4.2), so counters of stall *and* bytes
together point to it. With congestion control, switches count how long such a port was in the
congested state (PortXmitTimeCong; Alali et al., 2017, section III-A). No counter shows whose bytes
they were or what would help.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from tailback.errors import option
from tailback.names.ports import some_ports
from tailback.port_counters.analysis.port_inventory import Wiring
from tailback.port_counters.analysis.verdict import FULL_COUNTER, Verdict
from tailback.units import counted, format_time, percent

FULL_UTILIZATION: Final = 0.7
"""Share of its rate at which a port counts as full: the same as for roots of congestion trees."""


@dataclass(frozen=True)
class Origins:
    """Where the waiting of stalled ports may begin.

    Attributes:
        traced: Number of stalled ports whose place in the fabric is known.
        at_hosts: Those of them whose link ends at a host, worst first.
        full: Ports downstream of a stalled one that were full and hardly waited, busiest first.
        declared: Stalled ports, or ports downstream of one, that were in the congested state.
    """

    traced: int
    at_hosts: pl.DataFrame
    full: pl.DataFrame
    declared: pl.DataFrame


def origins(verdict: Verdict, wiring: Wiring | None) -> Origins:
    """Follow the links from the stalled ports to those that may be the cause.

    A port waits for the ports of the device at its far end, of these only for those that a route
    through it can take, and so on. The walk ends at a port that was in the congested state, or that
    was read and neither waits nor is full: nothing is held up by it.

    Args:
        verdict: The verdict.
        wiring: The links of the fabric; None if unknown.
    """
    ports, nothing = verdict.ports, verdict.ports.clear()
    if wiring is None:
        return Origins(0, nothing, nothing, nothing)
    waits = (pl.col("stall_fraction").fill_null(0.0) > 0) | FULL_COUNTER
    busy = pl.col("utilization").fill_null(0.0) >= FULL_UTILIZATION
    stalls = (pl.col("stall_fraction").fill_null(0.0) >= verdict.threshold) | FULL_COUNTER
    counted_congested = pl.struct("node_name", "port").is_in(
        verdict.counted("congested").select(pl.struct("node_name", "port")).to_series().implode()
    )
    linked = ports.filter(pl.col("link").is_not_null()).select(
        "link", waits=waits, full=busy & ~stalls, declared=counted_congested
    )
    state: dict[int, tuple[bool, bool, bool]] = {row[0]: row[1:] for row in linked.iter_rows()}
    begins = verdict.stalling["link"].drop_nulls().to_list()
    full: list[int] = []
    declared = [link for link in begins if state[link][2]]
    seen, queue = set(begins), [link for link in begins if not state[link][2]]
    while queue:
        for link in wiring.onward(queue.pop()):
            if link in seen:
                continue
            seen.add(link)
            # A port that was not read may pass the waiting on.
            wait, is_full, is_declared = state.get(link, (True, False, False))
            if is_declared:
                declared.append(link)
            elif is_full:
                full.append(link)
            elif wait:
                queue.append(link)
    at_hosts = [link for link in begins if wiring.ends_at_host(link)]
    order = ["utilization", "node_name", "port"]
    return Origins(
        len(begins),
        verdict.stalling.filter(pl.col("link").is_in(at_hosts)),
        *(
            ports.filter(pl.col("link").is_in(links)).sort(order, descending=[True, False, False])
            for links in (full, declared)
        ),
    )


def roots(verdict: Verdict, wiring: Wiring | None) -> str:
    """Where the waiting may begin, in one or two sentences; empty where nothing stalls."""
    if verdict.kind != "stalls":
        return ""
    places = origins(verdict, wiring)
    if not places.traced:
        return (
            "it is unknown where the waiting begins, because it is unknown which ports are "
            f"downstream of the waiting ones: give {option('fabric')}"
        )
    sentences = []
    if hosts := places.at_hosts.height:
        verb = "leads" if hosts == 1 else "lead"
        sentences.append(
            f"{counted(hosts, 'waiting port')}, like {some_ports(places.at_hosts)}, {verb} to a "
            "host, which takes in data more slowly than it arrives: the waiting begins there"
        )
    if declared := places.declared.height:
        sentences.append(
            f"{counted(declared, 'port')} {'was' if declared == 1 else 'were'} in the congested "
            f"state, like {some_ports(places.declared)}: the waiting begins there"
        )
    if full := places.full.height:
        sentences.append(
            f"{counted(full, 'port')} downstream of those that wait "
            f"{'was' if full == 1 else 'were'} {percent(FULL_UTILIZATION)} full or more without "
            f"waiting, like {some_ports(places.full)}: the waiting may begin there"
        )
    if sentences:
        return ". ".join(sentences)
    if verdict.ports["utilization"].null_count() == verdict.ports.height:
        return "it is unknown where the waiting begins: no port has data on how full it was"
    return (
        f"no port that was read downstream of those that wait was {percent(FULL_UTILIZATION)} full "
        "without waiting itself, so the waiting begins at ports that were not read, in bursts "
        "within an interval, or at a cable that serves less than its rate"
    )


def cannot_tell(verdict: Verdict) -> list[str]:
    """Questions that these counters leave open and a trace answers, each in a few words."""
    open_ = [
        "whose data waited: ours or another job's",
        "why: a pattern, a placement, static routes and a slow cable stall the same ports",
        "what a change would gain",
    ]
    mean_ps = 1e12 * float(verdict.ports["seconds"].sum() or 0.0) / max(verdict.intervals, 1)
    if mean_ps > 0:
        open_.append(f"what happened within an interval ({format_time(round(mean_ps))})")
    return open_


def limits(verdict: Verdict, wiring: Wiring | None) -> dict[str, Any]:
    """Likely start, full ports and open questions as plain values, for ``--format json``."""
    places = origins(verdict, wiring)
    return {
        "may_begin": roots(verdict, wiring),
        "full_ports": places.full.select("node_name", "port", "utilization").to_dicts(),
        "congested_ports": places.declared.select("node_name", "port").to_dicts(),
        "ports_to_hosts": places.at_hosts.select("node_name", "port").to_dicts(),
        "cannot_tell": cannot_tell(verdict),
    }
