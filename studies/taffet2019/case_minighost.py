"""miniGhost, the main case of the SC'19 talk: placements, changes of communication, boundaries."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from studies.taffet2019.case_figures import Drawing
from studies.taffet2019.case_model import Found, Row, diagnose, estimates, example
from tailback import Run, simulate
from tailback.units import format_time, percent

TAGS: Final = {
    "x": (3000, 4000),
    "y": (1000, 2000),
    "z": (6000, 5000),
}
"""Tag of the messages to the neighbour at +1 and at -1 along each axis (MG_BSPMA_DIAGS)."""


def communication(run: Run) -> float:
    """Mean time of a rank outside computation, picoseconds."""
    ranks = run.tables["ranks"]
    return float((ranks["finish_ps"].cast(pl.Int64) - ranks["compute_ps"].cast(pl.Int64)).mean())


def minighost_variants() -> dict[str, tuple[float, int]]:
    """Communication time and elapsed time (ps) of every variant, computation included."""
    variants = {
        "block": ("block", "bspma", "variable"),
        "round-robin": ("round-robin", "bspma", "variable"),
        "tile": ("tile", "bspma", "variable"),
        "small phases": ("tile", "svaf", "variable"),
        "one sum a step": ("tile", "svaf", "step"),
    }
    out = {}
    for name, (placement, method, sums) in variants.items():
        scenario = example("minighost/step.toml")
        job = scenario.job[0]
        assert job.pattern is not None
        job.placement = placement
        job.pattern.update(method=method, sums=sums)
        run = simulate(scenario)
        out[name] = (communication(run), run.elapsed_ps)
    return out


def minighost() -> Found:
    """27-point stencil of 27,648 ranks: placements and changes of communication.

    Taffet and Mellor-Crummey (2019).
    """
    case = Found("minighost")
    few = ("--seeds", "1", "--method", "tile")
    said, run, _ = diagnose("minighost/minighost.toml", "placement", *few)
    said2, tiled, _ = diagnose("minighost/tiled.toml", "pattern", *few)
    said3, _, _ = diagnose("minighost/step.toml", "placement", *few)
    case.answers = [said, said2, said3]
    t = minighost_variants()

    def ms(name: str) -> str:
        return format_time(t[name][0])

    def times(slow: str, fast: str) -> str:
        return f"{t[slow][0] / t[fast][0]:.2f}×"

    def less(before: str, after: str, which: int) -> str:
        return percent(1 - t[after][which] / t[before][which], 1)

    case.rows = [
        Row("communication a time step, linear (`block`)", "–", ms("block")),
        Row("… cyclic (`round-robin`)", "–", ms("round-robin")),
        Row("… tiled (`tile`)", "–", ms("tile")),
        Row("less communication time by tiling: linear ÷ tiled", "2.9×", times("block", "tile")),
        Row("… cyclic ÷ tiled", "(2.9×)", times("round-robin", "tile")),
        Row("whole time saved by tiling, from linear", "4.8 %", less("block", "tile", 1)),
        Row("tiled, small phases, sum after each", "–", ms("small phases")),
        Row("tiled, small phases, one sum a time step", "–", ms("one sum a step")),
        Row("communication saved by the change", "60 %", less("tile", "one sum a step", 0)),
        Row("whole time saved by the change", "1.9 %", less("tile", "one sum a step", 1)),
        Row("both together, from linear", "nearly 5×", times("block", "one sum a step")),
        Row("… from cyclic", "(nearly 5×)", times("round-robin", "one sum a step")),
        *phase_rows(run, tiled),
        *boundary_rows(tiled),
    ]
    for word, drawn in (("linear", run), ("tiled", tiled)):
        stem = f"minighost-tags-{word}"
        case.drawings.append(
            Drawing(stem, word, by_tag(drawn), pods=1, figure="tags", phases=tag_grid())
        )
    case.drawings.append(
        Drawing("minighost-boundary", "tiled", tiled, figure="layers", layers=layers(tiled))
    )
    return case


def by_tag(run: Run) -> Run:
    """The run with a phase for every tag of its messages."""
    named = pl.when(pl.col("tag") > 0).then(pl.format("tag {}", "tag")).otherwise("phase")
    labels = run.tables["labels"].with_columns(phase=named)
    return Run(run.scenario, {**run.tables, "labels": labels}, run.summary)


def tag_grid() -> list[list[tuple[str, str]]]:
    """Phase and title of each panel of the plots by tag: a row for each direction."""
    return [
        [
            (f"tag {TAGS[axis][way]}", f"{axis}, tag {TAGS[axis][way]} (to {'+-'[way]}{axis})")
            for axis in "yxz"
        ]
        for way in (0, 1)
    ]


def phase_rows(linear: Run, tiled: Run) -> list[Row]:
    """Congested fraction of the leaves' up-links in each phase."""
    rows = []
    for phase in ("x", "y", "z"):
        shares = []
        for run in (linear, tiled):
            up = estimates(run, phase=phase).filter(
                (pl.col("tier") == 1) & (pl.col("direction") == "up")
            )
            packets = float(up["packets"].sum())
            shares.append(percent(float(up["congested"].sum()) / packets) if packets else "no use")
        rows.append(
            Row(
                f"congested fraction of leaf up-links in phase {phase}: linear → tiled",
                "one phase bad → all some",
                " → ".join(shares),
            )
        )
    return rows


def layers(run: Run) -> pl.DataFrame:
    """Congestion of the links into nodes by tag and by the node's layer along the tag's axis.

    Returns:
        Rows ``axis, tag, layer, count, fraction, packets``: layer 0 is the one at the domain's
        lower face, ``count`` the number of layers of nodes along the axis.
    """
    dims = [int(extent) for extent in run.tables["jobs"]["grid"][0].split("x")]
    rank = run.tables["ranks"]["job_rank"].to_numpy().astype(np.int64)
    tagged = by_tag(run)
    parts = []
    for axis, stride, extent in zip("xyz", np.cumprod([1, *dims[:-1]]), dims, strict=True):
        at = rank // stride % extent
        nodes = pl.DataFrame({"dst": run.tables["ranks"]["node"], "at": at}).group_by("dst")
        ends = nodes.agg(low=pl.col("at").min(), thick=pl.col("at").max() - pl.col("at").min() + 1)
        for tag in TAGS[axis]:
            into = estimates(tagged, phase=f"tag {tag}").filter("to_node").join(ends, on="dst")
            parts.append(
                into.group_by(layer=pl.col("low") // pl.col("thick"))
                .agg(
                    packets=pl.col("packets").sum(),
                    fraction=pl.col("congested").sum() / pl.col("packets").sum(),
                    count=(extent // pl.col("thick")).max(),
                )
                .with_columns(axis=pl.lit(axis), tag=pl.lit(tag))
            )
    columns = ("axis", "tag", "layer", "count", "fraction", "packets")
    return pl.concat([part.select(columns) for part in parts]).sort("axis", "tag", "layer")


def boundary_rows(run: Run) -> list[Row]:
    """Congested fraction of ejection links by the position of the node's ranks on the grid."""
    rows = []
    by_layer = layers(run)
    for axis in "xyz":
        mine = by_layer.filter(pl.col("axis") == axis).with_columns(
            # Nodes between this one and the nearer face of the domain; 2 means two or more.
            gap=pl.min_horizontal("layer", pl.col("count") - 1 - pl.col("layer"), pl.lit(2))
        )
        by = _mean_by(mine, "gap")
        words = ("at the boundary", "next to it", "further in")
        listed = ", ".join(f"{percent(share)} {words[int(gap)]}" for gap, share in by.items())
        rows.append(
            Row(
                f"tiled, phase {axis}: congested fraction into nodes by layer of {axis}",
                "heaviest on certain planes",
                listed,
            )
        )
        for way, tag in enumerate(TAGS[axis]):
            share = _mean_by(mine.filter(pl.col("tag") == tag), "layer")
            heavy = max(share, key=lambda layer: share[layer])
            rows.append(
                Row(
                    f"tiled, tag {tag} (to {'+-'[way]}{axis}): heaviest layer of nodes",
                    "–",
                    f"layer {heavy} of 0 to {int(mine['count'].max()) - 1}, "
                    f"{percent(share[heavy])}",
                )
            )
    return rows


def _mean_by(frame: pl.DataFrame, key: str) -> dict[int, float]:
    """Congested fraction by a column, in its order."""
    met = (pl.col("fraction") * pl.col("packets")).sum() / pl.col("packets").sum()
    return {int(k): float(v) for k, v in frame.group_by(key).agg(met).sort(key).iter_rows()}
