"""Data that link the views: samples by frame of time, rows of links, ranks with their hosts."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from tailback.evidence.split import PART_NAMES
from tailback.report.attribution import line_name
from tailback.report.difference import pair_changes
from tailback.report.figure_data import FigureData
from tailback.report.layout import tier_direction_name
from tailback.report.packing import Packer, shares
from tailback.report.rank_pairs import (
    MAX_HOP_CHANGE,
    RankOrder,
    binned,
    byte_limits,
    moved,
    order_of,
)
from tailback.report.rank_timeline import WAITS, RankTimeline
from tailback.report.scales import KIND_COLOURS
from tailback.report.timeline import Timeline, embedded_samples
from tailback.run.run import Run

NO_ROW = 65535

_SUMS = {
    "samples": "hop_samples",
    "weight": "hop_weight",
    "congested": "congested_weight",
    "variance": "hop_variance",
    "congested_variance": "congested_variance",
    "bytes": "hop_bytes",
}


def course_data(packer: Packer, course: Timeline, phases: list[str]) -> dict[str, Any]:
    """The raster of links against time, and the values of one frame for every link.

    ``index`` has an entry for each phase carried and one for all others, each of as many frames,
    and one more: rows ``index[p·F + f]`` up to the next are those of phase p in frame f. ``step``
    is each row's link less the one before: small numbers deflate well.
    """
    rows, left_out = embedded_samples(course)
    number = pl.DataFrame(
        {"phase": phases, "slot": np.arange(len(phases), dtype=np.int64)},
        schema={"phase": pl.String, "slot": pl.Int64},
    )
    rows = (
        rows.join(number, on="phase", how="left")
        .with_columns(pl.col("slot").fill_null(len(phases)))
        .sort("slot", "frame", "link")
    )
    place = (rows["slot"] * course.frames + rows["frame"]).to_numpy()
    index = np.searchsorted(place, np.arange((len(phases) + 1) * course.frames + 1))
    names, share = course.phase_shares()
    row = np.full(course.evidence.n_links, NO_ROW)
    first, bands = 0, []
    for band in course.bands:
        row[band.links] = first + band.row
        bands.append(
            {
                "name": tier_direction_name(band.tier, band.direction, course.evidence.flat),
                "rows": len(band.cells),
                "links": len(band.links),
                "cells": packer.add(shares(band.cells), "u2"),
            }
        )
        first += len(band.cells)
    return {
        "frames": course.frames,
        "dated": course.evidence.dated,
        "edges_ps": [round(edge) for edge in course.edges_ps.tolist()],
        "phases": names,
        "phase_shares": packer.add(np.round(255 * share), "u1"),
        "bands": bands,
        "row": packer.add(row, "u2"),
        "index": packer.add(index, "u4"),
        "step": packer.add(np.diff(rows["link"].to_numpy().astype(np.int64), prepend=0), "i4"),
        **{name: packer.count(rows[column].to_numpy()) for name, column in _SUMS.items()},
        "left_out": left_out,
        "skipped": _skipped_windows(course.evidence.run),
    }


def _skipped_windows(run: Run) -> list[list[int]]:
    """Start and end (ps) of windows that stand for steps not simulated, and how many steps."""
    windows = (
        run.tables["skips"]
        .group_by("window")
        .agg(pl.col("steps").sum())
        .join(run.tables["windows"], on="window")
        .sort("start_ps")
    )
    return [list(row) for row in windows.select("start_ps", "end_ps", "steps").iter_rows()]


def matrix_data(packer: Packer, evidence: FigureData) -> dict[str, Any] | None:
    """Bytes between ranks in order of their hosts, in 254 logarithmic steps; 0 is none."""
    matrix = binned(evidence)
    if matrix is None:
        return None
    cells, order = matrix
    least, most = byte_limits(float(cells.max()))
    with np.errstate(divide="ignore"):
        level = 1 + 254 * np.log(np.maximum(cells, least) / least) / np.log(most / least)
    steps = np.where(cells > 0, np.round(level), 0)
    return {
        **_order(packer, evidence, order),
        "least": least,
        "most": most,
        "cells": packer.add(steps, "u1"),
    }


def moved_pairs(packer: Packer, before: FigureData, after: FigureData) -> dict[str, Any] | None:
    """Change of switches visited between ranks, in the order before: 1 to 255, 0 is no pair."""
    pairs = pair_changes(before, after)
    if pairs is None or pairs.height == 0:
        return None
    order = order_of(before)
    change = moved(pairs, order)
    level = 128 + 127 * np.clip(np.nan_to_num(change) / MAX_HOP_CHANGE, -1, 1)
    steps = np.where(np.isnan(change), 0, np.round(level))
    return {
        **_order(packer, before, order),
        "least": -MAX_HOP_CHANGE,
        "most": MAX_HOP_CHANGE,
        "cells": packer.add(steps, "u1"),
    }


def ranks_data(
    packer: Packer, ranks: RankTimeline, evidence: FigureData, runs: list[Run]
) -> dict[str, Any]:
    """Ranks against measured time, in shares of a window of 0 to 255 for each kind of time.

    ``expected_ps`` has, for each run of the report, the position of each edge of a window in it,
    null if unknown.
    """
    jobs = evidence.run.tables["jobs"].filter(pl.col("observed")).select("job").head(1)
    placed = evidence.run.tables["ranks"].join(jobs, on="job", how="semi")
    node_of = dict(placed.select("job_rank", "node").iter_rows())
    window = np.maximum(np.diff(ranks.edges_ps), 1) * ranks.ranks[:, None]
    places = [ranks.expected_ps(run) for run in runs]
    return {
        "edges_ps": ranks.edges_ps.tolist(),
        "first_rank": packer.add(ranks.first_rank, "u4"),
        "hosts": ranks.hosts,
        "node": packer.add(
            np.array([node_of.get(rank, -1) for rank in ranks.first_rank[:-1].tolist()]), "i4"
        ),
        "kinds": [
            {
                "name": PART_NAMES[kind],
                "colour": KIND_COLOURS[kind],
                "wait": kind in WAITS,
                "cells": packer.add(np.round(255 * spent / window), "u1"),
                "total_ps": packer.add(total, "f4"),
            }
            for kind, spent, total in zip(ranks.kinds, ranks.spent_ps, ranks.totals_ps, strict=True)
        ],
        "call": packer.add(ranks.call + 1, "u1"),
        "calls": ranks.calls,
        "expected_ps": [None if place is None else place.tolist() for place in places],
        "rank_node": packer.add(
            np.array([node_of.get(rank, -1) for rank in range(max(node_of, default=-1) + 1)]), "i4"
        ),
        **_pieces(packer, ranks),
        **_messages(packer, ranks, evidence),
    }


def _pieces(packer: Packer, ranks: RankTimeline) -> dict[str, Any]:
    """Single calls of the ranks, with times in units of ``unit_ps`` that fit 32 bits."""
    pieces, unit = ranks.pieces, _unit_ps(ranks)
    return {
        "unit_ps": unit,
        "pieces": {
            "rank": packer.add(pieces["rank"].to_numpy(), "u4"),
            "kind": packer.add(pieces["kind"].to_numpy(), "u1"),
            "start": packer.add(np.round(pieces["start_ps"].to_numpy() / unit), "u4"),
            "end": packer.add(np.round(pieces["end_ps"].to_numpy() / unit), "u4"),
            "call": packer.add(pieces["call"].to_numpy() + 1, "u1"),
        },
        "in_pieces": packer.add(ranks.in_pieces, "u1"),
    }


def _unit_ps(ranks: RankTimeline) -> float:
    """The unit in which all times of the ranks fit 32 bits, in picoseconds."""
    return max(float(ranks.edges_ps[-1]) / (2**32 - 1), 1.0)


LINKS_OF_LINE = 256
"""Number of links stored with a line of the program: those where it met most congestion."""

NO_LINE = 255


def _messages(packer: Packer, ranks: RankTimeline, evidence: FigureData) -> dict[str, Any]:
    """Messages of the ranks, and of each line of the program the links it met congestion on."""
    messages = ranks.messages
    labels = evidence.run.tables["labels"].filter(pl.col("tag") >= 0)
    heat = (
        evidence.samples.group_by("label", "link")
        .agg(pl.col("congested_weight").sum())
        .filter(pl.col("congested_weight") > 0)
        .sort("congested_weight", "link", descending=[True, False])
    )
    traffic = evidence.samples.group_by("label").agg(pl.col("hop_weight").sum())
    # A tag has a label for each call that names it: packets carry that of the sender.
    sending = (
        labels.join(traffic, on="label")
        .sort("hop_weight", "label", descending=[True, False])
        .unique(["tag", "communicator"], keep="first", maintain_order=True)
        .head(NO_LINE)
    )
    number = {(row["tag"], row["communicator"]): i for i, row in enumerate(sending.to_dicts())}
    line = [number.get(pair, NO_LINE) for pair in messages.select("tag", "communicator").rows()]
    links = [
        heat.filter(pl.col("label") == label)["link"].head(LINKS_OF_LINE).to_numpy()
        for label in sending["label"].to_list()
    ]
    unit = _unit_ps(ranks)
    return {
        "messages": {
            **{
                name: packer.add(messages[name].to_numpy(), "u4")
                for name in ("src_rank", "dst_rank", "size_bytes")
            },
            **{
                name: packer.add(np.round(messages[f"{name}_ps"].to_numpy() / unit), "u4")
                for name in ("sent", "begun", "done")
            },
            "line": packer.add(np.array(line, np.int64), "u1"),
        },
        "messages_left_out": len(ranks.posted_ps) - messages.height,
        "lines": [
            {"name": line_name(row), "phase": row["phase"], "links": packer.add(of, "u4")}
            for row, of in zip(sending.to_dicts(), links, strict=True)
        ],
    }


def _order(packer: Packer, evidence: FigureData, order: RankOrder) -> dict[str, Any]:
    job_rank = dict(evidence.run.tables["ranks"].select("rank", "job_rank").iter_rows())
    return {
        "size": order.size,
        "width": order.width,
        "node": packer.add(order.node, "u4"),
        "rank": packer.add(np.array([job_rank[rank] for rank in order.rank.tolist()]), "u4"),
        "leaf": packer.add(order.leaf, "i4"),
        "pod": packer.add(order.pod, "i4"),
    }
