"""The data of the interactive plots, packed small: JSON for names, one deflated block for arrays.

An array is stored byte plane by byte plane (all lowest bytes, then the next …): the high bytes of
counts are mostly zero and vanish when deflated. 18,432 links in six selections of two runs take
about 0.5 MB.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailback.report import scales
from tailback.report.evidence import Case, Evidence, Load
from tailback.report.figures.fabric_raster import Block, blocks
from tailback.report.flame import Frame, by_kind, prune
from tailback.report.layout import describe

PHASES_CARRIED = 24
"""Phases in the selector: the heaviest ones. The report says so when there are more."""

FLAME_CHILDREN = 40
FLAME_LEAST = 2e-4
"""Frames of the flame graph that are carried: so many below each, none of a smaller share."""

NO_SHARE = 65535
_KINDS = {"u1": np.uint8, "u2": np.uint16, "u4": np.uint32, "i4": np.int32, "f4": np.float32}


class Packer:
    """Collects arrays into one block of bytes and hands out references to them."""

    def __init__(self) -> None:
        self._planes: list[bytes] = []
        self._size = 0

    def add(self, values: NDArray[Any], kind: str) -> dict[str, int | str]:
        """Store ``values`` as ``kind`` (u1, u2, u4, i4 or f4, little-endian); returns where."""
        flat = np.ascontiguousarray(values).ravel().astype(np.dtype(_KINDS[kind]).newbyteorder("<"))
        planes = flat.view(np.uint8).reshape(len(flat), flat.itemsize).T.tobytes()
        reference: dict[str, int | str] = {"o": self._size, "n": len(flat), "t": kind}
        self._planes.append(planes)
        self._size += len(planes)
        return reference

    def base64(self) -> str:
        """Everything stored, deflated (zlib), as base64."""
        return base64.b64encode(zlib.compress(b"".join(self._planes), 9)).decode("ascii")


def safe_json(data: object) -> str:
    """JSON that may stand inside a ``<script>`` element: no markup can begin or end in it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def phases_carried(evidence: Evidence) -> list[str]:
    """The heaviest phases by estimated packets, in order of appearance."""
    if len(evidence.phases) <= PHASES_CARRIED:
        return evidence.phases
    weight = {phase: float(evidence.load(phase).weight.sum()) for phase in evidence.phases}
    heavy = set(sorted(weight, key=lambda phase: -weight[phase])[:PHASES_CARRIED])
    return [phase for phase in evidence.phases if phase in heavy]


def build(case: Case) -> tuple[dict[str, Any], str]:
    """The payload of a case.

    Returns:
        ``(names, arrays)``: data for :func:`safe_json`, and the packed arrays as base64.
    """
    packer = Packer()
    evidence = case.observed
    links = evidence.links
    groups = sorted(set(zip(evidence.tier.tolist(), evidence.direction.tolist(), strict=True)))
    number = {pair: index for index, pair in enumerate(groups)}
    group = [number[pair] for pair in zip(evidence.tier.tolist(), evidence.direction.tolist(),
                                          strict=True)]  # fmt: skip
    datasets = [("observed", "As observed", evidence)]
    if case.before is not None and case.before.measured:
        datasets.append(("before", "As it is, re-simulated", case.before))
    if case.after is not None and case.after.measured:
        datasets.append(("after", "With the remedy", case.after))
    data = {
        "scales": {name: packer.add(scales.table(name), "u1")
                   for name in ("congestion", "utilization", "stall")},
        "node_names": evidence.run.tables["nodes"]["name"].to_list(),
        "switch_names": evidence.run.tables["switches"]["name"].to_list(),
        "links": {
            "src": packer.add(links["src"].to_numpy(), "u4"),
            "dst": packer.add(links["dst"].to_numpy(), "u4"),
            "src_port": packer.add(links["src_port"].to_numpy(), "u2"),
            "dst_port": packer.add(links["dst_port"].to_numpy(), "u2"),
            "group": packer.add(np.array(group), "u1"),
            "rate_gbps": packer.add(evidence.rate_gbps, "f4"),
        },
        "groups": [describe(tier, direction) for tier, direction in groups],
        "layout": _layout(evidence, packer),
        "blocks": [[_block(block, packer) for block in band] for band in blocks(evidence)],
        "datasets": [_dataset(packer, *entry) for entry in datasets],
        "flames": _flames(case),
    }  # fmt: skip
    return data, packer.base64()


def _flames(case: Case) -> dict[str, Any] | None:
    """The back-pressure flame graph, places of a kind together and one by one."""
    found = case.attribution
    if found is None or found.flame.value <= 0:
        return None
    least = FLAME_LEAST * found.flame.value
    return {
        "unit": found.unit,
        "trees": [
            {"name": "places of a kind together",
             "top": _frame(prune(by_kind(found.flame), FLAME_CHILDREN, least))},
            {"name": "places one by one",
             "top": _frame(prune(found.flame, FLAME_CHILDREN, least))},
        ],
    }  # fmt: skip


def _frame(frame: Frame) -> list[Any]:
    """``[name, kind, value, link, children]``."""
    children = [_frame(child) for child in frame.children]
    return [frame.name, frame.kind, round(frame.value), frame.link, children]


def _layout(evidence: Evidence, packer: Packer) -> dict[str, Any]:
    layout, links = evidence.layout, evidence.links
    names = ["leaf", "aggregation", "core"]
    ejection = np.full(len(layout.node_x), -1, np.int64)
    into = np.flatnonzero(links["to_node"].to_numpy())
    ejection[links["dst"].to_numpy()[into]] = into
    return {
        "width": layout.width,
        "tiers": layout.tiers,
        "tier_names": [names[t] if t < len(names) else f"tier {t}" for t in range(layout.tiers)],
        "switch_x": packer.add(layout.switch_x, "f4"),
        "switch_y": packer.add(layout.switch_y, "f4"),
        "pods": [list(pod) for pod in layout.pods],
        "node_x": packer.add(layout.node_x, "f4"),
        "node_row": packer.add(layout.node_row, "u4"),
        "node_width": layout.node_width,
        "node_rows": layout.node_rows,
        "ejection": packer.add(ejection, "i4"),
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


def _dataset(packer: Packer, name: str, label: str, evidence: Evidence) -> dict[str, Any]:
    selections: list[str | None] = [None, *phases_carried(evidence)]
    truth = evidence.truth
    return {
        "id": name,
        "label": label,
        "selections": [
            {"phase": phase, **_selection(packer, evidence.load(phase), evidence.rate_gbps)}
            for phase in selections
        ],
        "truth": None if truth is None else {
            "utilization": packer.add(_shares(truth.utilization), "u2"),
            "stall": packer.add(_shares(truth.stall), "u2"),
        },
    }  # fmt: skip


def _selection(packer: Packer, load: Load, rate: NDArray[np.float64]) -> dict[str, Any]:
    return {
        "samples": packer.add(np.minimum(load.samples, 2**32 - 1), "u4"),
        "weight": packer.add(np.minimum(load.weight, 2**32 - 1), "u4"),
        "congested": packer.add(np.minimum(load.congested_weight, 2**32 - 1), "u4"),
        "error": packer.add(_shares(load.error), "u2"),
        "utilization": packer.add(_shares(load.utilization(rate)), "u2"),
    }


def _shares(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Shares as ten-thousandths; NO_SHARE where there is no data."""
    scaled = np.minimum(np.round(np.nan_to_num(values, nan=0.0) * 10000), NO_SHARE - 1)
    return np.where(np.isnan(values), NO_SHARE, scaled).astype(np.int64)
