"""Which mix of jobs stalls ports as often as Yellowstone's? Simulation-based inference.

    python -m studies.production_networks.inference             draws, posterior, tests
    python -m studies.production_networks.inference --write     also its part of the page
    python -m studies.production_networks.inference --whole     the nearest draw on the full shape

Alali et al. (2017) publish how many rounds of each class of ports had a stall (their Tables I and
II) and say that most stalls take less than a tenth of an interval; they publish no traffic. Mixes
and rates of receivers are drawn from wide priors and simulated by ``tailback.sweep`` on a fabric of
Yellowstone's shape with a third of its ports a switch; draws whose shares of ports with a stall are
nearest to the published ones are kept (rejection, Beaumont et al., 2002), of those in which no node
is offered more than it takes.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import binomtest

from measuring import cpu_seconds, put
from studies.baselines import baseline_table
from studies.production_networks.job_mixes import (
    CLASSES,
    LINE_GBPS,
    LONG,
    MIXES,
    MOST,
    PRIORS,
    PUBLISHED,
    RECEIVERS,
    REDUCED,
    WHOLE,
    Draws,
    Mix,
    Receivers,
    draw_mixes,
    draw_receivers,
    one_run,
    shares,
    simulate_draws,
)
from studies.production_networks.simulated import percent
from tailback.units import format_bytes, parse_time_ps

PAGE: Final = Path(__file__).resolve().with_name("README.md")
SIGNIFICANT: Final = 0.05
Shares = NDArray[np.float64]


def changes(mix: Mix, kind: Receivers) -> dict[str, tuple[Mix, Receivers, dict[str, Any]]]:
    """The nearest draw, and each cause taken away alone."""
    line = LINE_GBPS
    return {
        "the nearest draw": (mix, kind, {}),
        "hosts take data at line rate": (mix, replace(kind, drain=line), {}),
        "servers take data at line rate": (mix, replace(kind, servers=line), {}),
        "both": (mix, replace(kind, drain=line, servers=line), {}),
        "no copies between servers": (replace(mix, copies=1e-4), kind, {}),
        "hardly any file traffic": (replace(mix, files=1e-4), kind, {}),
        "messages of jobs of 8 KiB: no bursts": (replace(mix, message=8192), kind, {}),
        "a tenth of the jobs' load": (replace(mix, load=mix.load / 10), kind, {}),
        "jobs of 4 hosts": (replace(mix, job_hosts=4), kind, {}),
        "one job": (replace(mix, job_hosts=120), kind, {}),
        "scattered jobs" if not mix.scattered else "neighbouring hosts": (
            replace(mix, scattered=not mix.scattered),
            kind,
            {},
        ),
        "adaptive routing": (mix, kind, {"routing": "adaptive"}),
    }


def posterior_rows(draws: Draws) -> list[str]:
    """Prior, and quantiles of what is kept, of every parameter."""
    kept = draws.parameters[draws.kept()]
    lines = ["| parameter | prior | kept: 5 % | median | 95 % |", "|---|---|---|---|---|"]
    units: dict[str, tuple[str, Callable[[float], str]]] = {
        "job_hosts": ("hosts of a job", lambda v: f"{v:.0f}"),
        "message": ("message of the jobs (burstiness)", lambda v: format_bytes(round(v))),
        "load": ("load of the jobs", lambda v: percent(100 * v)),
        "files": ("load of a file client", lambda v: percent(100 * v)),
        "reads": ("reads among file messages", lambda v: percent(100 * v)),
        "copies": ("copies: load of a server", lambda v: percent(100 * v)),
        "active": ("jobs that communicate", lambda v: percent(100 * v)),
        "drain": ("rate of slow hosts", lambda v: f"{v:g} Gb/s"),
        "slow": ("slow hosts", lambda v: percent(100 * v)),
        "servers": ("rate of servers", lambda v: f"{v:g} Gb/s"),
    }
    for name, (words, form) in units.items():
        low, middle, high = (
            form(float(kept[name].quantile(q, "nearest") or 0.0)) for q in (0.05, 0.5, 0.95)
        )
        lines.append(f"| {words} | {PRIORS[name]} | {low} | {middle} | {high} |")
    anywhere = percent(100 * float(kept["scattered"].mean() or 0.0))  # type: ignore[arg-type]
    lines.append(f"| scattered jobs | {PRIORS['scattered']} | – | {anywhere} of the draws | – |")
    return lines


def stalled_rows(category: str, way: str, run: pl.DataFrame) -> str:
    """Median and largest stall fraction of the stalled ports of a class."""
    mine = run.filter(
        (pl.col("category") == category) & (pl.col("port_type") == way) & (pl.col("total") > 0)
    )
    if not mine.height:
        return "–"
    fraction = (mine["total"] / mine["length_ps"]).to_numpy()
    return f"{percent(100 * float(np.median(fraction)))}, {percent(100 * float(fraction.max()))}"


def whole_rows(mix: Mix, kind: Receivers, length: str) -> list[str]:
    """Shares of the nearest draw on the reduced fabric and on the full shape, for one interval."""
    plants, runs, seconds = (REDUCED, WHOLE), [], []
    for plant in plants:
        before = cpu_seconds()
        runs.append(one_run(mix, kind, length, plant))
        seconds.append(cpu_seconds() - before)
    simulated = [shares(run, 1)[0] for run in runs]
    heads = [f"{plant.hosts:,} hosts, {plant.servers} servers" for plant in plants]
    lines = [
        f"| ports with a stall in {length} | theirs: rounds | {' | '.join(heads)} "
        "| … its median stall fraction | … its largest |",
        "|---" * 6 + "|",
    ]
    for number, (category, way) in enumerate(CLASSES):
        cells = [
            percent(100 * share) for share in (PUBLISHED[number], *(s[number] for s in simulated))
        ]
        cells += (stalled_rows(category, way, runs[1]) + ", –").split(", ")[:2]
        lines.append(f"| {category} {way} | {' | '.join(cells)} |")
    spent = " and ".join(f"{value:.0f} s" for value in seconds)
    text = f"Processor time of the two runs: {spent}."
    longer = parse_time_ps(LONG) / parse_time_ps(length)
    if longer > 1:
        text += f" At that rate {LONG} of the full shape would take {seconds[1] * longer:.0f} s."
    return [*lines, "", text]


def told_nearest() -> tuple[Mix, Receivers]:
    """The nearest draw, as the page tells it.

    Raises:
        SystemExit: The page tells of another draw than those of these priors.
    """
    text = PAGE.read_text(encoding="utf-8")
    for mix, kind in itertools.product(draw_mixes(MIXES), draw_receivers(RECEIVERS)):
        if f"The nearest: {mix}, {kind}." in text:
            return mix, kind
    raise SystemExit(f"{PAGE.name} names none of the draws: run without --whole first")


def class_rows(draws: Draws, long: pl.DataFrame) -> list[str]:
    """Published shares, and those of all draws, of what is kept and of an interval of 100 ms."""
    kept, quiet = draws.kept(), at_line_rate(draws)
    table = shares(long, 1)[0]
    lines = [
        "| ports with a stall | theirs: rounds | all draws | receivers at line rate: most "
        "| kept: 5 – 95 % | nearest | … for 100 ms | median, largest stall fraction in them |",
        "|---" * 8 + "|",
    ]
    for number, (category, kind) in enumerate(CLASSES):
        drawn = draws.shares[:, number]
        low, high = np.quantile(drawn[kept], (0.05, 0.95))
        lines.append(
            f"| {category} {kind} | {percent(100 * PUBLISHED[number])} "
            f"| {percent(100 * drawn.min())} – {percent(100 * drawn.max())} "
            f"| {percent(100 * drawn[quiet].max())} | {percent(100 * low)} – {percent(100 * high)} "
            f"| {percent(100 * drawn[kept[0]])} | {percent(100 * table[number])} "
            f"| {stalled_rows(category, kind, long)} |"
        )
    return lines


def change_rows(changed: dict[str, Shares]) -> list[str]:
    """Shares of ports with a stall after each change of the nearest draw."""
    heads = [f"{category} {way}" for category, way in CLASSES]
    lines = [f"| one change | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    return lines + [
        f"| {name} | {' | '.join(percent(100 * share) for share in values)} |"
        for name, values in changed.items()
    ]


def at_line_rate(draws: Draws) -> NDArray[np.bool_]:
    """Draws whose receivers all take data at line rate, shape (draws,)."""
    rates = (draws.parameters[name].to_numpy() == LINE_GBPS for name in ("drain", "servers"))
    return np.logical_and(*rates)


def falls(changed: dict[str, Shares], name: str) -> tuple[list[str], list[str]]:
    """Classes of the nearest draw whose share one change at least halves, and the others.

    A class without any stall in the draw can fall no further and is among the others.
    """
    before, after = changed["the nearest draw"], changed[name]
    fallen, others = [], []
    for number, (category, way) in enumerate(CLASSES):
        text = f"{category} {way} {percent(100 * before[number])} → {percent(100 * after[number])}"
        halved = before[number] > 0 and after[number] <= before[number] / 2
        (fallen if halved else others).append(text)
    return fallen, others


def compare_with_all(fits: pl.DataFrame, every: pl.DataFrame, name: str) -> str:
    """How often receivers are slower than the line: kept draws against all that last."""
    slow = [table[name].to_numpy() < LINE_GBPS for table in (fits, every)]
    usual = float(slow[1].mean())
    chance = binomtest(int(slow[0].sum()), len(slow[0]), usual).pvalue if 0 < usual < 1 else 1.0
    verdict = "determined" if chance < SIGNIFICANT else "not determined"
    return (
        f"{percent(100 * float(slow[0].mean()))} of the kept draws, {percent(100 * usual)} of all "
        f"that last (p = {chance:.2g}): {verdict}"
    )


def findings(draws: Draws, changed: dict[str, Shares]) -> list[str]:
    """What the draws and the changes of the nearest one show, in words that follow from them."""
    kept, at = draws.kept(), CLASSES.index(("ToR", "down"))
    near, without = changed["the nearest draw"][at], changed["hosts take data at line rate"][at]
    most = float(draws.shares[at_line_rate(draws), at].max())
    slow = "slow hosts explain them" if without <= near / 4 else "slow hosts do not explain them"
    out = [
        f"* **ToR ports towards hosts**: {slow}. In the nearest draw {percent(100 * near)} of them "
        f"stall; {percent(100 * without)} if its hosts take data at line rate. In the draws with "
        f"all receivers at line rate at most {percent(100 * most)} of them stall."
    ]
    for name in ("hosts take data at line rate", "servers take data at line rate"):
        fallen, others = falls(changed, name)
        out.append(
            f"* **If {name}**, at most half as many ports stall of: {', '.join(fallen) or 'none'}. "
            f"Of the others: {', '.join(others) or 'none'}."
        )
    outside = []
    for number, (category, way) in enumerate(CLASSES):
        low, high = np.quantile(draws.shares[kept, number], (0.05, 0.95))
        if not low <= PUBLISHED[number] <= high:
            outside.append(
                f"{category} {way}, {percent(100 * PUBLISHED[number])} for "
                f"{percent(100 * low)} – {percent(100 * high)}"
            )
    out.append(f"* **Outside the range of the kept draws**: {'; '.join(outside) or 'none'}.")
    fits, every = draws.parameters[kept], draws.parameters.filter(pl.Series(draws.lasting))
    narrow = [
        name
        for name in ("message", "load", "files", "reads", "copies", "active", "slow")
        if spread(fits, name) < spread(every, name) / 2
    ]
    for words, name in (("slow hosts", "drain"), ("slow servers", "servers")):
        out.append(f"* **{words.capitalize()}**: in {compare_with_all(fits, every, name)}.")
    out.append(
        "* **Other parameters** whose kept range is less than half that of all lasting draws: "
        f"{', '.join(narrow) or 'none'}."
    )
    quiet = draws.typical <= MOST
    out.append(
        f"* **Stalled ports stall for less than {percent(100 * MOST)} of the time** (median) in "
        f"{percent(100 * float(quiet[draws.lasting].mean()))} of all lasting draws: a condition on "
        "the kept ones, and no result."
    )
    return out


def spread(table: pl.DataFrame, name: str) -> float:
    """Distance of the 5 % and the 95 % quantile of a parameter."""
    low, high = np.quantile(table[name].to_numpy().astype(np.float64), (0.05, 0.95))
    return float(high - low)


def main() -> None:
    """Print the tables; write the page on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--receivers", type=int, default=RECEIVERS, help="kinds to draw")
    parser.add_argument("--mixes", type=int, default=MIXES, help="mixes to draw")
    parser.add_argument("--write", action="store_true", help="update README.md of the study")
    parser.add_argument(
        "--whole", action="store_true", help="only the nearest draw of the page, on the full shape"
    )
    parser.add_argument("--length", default=LONG, help="how long --whole runs")
    arguments = parser.parse_args()
    if arguments.whole:
        table = "\n".join(whole_rows(*told_nearest(), arguments.length))
        print(table)
        if arguments.write:
            put(PAGE, {"inference whole": table})
        return
    mixes, kinds = draw_mixes(arguments.mixes), draw_receivers(arguments.receivers)
    with tempfile.TemporaryDirectory() as folder:
        draws = simulate_draws(mixes, kinds, Path(folder))
    nearest = int(draws.kept()[0])
    mix, kind = mixes[nearest % len(mixes)], kinds[nearest // len(mixes)]
    long = one_run(mix, kind, LONG)
    kept = draws.kept()
    rms = draws.distance()[kept]
    changed = {
        name: shares(one_run(other, receivers, **engine), 1)[0]
        for name, (other, receivers, engine) in changes(mix, kind).items()
    }
    parts = {
        "inference parameters": "\n".join(posterior_rows(draws)),
        "inference classes": "\n".join(class_rows(draws, long)),
        "inference changes": "\n".join(change_rows(changed)),
        "inference findings": "\n".join(findings(draws, changed)),
        "inference baselines": baseline_table(
            draws.shares, PUBLISHED, draws.lasting & (draws.typical <= MOST), len(kept)
        )[0],
        "inference draws": (
            f"{len(draws.typical)} draws, in {draws.lasting.sum()} of which no node is offered "
            f"more than it takes; of these {len(kept)} are kept: root-mean-square difference of "
            f"the {len(CLASSES)} shares {rms[0]:.2f} to {rms[-1]:.2f} (median of all that last "
            f"{np.median(draws.distance()[draws.lasting]):.2f}). The nearest: {mix}, {kind}."
        ),
    }
    parts["inference draws"] += f" {cpu_seconds():.0f} s of processor time."
    for name, text in parts.items():
        print(f"\n{name}\n{text}", flush=True)
    if arguments.write:
        put(PAGE, parts)


if __name__ == "__main__":
    main()
