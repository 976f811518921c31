"""Every link of the published simulator of Taffet (2019) beside ours.

    python -m studies.conformance.published_links --codes PROGRAM --write

README.md of the study has the steps that build the program. It prints a line for each chunk at each
switch, with whether the port was congested. Its links are also drawn as ours are.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from measuring import put
from studies.conformance.compare import HERE, README, TIERS
from studies.conformance.traffic import NODES, in_ring
from studies.taffet2019.case_figures import Drawing, write_figures
from studies.taffet2019.telemetry_figures import shown_run
from tailback import Run, load_scenario, simulate

EXAMPLES: Final = HERE.parents[1] / "examples"
SWITCHES, PORTS = 288, 48
CHUNK_BYTES: Final = 512
CONFIGURATION: Final = f"""
LPGROUPS {{ MODELNET_GRP {{
  repetitions="144"; server="32"; modelnet_fattree="32"; fattree_switch="3"; }} }}
PARAMS {{
  ft_type="0"; packet_size="512"; message_size="512"; chunk_size="{CHUNK_BYTES}";
  modelnet_scheduler="fcfs"; modelnet_order=( "fattree" ); num_levels="3"; tapering="2";
  switch_count="144"; switch_radix="48"; router_delay="60"; soft_delay="1000";
  vc_size="65536"; cn_vc_size="65536"; link_bandwidth="12.5"; cn_bandwidth="12.5";
  routing="adaptive"; res_sample_freq="-1"; }}
"""
"""The tapered network; other values as in the public configuration of the full one."""


ALL, OWN = 0, 1
"""Packets of everybody, and of the nodes of the ring."""


@dataclass(frozen=True)
class Case:
    """Traffic of the published simulator, by its options, and our scenarios of it.

    ``pictures`` has the file of each picture, its title, and whose packets it shows.
    """

    name: str
    traffic: int
    messages: int
    example: str
    pictures: tuple[tuple[str, str, int], ...]


CASES: Final = (
    Case(
        "row-major",
        5,
        4,
        "stencil2d/stencil2d.toml",
        (("row-major-published", "Figure 4.1 by the published simulator", ALL),),
    ),
    Case(
        "both",
        6,
        3,
        "background/background.toml",
        (
            ("background-own-published", "Figure 4.16 by the published simulator", OWN),
            ("background-all-published", "Figure 4.17 by the published simulator", ALL),
        ),
    ),
)


def published_counts(program: str, case: Case) -> NDArray[np.int64]:
    """Chunks, and chunks that found congestion, by switch and port: shape (2, 2, 288, 48).

    The first axis is of everybody's packets and of those that nodes of the ring sent.
    """
    counts = np.zeros((2, 2, SWITCHES, PORTS), np.int64)
    ring = [in_ring(node) for node in range(NODES)]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "network.conf").write_text(CONFIGURATION)
        options = [f"--traffic={case.traffic}", f"--num_messages={case.messages}"]
        words = [program, "--sync=1", *options, "--load=1", "--end=1e6", "--", "network.conf"]
        with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            for line in running.stdout:
                fields = line.split(b",", 12)
                # Lines of adapters have a negative number in the place of the switch.
                if fields[0] == b"Packet" and fields[1][:1] != b"-":
                    switch, port = int(fields[1]), int(fields[2])
                    for view in (ALL, OWN)[: 1 + ring[int(fields[11])]]:
                        counts[view, 0, switch, port] += 1
                        counts[view, 1, switch, port] += fields[6] == b"1"
    return counts


def switch_links(run: Run) -> pl.DataFrame:
    """Links from switches to anything."""
    return run.tables["links"].filter(~pl.col("src_name").str.starts_with("n"))


def switch_ports(links: pl.DataFrame) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Switch and port of each link, as the published simulator numbers them."""
    switch = links["src_name"].str.extract(r"(\d+)$").cast(pl.Int64).to_numpy()
    return switch, links["src_port"].cast(pl.Int64).to_numpy() - 1


def our_counts(run: Run) -> NDArray[np.int64]:
    """Packets, and packets that found congestion, of a run of ours."""
    counts = np.zeros((2, SWITCHES, PORTS), np.int64)
    truth = run.tables["truth"].group_by("link").agg(pl.col("packets", "congested_packets").sum())
    rows = switch_links(run).join(truth, on="link")
    for number, column in enumerate(("packets", "congested_packets")):
        counts[number][switch_ports(rows)] = rows[column].to_numpy()
    return counts


def ports_of(run: Run, tier: str) -> NDArray[np.bool_]:
    """Ports of a tier, shape (288, 48)."""
    direction, number = TIERS[tier]
    mine = pl.col("direction") == direction, pl.col("tier") == number
    ports = np.zeros((SWITCHES, PORTS), bool)
    ports[switch_ports(run.tables["links"].filter(*mine))] = True
    return ports


def drawings(run: Run, theirs: NDArray[np.int64], case: Case) -> list[Drawing]:
    """Their links on our fabric."""
    links = switch_links(run)
    out = []
    for stem, title, view in case.pictures:
        by_link = np.zeros((2, len(run.tables["links"])))
        by_link[:, links["link"].to_numpy()] = theirs[view][:, *switch_ports(links)]
        out.append(Drawing(stem, title, shown_run(run, *by_link)))
    return out


def correlation(
    theirs: NDArray[np.int64], ours: NDArray[np.int64], ports: NDArray[np.bool_]
) -> tuple[int, float, float]:
    """Links that both use, and the correlations of their congested fractions and packets."""
    used = ports & (theirs[0] > 0) & (ours[0] > 0)
    fractions = [counts[1][used] / counts[0][used] for counts in (theirs, ours)]
    packets = [counts[0][ports] for counts in (theirs, ours)]
    return int(used.sum()), _pearson(*fractions), _pearson(*packets)


def _pearson(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return float(np.corrcoef(a, b)[0, 1]) if a.std() > 0 < b.std() else float("nan")


HEAD: Final = (
    "| case | links | number | r of congested fractions | r of packets "
    "| the example's: r of congested fractions | r of packets |"
)


def rows(case: Case, ours: Run, theirs: NDArray[np.int64]) -> list[str]:
    """Rows of a case in Markdown."""
    example = simulate(load_scenario(EXAMPLES / case.example))
    lines = []
    for tier in TIERS:
        ports = ports_of(ours, tier)
        number, *ours_r = correlation(theirs, our_counts(ours), ports)
        _, *example_r = correlation(theirs, our_counts(example), ports)
        numbers = " | ".join("–" if np.isnan(r) else f"{r:.3f}" for r in (*ours_r, *example_r))
        lines.append(f"| `{case.name}` | {tier} | {number:,} | {numbers} |")
    return lines


def main() -> None:
    """Print the table; write it on request."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--codes", required=True, help="model-net-synthetic-fattree")
    parser.add_argument("--write", action="store_true", help="update README.md of the study")
    arguments = parser.parse_args()
    lines = [HEAD, "|---" * 7 + "|"]
    shown = []
    for case in CASES:
        theirs = published_counts(arguments.codes, case)
        ours = simulate(load_scenario(HERE / f"{case.name}.toml"))
        lines += rows(case, ours, theirs[ALL])
        shown += drawings(ours, theirs, case)
    print("\n".join(lines))
    if arguments.write:
        write_figures(shown, HERE / "figures")
        put(README, {"published links": "\n".join(lines)})


if __name__ == "__main__":
    main()
