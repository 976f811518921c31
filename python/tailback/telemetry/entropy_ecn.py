"""Receiver of scheme ``entropy-ecn``: paths from entropy values, and marks on them.

Column ``header`` of table ``packets`` holds the mark (bit 0) and the entropy value (16 bits).
:mod:`tailback.telemetry.marked_paths` says which links marked, in blocks of windows: rates change
with time, and links of a congestion tree mark together, but within a short time nearly all or none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.arrays import Floats, Ints
from tailback.errors import RunError
from tailback.run.run import Run
from tailback.telemetry.candidates import PairCandidates
from tailback.telemetry.header_fields import field
from tailback.telemetry.marked_paths import MarkRates, by_path, fit_rates, infer_marks
from tailback.telemetry.packet_paths import Choice, trace_paths
from tailback.telemetry.path_hash import PATH_HASHES, ROCE_PORT, UDP, Flows, splitmix

ENTROPY_ECN = "entropy-ecn"
ENTROPY_BITS = 16
LEAST_PACKETS = 20
"""Marked packets, and unmarked ones, of a block for each link: with fewer, rates fit chance."""


@dataclass(frozen=True)
class PathSamples:
    """Packets with their paths.

    Attributes:
        path: Path of each packet, shape (P,).
        marked: Whether each packet is marked.
        window: Window in which each arrived.
        row: Path of each element of all paths, in rising order.
        link: Link of each element, without links whose switches do not mark.
        links: Number of links.
    """

    path: Ints
    marked: NDArray[np.bool_]
    window: Ints
    row: Ints
    link: Ints
    links: int

    @cached_property
    def start(self) -> Ints:
        """Elements of path k are ``start[k]:start[k + 1]``."""
        return np.searchsorted(self.row, np.arange(int(self.path.max(initial=-1)) + 2))

    def elements(self, packets: Ints) -> tuple[Ints, Ints]:
        """Number, and element of its path, of each packet and each link of its path."""
        first, size = self.start[self.path[packets]], np.diff(self.start)[self.path[packets]]
        row = np.repeat(np.arange(len(packets)), size)
        at = np.arange(len(row)) + np.repeat(first - (np.cumsum(size) - size), size)
        return packets[row], at


def path_samples(run: Run, pairs: PairCandidates) -> PathSamples:
    """The packets of a run with their paths.

    Args:
        run: A run of scheme ``entropy-ecn`` with table ``packets``.
        pairs: Candidates of the pairs of switches packets went between.

    Raises:
        RunError: The headers do not tell the paths.
    """
    table = run.tables["packets"]
    if table["hops"].null_count():
        raise RunError(
            f"scheme {ENTROPY_ECN!r} needs paths of known length, which detours leave unknown",
            remedy="use compact or full, which count hops, or routes without detours",
        )
    header = table["header"].to_numpy()
    flows, flow_of, measured = _flows(table, field(header, 1, ENTROPY_BITS))
    links = run.tables["links"].sort("link")
    ends = links["src"].to_numpy().astype(np.int64), links["dst"].to_numpy().astype(np.int64)
    row, link = _paths_of_flows(run, pairs, ends, flows, measured)
    if pairs.stamped is not None:
        row, link = row[pairs.stamped[link]], link[pairs.stamped[link]]
    path_of, row, link = _distinct(row, link, len(flows))
    end = run.tables["windows"].sort("window")["end_ps"].to_numpy()
    window = np.searchsorted(end, table["time_ps"].to_numpy(), side="right")
    return PathSamples(
        path_of[flow_of],
        field(header, 0, 1).astype(bool),
        np.minimum(window, len(end) - 1).astype(np.int64),
        row,
        link,
        links.height,
    )


def _flows(
    table: pl.DataFrame, entropy: NDArray[np.uint32]
) -> tuple[Flows, Ints, pl.Series | None]:
    """Flows of the packets, the flow of each packet, and the measured links of each flow."""
    source, destination = (
        table[name].to_numpy().astype(np.int64) for name in ("src_node", "dst_node")
    )
    key = (source << 40) | (destination << ENTROPY_BITS) | entropy.astype(np.int64)
    port, protocol = np.full(len(key), ROCE_PORT), np.full(len(key), UDP)
    if "port" in table.columns:
        port, protocol = (table[name].to_numpy().astype(np.int64) for name in ("port", "protocol"))
    _, receiver = np.unique(protocol << ENTROPY_BITS | port, return_inverse=True)
    _, dense = np.unique(key, return_inverse=True)
    key = dense.reshape(-1) * (receiver.max(initial=0) + 1) + receiver.reshape(-1)
    _, first, flow_of = np.unique(key, return_index=True, return_inverse=True)
    addresses = None
    if "source_address" in table.columns:
        named = table[first].select("source_address", "destination_address")
        addresses = named.to_numpy().astype(str)
    flows = Flows(
        source[first],
        destination[first],
        entropy[first].astype(np.int64),
        addresses,
        port[first],
        protocol[first],
    )
    measured = table["links"][first] if "links" in table.columns else None
    return flows, flow_of.reshape(-1).astype(np.int64), measured


def _paths_of_flows(
    run: Run,
    pairs: PairCandidates,
    ends: tuple[Ints, Ints],
    flows: Flows,
    measured: pl.Series | None,
) -> tuple[Ints, Ints]:
    """Flow and link of each element of the paths, measured or else traced."""
    unknown = np.arange(len(flows))
    row, link = np.zeros(0, np.int64), np.zeros(0, np.int64)
    if measured is not None:
        sizes = measured.list.len().fill_null(0).to_numpy().astype(np.int64)
        row, unknown = np.repeat(unknown, sizes), np.flatnonzero(sizes == 0)
        link = measured.explode().drop_nulls().to_numpy().astype(np.int64)
    if len(unknown):
        choice = _choice(run, flows)
        paths = trace_paths(
            pairs,
            ends,
            flows.source[unknown].astype(np.uint32),
            flows.destination[unknown].astype(np.uint32),
            lambda hop, rows, size: choice(hop, unknown[rows], size),
        )
        row, link = np.append(row, unknown[paths.row]), np.append(link, paths.link)
    return row, link


def _choice(run: Run, flows: Flows) -> Choice:
    """What switches choose for each flow; scenarios of the scheme fix paths in some way.

    Raises:
        RunError: It depends on what packets do not carry.
    """
    scenario = run.scenario
    if scenario.engine.routing == "ecmp" and scenario.telemetry.path_hash == "simulated":
        raise RunError(
            "routing ecmp hashes ranks in a simulation, which packets do not carry",
            remedy="simulate routing spray; of a capture, state [telemetry] path_hash or measured "
            "paths",
        )
    if scenario.engine.routing in ("ecmp", "spray"):
        chosen = PATH_HASHES[scenario.telemetry.path_hash]
        return lambda hop, rows, size: chosen(flows, rows, hop, size, scenario.path_seed)
    return lambda _hop, _rows, size: np.zeros(len(size), np.int64)


def _distinct(row: Ints, link: Ints, flows: int) -> tuple[Ints, Ints, Ints]:
    """Distinct paths: path of each flow, and row and link of their elements."""
    word = splitmix(link.astype(np.uint64))
    both = np.zeros(flows, np.uint64)
    np.add.at(both, row, word)
    _, first, path_of = np.unique(both, return_index=True, return_inverse=True)
    number = np.full(flows, -1, np.int64)
    number[first] = np.arange(len(first))
    keep = number[row] >= 0
    row, link = number[row][keep], link[keep]
    order = np.lexsort((link, row))
    return path_of.reshape(-1).astype(np.int64), row[order], link[order]


@dataclass(frozen=True)
class InferredMarks:
    """Marks of links by block of windows.

    Attributes:
        packets: Packets of each link, shape (L,).
        block: Block of windows of each packet, shape (P,).
        rate: Share of packets that each link marked in each block, (B, L).
        sums: Sums over blocks of the counts and their bounds, by link; ``rate`` of the whole time.
    """

    packets: Floats
    block: Ints
    rate: Floats
    sums: MarkRates


def infer(samples: PathSamples) -> InferredMarks:
    """Infer which links marked the packets, block by block of windows.

    Rates of a block start from those of the whole time, which decides where the paths of the
    block alone do not.
    """
    total = by_path(samples.path, samples.link, samples.row, samples.marked, samples.links)
    overall = fit_rates(total)
    block = _blocks(samples, total.crossing)
    count = int(block.max(initial=-1)) + 1
    rates, parts = [], []
    for at in _parts(block, count):
        data = by_path(
            samples.path[at], samples.link, samples.row, samples.marked[at], samples.links
        )
        used = np.flatnonzero(data.packets)
        data = replace(
            data, paths=data.paths[used], packets=data.packets[used], marked=data.marked[used]
        )
        inferred = infer_marks(data, overall)
        rates.append(inferred.rate)
        parts.append(inferred)
    sums = MarkRates(
        overall,
        *(
            np.sum([getattr(part, name) for part in parts], axis=0)
            for name in ("congested", "low", "high")
        ),
    )
    return InferredMarks(total.crossing, block, np.array(rates), sums)


def _blocks(samples: PathSamples, crossing: Floats) -> Ints:
    """Block of each packet: successive windows, merged until marks differ enough to tell links."""
    marked = np.bincount(samples.window, samples.marked)
    unmarked = np.bincount(samples.window) - marked
    needed = LEAST_PACKETS * float((crossing > 0).sum())
    block, seen, number = np.zeros(len(marked), np.int64), np.zeros(2), 0
    for window, counts in enumerate(zip(marked.tolist(), unmarked.tolist(), strict=True)):
        block[window] = number
        seen += counts
        if seen.min() >= needed:
            seen, number = np.zeros(2), number + 1
    # What is left over belongs to the last full block.
    last = number - (1 if seen.any() and number else 0)
    return np.asarray(np.minimum(block, last)[samples.window], np.int64)


def _parts(number: Ints, count: int) -> list[Ints]:
    """Rows of each number."""
    order = np.argsort(number, kind="stable")
    ends = np.cumsum(np.bincount(number, minlength=count))
    return np.split(order, ends[:-1])


def draw_marks(samples: PathSamples, inferred: InferredMarks, uniform: Floats) -> tuple[Ints, Ints]:
    """Hops that marked, drawn by their probability for each marked packet.

    Args:
        samples: The packets.
        inferred: Rates of links.
        uniform: Uniform random number in [0, 1) of each packet, shape (P,).

    Returns:
        Packet and link of each hop drawn.
    """
    packet, at = samples.elements(np.flatnonzero(samples.marked))
    link = samples.link[at]
    rate = inferred.rate[inferred.block[packet], link]
    size = np.bincount(packet, minlength=len(samples.path))
    unmarked = np.ones(len(samples.path))
    np.multiply.at(unmarked, packet, 1.0 - rate)
    chance = rate / np.maximum(1.0 - unmarked[packet], 1e-12)
    # One number for all hops of a packet, shifted by the hops before: systematic sampling.
    before = np.cumsum(chance) - chance
    first = np.cumsum(size) - size
    before -= before[np.minimum(first[packet], max(len(before) - 1, 0))]
    u = uniform[packet]
    taken = np.floor(before + chance + u) > np.floor(before + u)
    return packet[taken], link[taken]
