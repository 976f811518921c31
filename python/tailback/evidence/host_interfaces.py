"""Which interface of a host is its adapter in the fabric.

A host has more interfaces than the one of the job's network: management, containers, bridges. Their
bytes must not be taken for those of the fabric. The fabric may name the interface; else it is the
only one, or the one that sent the bytes of the job's messages, or the one of the same name as on
the hosts where bytes tell. Otherwise it is open, and no interface of that host is used.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl

from tailback.arrays import Floats
from tailback.evidence.counter_alignment import Sent, sent_bytes
from tailback.fabric.model import Fabric
from tailback.units import counted

AGREES: Final = 0.5
"""Least ratio of an interface's bytes to those of the job's messages at which it may have sent
them: which algorithm sent those of collectives is assumed."""

SAME_BYTES: Final = 0.02
"""Largest relative difference of two interfaces that count the same packets, such as a bridge and
its port."""

WINDOWS: Final = 20
"""Parts of the run in which bytes are compared, if several interfaces sent enough."""

MARGIN_NS: Final = 10**9
"""Time around the run that counts as the run: clocks differ, and readings are rare."""

_VIRTUAL: Final = re.compile(
    r"(?:lo|docker|podman|veth|virbr|vnet|br-|cni|cali|flannel|tun|tap|wg|dummy|ifb|lxc|lxd)"
    r"[\w.-]*"
)
"""Names that Linux and container engines give to interfaces without an adapter."""

BY_BYTES: Final = "which sent the bytes of the job's messages"
ONLY: Final = "the only one that is not virtual"
ALIKE: Final = "as on the other hosts"


@dataclass(frozen=True)
class HostInterfaces:
    """Interfaces of hosts in the fabric.

    Attributes:
        rows: The intervals, of interfaces of these hosts only those in the fabric, with its links.
        unused: Interfaces of each host that do not carry the job's messages.
        notes: Which interfaces were taken, and why; where it is open.
    """

    rows: pl.DataFrame
    unused: dict[str, frozenset[str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass
class _Choice:
    """Interfaces of a host: which is its adapter ("" open), why, and those that are not."""

    link: int
    names: list[str]
    taken: str = ""
    why: str = ""


def host_interfaces(
    rows: pl.DataFrame, fabric: Fabric, sent: Sent, span_ns: tuple[int, int] | None
) -> HostInterfaces:
    """Choose the interface of each host that has one adapter in the fabric and several interfaces.

    Args:
        rows: Intervals with ``link``, as joined by names and numbers of ports.
        fabric: The fabric.
        sent: The messages of the job between hosts.
        span_ns: Start and end of the run in UTC nanoseconds; None if unknown.
    """
    keyed = rows.with_columns(
        _key=pl.coalesce(
            "interface",
            pl.when(pl.col("node_guid") > 0).then(
                pl.format("adapter {}", pl.col("node_guid").cast(pl.String))
            ),
        )
    )
    choices = {}
    for host, (node, link) in _single_adapters(fabric).items():
        mine = keyed.filter((pl.col("node_name") == host) & pl.col("_key").is_not_null())
        if mine.is_empty():
            continue
        own_name = fabric.node_name[node]
        if own_name != host and (keyed["node_name"] == own_name).any():
            # The adapter itself was found, by its GUID or name: these are others.
            choices[host] = _Choice(link, sorted(set(mine["_key"])), "", "found")
            continue
        choices[host] = _choose(mine, fabric, link, sent.of(sent.src_node == node), span_ns)
    _choose_alike(choices)
    return HostInterfaces(
        _join_links(keyed, choices),
        {
            host: frozenset(choice.names) - {choice.taken}
            for host, choice in choices.items()
            if choice.taken or choice.why == "found"
        },
        tuple(_notes(choices)),
    )


def _single_adapters(fabric: Fabric) -> dict[str, tuple[int, int]]:
    """Node and outgoing link of each host with one adapter."""
    link_of = {int(v): link for link, v in enumerate(fabric.link_src) if int(v) < fabric.n_nodes}
    return {
        fabric.host_name[host]: (nodes[0], link_of[nodes[0]])
        for host, nodes in enumerate(fabric.host_nodes())
        if len(nodes) == 1 and nodes[0] in link_of
    }


def _choose(
    rows: pl.DataFrame, fabric: Fabric, link: int, sent: Sent, span_ns: tuple[int, int] | None
) -> _Choice:
    """The interface of one host, from its own rows."""
    names = sorted(set(rows["_key"]))
    choice = _Choice(link, names)
    named = None if fabric.link_interface is None else fabric.link_interface[link]
    if named in names:
        choice.taken, choice.why = str(named), "named"
        return choice
    possible = [name for name in names if not _VIRTUAL.fullmatch(name)] or names
    if len(possible) == 1:
        choice.taken, choice.why = possible[0], ONLY
        return choice
    own_bytes = float(sent.size_bytes.sum())
    during = _during(rows, span_ns)
    totals = {
        name: float(during.filter(pl.col("_key") == name)["data_bytes"].sum() or 0.0)
        for name in possible
    }
    enough = [name for name in possible if own_bytes and totals[name] >= AGREES * own_bytes]
    best = enough
    if len(enough) > 1 and span_ns is not None:
        best = _match_messages(during, enough, sent, span_ns)
    if best:
        largest = max(totals[name] for name in best)
        if all(totals[name] >= (1.0 - SAME_BYTES) * largest for name in best):
            choice.taken, choice.why = best[0], BY_BYTES
    return choice


def _during(rows: pl.DataFrame, span_ns: tuple[int, int] | None) -> pl.DataFrame:
    if span_ns is None:
        return rows
    begins = pl.col("time_ns") - pl.col("interval_ns")
    return rows.filter(
        (pl.col("time_ns") > span_ns[0] - MARGIN_NS) & (begins < span_ns[1] + MARGIN_NS)
    )


def _match_messages(
    rows: pl.DataFrame, names: list[str], sent: Sent, span_ns: tuple[int, int]
) -> list[str]:
    """The interfaces of ``names`` whose bytes over time are closest to those of the job."""
    edges = np.linspace(span_ns[0], span_ns[1], WINDOWS + 1)
    expected = np.diff(sent_bytes(sent, (edges - span_ns[0]) * 1000.0))
    misfit = {}
    for name in names:
        part = rows.filter(pl.col("_key") == name).sort("time_ns")
        counts = np.diff(_cumulative(part, edges))
        misfit[name] = float(np.abs(counts - expected).sum())
    least = min(misfit.values())
    return [name for name in names if misfit[name] <= 1.5 * least + SAME_BYTES * expected.sum()]


def _cumulative(part: pl.DataFrame, edges: Floats) -> Floats:
    """Bytes of an interface up to each instant."""
    ends = part["time_ns"].to_numpy().astype(np.float64)
    begin = float(ends[0] - part["interval_ns"][0])
    total = np.cumsum(part["data_bytes"].fill_null(0).to_numpy().astype(np.float64))
    return np.asarray(np.interp(edges, np.append(begin, ends), np.append(0.0, total)), np.float64)


def _choose_alike(choices: Mapping[str, _Choice]) -> None:
    """Where the bytes are inconclusive, take the interface that they show on other hosts."""
    by_bytes = Counter(choice.taken for choice in choices.values() if choice.why == BY_BYTES)
    if len(by_bytes) != 1:
        return
    (name,) = by_bytes
    for choice in choices.values():
        if not choice.taken and choice.why != "found" and name in choice.names:
            choice.taken, choice.why = name, ALIKE


def _join_links(keyed: pl.DataFrame, choices: Mapping[str, _Choice]) -> pl.DataFrame:
    """The rows with the links of the chosen interfaces, without the others of these hosts."""
    table = pl.DataFrame(
        [(host, choice.taken, choice.link) for host, choice in choices.items()],
        schema={"node_name": pl.String, "_taken": pl.String, "_link": pl.UInt32},
        orient="row",
    )
    joined = keyed.join(table, on="node_name", how="left", maintain_order="left")
    chosen = pl.col("_taken").is_null() | pl.col("_key").is_null()
    kept = joined.filter(chosen | (pl.col("_key") == pl.col("_taken")))
    link = pl.when(chosen).then("link").otherwise("_link").alias("link")
    return kept.with_columns(link).drop("_key", "_taken", "_link")


def _notes(choices: Mapping[str, _Choice]) -> list[str]:
    """Notes on the chosen interfaces of hosts with several, and on hosts without a choice."""
    several = {host: choice for host, choice in choices.items() if len(choice.names) > 1}
    groups: dict[tuple[str, str], list[str]] = {}
    for host, choice in several.items():
        if choice.why in (BY_BYTES, ONLY, ALIKE):
            groups.setdefault((choice.taken, choice.why), []).append(host)
    out = [
        f"the adapter of {_hosts(hosts)} is interface {name}, {why}"
        for (name, why), hosts in groups.items()
    ]
    still = [host for host, choice in several.items() if not choice.taken and choice.why != "found"]
    if still:
        names = ", ".join(several[still[0]].names[:4])
        out.append(
            f"which interface is the adapter of {_hosts(still)} is open ({names}), so that its "
            "bytes are not used; a fabric that names interfaces tells"
        )
    return out


def _hosts(hosts: list[str]) -> str:
    if len(hosts) == 1:
        return f"host {hosts[0]}"
    return f"{counted(len(hosts), 'host')} ({hosts[0]} …)"
