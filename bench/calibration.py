"""Whether calibrated intervals contain the truth: simulated machines with known settings.

python bench/calibration.py --json              200 machines, the share of truths in the intervals
python bench/calibration.py --draws 20          a quick look

The engine's settings of each machine are drawn within ±50 % of their defaults. The engine runs a
ping-pong (within a host, over one switch and across the tree) and a window of 64 sends, as
osu_latency and osu_bw do, and a small application. Times get noise, are printed as the tool prints
them (the application's: clocks are shifted by up to 10 ms) and calibrated.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from calibration_trace import RANKS, meetings, scripts, write

from tailback import Calibration, Scenario, calibrate
from tailback.scenario.model import parse
from tailback.simulation import execute, prepare
from tailback.traffic import Label, Program, ProgramBuilder

LATENCY_SIZES = [0, *(1 << k for k in range(23))]
STREAM_SIZES = [1 << k for k in range(21)]
WINDOW = 64
FABRIC = {
    "hosts_per_leaf": 4,
    "leaves": 4,
    "aggregation": 2,
    "pods": 4,
    "cores": 4,
    "aggregation_uplinks": 2,
    "host_delay": "10 ns",
    "leaf_delay": "25 ns",
    "core_delay": "100 ns",
}
PAIRS = {"local": "0", "near": "0,1", "far": "0,63"}


@dataclass(frozen=True)
class Truth:
    """Settings of one machine, and the relative noise of its measurements."""

    send_delay_ps: int
    switch_delay_ps: int
    local_delay_ps: int
    local_gbps: float
    eager_bytes: int
    header_bytes: int
    line_gbps: float
    noise: float

    @property
    def settings(self) -> dict[str, float]:
        """By the names of calibrated settings."""
        return {
            "send_delay": self.send_delay_ps,
            "switch_delay": self.switch_delay_ps,
            "local_delay": self.local_delay_ps,
            "local_rate": self.local_gbps,
            "eager": self.eager_bytes,
            "header": self.header_bytes,
        }

    def scenario(self, hosts: str, ranks_per_host: int) -> Scenario:
        """A machine with these settings."""
        rate = f"{self.line_gbps!r} Gb/s"
        rates = dict.fromkeys(("host_rate", "leaf_rate", "core_rate"), rate)
        return parse(
            {
                "fabric": {"fat_tree": {**FABRIC, **rates}},
                "engine": {
                    "send_delay": f"{self.send_delay_ps} ps",
                    "switch_delay": f"{self.switch_delay_ps} ps",
                    "local_delay": f"{self.local_delay_ps} ps",
                    "local_rate": f"{self.local_gbps} Gb/s",
                    "eager": f"{self.eager_bytes} B",
                    "header": f"{self.header_bytes} B",
                },
                "telemetry": {"scheme": "off"},
                "job": [
                    {
                        "hosts": hosts,
                        "ranks_per_host": ranks_per_host,
                        "pattern": {"kind": "stencil2d", "dims": [2, 1], "size": "1 KiB"},
                    }
                ],
            }
        )


def draw(rng: np.random.Generator) -> Truth:
    """A machine: settings within ±50 % of the engine's defaults; headers of up to 5 %."""

    def near(value: float) -> float:
        return value * rng.uniform(0.5, 1.5)

    return Truth(
        send_delay_ps=round(near(1e6)),
        switch_delay_ps=round(near(60e3)),
        local_delay_ps=round(near(500e3)),
        local_gbps=float(near(400)),
        eager_bytes=round(near(16384)),
        header_bytes=int(rng.integers(0, 205)),
        line_gbps=float(rng.choice([56.0, 100.0, 200.0, 400.0])),
        noise=float(np.exp(rng.uniform(np.log(0.002), np.log(0.02)))),
    )


def ping_pong() -> Program:
    """Messages in both directions, size after size."""
    build = ProgramBuilder("ping-pong", 2)
    label = build.label(Label("ping-pong", "MPI_Send"))
    for size in LATENCY_SIZES:
        for rank in (0, 1):
            for send in (rank == 0, rank == 1):
                post = build.isend if send else build.irecv
                build.wait(rank, post(rank, 1 - rank, size, 1, label))
    return build.build()


def windows() -> Program:
    """64 messages one way, then an answer, size after size."""
    build = ProgramBuilder("windows", 2)
    label = build.label(Label("windows", "MPI_Isend"))
    for size in STREAM_SIZES:
        for _ in range(WINDOW):
            build.isend(0, 1, size, 1, label)
            build.irecv(1, 0, size, 1, label)
        build.waitall(0)
        build.waitall(1)
        build.wait(0, build.irecv(0, 1, 4, 2, label))
        build.wait(1, build.isend(1, 0, 4, 2, label))
    return build.build()


def messages(truth: Truth, where: str, program: Program) -> dict[str, np.ndarray]:
    """Times of all messages, in the order they were posted."""
    prepared = prepare(truth.scenario(PAIRS[where], 2 if where == "local" else 1))
    table = execute(prepared.with_program(program)).tables["messages"].sort("post_ps", "message")
    columns = ("src_rank", "post_ps", "arrival_ps")
    return {name: table[name].to_numpy().astype(np.int64) for name in columns}


def latencies_us(truth: Truth, where: str) -> np.ndarray:
    """What osu_latency measures: half of each round trip."""
    m = messages(truth, where, ping_pong())
    return (m["arrival_ps"][1::2] - m["post_ps"][0::2]) / 2e6


def rates_mbs(truth: Truth, where: str) -> np.ndarray:
    """What osu_bw measures: bytes of a window over the time until the answer is there."""
    m = messages(truth, where, windows())
    back = np.flatnonzero(m["src_rank"] == 1)
    took_ps = m["arrival_ps"][back] - m["post_ps"][m["src_rank"] == 0][::WINDOW]
    return np.array(STREAM_SIZES) * WINDOW / took_ps * 1e6


def printed(title: str, column: str, sizes: list[int], values: np.ndarray) -> str:
    """An output of an OSU benchmark: two decimals."""
    lines = [f"# OSU MPI {title} v7.3", "# Datatype: MPI_CHAR.", f"# Size      {column}"]
    lines += [f"{size:<10d}{value:>18.2f}" for size, value in zip(sizes, values, strict=True)]
    return "\n".join(lines) + "\n"


def noisy(values: np.ndarray, noise: float, rng: np.random.Generator) -> np.ndarray:
    """Values with independent relative errors."""
    return values * np.exp(noise * rng.standard_normal(len(values)))


def from_osu(truth: Truth, folder: Path, rng: np.random.Generator) -> Calibration:
    """Calibrate from osu_latency over three distances and osu_bw over one."""
    files = []
    for where, hosts in PAIRS.items():
        text = printed(
            "Latency Test",
            "Avg Latency(us)",
            LATENCY_SIZES,
            noisy(latencies_us(truth, where), truth.noise, rng),
        )
        (folder / f"{where}.txt").write_text(text)
        files.append(f"{folder / where}.txt@{hosts}")
    text = printed(
        "Bandwidth Test",
        "Bandwidth (MB/s)",
        STREAM_SIZES,
        noisy(rates_mbs(truth, "far"), truth.noise, rng),
    )
    (folder / "bw.txt").write_text(text)
    files.append(f"{folder / 'bw.txt'}@{PAIRS['far']}")
    return calibrate(files, fabric=fabric_file(truth, folder))


def from_trace(truth: Truth, folder: Path, rng: np.random.Generator) -> Calibration:
    """Calibrate from the messages of an application, with clocks apart."""
    hosts = "0,1,4,5,16,17,40,63"
    prepared = prepare(truth.scenario(hosts, 2))
    node = np.array([int(host) for host in hosts.split(",") for _ in range(2)], np.uint32)
    job = replace(prepared.observed, node=node)
    prepared = replace(prepared, jobs=[job])
    names = [prepared.fabric.host_name[int(host)] for host in prepared.fabric.node_host[node]]
    assert len(names) == RANKS
    events = scripts(prepared, meetings(truth.noise, rng), rng)
    trace = write(folder / "trace", events, names)
    return calibrate(trace, fabric=fabric_file(truth, folder))


def fabric_file(truth: Truth, folder: Path) -> Path:
    """A scenario that describes only the machine's network."""
    shape = dict.fromkeys(("host_rate", "leaf_rate", "core_rate"), f"{truth.line_gbps!r} Gb/s")
    lines = ["[fabric.fat_tree]"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in {**FABRIC, **shape}.items()]
    lines += ["[[job]]", 'pattern = { kind = "ring", size = "1 KiB" }']
    path = folder / "network.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def hits(calibration: Calibration, truth: Truth) -> dict[str, bool | None]:
    """Whether each truth is in its interval; None where it was not identified."""
    identified = {fit.name: fit for fit in calibration.engine}
    return {
        name: identified[name].low <= value <= identified[name].high if name in identified else None
        for name, value in truth.settings.items()
    }


def summary(rows: list[dict[str, bool | None]], widths: list[dict[str, float]]) -> dict[str, Any]:
    """Share of truths in the intervals, of those that were identified, for each setting."""
    out = {}
    for name in rows[0]:
        covered = [row[name] for row in rows if row[name] is not None]
        wide = [row[name] for row in widths if name in row]
        out[name] = {
            "identified": len(covered),
            "draws": len(rows),
            "coverage": sum(map(bool, covered)) / len(covered) if covered else None,
            "median_half_width": float(np.median(wide)) if wide else None,
        }
    return out


def half_widths(calibration: Calibration) -> dict[str, float]:
    """Half of each interval, relative to the value; header relative to the packet."""
    scale = {"header": 4096.0}
    return {
        fit.name: (fit.high - fit.low) / 2 / scale.get(fit.name, max(fit.value, 1e-9))
        for fit in calibration.engine
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=["osu", "trace"], help="one of the two")
    parser.add_argument("--progress", action="store_true", help="each draw on stderr")
    options = parser.parse_args()
    makers = {"osu": from_osu, "trace": from_trace}
    if options.only:
        makers = {options.only: makers[options.only]}
    rows: dict[str, list[dict[str, bool | None]]] = {name: [] for name in makers}
    widths: dict[str, list[dict[str, float]]] = {name: [] for name in makers}
    for number in range(options.draws):
        truth = draw(np.random.default_rng([options.seed, number]))
        for name, make in makers.items():
            with tempfile.TemporaryDirectory() as folder:
                calibration = make(
                    truth, Path(folder), np.random.default_rng([options.seed, number, 1])
                )
            rows[name].append(hits(calibration, truth))
            widths[name].append(half_widths(calibration))
            if options.progress:
                print(json.dumps({"draw": number, "from": name, **rows[name][-1]}), file=sys.stderr)
    out = {name: summary(rows[name], widths[name]) for name in makers}
    if options.json:
        print(json.dumps(out, indent=2))
        return
    for name, settings in out.items():
        for setting, row in settings.items():
            share = "—" if row["coverage"] is None else f"{row['coverage']:.1%}"
            wide = "—" if row["median_half_width"] is None else f"{row['median_half_width']:.2%}"
            print(
                f"{name:6} {setting:14} {row['identified']:4} of {row['draws']}  "
                f"in the interval {share:>6}  half width {wide}"
            )


if __name__ == "__main__":
    main()
