"""Machines of the foreign reality, and runs of programs on them by ``packets.cpp``."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from foreign_programs import Program
from numpy.typing import NDArray

SOURCE = Path(__file__).with_name("packets.cpp")
FLAGS = ("-std=c++17", "-O2")

SPEEDS = {"QDR": 32.0, "FDR": 54.545, "EDR": 100.0}
"""Data rate of a cable with four lanes, Gb/s."""


def compiler() -> str | None:
    return shutil.which("g++")


def simulator() -> Path:
    """The compiled simulator, made anew when its source changes.

    Raises:
        RuntimeError: There is no compiler, or it fails.
    """
    digest = hashlib.sha256(SOURCE.read_bytes() + " ".join(FLAGS).encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"tailback-foreign-{os.getuid()}-{digest}"
    if not path.exists():
        cxx = compiler()
        if cxx is None:
            raise RuntimeError("no g++; remedy: install the package g++")
        fresh = path.with_suffix(f".{os.getpid()}")
        done = subprocess.run(
            [cxx, *FLAGS, "-o", str(fresh), str(SOURCE)], capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"{SOURCE.name} does not compile: {done.stderr[:500]}")
        fresh.rename(path)
    return path


@dataclass(frozen=True)
class Machine:
    """A tree of switches: leaves below spines, or pods of both below cores.

    Attributes:
        leaves, per_leaf: Leaf switches, and hosts of each.
        spines: Switches above each leaf.
        trunk: Cables from a leaf to each of them.
        pods: Groups of leaves with spines of their own; 1 makes a tree of two levels.
        cores: Switches above each spine, if there are pods.
        speed: Of all cables.
        ethernet: Links pause instead of granting credit.
    """

    leaves: int
    per_leaf: int
    spines: int
    trunk: int = 1
    pods: int = 1
    cores: int = 0
    speed: str = "FDR"
    ethernet: bool = False

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return self.leaves * self.per_leaf

    @property
    def gbps(self) -> float:
        """Data rate of a cable."""
        return SPEEDS[self.speed]

    @property
    def taper(self) -> float:
        """Hosts of a leaf for each of its cables upwards."""
        return self.per_leaf / (self.spines * self.trunk)

    @property
    def switches(self) -> int:
        """Number of switches."""
        return self.leaves + self.spines * self.pods + self.spines * self.cores

    @cached_property
    def cables(self) -> list[tuple[int, int, int, int]]:
        """Vertex and port of the lower and of the upper end; hosts come before switches."""
        ports = [0] * (self.hosts + self.switches)
        out = []

        def plug(low: int, high: int) -> None:
            ports[low] += 1
            ports[high] += 1
            out.append((low, ports[low], high, ports[high]))

        leaf, spine = self.hosts, self.hosts + self.leaves
        core = spine + self.spines * self.pods
        for host in range(self.hosts):
            plug(host, leaf + host // self.per_leaf)
        for index in range(self.leaves):
            pod = index * self.pods // self.leaves
            for above in range(self.spines):
                for _ in range(self.trunk):
                    plug(leaf + index, spine + pod * self.spines + above)
        for index in range(self.spines * self.pods if self.cores else 0):
            for above in range(self.cores):
                plug(spine + index, core + index % self.spines * self.cores + above)
        return out

    @cached_property
    def links(self) -> list[tuple[int, int]]:
        """Link 2c goes up cable c, link 2c + 1 down."""
        return [pair for low, _, high, _ in self.cables for pair in ((low, high), (high, low))]

    def port(self, link: int) -> int:
        """The port that sends on a link."""
        cable = self.cables[link // 2]
        return cable[3] if link % 2 else cable[1]

    def name(self, vertex: int) -> str:
        """Name of a host or switch."""
        if vertex < self.hosts:
            return f"cn{vertex + 1:03d}"
        number = vertex - self.hosts
        for kind, count in (("edge", self.leaves), ("agg", self.spines * self.pods)):
            if number < count:
                return f"{kind}-{number + 1:02d}"
            number -= count
        return f"core-{number + 1:02d}"

    def candidates(self) -> list[list[list[int]]]:
        """Equally near links of each switch to each host."""
        below = [{h} if h < self.hosts else set() for h in range(self.hosts + self.switches)]
        for low, _, high, _ in self.cables:  # in the order of levels
            below[high] |= below[low]
        ups: list[list[int]] = [[] for _ in below]
        downs: list[list[int]] = [[] for _ in below]
        for cable, (low, _, high, _) in enumerate(self.cables):
            ups[low].append(2 * cable)
            downs[high].append(2 * cable + 1)
        return [
            [
                [at for at in downs[v] if host in below[self.links[at][1]]]
                if host in below[v]
                else ups[v]
                for host in range(self.hosts)
            ]
            for v in range(self.hosts, self.hosts + self.switches)
        ]

    def tables(self, clumped: float = 0.0, seed: int = 0) -> list[list[list[int]]]:
        """One link of each switch to each host, spread evenly.

        Args:
            clumped: Share of the hosts whose way up leads over the first quarter of the links.
            seed: Of the choice of these hosts.
        """
        rng = np.random.Generator(np.random.Philox(key=[seed, 5]))
        unlucky = rng.random(self.hosts) < clumped
        out = []
        for number, rows in enumerate(self.candidates()):
            chosen = []
            for host, some in enumerate(rows):
                # Destinations in turn, as OpenSM's fat-tree routing spreads them: shifts of all
                # hosts then share no link.
                turn = host if number < self.leaves else host // (self.spines * self.trunk)
                few = max(1, len(some) // 4) if unlucky[host] and some and some[0] % 2 == 0 else 0
                chosen.append([some[turn % (few or len(some))]] if some else [])
            out.append(chosen)
        return out


@dataclass(frozen=True)
class Flaky:
    """A cable that retrains: its rate alternates."""

    period_ps: int
    low_share: float
    low_gbps: float
    down_ps: int


@dataclass(frozen=True)
class Job:
    """A program and where its ranks run; only the first job of a run ends it."""

    program: Program
    hosts: Sequence[int]


@dataclass
class World:
    """All that a run depends on.

    Attributes:
        machine: The network.
        settings: Settings of ``packets.cpp`` by name.
        routing: ``static``, ``hash`` or ``adaptive``.
        table: Links that each switch may take to each host.
        gbps: Real rates of links that serve less than their nominal rate.
        flaky: Links that alternate.
        jobs: The observed job, then others.
        phase_ps: When the counters of each link are first read.
    """

    machine: Machine
    settings: dict[str, float | int | str]
    routing: str
    table: list[list[list[int]]]
    jobs: list[Job]
    gbps: dict[int, float] = field(default_factory=dict)
    flaky: dict[int, Flaky] = field(default_factory=dict)
    phase_ps: Sequence[int] = ()

    def text(self) -> str:
        """The scenario as ``packets.cpp`` reads it."""
        machine = self.machine
        settings = {"routing": self.routing, "pause": int(machine.ethernet)} | self.settings
        latency = settings.pop("latency_ps", 100_000)
        buffer = settings.pop("buffer", 2 * 32768)
        lines = [f"{key} {value}" for key, value in settings.items()]
        lines.append(f"vertices {machine.hosts} {machine.switches}")
        for link, (src, dst) in enumerate(machine.links):
            phase = self.phase_ps[link] if len(self.phase_ps) else 0
            rate = self.gbps.get(link, machine.gbps)
            lines.append(
                f"link {src} {dst} {machine.gbps} {rate} {latency} {buffer} {link ^ 1} {phase}"
            )
        for link, fault in self.flaky.items():
            lines.append(
                f"flaky {link} {fault.period_ps} {fault.low_share} {fault.low_gbps} {fault.down_ps}"
            )
        for switch, rows in enumerate(self.table):
            lines += [
                f"route {switch} {host} {len(some)} {' '.join(map(str, some))}"
                for host, some in enumerate(rows)
            ]
        first = 0
        for number, job in enumerate(self.jobs):
            for rank, host in zip(job.program.ranks, job.hosts, strict=True):
                ops = [_shifted(op, first) for op in rank.ops] if first else rank.ops
                lines.append(f"rank {host} {number} {int(number > 0)} {len(ops)}")
                lines += ops
            first += job.program.n
        return "\n".join(lines) + "\n"


def _shifted(op: str, first: int) -> str:
    """An operation with its peer numbered among the ranks of all jobs."""
    kind, peer, arguments = (*op.split(" ", 2), "")[:3]
    return f"{kind} {int(peer) + first} {arguments}" if kind in "SR" and int(peer) >= 0 else op


READING = ("link", "ps", "bytes", "packets", "wait_ps", "queued", "pauses", "paused_ps", "retrains")


@dataclass(frozen=True)
class Result:
    """What happened.

    Attributes:
        end_ps: When the last rank of the first job ended.
        elapsed_ps: From the first rank's first call to the last rank's last one.
        calls: Enter and leave of each call of each rank of the first job, shape (calls, 2).
        learned: By rank and call, the source of a receive or which of several requests was ready.
        readings: Columns of :data:`READING`.
        links: Bytes, packets and waiting time of each link, shape (links, 3).
    """

    end_ps: int
    elapsed_ps: int
    calls: list[NDArray[np.int64]]
    learned: dict[tuple[int, int], int]
    readings: NDArray[np.int64]
    links: NDArray[np.int64]


def simulate(world: World) -> Result:
    """Run the simulator.

    Raises:
        RuntimeError: It refuses the scenario, or the program does not end.
    """
    done = subprocess.run(
        [str(simulator())], input=world.text(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-500:] or f"exit {done.returncode}")
    ranks = world.jobs[0].program.n
    by_kind: dict[str, list[list[int]]] = {"P": [], "L": [], "C": [], "I": [], "T": []}
    for line in done.stdout.splitlines():
        by_kind[line[0]].append([int(word) for word in line[2:].split()])
    calls: list[list[list[int]]] = [[] for _ in range(ranks)]
    for rank, enter, leave in by_kind["C"]:
        calls[rank].append([enter, leave])
    times = [np.array(some, np.int64) for some in calls]
    return Result(
        by_kind["T"][0][0],
        max(int(t[-1, 1]) for t in times) - min(int(t[0, 0]) for t in times),
        times,
        {(rank, call): value for rank, call, value in by_kind["I"]},
        np.array(by_kind["P"], np.int64).reshape(-1, len(READING)),
        np.array([row[1:] for row in by_kind["L"]], np.int64),
    )
