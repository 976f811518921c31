"""Runs a case of :mod:`studies.conformance.peers` with htsim or merlin and reads their counters."""

from __future__ import annotations

import csv
import json
import re
import resource
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from studies.conformance.up_down import UpDown
from tailback.fabric import Fabric

HTSIM_LINKS: Final = Path(__file__).resolve().with_name("htsim_links.cpp")
MERLIN_NETWORK: Final = HTSIM_LINKS.with_name("merlin_network.py")
PACKET: Final = 2048
BUFFER: Final = 64 * 1024
RATE_GBPS: Final = 100
DELAY_PS: Final = 20_000
SWITCH_PS: Final = 60_000
FLIT: Final = 64
CROSSBAR_GBPS: Final = 400
"""merlin moves packets from input to output buffers at this rate: at four times the rate of links
its crossbar is not what limits a switch, as in the other simulators, which have none."""


@dataclass(frozen=True)
class Shape:
    """A tree of two levels with one cable from each leaf to each aggregation switch."""

    hosts_per_leaf: int
    leaves: int
    aggregation: int

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return self.hosts_per_leaf * self.leaves


@dataclass(frozen=True)
class Traffic:
    """One message of the same size from each of some hosts, all posted at once.

    Attributes:
        name: Its name in tables.
        src: Sending host of each message, no host twice.
        dst: Receiving hosts.
        size: Bytes of a message, a multiple of the packet.
    """

    name: str
    src: tuple[int, ...]
    dst: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class Counted:
    """What one simulator reports.

    Attributes:
        arrival_ps: When the last byte of each message arrived, picoseconds, shape (M,).
        bytes: Bytes of each link, shape (L,).
        stall_ps: Time each link was idle with a packet waiting for the other end, shape (L,).
        seconds: Processor time.
    """

    arrival_ps: NDArray[np.int64]
    bytes: NDArray[np.int64]
    stall_ps: NDArray[np.int64]
    seconds: float


def timed(command: list[str]) -> tuple[str, float]:
    """Output and processor seconds of a command.

    Raises:
        SystemExit: With its messages, if it fails.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, spent


def route(routes: UpDown, fabric: Fabric, src: int, dst: int) -> list[int]:
    """Links of the D-mod-k path."""
    links = [routes.out[src][0]]
    while int(fabric.link_dst[links[-1]]) != dst:
        links.append(routes.fixed(int(fabric.link_dst[links[-1]]), dst))
    return links


def htsim(
    program: Path, fabric: Fabric, traffic: Traffic, folder: Path, pause: int, resume: int
) -> Counted:
    """Run htsim's lossless queues.

    Args:
        program: ``htsim_links``, built from the source file beside this one.
        fabric: The fabric.
        traffic: Its messages.
        folder: Where the input goes.
        pause: Bytes in a switch from one link above which that link is paused.
        resume: Bytes below which it is allowed to send again.
    """
    routes = UpDown(fabric)
    sizes = (fabric.n_nodes, fabric.n_links, len(traffic.src), PACKET, SWITCH_PS, pause, resume)
    lines = [" ".join(map(str, sizes))]
    for src, dst, gbps, delay in zip(
        fabric.link_src, fabric.link_dst, fabric.link_gbps, fabric.link_delay_ps, strict=True
    ):
        lines.append(f"{src} {dst} {gbps:g} {delay}")
    for src, dst in zip(traffic.src, traffic.dst, strict=True):
        links = route(routes, fabric, src, dst)
        lines.append(f"{src} {traffic.size} {len(links)} {' '.join(map(str, links))}")
    path = folder / "htsim.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    output, seconds = timed([str(program), str(path)])
    words = [line.split() for line in output.splitlines()]
    arrivals = [int(line[1]) for line in words if line[0] == "message"]
    counts = np.array([line[1:] for line in words if line[0] == "link"], np.int64)
    return Counted(np.array(arrivals, np.int64), counts[:, 1], counts[:, 2], seconds)


def merlin(
    program: Path,
    fabric: Fabric,
    shape: Shape,
    traffic: Traffic,
    folder: Path,
    output_bytes: int = PACKET,
) -> Counted:
    """Run merlin's fat tree with deterministic routes.

    Args:
        program: ``sst``.
        fabric: The fabric.
        shape: Its shape.
        traffic: Its messages.
        folder: Where input and counters go.
        output_bytes: Buffer of each output; the rest is the input's.
    """
    case: dict[str, Any] = {
        "hosts_per_leaf": shape.hosts_per_leaf,
        "leaves": shape.leaves,
        "aggregation": shape.aggregation,
        "flit": f"{FLIT}B",
        "rate": f"{RATE_GBPS}Gb/s",
        "crossbar": f"{CROSSBAR_GBPS}Gb/s",
        "delay": f"{DELAY_PS}ps",
        "output_latency": "1ns",
        "input_latency": f"{SWITCH_PS - 1000}ps",
        "input_buffer": f"{BUFFER - output_bytes}B",
        "output_buffer": f"{output_bytes}B",
        "host_buffer": f"{BUFFER}B",
        "packet": f"{PACKET}B",
        "packets": traffic.size // PACKET,
        "src": list(traffic.src),
        "dst": list(traffic.dst),
    }
    path, counters = folder / "merlin.json", folder / "merlin.csv"
    path.write_text(json.dumps(case), encoding="utf-8")
    output, seconds = timed([str(program), str(MERLIN_NETWORK), "--", str(path), str(counters)])
    arrivals = _merlin_arrivals(output, traffic)
    totals = _merlin_links(counters, fabric, shape)
    return Counted(arrivals, totals["send_bit_count"] // 8, totals["output_port_stalls"], seconds)


_UNITS: Final = {"ps": 1, "ns": 1e3, "us": 1e6, "ms": 1e9, "s": 1e12}
_RECEIVED: Final = re.compile(
    r"For src = (\d+) and dest = (\d+):\s+First packet received at: .*\s+"
    r"Last packet received at: ([\d.]+) ?(\w+)"
)


def _merlin_arrivals(output: str, traffic: Traffic) -> NDArray[np.int64]:
    """Last byte of each message: a packet is reported when its head has arrived."""
    tail = PACKET * 8000 // RATE_GBPS
    arrival = {
        (int(src), int(dst)): round(float(value) * _UNITS[unit]) + tail
        for src, dst, value, unit in _RECEIVED.findall(output)
    }
    pairs = zip(traffic.src, traffic.dst, strict=True)
    return np.array([arrival[pair] for pair in pairs], np.int64)


def _merlin_links(path: Path, fabric: Fabric, shape: Shape) -> dict[str, NDArray[np.int64]]:
    """Sums of two counters by link."""
    ends = zip(fabric.link_src.tolist(), fabric.link_dst.tolist(), strict=True)
    number = {pair: link for link, pair in enumerate(ends)}
    out = {
        name: np.zeros(fabric.n_links, np.int64)
        for name in ("send_bit_count", "output_port_stalls")
    }
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file, skipinitialspace=True):
            name = row["StatisticName"]
            if name not in out:
                continue
            link = number[_merlin_ends(row["ComponentName"], row["StatisticSubId"], shape)]
            out[name][link] = int(row["Sum.u64"])
    return out


def _merlin_ends(component: str, port: str, shape: Shape) -> tuple[int, int]:
    """Ends of the link a counter belongs to, as vertices: hosts, leaves, aggregation switches."""
    name = component.partition(":")[0]
    if name.startswith("host"):
        host = int(name.removeprefix("host"))
        return host, shape.hosts + host // shape.hosts_per_leaf
    switch, at = int(name.removeprefix("rtr")), int(port.removeprefix("port"))
    vertex = shape.hosts + switch
    if switch >= shape.leaves:
        return vertex, shape.hosts + at
    if at < shape.hosts_per_leaf:
        return vertex, switch * shape.hosts_per_leaf + at
    return vertex, shape.hosts + shape.leaves + at - shape.hosts_per_leaf
