"""Positions of links in the congested-fraction plot and in the raster of ports.

The same positions serve the printed figures and the viewer. The plot has tiers in rows and pods in
columns: the unit of x is the pitch of leaves; y counts tiers upwards, leaves at 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tailback.report.figure_data import FigureData


@dataclass(frozen=True, eq=False)
class FabricLayout:
    """Positions of switches, hosts and cables.

    Attributes:
        width: Extent in x.
        tiers: Number of tiers of switches.
        switch_x: Position of each switch, shape (S,).
        switch_y: Its tier, shape (S,).
        pods: ``(pod, left, right)`` of each pod that holds leaves, left to right.
        node_x: Left edge of each host box, shape (N,), NaN where the node is not attached.
        node_row: Row of the box below its leaf, shape (N,).
        node_width: Width of one host box.
        node_rows: Rows of host boxes.
        halves: For each directed link that is drawn as half a cable: its number, shape (H,).
        segments: Start and end of those halves, shape (H, 4): x0, y0, x1, y1.
    """

    width: float
    tiers: int
    switch_x: NDArray[np.float64]
    switch_y: NDArray[np.float64]
    pods: list[tuple[int, float, float]]
    node_x: NDArray[np.float64]
    node_row: NDArray[np.int64]
    node_width: float
    node_rows: int
    halves: NDArray[np.int64]
    segments: NDArray[np.float64]


POD_GAP = 1.6
HOST_COLUMN_LIMIT = 40
PARALLEL_OFFSET = 0.1


def layout_fabric(nodes: pl.DataFrame, switches: pl.DataFrame, links: pl.DataFrame) -> FabricLayout:
    """Compute all positions, for any fabric with tiers, with or without pods.

    Args:
        nodes: Table ``nodes``.
        switches: Table ``switches``.
        links: Table ``links``, sorted by link.

    Returns:
        The layout.
    """
    tier = switches["tier"].to_numpy().astype(np.int64)
    pod = switches["pod"].to_numpy().astype(np.int64)
    low = int(tier.min()) if len(tier) else 0
    level = tier - low
    x, pods, width = _switch_x(level, pod)
    node_x, node_row, node_width, rows = _hosts(nodes, x)
    halves, segments = _link_halves(nodes.height, links, x, level.astype(np.float64))
    return FabricLayout(
        width,
        int(level.max(initial=0)) + 1,
        x,
        level.astype(np.float64),
        pods,
        node_x,
        node_row,
        node_width,
        rows,
        halves,
        segments,
    )


def _switch_x(
    level: NDArray[np.int64], pod: NDArray[np.int64]
) -> tuple[NDArray[np.float64], list[tuple[int, float, float]], float]:
    """Leaves are side by side, pod after pod. Switches above are spread evenly over their pod."""
    x = np.zeros(len(level))
    spans: dict[int, tuple[float, float]] = {}
    cursor = 0.0
    bottom = level == 0
    for number in sorted(set(pod[bottom].tolist()), key=lambda p: (p < 0, p)):
        members = np.flatnonzero(bottom & (pod == number))
        if spans:
            cursor += POD_GAP
        x[members] = cursor + np.arange(len(members)) + 0.5
        spans[number] = (cursor, cursor + len(members))
        cursor += len(members)
    width = max(cursor, 1.0)
    for height in range(1, int(level.max(initial=0)) + 1):
        for number in set(pod[level == height].tolist()):
            members = np.flatnonzero((level == height) & (pod == number))
            left, right = spans.get(number, (0.0, width))
            x[members] = left + (np.arange(len(members)) + 0.5) * (right - left) / len(members)
    return x, [(number, *span) for number, span in spans.items()], width


def _hosts(
    nodes: pl.DataFrame, x: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int64], float, int]:
    """Boxes in columns under their leaf, numbered top to bottom, left to right.

    Taffet (2019), section 3.4.
    """
    switch = nodes["switch"].to_numpy().astype(np.int64)
    attached = np.flatnonzero(switch >= 0)
    order = attached[np.argsort(switch[attached], kind="stable")]
    rank = np.zeros(nodes.height, np.int64)
    if len(order):
        counts = np.bincount(switch[order])
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        rank[order] = np.arange(len(order)) - starts[switch[order]]
    most = int(rank.max(initial=0)) + 1
    columns = max(1, -(-most // HOST_COLUMN_LIMIT))
    rows = -(-most // columns)
    box = 0.84 / columns
    node_x = np.full(nodes.height, np.nan)
    node_x[attached] = x[switch[attached]] - 0.42 + (rank[attached] // rows) * box
    return node_x, rank % rows, box, rows


def _link_halves(
    n_nodes: int, links: pl.DataFrame, x: NDArray[np.float64], y: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Each directed link is the half of its cable nearer its destination.

    So the upper half is the up link and the lower half the down link. Between switches of one tier,
    the half at a switch is the link that arrives there. Parallel cables stand side by side.
    """
    src = links["src"].to_numpy().astype(np.int64) - n_nodes
    dst = links["dst"].to_numpy().astype(np.int64) - n_nodes
    between = np.flatnonzero((src >= 0) & (dst >= 0))
    a, b = src[between], dst[between]
    cable = np.minimum(between, links["reverse"].to_numpy().astype(np.int64)[between])
    offset = PARALLEL_OFFSET * _parallel(np.minimum(a, b), np.maximum(a, b), cable)
    bow = np.where(y[a] == y[b], -0.18, 0.0)  # flat cables hang below their row
    middle_x, middle_y = (x[a] + x[b]) / 2 + offset, (y[a] + y[b]) / 2 + bow
    segments = np.column_stack([middle_x, middle_y, x[b] + offset, y[b]])
    return between, segments


def _parallel(
    low: NDArray[np.int64], high: NDArray[np.int64], cable: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Place of each link's cable among the cables of its pair, centred on 0."""
    out = np.zeros(len(low))
    if len(low) == 0:  # a single switch: no cable joins two
        return out
    order = np.lexsort((cable, high, low))
    pair = np.stack([low[order], high[order]])
    starts = np.flatnonzero(np.any(np.diff(pair, axis=1, prepend=-1) != 0, axis=0))
    for begin, end in zip(starts, [*starts[1:], len(order)], strict=True):
        if end - begin > 2:
            cables, place = np.unique(cable[order[begin:end]], return_inverse=True)
            out[order[begin:end]] = place - (len(cables) - 1) / 2
    return out


def switch_tier_name(tier: int, flat: bool = False) -> str:
    """What switches of a tier are called: ``leaf``, ``aggregation``, ``core``.

    Args:
        tier: Tier of the switches.
        flat: Whether the network has no tiers of switches, like a torus or a dragonfly.
    """
    names = ("switch",) if flat else ("leaf", "aggregation", "core")
    return names[tier] if tier < len(names) else f"tier {tier}"


def tier_direction_name(tier: int, direction: str, flat: bool = False) -> str:
    """A tier and direction for readers: ``leaf → aggregation``.

    Args:
        tier: Tier of the links.
        direction: up, down or flat.
        flat: Whether the network has no tiers of switches, like a torus or a dragonfly.
    """
    if flat and tier > 0:
        return "switch ↔ switch"
    names = (
        {0: ("host", "switch")}
        if flat
        else {0: ("host", "leaf"), 1: ("leaf", "aggregation"), 2: ("aggregation", "core")}
    )
    low, high = names.get(tier, (f"tier {tier - 1}", f"tier {tier}"))
    if direction == "flat":
        return f"{low} ↔ {low}"
    return f"{low} → {high}" if direction == "up" else f"{high} → {low}"


BLOCK_ROWS = 48
"""A block with more switches than this is cut into several, so that no block is a thin strip."""


@dataclass(frozen=True, eq=False)
class Block:
    """Switches of one tier and pod.

    Attributes:
        band: Name of the band: that of a tier, or ``hosts → leaf``.
        pod: Its pod, -1 for none.
        switches: The switches, one a row.
        ports: Number of columns; column c is port ``first_port + c``.
        first_port: Port of the first column.
        cells: Link of each cell, -1 where there is no cable, shape (rows, ports).
    """

    band: str
    pod: int
    switches: NDArray[np.int64]
    ports: int
    first_port: int
    cells: NDArray[np.int64]


def blocks(evidence: FigureData) -> list[list[Block]]:
    """All links as bands of blocks, the top tier first, injection links last.

    A link is drawn at the switch and port it leaves. The injection link of a host leaves no switch.
    A separate band shows it at the port at which it arrives.
    """
    tables = evidence.run.tables
    tier = tables["switches"]["tier"].to_numpy().astype(np.int64)
    pod = tables["switches"]["pod"].to_numpy().astype(np.int64)
    links, n_nodes = evidence.links, tables["nodes"].height
    out: list[list[Block]] = []
    number = np.arange(evidence.n_links)
    src = links["src"].to_numpy().astype(np.int64) - n_nodes
    dst = links["dst"].to_numpy().astype(np.int64) - n_nodes
    src_port, dst_port = links["src_port"].to_numpy(), links["dst_port"].to_numpy()
    leaving = src >= 0
    for level in sorted(set(tier.tolist()), reverse=True):
        here = tier == level
        chosen = leaving & here[np.maximum(src, 0)]
        band = switch_tier_name(level, evidence.flat)
        out.append(_band(band, here, pod, src[chosen], src_port[chosen], number[chosen]))
    chosen = (src < 0) & (dst >= 0)
    attached = np.zeros(len(tier), bool)
    attached[dst[chosen]] = True
    band = f"hosts → {switch_tier_name(0, evidence.flat)}"
    out.append(_band(band, attached, pod, dst[chosen], dst_port[chosen], number[chosen]))
    return [band for band in out if band]


def _band(
    name: str,
    here: NDArray[np.bool_],
    pod: NDArray[np.int64],
    switch: NDArray[np.int64],
    port: NDArray[np.uint32],
    link: NDArray[np.int64],
) -> list[Block]:
    if len(link) == 0:
        return []
    first, last = int(port.min()), int(port.max())
    out = []
    for number in sorted(set(pod[here].tolist()), key=lambda p: (p < 0, p)):
        members = np.flatnonzero(here & (pod == number))
        for start in range(0, len(members), BLOCK_ROWS):
            rows = members[start : start + BLOCK_ROWS]
            place = np.full(len(here), -1)
            place[rows] = np.arange(len(rows))
            cells = np.full((len(rows), last - first + 1), -1, np.int64)
            mine = place[switch] >= 0
            cells[place[switch[mine]], port[mine].astype(np.int64) - first] = link[mine]
            out.append(Block(name, number, rows, last - first + 1, first, cells))
    return out
