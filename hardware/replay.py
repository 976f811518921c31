"""Replays packets of the engine through the switch port: `python hardware/replay.py [--packets N]`.

The engine records which header arrives, not what happened on the way. To obtain the exact path, the
same traffic runs once for each switch, with only that switch stamping full reservoirs: a packet
crosses a switch at most once, so the reservoir then holds the link by which it left and whether the
link was congested. Runs with other schemes carry the same packets at the same times; the port must
produce the headers of these runs, decision by decision. Compiled schemes draw the same random words
as the engine.

Needs verilator (`--simulator verilator`, for millions of packets) or iverilog.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import simulate

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from parameters import masks  # noqa: E402

SOURCES = [HERE / "rtl" / f"{name}.sv" for name in ("mixer", "random", "schemes", "port")]
RESERVOIR = 0xD1B5_4A32_D192_ED03
"""The engine's stream of reservoir decisions (crates/engine/src/rng.rs)."""


@dataclass(frozen=True)
class Design:
    """A scheme with its widths, as the port and as the engine name it."""

    number: int
    telemetry: dict[str, Any]
    bits: int
    count_bits: int
    pipeline: bool = False


DESIGNS = {
    "coordinated 1+4": Design(0, {"scheme": "coordinated", "hash_bits": 4}, 4, 4),
    "coordinated 1+5": Design(0, {"scheme": "coordinated", "hash_bits": 5}, 5, 4),
    "coordinated 1+5, pipeline": Design(
        0, {"scheme": "coordinated", "hash_bits": 5}, 5, 4, pipeline=True
    ),
    "compact 5 bits": Design(1, {"scheme": "compact", "hash_bits": 1, "count_bits": 3}, 1, 3),
    "compact 6 bits": Design(1, {"scheme": "compact", "hash_bits": 1, "count_bits": 4}, 1, 4),
    "single bit": Design(2, {"scheme": "single-bit", "hash_bits": 1, "count_bits": 3}, 1, 3),
    "full": Design(3, {"scheme": "full"}, 1, 4),
}

TREE = {
    "hosts_per_leaf": 3,
    "leaves": 2,
    "aggregation": 2,
    "pods": 2,
    "cores": 2,
    "aggregation_uplinks": 2,
    "host_delay": "5 ns",
    "leaf_delay": "5 ns",
    "core_delay": "50 ns",
}


def run_with(telemetry: dict[str, Any], messages: int) -> Run:
    """Adaptive traffic on a small fat tree of three tiers, every packet with a sample."""
    pattern = {"kind": "uniform", "ranks": 12, "messages": messages, "size": "32 KiB"}
    document = {
        "fabric": {"fat_tree": TREE},
        "job": [{"pattern": pattern}],
        "telemetry": {"packets": 4_000_000} | telemetry,
        "engine": {"buffer": "16 KiB", "eager": "1 MiB"},
    }
    return simulate(parse(document))


def visits_of(messages: int) -> pl.DataFrame:
    """Every visit of every packet: packet, hop, link, congested."""
    names = run_with({"scheme": "full"}, 1).tables["switches"]["name"].to_list()
    parts = []
    for name in names:
        run = run_with({"scheme": "full", "stamping": [name]}, messages)
        links = run.tables["links"].select("link", pl.col("src").alias("from"), "dst")
        seen = run.tables["packets"].select(
            "packet",
            "hops",
            node=pl.col("src_node"),
            link=(pl.col("header") % (1 << 24)).cast(pl.Int64) - 1,
            congested=pl.col("header") // (1 << 56),
        )
        parts.append(
            seen.filter(pl.col("link") >= 0)
            .with_columns(pl.col("congested") > 0)
            .join(links.with_columns(pl.col("link").cast(pl.Int64)), on="link")
        )
    visits = pl.concat(parts)
    entry = run.tables["links"].select(node="src", at="dst")
    at = visits.select("packet", "node").unique().with_columns(pl.col("node").cast(pl.Int64))
    at = at.join(entry.with_columns(pl.col("node").cast(pl.Int64)), on="node")
    steps = visits.with_columns(pl.col("from").cast(pl.Int64), pl.col("dst").cast(pl.Int64))
    here, ordered = at.select("packet", pl.col("at").cast(pl.Int64)), []
    hop = 0
    while here.height:
        taken = here.join(steps, left_on=["packet", "at"], right_on=["packet", "from"])
        ordered.append(taken.select("packet", "link", "congested", hop=pl.lit(hop)))
        here = taken.select("packet", at="dst")
        hop += 1
    visits_in_order = pl.concat(ordered)
    if visits_in_order.height != visits.height:
        raise AssertionError("some visits are on no path")
    return visits_in_order


def _splitmix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E37_79B9_7F4A_7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return np.asarray(x ^ (x >> np.uint64(31)), np.uint64)


def words_of(packet: NDArray[np.uint64], hop: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """The random words that the engine draws at these visits."""
    source = _splitmix(np.array([seed ^ RESERVOIR], np.uint64))
    with np.errstate(over="ignore"):
        start = source + packet * np.uint64(0x2545_F491_4F6C_DD1D)
    return _splitmix(start ^ ((hop + np.uint64(1)) << np.uint64(56)))


def write_visits(run: Run, visits: pl.DataFrame, design: Design, path: Path) -> int:
    """Writes the bench's input; returns the number of packets."""
    packets = run.tables["packets"]
    links = run.tables["links"].height
    # Registers: the number of the link for whole links, the mask of the hash's bit 0, all masks.
    if design.telemetry["scheme"] == "full":
        table = np.arange(1, links + 1, dtype=np.uint32)[:, None]
    else:
        table = masks(links, design.bits if design.pipeline else 1)
    joined = visits.join(packets, on="packet").sort("hop", "link", "packet")
    seed = int(run.scenario.seed)
    words = words_of(joined["packet"].to_numpy(), joined["hop"].to_numpy().astype(np.uint64), seed)
    names = ("packet", "sequence", "src_node", "dst_node", "queue_pair", "hop", "congested", "link")
    columns = [joined[name].to_list() for name in names]
    before = None
    with path.open("w", encoding="ascii") as out:
        for packet, psn, src, dst, pair, hop, hot, link, word in zip(
            *columns, words.tolist(), strict=True
        ):
            if before != (hop, link):
                before = (hop, link)
                for address, value in enumerate(table[link].tolist()):
                    out.write(f"0 {address:x} {value:x} 0 0 0 0 0\n")
            flags = hop << 1 | hot
            out.write(f"1 {packet:x} {psn:x} {src + 1:x} {dst + 1:x} {pair:x} {flags:x} {word:x}\n")
        for packet, header in packets.select("packet", "header").iter_rows():
            out.write(f"2 {packet:x} {header:x} 0 0 0 0 0\n")
    return packets.height


def build(design: Design, folder: Path, simulator: str, random: int = 0) -> list[str]:
    """Compiles the test bench; returns the command that runs it."""
    bench = HERE / "sim" / "replay.sv"
    sizes = {
        "SCHEME": design.number,
        "PIPELINE": int(design.pipeline),
        "RANDOM": random,
        "BITS": design.bits,
        "COUNT_BITS": design.count_bits,
        "PACKETS": 1 << (16 if simulator == "iverilog" else 21),
    }
    if simulator == "verilator":
        command = [
            "verilator",
            "--binary",
            "-O3",
            "-Wno-fatal",
            "-Wno-WIDTH",
            "-Wno-INITIALDLY",
            "--timing",
            "--top-module",
            "replay",
            f"-I{HERE / 'rtl'}",
            "--Mdir",
            str(folder),
            *(f"-G{name}={value}" for name, value in sizes.items()),
        ]
        result = [str(folder / "Vreplay")]
    else:
        command = [
            "iverilog",
            "-g2012",
            "-s",
            "replay",
            f"-I{HERE / 'rtl'}",
            "-o",
            str(folder / "replay.vvp"),
            *(f"-Preplay.{name}={value}" for name, value in sizes.items()),
        ]
        result = ["vvp", "-n", str(folder / "replay.vvp")]
    done = subprocess.run(
        [*command, *map(str, SOURCES), str(bench)], capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return result


def replay(name: str, visits: pl.DataFrame, messages: int, simulator: str) -> dict[str, Any]:
    """Packets, visits and wrong headers of one design."""
    design = DESIGNS[name]
    run = run_with(design.telemetry, messages)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "visits"
        write_visits(run, visits, design, file)
        command = build(design, Path(folder), simulator)
        output = subprocess.run(
            [*command, f"+visits={file}"], capture_output=True, text=True
        ).stdout
    match = re.search(r"result packets (\d+) visits (\d+) wrong (\d+)", output)
    if match is None:
        raise SystemExit(f"the simulation of {name} ended early: {output}")
    counts = dict(zip(("packets", "visits", "wrong"), map(int, match.groups()), strict=True))
    return {"design": name, **counts, "first": output.splitlines()[:5] if counts["wrong"] else []}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--packets", type=int, default=10_000, help="packets a scheme, at least")
    parser.add_argument("--simulator", choices=["verilator", "iverilog"], default="verilator")
    options = parser.parse_args()
    if shutil.which(options.simulator) is None:
        raise SystemExit(f"no {options.simulator} here; remedy: install the Debian package")
    messages = -(-options.packets // (12 * 8))
    visits, wrong = visits_of(messages), 0
    print("| scheme | packets | visits | headers that differ |\n|---|---:|---:|---:|")
    for name in DESIGNS:
        row = replay(name, visits, messages, options.simulator)
        wrong += row["wrong"]
        print(f"| {name} | {row['packets']} | {row['visits']} | {row['wrong']} |", flush=True)
        print("\n".join(row["first"]), file=sys.stderr)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
