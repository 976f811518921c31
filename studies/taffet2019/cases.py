"""The case studies of the thesis and of the SC'19 talk: published results and ours.

    python -m studies.taffet2019.cases                       every case
    python -m studies.taffet2019.cases --case reduction      one of them; may be repeated
    python -m studies.taffet2019.cases --write               also its page and figures

studies/taffet2019/case_reasons.py examines the reasons of the differences. Everything is computed:
neither the columns "ours" nor the verdicts of the diagnosis are written by hand. The diagnosis is
the command a user types, run on the example scenario.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import numpy as np
import polars as pl

from measuring import run_parts
from studies.taffet2019.case_figures import Drawing, slices, write_figures
from studies.taffet2019.case_minighost import minighost
from studies.taffet2019.case_model import (
    EXAMPLES,
    Found,
    Row,
    diagnose,
    elapsed,
    estimates,
    example,
)
from studies.taffet2019.case_stencil import stencil2d
from studies.taffet2019.reproduction import FIGURES, PAGE
from tailback import load_scenario, simulate
from tailback.units import format_time, percent

SEEDS = range(1, 6)
SLICES_MS = ((0.0, 1.9), (1.9, 3.7), (5.6, 7.4), (15.0, 16.0), (16.0, 18.0))
"""Of Figure 4.11."""


def reduction() -> Found:
    """§4.3: 1024 ranks send to one; MPI_Reduce instead."""
    said, run, _ = diagnose("reduction/reduction.toml", "pattern")
    naive = run.elapsed_ps
    moved = example("reduction/reduction.toml")
    assert moved.job[0].pattern is not None
    moved.job[0].pattern["root"] = 388
    other, tree = elapsed(moved), elapsed(example("reduction/tree.toml"))
    root = estimates(run).filter(pl.col("to_node")).sort("packets").row(-1, named=True)
    load_gbps = root["bytes"] * 8000 / naive
    moved.telemetry.scheme = "full"
    case = Found("reduction", answers=[said])
    case.rows = [
        Row("naive, to rank 0", "18 ms", format_time(naive)),
        Row(
            "change of time with the root at rank 388",
            "< 0.01 %",
            percent(other / naive - 1, 4, "+"),
        ),
        Row("congested fraction of the root's link", "> 0.998", f"{root['fraction']:.3f}"),
        Row("bandwidth of that link, sampled", "92.6 Gb/s", f"{load_gbps:.1f} Gb/s"),
        Row("MPI_Reduce", "–", format_time(tree)),
        Row("improvement by MPI_Reduce", "86.9×", f"{naive / tree:.1f}×"),
    ]
    case.drawings = [
        *slices("reduction-slices", run, SLICES_MS),
        Drawing("reduction-388", "root at rank 388", simulate(moved)),
    ]
    return case


def background() -> Found:
    """§4.4: a ring exchange among uniform random traffic.

    Leaf and nodes depend on the draw of destinations; ``studies.conformance`` has theirs.
    """
    said, run, _ = diagnose("background/background.toml", "other-traffic")
    times: dict[str, list[float]] = {key: [] for key in ("ring", "uniform", "both", "other")}
    for seed in SEEDS:
        scenario = example("background/background.toml", seed)
        both = simulate(scenario).summary["job_elapsed_ps"]
        ring, uniform = scenario.job
        alone = scenario.model_copy(update={"job": [ring]})
        # Job k draws with seed + k, and must make the same choices when it runs alone.
        uniform = uniform.model_copy(update={"observed": True})
        other = scenario.model_copy(update={"job": [uniform], "seed": seed + 1})
        for key, value in zip(
            times, (elapsed(alone), elapsed(other), both["0"], both["1"]), strict=True
        ):
            times[key].append(value / 1e6)

    def several(key: str) -> str:
        return f"{np.mean(times[key]):.1f} µs ({min(times[key]):.1f}–{max(times[key]):.1f})"

    def slower(key: str, alone: str) -> str:
        return percent(np.mean(times[key]) / np.mean(times[alone]) - 1, sign="+")

    case = Found("background", answers=[said])
    case.rows = [
        Row("ring alone", "33.6 µs", several("ring")),
        Row("ring with background", "51.4 µs", several("both")),
        Row("slow-down of the ring", "+54 %", slower("both", "ring")),
        Row("background alone", "106.2 µs", several("uniform")),
        Row("background with the ring", "127.1 µs", several("other")),
        Row("slow-down of the background", "+20 %", slower("other", "uniform")),
    ]
    for size in (512, 4096):
        finer = example("background/background.toml")
        finer.engine.packet = size
        case.rows.append(
            Row(f"ring among it, seed 1, {size} B packets", "51.4 µs", format_time(elapsed(finer)))
        )
    everything = load_scenario(EXAMPLES / "background/background.toml")
    everything.job[1].observed = True
    full_view = simulate(everything)
    case.drawings = [
        Drawing("background-own", "the ring's packets alone", run),
        Drawing("background-all", "the administrator's view", full_view),
    ]
    return case


def pf3d() -> Found:
    """Taffet and Mellor-Crummey (2019): 2-D FFTs of planes on 4 nodes among heavy background."""
    said, run, _ = diagnose("pf3d/pf3d.toml", "other-traffic")
    scenario = example("pf3d/pf3d.toml")
    alone_run = simulate(scenario.model_copy(update={"job": scenario.job[:1]}))
    shifted_run = simulate(load_scenario(EXAMPLES / "pf3d/shifted.toml"))
    alone, before, after = alone_run.elapsed_ps, run.elapsed_ps, shifted_run.elapsed_ps
    truth = run.tables["truth"].group_by("link").agg(pl.col("observed_packets").sum())
    between = truth.join(run.tables["links"], on="link").filter(
        (pl.col("tier") > 0) & (pl.col("observed_packets") > 0)
    )
    packet = run.scenario.engine.packet
    gbps = float(between["observed_packets"].mean()) * packet * 8000 / before
    case = Found("pf3d", answers=[said])
    case.rows = [
        Row("alone", "24.6 s", format_time(alone)),
        Row("with background", "30.4 s", format_time(before)),
        Row("slow-down by the background", "+23.6 %", percent(before / alone - 1, 1, "+")),
        Row("with background, shifted", "25.5 s", format_time(after)),
        Row("shifted over alone", "+3.7 %", percent(after / alone - 1, 1, "+")),
        Row("shifted instead of default", "−16.1 %", percent(after / before - 1, 1, "+")),
        Row("our load on a link between switches that we use", "2.0 Gb/s", f"{gbps:.1f} Gb/s"),
    ]
    for size in ("128 KiB", "8 MiB"):
        other = example("pf3d/pf3d.toml")
        assert other.job[1].pattern is not None
        other.job[1].pattern.update(size=size, messages=130 if size == "128 KiB" else 2)
        slow = elapsed(other) / alone - 1
        case.rows.append(
            Row(f"slow-down with background messages of {size}", "–", percent(slow, 1, "+"))
        )
    case.drawings = [
        Drawing("pf3d-default", "default numbering, own packets", run, pods=1),
        Drawing("pf3d-shifted", "shifted by two nodes, own packets", shifted_run, pods=1),
    ]
    return case


CASES: dict[str, Callable[[], Found]] = {
    "stencil2d": stencil2d,
    "reduction": reduction,
    "background": background,
    "minighost": minighost,
    "pf3d": pf3d,
}


def section(case: Found) -> str:
    """One case in Markdown: its table and what the diagnosis says."""
    lines = ["| quantity | theirs | ours |", "|---|---|---|"]
    lines += [f"| {row.quantity} | {row.theirs} | {row.ours} |" for row in case.rows]
    for said in case.answers:
        right = "right" if said.cause == said.expected else f"expected {said.expected}"
        lines += [
            "",
            f"`{said.command}` ({said.seconds:.0f} s) says **{said.cause}** ({right}):",
            "",
            f"* {said.headline}",
            *(f"* {text}" for text in said.findings),
            f"* remedy: {said.remedy}",
            *(f"* note: {text}" for text in said.warnings),
        ]
    lines += ["", f"The whole case: {case.seconds:.0f} s of processor time."]
    return "\n".join(lines)


def main() -> None:
    """Print the tables; write the page and figures on request."""
    run_parts(
        __doc__,
        "case",
        CASES,
        page=PAGE,
        section=section,
        draw=lambda case: write_figures(case.drawings, FIGURES),
        facts=lambda case: {
            "rows": [asdict(row) for row in case.rows],
            "answers": [asdict(said) for said in case.answers],
        },
    )


if __name__ == "__main__":
    main()
