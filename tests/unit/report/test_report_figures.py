"""Figures: what they draw, that they are legible in grey, and that they are the same every time."""

from __future__ import annotations

import io
import json
import os
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from PIL import Image

from tailback.errors import RunError, TailbackError
from tailback.report import (
    FIGURES,
    FigureCase,
    FigureData,
    Options,
    draw,
    export_figures,
    make_case,
    render,
    scales,
)
from tailback.report.figures.congested_fraction import line_widths
from tailback.report.figures.fabric_raster import _rectangles
from tailback.report.grids import groups, rings
from tailback.report.layout import blocks
from tailback.report.timeline import Timeline
from tailback.run.run import Run
from tailback.run.schema import conform
from tailback.scenario.model import parse
from tailback.simulation import simulate
from tests.factories.rank_times import make_measured
from tests.factories.report_data import PHASES, SMALL, TAPERED, Shape, make_diagnosis, make_run

SNAPSHOTS = Path(__file__).with_name("report_snapshots.json")
GRID = (24, 16)
NAMES = [entry.name for entry in FIGURES]
HOSTILE = "</svg><script>alert(1)</script> & $\\frac{ \x07\x00 ]]> \"'"


@cache
def case(shape: Shape = SMALL) -> FigureCase:
    run = make_run(shape)
    after = make_run(shape, tiled=True)
    return make_case(run, make_diagnosis(run), None, after, make_measured(run))


def grey(png: bytes) -> NDArray[np.float64]:
    """Luminance 0–255 of an image, downsampled to GRID."""
    image = Image.open(io.BytesIO(png)).convert("L").resize(GRID, Image.Resampling.BOX)
    return np.asarray(image, np.float64)


OTHER_FABRICS = {
    "torus_rings": {"kind": "torus", "dims": [4, 3, 2]},
    "dragonfly_groups": {
        "kind": "dragonfly",
        "groups": 5,
        "nodes_per_router": 1,
        "routers": 4,
        "global_ports": 1,
    },
}
"""Figures of one kind of network, and a small one of it."""


@cache
def other_fabric(name: str) -> FigureCase:
    job = {"name": HOSTILE, "pattern": {"kind": "alltoall", "ranks": 16, "size": "256 KiB"}}
    scenario = parse({"fabric": {"topology": OTHER_FABRICS[name]}, "job": [job]})
    return make_case(simulate(scenario), None)


def drawn(name: str, options: Options | None = None, on: FigureCase | None = None) -> bytes:
    usual = other_fabric(name) if name in OTHER_FABRICS else case()
    figure = draw(name, on or usual, options)
    assert figure is not None
    return render(figure, "png", 60)


def test_every_figure_is_registered() -> None:
    assert NAMES == [
        "back_pressure",
        "before_after",
        "change_back_pressure",
        "change_congested_fraction",
        "change_fabric_raster",
        "change_how_sure",
        "change_link_time",
        "change_rank_matrix",
        "congested_fraction",
        "distance_histogram",
        "dragonfly_groups",
        "fabric_raster",
        "how_sure",
        "link_time",
        "rank_matrix",
        "rank_timeline",
        "time_course",
        "torus_rings",
        "waterfall",
    ]
    assert all(entry.summary.endswith(".") for entry in FIGURES)


@pytest.mark.parametrize("name", NAMES)
def test_figure_looks_as_it_did(name: str) -> None:
    """Coarse luminance against a stored reference: blank, flipped or empty pictures fail."""
    pixels = grey(drawn(name))
    stored = json.loads(SNAPSHOTS.read_text()) if SNAPSHOTS.exists() else {}
    if os.environ.get("TAILBACK_UPDATE_SNAPSHOTS"):
        stored[name] = [[round(v) for v in row] for row in pixels.tolist()]
        SNAPSHOTS.write_text(json.dumps(dict(sorted(stored.items())), separators=(",", ":")) + "\n")
    reference = np.array(stored[name], np.float64)
    blank = np.abs(255.0 - reference).mean()
    difference = np.abs(pixels - reference).mean()
    assert blank > 3.0, "the reference itself is almost blank"
    assert difference < 0.25 * blank, f"{name} differs by {difference:.1f} of {blank:.1f}"


@pytest.mark.parametrize("quantity", ["congestion", "utilization", "stall", "traffic"])
def test_scale_is_in_order_in_grey(quantity: str) -> None:
    light = scales.luminance(scales.table(quantity))
    assert (np.diff(light) < 5e-4).all(), "darker must mean more, but for rounding to 8 bits"
    coarse = scales.luminance(scales.table(quantity, 64))
    assert (np.diff(coarse) < 0).all(), "a darker step must always mean more"
    assert light[0] > 0.75 and light[-1] < 0.06
    # Even in perceived lightness (CIE L*), to within a third of the mean step.
    lightness = 116 * np.cbrt(light) - 16
    steps = -np.diff(lightness[::16])
    assert steps.min() > 0.6 * steps.mean() and steps.max() < 1.5 * steps.mean()


def test_scales_of_different_quantities_differ() -> None:
    tables = [scales.table(q).astype(int) for q in ("congestion", "utilization", "stall")]
    for i, table in enumerate(tables):
        for other in tables[i + 1 :]:
            assert np.abs(table[128] - other[128]).sum() > 100


def test_more_congestion_is_darker() -> None:
    base = make_run()
    light, dark = (
        Run(
            base.scenario,
            base.tables
            | {
                "samples": base.tables["samples"].with_columns(
                    congested_weight=(pl.col("hop_weight") * share).cast(pl.UInt64)
                )
            },
            base.summary,
        )
        for share in (0.1, 0.9)
    )
    for name in ("congested_fraction", "fabric_raster", "link_time"):
        means = [grey(drawn(name, on=make_case(run, None))).mean() for run in (light, dark)]
        assert means[0] - means[1] > 1.5, f"{name}: {means}"


def test_phases_differ_in_the_picture() -> None:
    all_phases, first, last = (
        drawn("congested_fraction", Options(phase=phase)) for phase in (None, "+x", "-y")
    )
    assert all_phases != first != last


def test_congested_fraction_is_the_quotient_of_the_sums() -> None:
    evidence = FigureData(make_run())
    rows = evidence.run.tables["samples"].filter(pl.col("label") == 2)
    link = int(rows.group_by("link").agg(pl.col("hop_weight").sum()).sort("hop_weight")["link"][-1])
    mine = rows.filter(pl.col("link") == link)
    load = evidence.load("+y")
    n, w = mine["hop_weight"].sum(), mine["congested_weight"].sum()
    assert load.raw_fraction[link] == pytest.approx(w / n)
    assert sum(evidence.load(p).weight.sum() for p in PHASES) == evidence.load().weight.sum()


def test_utilization_has_the_right_unit() -> None:
    base = make_run()
    # One packet's worth of 12,500 bytes a window of 1 µs at 100 Gb/s is exactly the line rate.
    rows = conform(
        "samples",
        pl.DataFrame(
            {
                "window": [0, 1],
                "job": 0,
                "label": 0,
                "link": 1,
                "hop_samples": 1,
                "hop_weight": 3,
                "hop_variance": 6,
                "hop_bytes": [12500, 6250],
                "congested_samples": 0,
                "congested_weight": 0,
                "congested_variance": 0,
            }
        ),
    )
    evidence = FigureData(Run(base.scenario, base.tables | {"samples": rows}, base.summary))
    assert evidence.load().utilization(evidence.rate_gbps)[1] == pytest.approx(0.75)


def test_no_samples_is_no_data_not_zero() -> None:
    evidence = FigureData(make_run())
    load = evidence.load()
    injection = evidence.links["from_node"].to_numpy()
    assert np.isnan(load.fraction[injection]).all()
    assert np.isnan(load.error[injection]).all()
    assert (load.fraction[load.weight > 0] >= 0).all()


@pytest.mark.parametrize("shape", [SMALL, TAPERED], ids=["small", "tapered"])
def test_raster_shows_every_directed_link_once(shape: Shape) -> None:
    evidence = case(shape).observed
    cells = np.concatenate([b.cells.ravel() for band in blocks(evidence) for b in band])
    cells = np.sort(cells[cells >= 0])
    assert np.array_equal(cells, np.arange(evidence.n_links))


def test_raster_stands_at_the_port_it_leaves() -> None:
    evidence = case().observed
    links, n_nodes = evidence.links, 128
    for block in (block for band in blocks(evidence)[:-1] for block in band):
        row, column = np.argwhere(block.cells >= 0)[-1]
        link = links.row(int(block.cells[row, column]), named=True)
        assert link["src"] - n_nodes == block.switches[row]
        assert link["src_port"] == block.first_port + column


def test_viewer_rings_follow_the_longer_side() -> None:
    """4 × 3 × 2 switches: 6 rings of 4, 8 of 3 and 12 of 2."""
    ring_grids = rings(other_fabric("torus_rings").observed)
    shapes = [(*grid.shape, grid.axes[0]) for grid in ring_grids]
    assert shapes[::2] == [(4, 6, "ring"), (3, 8, "ring"), (2, 12, "ring")]
    assert shapes[1::2] == shapes[::2]


def test_rings_show_every_link_of_a_torus_once() -> None:
    evidence = other_fabric("torus_rings").observed
    inner = (evidence.tier > 0) | (evidence.direction == "flat")
    number = np.where(inner, np.arange(evidence.n_links, dtype=float), np.nan)
    every = [grid.worst(number) for grid in rings(evidence)]
    shown = np.concatenate([cells[~np.isnan(cells)] for cells in every])
    assert sorted(shown.tolist()) == sorted(number[inner].tolist())
    # Of two switches in z, the first has only the way up and the second only the way down.
    up, down = every[4], every[5]
    assert np.isnan(up[1]).all() and np.isnan(down[0]).all()
    # The switch at (1, 0, 0) goes on to (2, 0, 0).
    link = evidence.links.row(int(every[0][1, 0]), named=True)
    assert (link["src_name"], link["dst_name"]) == ("r1-0-0", "r2-0-0")


def test_groups_are_joined_by_their_worst_link() -> None:
    evidence = other_fabric("dragonfly_groups").observed
    links = evidence.links
    value = np.zeros(evidence.n_links)
    pod = dict(evidence.run.tables["switches"].select("name", "pod").iter_rows())
    hot = next(
        link
        for link in links.iter_rows(named=True)
        if pod.get(link["src_name"]) == 1 and pod.get(link["dst_name"]) == 3
    )
    value[hot["link"]] = 0.7
    grid = groups(evidence)
    assert grid is not None
    cells = grid.worst(value)
    assert cells[1, 3] == 0.7 and np.nansum(cells) == pytest.approx(0.7)


def test_rectangles_cover_exactly_the_mask() -> None:
    mask = np.random.default_rng(1).random((13, 17)) < 0.6
    covered = np.zeros(mask.shape, int)
    for top, height, left, width in _rectangles(mask):
        covered[top : top + height, left : left + width] += 1
    assert np.array_equal(covered, mask.astype(int))


@pytest.mark.parametrize("shape", [SMALL, TAPERED], ids=["small", "tapered"])
def test_upper_half_is_the_up_link(shape: Shape) -> None:
    evidence = case(shape).observed
    layout = evidence.layout
    up = evidence.direction[layout.halves] == "up"
    start, end = layout.segments[:, 1], layout.segments[:, 3]
    assert (end[up] > start[up]).all(), "an up link runs from the middle to its upper end"
    assert (end[~up] < start[~up]).all(), "a down link runs from the middle to its lower end"
    # The two halves of a cable meet in the middle.
    middle = {
        int(link): tuple(s[:2]) for link, s in zip(layout.halves, layout.segments, strict=True)
    }
    reverse = evidence.links["reverse"].to_numpy()
    assert all(middle[int(reverse[link])] == at for link, at in middle.items())


def test_tapered_layout_has_pods_in_columns() -> None:
    layout = case(TAPERED).observed.layout
    assert [pod for pod, _, _ in layout.pods] == [0, 1, 2, 3, 4, 5]
    assert all(right - left == pytest.approx(24) for _, left, right in layout.pods)
    assert all(a[2] < b[1] for a, b in zip(layout.pods, layout.pods[1:], strict=False))
    assert layout.node_rows == 32 and layout.tiers == 3
    assert len(layout.halves) == 18432 - 2 * 4608


def test_width_grows_with_traffic() -> None:
    widths = line_widths(np.array([0.0, 1.0, 10.0, 100.0]), 100.0)
    assert (np.diff(widths) > 0).all()


def test_parallel_cables_do_not_hide_each_other() -> None:
    run = make_run()
    cables = run.tables["links"].filter(pl.col("tier") == 1).head(2)
    count = run.tables["links"].height
    double = cables.with_columns(
        link=pl.Series([count, count + 1], dtype=pl.UInt32),
        reverse=pl.Series([count + 1, count], dtype=pl.UInt32),
        src_port=pl.col("src_port") + 50,
        dst_port=pl.col("dst_port") + 50,
    )
    tables = run.tables | {"links": pl.concat([run.tables["links"], double])}
    layout = FigureData(Run(run.scenario, tables, run.summary)).layout
    segments = {tuple(segment) for segment in layout.segments.tolist()}
    assert len(segments) == len(layout.halves)


def test_a_fabric_of_one_switch_is_drawn() -> None:
    run = simulate(
        parse(
            {
                "fabric": {"topology": {"kind": "k-ary-n-tree", "k": 2, "n": 1}},
                "job": [
                    {"name": "two", "pattern": {"kind": "alltoall", "ranks": 2, "size": "64 B"}}
                ],
            }
        )
    )
    layout = FigureData(run).layout
    assert len(layout.halves) == 0 and layout.segments.shape == (0, 4)
    assert draw("congested_fraction", make_case(run, None, None, None)) is not None


def test_a_waterfall_step_has_its_causes_colour() -> None:
    names = {"slow links": "slow-link", "other traffic": "other-traffic", "injection": "injection"}
    diagnosis = case().diagnosis
    assert diagnosis is not None
    ideal, *_, observed = diagnosis.waterfall
    for name, cause in names.items():
        step = ideal.model_copy(
            update={"name": name, "elapsed_ps": 61_200_000, "delta_ps": 19_300_000}
        )
        diagnosed = diagnosis.model_copy(update={"waterfall": [ideal, step, observed]})
        picture = draw("waterfall", replace(case(), diagnosis=diagnosed))
        assert picture is not None
        assert scales.CAUSE_COLOURS[cause] in render(picture, "svg").decode()


def test_the_waterfall_reaches_the_observed_time() -> None:
    """Else the steps drawn do not add up."""
    diagnosis = case().diagnosis
    assert diagnosis is not None
    *steps, observed = diagnosis.waterfall
    last_step = {"elapsed_ps": steps[-1].elapsed_ps + 3_000_000, "delta_ps": 3_000_000}
    bars = [*steps, observed.model_copy(update=last_step)]
    picture = draw(
        "waterfall", replace(case(), diagnosis=diagnosis.model_copy(update={"waterfall": bars}))
    )
    assert picture is not None
    names = [label.get_text() for label in picture.axes[0].get_yticklabels()]
    assert names[-2:] == ["+ remainder", "expected"]
    texts = [text.get_text() for text in picture.axes[0].texts]
    assert texts[-2].startswith("+3 µs  (+4.7 %")


@pytest.mark.slow
def test_export_is_deterministic_and_complete(tmp_path: Path) -> None:
    phases = ("+x", "+y")
    run, after = make_run(phases=phases), make_run(phases=phases, tiled=True)
    diagnosis = make_diagnosis(run)
    first = export_figures(run, diagnosis, tmp_path / "a", formats=["svg"], after=after)
    names = {path.name for path in first}
    again = make_case(run, diagnosis, None, after)
    for name in NAMES:
        drawn = draw(name, again)
        assert (drawn is not None) == (f"{name}.svg" in names), name
        if drawn is not None:
            assert render(drawn, "svg") == (tmp_path / "a" / f"{name}.svg").read_bytes(), name
    # Nothing was measured, and nothing stalled behind anything.
    absent = {"back_pressure.svg", "rank_timeline.svg"}
    assert {f"{name}.svg" for name in {*NAMES} - {*OTHER_FABRICS}} <= names | absent
    assert "congested_fraction-phase02-plus-y.svg" in names
    assert "congested_fraction-after-phase01-plus-x.svg" in names
    for path in first:
        content = path.read_bytes()
        assert b"<dc:date>" not in content
        ElementTree.fromstring(content)


@pytest.mark.parametrize("form", [pytest.param("pdf", marks=pytest.mark.slow), "png"])
def test_other_formats_are_deterministic(form: str) -> None:
    first, second = (draw("waterfall", case()) for _ in range(2))
    assert first is not None and second is not None
    content = render(first, form)
    assert content == render(second, form)
    assert b"CreationDate" not in content


def test_export_refuses_an_unknown_format(tmp_path: Path) -> None:
    with pytest.raises(TailbackError, match="unknown figure format 'gif'"):
        export_figures(make_run(), None, tmp_path, formats=["gif"])


def test_export_names_a_folder_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write the figures"):
        export_figures(make_run(), None, tmp_path / "file" / "below")


@pytest.mark.parametrize(
    "name", [*NAMES[:4], *(pytest.param(name, marks=pytest.mark.slow) for name in NAMES[4:])]
)
def test_hostile_names_are_text_in_figures(name: str) -> None:
    phases = (HOSTILE + "a", "+x", "b" * 5000, "$")
    run, after = (make_run(prefix=HOSTILE, phases=phases, tiled=tiled) for tiled in (False, True))
    measured = make_measured(run, prefix=HOSTILE)
    on = make_case(run, make_diagnosis(run, hostile=HOSTILE), None, after, measured)
    if name in OTHER_FABRICS:
        on = other_fabric(name)
    figure = draw(name, on, Options(phase=HOSTILE + "a"))
    assert figure is not None
    svg = render(figure, "svg").decode()
    tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(svg).iter()}
    assert "script" not in tags
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f]", svg)


def test_figures_without_their_data_are_left_out() -> None:
    run = make_run()
    empty = {name: run.tables[name].clear() for name in ("samples", "messages", "truth")}
    bare = make_case(Run(run.scenario, run.tables | empty, run.summary), None)
    assert [n for n in NAMES if draw(n, bare) is not None] == [
        "congested_fraction",
        "fabric_raster",
    ]


def test_measured_runs_have_no_truth_to_compare_with() -> None:
    figure = draw("how_sure", make_case(make_run(truth=False), None))
    assert figure is not None
    assert "truth is not known" in figure.axes[1].texts[0].get_text()


def test_links_without_congested_samples_are_counted() -> None:
    runs = [make_run(), make_run(tiled=True)]
    loads = [FigureData(run).load() for run in runs]
    sampled = np.flatnonzero(np.all([load.samples >= 20 for load in loads], axis=0))
    quiet = pl.col("link").is_in(sampled[:7].tolist())
    met = pl.col("congested_samples", "congested_weight", "congested_variance")
    for place, run in enumerate(runs):
        samples = run.tables["samples"].with_columns(
            pl.when(quiet).then(0).otherwise(met).name.keep()
        )
        samples = samples.cast(run.tables["samples"].schema)
        runs[place] = replace(run, tables=run.tables | {"samples": samples})
    figure = draw("change_how_sure", make_case(runs[0], None, None, runs[1]))
    assert figure is not None and len(sampled) > 20
    label = figure.axes[0].get_xlabel()
    assert "left out: 7 links without a congested sample in either run" in label


def test_broken_tables_are_named() -> None:
    run = make_run()
    with pytest.raises(RunError, match="no links"):
        FigureData(
            Run(run.scenario, run.tables | {"links": run.tables["links"].clear()}, run.summary)
        )
    wrong = run.tables["samples"].with_columns(link=pl.lit(10**6, pl.UInt32))
    with pytest.raises(RunError, match="names link 1000000 of 320"):
        FigureData(Run(run.scenario, run.tables | {"samples": wrong}, run.summary))
    with pytest.raises(RunError, match="not of the same fabric"):
        make_case(run, None, None, make_run(prefix="other-"))


def test_a_phase_of_known_load_decides_the_course() -> None:
    figure = draw("time_course", case())
    assert figure is not None
    delivered = figure.axes[1]
    assert "GB/s" in delivered.get_ylabel()
    evidence = case().observed
    ejection = evidence.links["to_node"].to_numpy()
    total = Timeline(evidence).sums(ejection).bytes.sum()
    assert total == pytest.approx(evidence.load().bytes[ejection].sum())


def test_sparse_windows_have_no_point() -> None:
    base = make_run()
    last = base.tables["windows"]["window"].max()
    # Nine samples of each tier and direction in the last window.
    kept = base.tables["samples"].filter(pl.col("window") != last)
    few = (
        kept.group_by("link")
        .first()
        .join(base.tables["links"].select("link", "tier", "direction"), on="link")
        .group_by("tier", "direction")
        .first()
    )
    few = few.with_columns(window=pl.lit(last, pl.UInt32), hop_samples=pl.lit(9, pl.UInt64)).select(
        kept.columns
    )
    samples = pl.concat([kept, few])
    # Without the simulator's record samples stand where they arrived.
    tables = base.tables | {"samples": samples, "truth": base.tables["truth"].clear()}
    run = Run(base.scenario, tables, base.summary)
    figure = draw("time_course", make_case(run, None))
    assert figure is not None
    for stairs in figure.axes[2].patches:
        values = stairs.get_data().values  # type: ignore[attr-defined]
        assert np.isnan(values[-1]) and np.isfinite(values).any()


def test_no_change_has_no_colour() -> None:
    colours = scales.table(scales.CHANGE)
    assert len(colours) % 2 == 1
    assert len(set(colours[len(colours) // 2].tolist())) == 1, "neither blue nor brown"
    assert len(set((255 * np.array(scales.colormap(scales.CHANGE)(0.5)[:3])).round())) == 1
