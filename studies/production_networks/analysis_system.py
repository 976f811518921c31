"""The storage and analysis systems of Yellowstone: which traffic stalls their ports as often?

    python -m studies.production_networks.analysis_system             draws, tests
    python -m studies.production_networks.analysis_system --write     also its part of the page

Alali et al. (2017), section IV-B: each DAVLeaf switch is joined to one GladeLeaf switch by six
cables, which are downlinks of both; DAVSpines join the DAVLeaves, GladeSpines the GladeLeaves.
Loads and rates of receivers are drawn from wide priors, as in :mod:`.inference`, and the draws are
kept whose shares of ports with a stall are nearest to the published shares of rounds. Then one
mechanism at a time is added to the nearest draw with servers at line rate: which of them stalls
the ports of storage leaves down?
"""

from __future__ import annotations

import argparse
import csv
import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from measuring import cpu_seconds, put
from studies.baselines import baseline_table
from studies.production_networks.compare import PAGE
from studies.production_networks.job_mixes import LINE_GBPS, MOST
from studies.production_networks.simulated import percent
from studies.production_networks.yellowstone import ROUNDS
from tailback import load_scenario, simulate

LEAVES, GLADE_SPINES, DAV_CABLES = 4, 6, 6
"""GladeLeaves and as many DAVLeaves; GladeSpines; cables between two leaves (Figure 3, IV-B)."""
DOWN, DAV_SPINES = 18, 3
"""Ports down of a leaf, and as many up, of 36: their Table I has as many rounds of both, on Glade
and on DAV leaves. The number of DAVSpines is not published."""
SERVERS = HOSTS = DOWN - DAV_CABLES
"""Servers, and analysis hosts, of a leaf: the ports down that do not join the two systems."""
DURATION: Final = "1500 us"
DRAWS: Final = 200
KEPT: Final = 10
NEAR: Final = 0.1
"""Difference of a share that counts as agreement."""
SLOWEST_GBPS: Final = 6.75
"""Slowest receiver that is drawn."""
LINE_SHARE: Final = 1 / 6
"""Share of the draws with receivers of one kind at line rate; the others are slower."""

PUBLISHED: Final = {
    ("DAVSpine", "down"): (1422, 565),
    ("DAVLeaf", "down"): (1192, 550),
    ("DAVLeaf", "up"): (1133, 959),
    **{
        kind: ROUNDS[kind]
        for kind in (("GladeSpine", "down"), ("GladeLeaf", "down"), ("GladeLeaf", "up"))
    },
}
"""Rounds of each class (their Table I), and rounds with a stall (their Table II)."""
SHARES: Final = np.array([stalled / rounds for rounds, stalled in PUBLISHED.values()])


@dataclass(frozen=True)
class Use:
    """One drawn use of both systems.

    Attributes:
        files: Load of each analysis host on the servers, share of its link.
        reads: Share of those messages that are reads.
        copies: Load of each server, of copies between file systems.
        jobs: Load of each analysis host on the others.
        drain: Rate at which analysis hosts take data, Gb/s.
        servers: Rate at which slow servers take data, Gb/s.
        slow: Share of such servers; the others take data at line rate.
        block: Bytes of a message of the files; not drawn.
        busy: Servers of a leaf that files are on; not drawn.
    """

    files: float
    reads: float
    copies: float
    jobs: float
    drain: float
    servers: float
    slow: float = 1.0
    block: int = 512 * 1024
    busy: int = SERVERS


DRAWN: Final = ("files", "reads", "copies", "jobs", "drain", "servers", "slow")


def draw_uses(count: int, seed: int = 1) -> list[Use]:
    """Uses from the priors; the first takes everything at line rate."""
    random = np.random.default_rng([seed, 0xDA])

    def log_uniform(low: float, high: float) -> float:
        return float(np.exp(random.uniform(np.log(low), np.log(high))))

    def rate() -> float:
        at_line = random.random() < LINE_SHARE
        return LINE_GBPS if at_line else float(random.uniform(SLOWEST_GBPS, LINE_GBPS))

    drawn = [
        Use(
            log_uniform(0.01, 0.5),
            float(random.uniform(0.1, 0.9)),
            log_uniform(0.01, 0.8),
            log_uniform(0.005, 0.5),
            rate(),
            rate(),
            float(random.uniform(0.1, 1.0)),
        )
        for _ in range(count)
    ]
    return [replace(drawn[0], drain=LINE_GBPS, servers=LINE_GBPS), *drawn[1:]]


def cables() -> Iterator[tuple[str, str]]:
    """Cables between switches."""
    for leaf in range(LEAVES):
        for spine, _ in itertools.product(range(GLADE_SPINES), range(DOWN // GLADE_SPINES)):
            yield f"glade-leaf{leaf}", f"glade-spine{spine}"
        for spine, _ in itertools.product(range(DAV_SPINES), range(DOWN // DAV_SPINES)):
            yield f"dav-leaf{leaf}", f"dav-spine{spine}"
        for _ in range(DAV_CABLES):
            yield f"glade-leaf{leaf}", f"dav-leaf{leaf}"


def write_fabric(path: Path, use: Use) -> None:
    """Both systems as an edge list, with an adapter between each node and its cable.

    An adapter is a switch of two ports that hands data to its node at the node's rate. Hosts are
    numbered leaf by leaf, analysis hosts first.
    """
    nodes = [
        (f"dav{leaf}-{n:02d}", f"dav-leaf{leaf}", use.drain)
        for leaf in range(LEAVES)
        for n in range(HOSTS)
    ]
    count = LEAVES * SERVERS
    slow = set(np.random.default_rng(0x5E).permutation(count)[: round(use.slow * count)].tolist())
    nodes += [
        (
            f"nsd{leaf}-{n}",
            f"glade-leaf{leaf}",
            use.servers if leaf * SERVERS + n in slow else LINE_GBPS,
        )
        for leaf in range(LEAVES)
        for n in range(SERVERS)
    ]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["src", "dst", "rate_gbps", "src_kind", "dst_kind"])
        for name, leaf, rate in nodes:
            adapter = f"adapter-{name}"
            writer.writerow([name, adapter, LINE_GBPS, "host", "switch"])
            writer.writerow([adapter, name, rate, "switch", "host"])
            for ends in ((adapter, leaf), (leaf, adapter)):
                writer.writerow([*ends, LINE_GBPS, "switch", "switch"])
        for end, other in cables():
            for ends in ((end, other), (other, end)):
                writer.writerow([*ends, LINE_GBPS, "switch", "switch"])


def scenario(fabric: Path, use: Use, **engine: Any) -> dict[str, Any]:
    """The traffic of a use: files of the analysis hosts, copies, and their own jobs."""
    analysis, servers = range(LEAVES * HOSTS), range(LEAVES * HOSTS, LEAVES * (HOSTS + SERVERS))
    with_files = [node for node in servers if (node - servers[0]) % SERVERS < use.busy]

    def paced(name: str, hosts: list[int], **options: Any) -> dict[str, Any]:
        pattern = {
            "kind": "paced",
            "ranks": len(hosts),
            "duration": DURATION,
            "line_rate": f"{LINE_GBPS} Gb/s",
            "stream": name,
            **options,
        }
        return {
            "name": name,
            "hosts": ",".join(map(str, hosts)),
            "pattern": pattern,
            "shared_hosts": True,
        }

    return {
        "name": "analysis-system",
        "seed": 1,
        "fabric": {"file": str(fabric)},
        "job": [
            paced(
                "files",
                [*analysis, *with_files],
                servers=len(with_files),
                size=f"{use.block} B",
                load=use.files,
                reads=use.reads,
            ),
            paced("copies", [*servers], size="1 MiB", load=use.copies),
            paced("analysis", [*analysis], size="128 KiB", load=use.jobs),
        ],
        "engine": {"routing": "deterministic", "packet": "2 KiB", "header": "38 B", **engine},
        "telemetry": {"windows": 8, "messages": False, "scheme": "full", "one_in": 64},
    }


@dataclass(frozen=True)
class Stalls:
    """What a use does.

    Attributes:
        shares: Share of ports with a stall by class, in the order of ``PUBLISHED``.
        typical: Median stall fraction of the ports with a stall.
        ends: Share of the ports of storage leaves down with a stall: to servers, to analysis.
    """

    shares: NDArray[np.float64]
    typical: float
    ends: tuple[float, float]

    def distance(self) -> float:
        """Root-mean-square difference of the shares; uses that stall too long come last."""
        rms = float(np.sqrt(((self.shares - SHARES) ** 2).mean()))
        return rms if self.typical <= MOST else rms + 1.0


def stalls(use: Use, **engine: Any) -> Stalls:
    """Simulate a use."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fabric.csv"
        write_fabric(path, use)
        run = simulate(load_scenario(scenario(path, use, **engine)))
    total = run.tables["truth"].group_by("link").agg(stall=pl.col("stall_ps").sum())
    links = run.tables["links"].join(total, on="link", how="left").fill_null(0)
    src, dst = links["src_name"].to_list(), links["dst_name"].to_list()
    classes = [_class_of(*ends) for ends in zip(src, dst, strict=True)]
    time = links["stall"].to_numpy() / run.elapsed_ps
    shares = []
    for wanted in PUBLISHED:
        mine = time[[kind == wanted for kind in classes]]
        shares.append(float((mine > 0).mean()))
    seen = time[[kind is not None for kind in classes]]
    down = zip(src, dst, strict=True)
    toward = np.array([d[:4] if s.startswith("glade-leaf") else "" for s, d in down])
    ends = [float((time[toward == start] > 0).mean()) for start in ("adap", "dav-")]
    typical = float(np.median(seen[seen > 0])) if seen.any() else 0.0
    return Stalls(np.array(shares), typical, (ends[0], ends[1]))


def _class_of(src: str, dst: str) -> tuple[str, str] | None:
    """Category of a switch port and its direction, as the study classifies them."""
    for name, category in (("glade-leaf", "GladeLeaf"), ("dav-leaf", "DAVLeaf")):
        if src.startswith(name):
            return category, "up" if "-spine" in dst else "down"
    for name, category in (("glade-spine", "GladeSpine"), ("dav-spine", "DAVSpine")):
        if src.startswith(name):
            return category, "down"
    return None


def changes(use: Use) -> dict[str, tuple[Use, dict[str, Any]]]:
    """The nearest use, and each cause taken away alone."""
    return {
        "the nearest draw": (use, {}),
        "analysis hosts take data at line rate": (replace(use, drain=LINE_GBPS), {}),
        "servers take data at line rate": (replace(use, servers=LINE_GBPS), {}),
        "both": (replace(use, drain=LINE_GBPS, servers=LINE_GBPS), {}),
        "no copies between servers": (replace(use, copies=1e-4), {}),
        "analysis hosts use no files": (replace(use, files=1e-4), {}),
        "they do not send to one another": (replace(use, jobs=1e-4), {}),
        "adaptive routing": (use, {"routing": "adaptive"}),
    }


def mechanisms(use: Use) -> dict[str, Use]:
    """Servers at line rate, and what may stall the ports towards them, each alone."""
    line = replace(use, servers=LINE_GBPS)
    slower = {
        f"servers take {rate:g} Gb/s": replace(line, servers=rate, slow=1.0)
        for rate in (52.0, 45.0, 27.0)
    }
    slower |= {
        f"{word} of the servers take 27 Gb/s": replace(line, servers=27.0, slow=share)
        for word, share in (("a quarter", 0.25), ("half", 0.5))
    }
    reads = {
        f"{percent(100 * share)} of the file messages are reads": replace(line, reads=share)
        for share in (0.1, 0.9)
    }
    return {
        "servers at line rate": line,
        **slower,
        **reads,
        "fan-in: files on one server of each leaf": replace(line, busy=1),
        "bursts: file messages of 4 MiB": replace(line, block=4 * 1024**2),
        "four times the file load": replace(line, files=4 * line.files),
        "a fifth more copies": replace(line, copies=1.2 * line.copies),
    }


GLADE_DOWN: Final = list(PUBLISHED).index(("GladeLeaf", "down"))


def mechanism_rows(tried: dict[str, Stalls]) -> list[str]:
    """Ports of storage leaves down after each mechanism, and the other classes' fit."""
    others = np.arange(len(PUBLISHED)) != GLADE_DOWN
    lines = [
        "| one mechanism | GladeLeaf down | … to servers | … to analysis | difference of the other "
        "classes |",
        "|---" * 5 + "|",
        f"| theirs | {percent(100 * SHARES[GLADE_DOWN])} | – | – | – |",
    ]
    for name, outcome in tried.items():
        rms = float(np.sqrt(((outcome.shares - SHARES)[others] ** 2).mean()))
        cells = [percent(100 * share) for share in (outcome.shares[GLADE_DOWN], *outcome.ends)]
        lines.append(f"| {name} | {' | '.join(cells)} | {rms:.2f} |")
    return lines


def findings(changed: dict[str, Stalls], tried: dict[str, Stalls]) -> list[str]:
    """What the changes and the mechanisms show, in words that follow from them."""
    base, *others = changed
    out = []
    for number, (category, way) in enumerate(PUBLISHED):
        share = changed[base].shares[number]
        after = [
            f"{name} ({percent(100 * changed[name].shares[number])})"
            for name in others
            if share > 0 and changed[name].shares[number] <= share / 2
        ]
        out.append(
            f"* **{category} {way}**, {percent(100 * SHARES[number])} in theirs and "
            f"{percent(100 * share)} here: at most half as many if {' or '.join(after)}."
            if after
            else f"* **{category} {way}**: no single change halves it."
        )
    least = SHARES[GLADE_DOWN] - NEAR
    reach = [
        f"{name} ({percent(100 * outcome.shares[GLADE_DOWN])})"
        for name, outcome in tried.items()
        if outcome.shares[GLADE_DOWN] >= least
    ]
    fewer = [name for name, outcome in tried.items() if outcome.shares[GLADE_DOWN] < least]
    out.append(
        "* **Which mechanism stalls GladeLeaf ports down?** As many as in theirs, less at most "
        f"{100 * NEAR:.0f} points, or more: {', '.join(reach) or 'none of those tried'}. Fewer: "
        f"{', '.join(fewer) or 'none'}."
    )
    return out


HEAD: Final = " | ".join(f"{category} {way}" for category, way in PUBLISHED)
RULE: Final = "|---" * (1 + len(PUBLISHED)) + "|"


def line(name: str, shares: NDArray[np.float64]) -> str:
    """One row of shares."""
    return f"| {name} | {' | '.join(percent(100 * share) for share in shares)} |"


def class_rows(draws: list[Stalls], kept: list[Stalls]) -> list[str]:
    """Published shares, and those of all draws and of the kept ones."""
    lines = [
        "| ports with a stall | theirs: rounds | all draws | all at line rate | kept | nearest |",
        "|---" * 6 + "|",
    ]
    for number, (category, way) in enumerate(PUBLISHED):
        every, near = ([outcome.shares[number] for outcome in group] for group in (draws, kept))
        cells = [percent(100 * SHARES[number])]
        cells += [f"{percent(100 * every[0])}", f"{percent(100 * near[0])}"]
        spreads = [
            f"{percent(100 * min(group))} – {percent(100 * max(group))}" for group in (every, near)
        ]
        lines.append(
            f"| {category} {way} | {cells[0]} | {spreads[0]} | {cells[1]} | {spreads[1]} "
            f"| {cells[2]} |"
        )
    return lines


def main() -> None:
    """Print the tables; write the page on request."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=DRAWS, help="uses to draw")
    parser.add_argument("--write", action="store_true", help="update README.md of the study")
    arguments = parser.parse_args()
    uses = draw_uses(arguments.draws)
    draws = [stalls(use) for use in uses]
    order = sorted(range(len(uses)), key=lambda n: draws[n].distance())[:KEPT]
    nearest = uses[order[0]]
    rows = [f"| one change | {HEAD} |", RULE]
    changed = {name: stalls(use, **engine) for name, (use, engine) in changes(nearest).items()}
    tried = {name: stalls(use) for name, use in mechanisms(nearest).items()}
    rows += [line(name, outcome.shares) for name, outcome in changed.items()]
    values = ", ".join(f"{name} {getattr(nearest, name):.3g}" for name in DRAWN)
    parts = {
        "analysis classes": "\n".join(class_rows(draws, [draws[n] for n in order])),
        "analysis changes": "\n".join(rows),
        "analysis mechanisms": "\n".join(mechanism_rows(tried)),
        "analysis baselines": baseline_table(
            np.array([outcome.shares for outcome in draws]),
            SHARES,
            np.array([outcome.typical <= MOST for outcome in draws]),
            len(order),
        )[0],
        "analysis findings": "\n".join(findings(changed, tried)),
        "analysis draws": (
            f"{len(uses)} draws, of which {len(order)} are kept: root-mean-square difference of "
            f"the {len(PUBLISHED)} shares {draws[order[0]].distance():.2f} to "
            f"{draws[order[-1]].distance():.2f} (median of all draws "
            f"{np.median([outcome.distance() for outcome in draws]):.2f}). The nearest: {values}. "
            f"{cpu_seconds():.0f} s of processor time."
        ),
    }
    for name, text in parts.items():
        print(f"\n{name}\n{text}", flush=True)
    if arguments.write:
        put(PAGE, parts)


if __name__ == "__main__":
    main()
