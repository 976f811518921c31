"""The data of the interactive plots, as passed to the viewer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailback.report import scales
from tailback.report.attribution import bundles
from tailback.report.difference import compared, flame_change
from tailback.report.figure_data import FigureCase, FigureData, LinkLoad
from tailback.report.figure_specs import (
    bar_figures,
    column_figures,
    course_sums,
    grid_figures,
    truth_points,
)
from tailback.report.flame import Frame, by_kind, prune_frames, sort_frames, title
from tailback.report.layout import Block, blocks, switch_tier_name, tier_direction_name
from tailback.report.linked_views import course_data, matrix_data, moved_pairs, ranks_data
from tailback.report.packing import Packer, shares
from tailback.report.timeline import Timeline, band_changes, timelines_with_equal_frames

PHASES_CARRIED = 24
"""Phases in the selector: the heaviest ones. The report says so when there are more."""

FLAME_CHILDREN = 40
FLAME_MIN_SHARE = 2e-4
"""Frames of the flame graph that are carried: so many below each, none of a smaller share."""


def phases_carried(evidence: FigureData) -> list[str]:
    """The heaviest phases by estimated packets, in order of appearance."""
    if len(evidence.phases) <= PHASES_CARRIED:
        return evidence.phases
    weight = {phase: float(evidence.load(phase).weight.sum()) for phase in evidence.phases}
    heavy = set(sorted(weight, key=lambda phase: -weight[phase])[:PHASES_CARRIED])
    return [phase for phase in evidence.phases if phase in heavy]


def build_payload(case: FigureCase) -> tuple[dict[str, Any], str]:
    """The payload of a case.

    Returns:
        ``(names, arrays)``: data for :func:`safe_json`, and the packed arrays as base64.
    """
    packer = Packer()
    evidence = case.observed
    links = evidence.links
    groups = sorted(set(zip(evidence.tier.tolist(), evidence.direction.tolist(), strict=True)))
    number = {pair: index for index, pair in enumerate(groups)}
    group = [
        number[pair]
        for pair in zip(evidence.tier.tolist(), evidence.direction.tolist(), strict=True)
    ]
    datasets = _datasets(case)
    courses = timelines_with_equal_frames([entry.evidence for entry in datasets])
    both = compared(case)
    data = {
        "scales": {
            name: packer.add(scales.table(name), "u1")
            for name in ("congestion", "utilization", "stall", "traffic", scales.CHANGE)
        },
        "node_names": evidence.run.tables["nodes"]["name"].to_list(),
        "switch_names": evidence.run.tables["switches"]["name"].to_list(),
        "links": {
            "src": packer.add(links["src"].to_numpy(), "u4"),
            "dst": packer.add(links["dst"].to_numpy(), "u4"),
            "src_port": packer.add(links["src_port"].to_numpy(), "u2"),
            "dst_port": packer.add(links["dst_port"].to_numpy(), "u2"),
            # None where the fabric gives numbers alone.
            "interfaces": links["src_interface"].to_list() if any(links["src_interface"]) else None,
            "group": packer.add(np.array(group), "u1"),
            "rate_gbps": packer.add(evidence.rate_gbps, "f4"),
            "bundle": packer.add(bundles(evidence.run), "u4"),
        },
        "groups": [tier_direction_name(*group, evidence.flat) for group in groups],
        "ways": [[tier, direction] for tier, direction in groups],
        "marks": {"roots": case.roots, "waiting": case.waiting},
        "quantity": case.quantity,
        "layout": _layout(evidence, packer),
        "blocks": [[_block(block, packer) for block in band] for band in blocks(evidence)],
        "datasets": [
            _dataset(packer, entry, course) for entry, course in zip(datasets, courses, strict=True)
        ],
        "change": None if both is None else _change(packer, courses, both),
        "flames": _flames(packer, case),
        "bars": bar_figures(case),
        "columns": column_figures(case),
        "points": truth_points(evidence),
        "grids": grid_figures(packer, evidence),
        "scenario": evidence.run.scenario.name,
        "ranks": None
        if case.ranks is None
        else ranks_data(packer, case.ranks, evidence, [entry.evidence.run for entry in datasets]),
    }
    return data, packer.base64()


@dataclass(frozen=True, eq=False)
class _Entry:
    """A run of the report: its id, label and evidence."""

    id: str
    label: str
    evidence: FigureData


def _datasets(case: FigureCase) -> list[_Entry]:
    out = [_Entry("observed", case.labels[0], case.observed)]
    if case.before is not None and case.before.measured:
        out.append(_Entry("before", "As it is, re-simulated", case.before))
    if case.after is not None and case.after.measured:
        out.append(_Entry("after", case.labels[1], case.after))
    return out


def _change(
    packer: Packer, courses: list[Timeline], both: tuple[FigureData, FigureData]
) -> dict[str, Any]:
    """The two runs that are compared, and the differences that are not per link.

    Cells of the links against time are packed from -1 to 1 as 0 to 1.
    """
    order = [[course.evidence for course in courses].index(evidence) for evidence in both]
    before, after = (courses[place] for place in order)
    return {
        "of": order,
        "cells": [
            packer.add(shares((band.cells + 1) / 2), "u2") for band in band_changes(before, after)
        ],
        "matrix": moved_pairs(packer, *both),
    }


def _flames(packer: Packer, case: FigureCase) -> dict[str, int | str] | None:
    """The back-pressure flame graph, with links merged by tier and without: JSON, packed."""
    attribution = case.attribution
    if attribution is None or attribution.flame.value <= 0:
        return None
    phases = phases_carried(case.observed)
    trees = [
        ("links merged by tier", by_kind(attribution.flame), False),
        ("links not merged", attribution.flame, False),
    ]
    after = case.after_attribution
    if compared(case) is not None and after is not None and after.unit == attribution.unit:
        merged = flame_change(by_kind(attribution.flame), by_kind(after.flame))
        sort_frames(merged)
        trees.append(("change: both runs, by colour", merged, True))
    return packer.json(
        {
            "unit": attribution.unit,
            "trees": [
                {
                    "name": name,
                    "change": change,
                    "top": _frame(
                        prune_frames(top, FLAME_CHILDREN, FLAME_MIN_SHARE * top.value), phases
                    ),
                }
                for name, top, change in trees
            ],
        }
    )


def _frame(frame: Frame, phases: list[str]) -> list[Any]:
    """``[name, kind, value, what it refers to, children, change]``.

    A box of links refers to one of them, a line to the number of its phase among those carried, a
    rank to its node; -1 for none.
    """
    children = [_frame(child, phases) for child in frame.children]
    refers = frame.link
    if frame.kind == "line":
        refers = phases.index(frame.phase) if frame.phase in phases else -1
    elif frame.kind == "rank":
        refers = frame.node
    return [title(frame), frame.kind, round(frame.value), refers, children, round(frame.change)]


def _layout(evidence: FigureData, packer: Packer) -> dict[str, Any]:
    layout, links = evidence.layout, evidence.links
    ejection = np.full(len(layout.node_x), -1, np.int64)
    into = np.flatnonzero(links["to_node"].to_numpy())
    ejection[links["dst"].to_numpy()[into]] = into
    return {
        "width": layout.width,
        "tiers": layout.tiers,
        "tier_names": [switch_tier_name(t, evidence.flat) for t in range(layout.tiers)],
        "switch_x": packer.add(layout.switch_x, "f4"),
        "switch_y": packer.add(layout.switch_y, "f4"),
        "pods": [list(pod) for pod in layout.pods],
        "node_x": packer.add(layout.node_x, "f4"),
        "node_row": packer.add(layout.node_row, "u4"),
        "node_width": layout.node_width,
        "node_rows": layout.node_rows,
        "ejection": packer.add(ejection, "i4"),
        "node_switch": packer.add(evidence.run.tables["nodes"]["switch"].to_numpy(), "i4"),
        "switch_pod": packer.add(evidence.run.tables["switches"]["pod"].to_numpy(), "i4"),
        "halves": packer.add(layout.halves, "u4"),
        "segments": packer.add(layout.segments, "f4"),
    }


def _block(block: Block, packer: Packer) -> dict[str, Any]:
    return {
        "band": block.band,
        "pod": block.pod,
        "switches": block.switches.tolist(),
        "ports": block.ports,
        "first_port": block.first_port,
        "cells": packer.add(block.cells, "i4"),
    }


def _dataset(packer: Packer, entry: _Entry, course: Timeline) -> dict[str, Any]:
    evidence = entry.evidence
    phases = phases_carried(evidence)
    selections: list[str | None] = [None, *phases]
    truth = evidence.truth
    return {
        "id": entry.id,
        "label": entry.label,
        "hashed": evidence.hashed,
        "shared": evidence.shared,
        "selections": [
            {"phase": phase, **_selection(packer, evidence.load(phase), evidence.rate_gbps)}
            for phase in selections
        ],
        "truth": None
        if truth is None
        else {
            "utilization": packer.add(shares(truth.utilization), "u2"),
            "stall": packer.add(shares(truth.stall), "u2"),
        },
        "course": course_data(packer, course, phases) | {"sums": course_sums(packer, course)},
        "matrix": matrix_data(packer, evidence),
    }


def _selection(packer: Packer, load: LinkLoad, rate: NDArray[np.float64]) -> dict[str, Any]:
    return {
        "samples": packer.count(load.samples),
        "weight": packer.count(load.weight),
        "variance": packer.count(load.variance),
        "congested": packer.count(load.congested_weight),
        "congested_variance": packer.count(load.congested_variance),
        "utilization": packer.add(shares(load.utilization(rate)), "u2"),
    }
