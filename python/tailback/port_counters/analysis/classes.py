"""Classes of ports: the category of the switch, and whether the link leads up or down.

Alali et al. (*A Measurement Study of Congestion in an InfiniBand Network*, III-C) sort switches
into ToR, leaf and spine of the compute, storage and visualization subsystems, and ports into up and
down, from the output of ibnetdiscover. Here the tiers come from the fabric and the subsystems from
patterns of names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import polars as pl

from tailback.fabric.model import Fabric
from tailback.port_counters.schema import CounterError

TIER_NAMES: Final[dict[int, tuple[str, ...]]] = {
    1: ("Leaf",),
    2: ("Leaf", "Spine"),
    3: ("ToR", "Leaf", "Spine"),
}
"""Names of the tiers of a tree with 1, 2 and 3 tiers; those for 3 are the paper's."""

CLASSES: Final[dict[str, type[pl.DataType]]] = {
    "node_name": pl.String,
    "port": pl.UInt16,
    "link": pl.UInt32,
    "category": pl.String,
    "port_type": pl.String,
}
"""Columns of the table of :func:`classify`."""


def classify(fabric: Fabric, subsystems: Mapping[str, str] | None = None) -> pl.DataFrame:
    """The class of every port of a fabric.

    Args:
        fabric: From discovery or a builder.
        subsystems: Name and regular expression of each subsystem. A switch belongs to the first one
            whose expression matches its name or, for a leaf, the names of most of its hosts.
            ``{"Glade": "^(glade|nsd)", "DAV": "^dav"}`` gives the paper's ``GladeLeaf``,
            ``GladeSpine``, ``DAVLeaf`` and ``DAVSpine``.

    Returns:
        One row per port with a cable: ``node_name, port, link`` (the link that leaves it),
        ``category`` (``ToR``, ``GladeLeaf``, …, ``Host`` for adapters) and ``port_type`` (``up``,
        ``down`` or ``flat``).

    Raises:
        CounterError: A pattern is not a regular expression.
    """
    group = _subsystem(fabric, subsystems or {})
    names = np.array(_categories(fabric, group), object)
    source = fabric.link_src.astype(np.int64)
    kind = np.array(["flat", "up", "down"], object)[fabric.link_up]
    vertex_names = np.array([*fabric.node_name, *fabric.switch_name], object)
    return pl.DataFrame(
        {
            "node_name": vertex_names[source].tolist(),
            "port": fabric.link_src_port,
            "link": np.arange(fabric.n_links, dtype=np.uint32),
            "category": names[source].tolist(),
            "port_type": kind.tolist(),
        },
        schema_overrides=CLASSES,
    )


def _subsystem(fabric: Fabric, subsystems: Mapping[str, str]) -> list[str]:
    """Subsystem of each switch, empty for the main one."""
    out = [""] * fabric.n_switches
    attached: dict[int, list[str]] = {}
    for node, switch in enumerate(fabric.node_switch.tolist()):
        attached.setdefault(switch, []).append(fabric.node_name[node])
    for name, pattern in subsystems.items():
        try:
            expression = re.compile(pattern)
        except re.error as error:
            raise CounterError(
                f"subsystem {name!r}: {pattern!r} is not a regular expression: {error}",
                remedy="write it like 'Glade=^glade'",
            ) from None
        for switch, switch_name in enumerate(fabric.switch_name):
            hosts = attached.get(switch, [])
            hits = sum(1 for host in hosts if expression.search(host))
            if not out[switch] and (expression.search(switch_name) or 2 * hits > len(hosts) > 0):
                out[switch] = name
    return out


def _categories(fabric: Fabric, group: list[str]) -> list[str]:
    """Category of each vertex: ``Host`` for nodes, subsystem and tier for switches."""
    tiers = fabric.switch_tier.tolist()
    words = {
        name: tier_names(
            tier for tier, group_name in zip(tiers, group, strict=True) if group_name == name
        )
        for name in set(group)
    }
    switches = [name + words[name][tier] for tier, name in zip(tiers, group, strict=True)]
    return ["Host"] * fabric.n_nodes + switches


def tier_names(tiers: Iterable[int]) -> dict[int, str]:
    """Name of each tier present among ``tiers``, from the lowest up."""
    levels = sorted(set(tiers))
    words = TIER_NAMES.get(len(levels)) or [f"Tier{level}" for level in range(len(levels))]
    return dict(zip(levels, words, strict=True))


def attach(frame: pl.DataFrame, classes: pl.DataFrame) -> tuple[pl.DataFrame, list[str]]:
    """Add ``link``, ``category`` and ``port_type`` to readings or intervals.

    Args:
        frame: Has ``node_name`` and ``port``, and ``link`` where the source gives it.
        classes: From :func:`classify`.

    Returns:
        The frame, and notes: how many rows are for ports the fabric does not have.
    """
    by_name = classes.unique(["node_name", "port"], keep="none")
    out = frame.drop("category", "port_type", strict=False).join(
        by_name.rename({"link": "_link"}),
        on=["node_name", "port"],
        how="left",
        maintain_order="left",
    )
    if "link" not in frame.columns:
        out = out.rename({"_link": "link"})
    else:
        by_link = classes.select("link", _category="category", _type="port_type", _name="node_name")
        out = out.join(by_link, on="link", how="left", maintain_order="left").with_columns(
            pl.coalesce("link", "_link").alias("link"),
            pl.coalesce("category", "_category").alias("category"),
            pl.coalesce("port_type", "_type").alias("port_type"),
            pl.coalesce("node_name", "_name").alias("node_name"),
        )
        out = out.drop("_link", "_category", "_type", "_name")
    lost = out.filter(pl.col("category").is_null())
    notes = []
    if lost.height:
        some = ", ".join(repr(str(n)[:40]) for n in lost["node_name"].unique().sort().head(3))
        notes.append(f"{lost.height} rows are for ports the fabric does not have, like {some}")
    return out, notes
