"""Every link of the published simulator of Taffet (2019) beside ours.

    python -m studies.conformance.published_links --codes PROGRAM --write

README.md of the study has the steps that build the program. It prints a line for each chunk at each
switch, with whether the port was congested.
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


@dataclass(frozen=True)
class Case:
    """Traffic of the published simulator, by its options, and our scenarios of it."""

    name: str
    traffic: int
    messages: int
    example: str


CASES: Final = (Case("row-major", 5, 4, "stencil2d/stencil2d.toml"),)


def published_counts(program: str, case: Case) -> NDArray[np.int64]:
    """Chunks, and chunks that found congestion, by switch and port: shape (2, 288, 48)."""
    counts = np.zeros((2, SWITCHES, PORTS), np.int64)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "network.conf").write_text(CONFIGURATION)
        options = [f"--traffic={case.traffic}", f"--num_messages={case.messages}"]
        words = [program, "--sync=1", *options, "--load=1", "--end=1e6", "--", "network.conf"]
        with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE) as running:
            assert running.stdout is not None
            for line in running.stdout:
                fields = line.split(b",", 7)
                # Lines of adapters have a negative number in the place of the switch.
                if fields[0] == b"Packet" and fields[1][:1] != b"-":
                    switch, port = int(fields[1]), int(fields[2])
                    counts[0, switch, port] += 1
                    counts[1, switch, port] += fields[6] == b"1"
    return counts


def our_counts(run: Run) -> NDArray[np.int64]:
    """Packets, and packets that found congestion, of a run of ours."""
    links = run.tables["links"].filter(~pl.col("src_name").str.starts_with("n"))
    counts = np.zeros((2, SWITCHES, PORTS), np.int64)
    truth = run.tables["truth"].group_by("link").agg(pl.col("packets", "congested_packets").sum())
    rows = links.join(truth, on="link")
    switch = rows["src_name"].str.extract(r"(\d+)$").cast(pl.Int64).to_numpy()
    port = rows["src_port"].cast(pl.Int64).to_numpy() - 1
    for number, column in enumerate(("packets", "congested_packets")):
        counts[number, switch, port] = rows[column].to_numpy()
    return counts


def ports_of(run: Run, tier: str) -> NDArray[np.bool_]:
    """Ports of a tier, shape (288, 48)."""
    direction, number = TIERS[tier]
    mine = run.tables["links"].filter(
        (pl.col("direction") == direction) & (pl.col("tier") == number)
    )
    ports = np.zeros((SWITCHES, PORTS), bool)
    switch = mine["src_name"].str.extract(r"(\d+)$").cast(pl.Int64).to_numpy()
    ports[switch, mine["src_port"].cast(pl.Int64).to_numpy() - 1] = True
    return ports


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


def rows(program: str, case: Case) -> list[str]:
    """Rows of a case in Markdown."""
    theirs = published_counts(program, case)
    ours = simulate(load_scenario(HERE / f"{case.name}.toml"))
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
    for case in CASES:
        lines += rows(arguments.codes, case)
    print("\n".join(lines))
    if arguments.write:
        put(README, {"published links": "\n".join(lines)})


if __name__ == "__main__":
    main()
