"""Mixes of jobs on a fabric of Yellowstone's shape, drawn from wide priors, and what they stall.

Alali et al. (2017) publish stalls of ports and no traffic; :mod:`.inference` compares the stalls of
these mixes with theirs.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from studies.production_networks.yellowstone import ROUNDS
from tailback import load_scenario, simulate, sweep
from tailback.simulation import prepare

_THIRD: Final = {
    "kind": "yellowstone",
    "hosts_per_tor": 6,
    "tors_per_group": 6,
    "groups": 4,
    "directors": 3,
    "leaves": 9,
    "spines": 6,
    "storage_leaves": 3,
    "storage_spines": 2,
    "servers_per_leaf": 2,
    "storage_cables": 1,
}
"""A third of Yellowstone's hosts a ToR, ToRs a group, directors and spines; 4 of 14 groups. Every
switch has as many ports up as down, as there. The analysis system is left out."""


@dataclass(frozen=True)
class Plant:
    """A fabric of Yellowstone's shape and the roles of its nodes.

    Attributes:
        shape: Its topology.
        hosts: Compute hosts.
        servers: Storage servers, numbered after the hosts.
        clients: Hosts that use files, four a server.
    """

    shape: Mapping[str, Any]
    hosts: int
    servers: int
    clients: int

    @property
    def others(self) -> int:
        """Hosts of the jobs."""
        return self.hosts - self.clients


REDUCED: Final = Plant(_THIRD, hosts=144, servers=6, clients=24)
WHOLE: Final = Plant({"kind": "yellowstone"}, hosts=4536, servers=20, clients=80)
"""The full shape; its number of servers is the topology's assumption."""
LINE_GBPS: Final = 54.0
DURATION: Final = "1500 us"
LONG: Final = "100 ms"
"""Length of an interval between two readings in the study."""
WINDOWS: Final = 8
RATES: Final = (LINE_GBPS, 45.0, 36.0, 27.0, 13.5, 6.75)
RECEIVERS, MIXES = 24, 30
"""Kinds of receivers and mixes that are drawn; every mix is simulated with every kind."""
KEPT: Final = 0.05
"""Share of the sustained draws that is kept."""
MOST: Final = 0.1
"""Stall fraction that most ports stay below (section IV-C)."""


@dataclass(frozen=True)
class Mix:
    """One drawn mix of traffic.

    Attributes:
        job_hosts: Hosts of a job of the reduced fabric, whose other 120 hosts are divided into such
            jobs; a job of the full shape has the same share of the hosts.
        message: Bytes of a message of the jobs: at a given load, longer messages are burstier.
        load: Offered load of the jobs' hosts, share of the line rate.
        files: Offered load of each of 24 clients of the servers.
        reads: Share of file messages that are reads.
        copies: Offered load of each server, of copies between servers.
        active: Share of the jobs that communicate; the others compute.
        scattered: Whether the hosts of a job are anywhere, or neighbours.
    """

    job_hosts: int
    message: int
    load: float
    files: float
    reads: float
    copies: float
    active: float
    scattered: bool


@dataclass(frozen=True)
class Receivers:
    """How fast nodes take data out of their adapter's buffer.

    Attributes:
        drain: Rate of slow hosts, Gb/s.
        slow: Share of such hosts; the others take data at line rate.
        servers: Rate of the storage servers, Gb/s.
    """

    drain: float
    slow: float
    servers: float


def sustained(mix: Mix, kind: Receivers, plant: Plant = REDUCED) -> bool:
    """Whether no node is offered more, on average, than it takes.

    Otherwise what waits would grow without end, which cannot last for the study's 23 days.
    """
    slow, server = kind.drain / LINE_GBPS, kind.servers / LINE_GBPS
    files = plant.clients / plant.servers * mix.files
    return (
        max(mix.load, mix.files * mix.reads) < slow
        and files * (1 - mix.reads) + mix.copies < server
        and files * mix.reads + mix.copies < 1
    )


PRIORS: Final = {
    "job_hosts": "4, 12, 24, 60 or 120",
    "message": "8 KiB – 2 MiB, log-uniform",
    "load": "0.02 – 0.5, log-uniform",
    "files": "0.01 – 0.3, log-uniform",
    "reads": "0.2 – 0.8, uniform",
    "copies": "0.02 – 0.8, log-uniform",
    "active": "20 – 100 %, uniform",
    "scattered": "half of the draws",
    "drain": "54, 45, 36, 27, 13.5 or 6.75 Gb/s",
    "slow": "10 – 100 %, uniform",
    "servers": "54, 45, 36, 27, 13.5 or 6.75 Gb/s",
}


def draw_mixes(count: int, seed: int = 1) -> list[Mix]:
    """Mixes from the priors."""
    random = np.random.default_rng([seed, 0x59])

    def log_uniform(low: float, high: float) -> float:
        return float(np.exp(random.uniform(np.log(low), np.log(high))))

    return [
        Mix(
            job_hosts=int(random.choice([4, 12, 24, 60, 120])),
            message=int(log_uniform(8 * 1024, 2 * 1024**2)),
            load=log_uniform(0.02, 0.5),
            files=log_uniform(0.01, 0.3),
            reads=float(random.uniform(0.2, 0.8)),
            copies=log_uniform(0.02, 0.8),
            active=float(random.uniform(0.2, 1.0)),
            scattered=bool(random.random() < 0.5),
        )
        for _ in range(count)
    ]


def draw_receivers(count: int, seed: int = 1) -> list[Receivers]:
    """Receivers from the priors; the first take everything at line rate."""
    random = np.random.default_rng([seed, 0x4E])
    drawn = [
        Receivers(
            float(random.choice(RATES)),
            float(random.uniform(0.1, 1.0)),
            float(random.choice(RATES)),
        )
        for _ in range(count - 1)
    ]
    return [Receivers(LINE_GBPS, 1.0, LINE_GBPS), *drawn]


def jobs(
    mix: Mix, duration: str = DURATION, seed: int = 1, plant: Plant = REDUCED
) -> list[dict[str, Any]]:
    """The jobs of a mix: on scattered hosts, file clients, copies between servers."""
    order = np.random.default_rng([seed, 0x10B]).permutation(plant.hosts)
    clients, others = order[: plant.clients], order[plant.clients :]
    if not mix.scattered:
        others = np.sort(others)
    servers = range(plant.hosts, plant.hosts + plant.servers)

    def paced(name: str, hosts: Any, **options: Any) -> dict[str, Any]:
        listed = ",".join(map(str, hosts))
        pattern = {
            "kind": "paced",
            "ranks": len(hosts),
            "duration": duration,
            "line_rate": f"{LINE_GBPS} Gb/s",
            "stream": name,
            **options,
        }
        return {"name": name, "hosts": listed, "pattern": pattern, "shared_hosts": True}

    count = REDUCED.others // mix.job_hosts
    parts = np.array_split(others, count)[: max(1, round(mix.active * count))]
    made = [
        paced(f"job{n}", part, size=f"{mix.message} B", load=mix.load)
        for n, part in enumerate(parts)
    ]
    made.append(
        paced(
            "files",
            [*clients, *servers],
            servers=plant.servers,
            size="512 KiB",
            load=mix.files,
            reads=mix.reads,
        )
    )
    made.append(paced("copies", servers, size="1 MiB", load=mix.copies))
    return made


def base(fabric: dict[str, Any], mix: Mix) -> dict[str, Any]:
    """The scenario of one draw."""
    return {
        "name": "inference",
        "seed": 1,
        "fabric": fabric,
        "job": jobs(mix),
        "engine": {"routing": "deterministic", "packet": "2 KiB", "header": "38 B"},
        "telemetry": {"windows": WINDOWS, "messages": False, "scheme": "full", "one_in": 64},
    }


def write_fabric(path: Path, receivers: Receivers, seed: int = 1, plant: Plant = REDUCED) -> None:
    """The fabric as an edge list, with an adapter between each node and its cable.

    An adapter is a switch of two ports: what arrives by the cable waits in its buffer for the node,
    which takes it at its own rate; the node sends at line rate.
    """
    pattern = {"kind": "ring", "size": "1 KiB", "ranks": 2}
    plain = {
        "name": "shape",
        "fabric": {"topology": dict(plant.shape)},
        "job": [{"pattern": pattern}],
    }
    fabric = prepare(load_scenario(plain)).fabric
    names = [*fabric.node_name, *fabric.switch_name]
    nodes = fabric.n_nodes
    random = np.random.default_rng([seed, 0x510])
    rate = np.full(nodes, LINE_GBPS)
    slow = random.permutation(plant.hosts)[: round(receivers.slow * plant.hosts)]
    rate[slow] = receivers.drain
    rate[plant.hosts :] = receivers.servers
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["src", "dst", "rate_gbps", "src_kind", "dst_kind"])

        def line(a: str, b: str, gbps: float, kinds: tuple[str, str]) -> None:
            writer.writerow([a, b, f"{gbps:.6g}", *kinds])

        for src, dst, gbps in zip(
            fabric.link_src.tolist(),
            fabric.link_dst.tolist(),
            fabric.link_gbps.tolist(),
            strict=True,
        ):
            ends = [
                (f"adapter-{names[v]}", "switch") if v < nodes else (names[v], "switch")
                for v in (src, dst)
            ]
            line(ends[0][0], ends[1][0], gbps, (ends[0][1], ends[1][1]))
        for node in range(nodes):
            line(names[node], f"adapter-{names[node]}", LINE_GBPS, ("host", "switch"))
            line(f"adapter-{names[node]}", names[node], rate[node], ("switch", "host"))


_CLASS: Final = (
    (r"^tor", "ToR"),
    (r"-leaf", "Leaf"),
    (r"-spine", "Spine"),
    (r"^storage-leaf", "GladeLeaf"),
    (r"^storage-spine", "GladeSpine"),
)


def ports(links: pl.DataFrame, truth: pl.DataFrame) -> pl.DataFrame:
    """Stall of every switch port: ``run, category, port_type, total, maximum``."""
    category: Any = pl.lit(None, pl.String)
    for expression, name in _CLASS:
        category = (
            pl.when(pl.col("src_name").str.contains(expression))
            .then(pl.lit(name))
            .otherwise(category)
        )
    switch_ports = links.with_columns(category=category).filter(
        pl.col("category").is_not_null()
        & ~pl.col("src_name").str.starts_with("adapter")
        & ~pl.col("dst_name").str.starts_with("storage-spine")
    )
    window = truth.group_by("run", "link").agg(
        total=pl.col("stall_ps").sum(), maximum=pl.col("stall_ps").max()
    )
    return (
        switch_ports.select("run", "link", "category", port_type="direction")
        .join(window, on=["run", "link"], how="left")
        .with_columns(pl.col("total", "maximum").fill_null(0))
    )


CLASSES: Final = tuple(kind for kind in ROUNDS if kind[0] != "GladeSpine")
"""Without the spines of storage: all copies go through the directors, which also join the storage
leaves, and the spines carry nothing."""
PUBLISHED: Final = np.array([ROUNDS[kind][1] / ROUNDS[kind][0] for kind in CLASSES])


def shares(stalls: pl.DataFrame, runs: int) -> NDArray[np.float64]:
    """Share of the ports of each class with a stall, shape (runs, classes)."""
    table = stalls.group_by("run", "category", "port_type").agg(share=(pl.col("total") > 0).mean())
    out = np.zeros((runs, len(CLASSES)))
    for run, category, kind, share in table.iter_rows():
        if (category, kind) in CLASSES:
            out[run, CLASSES.index((category, kind))] = share
    return out


def typical(stalls: pl.DataFrame, lengths_ps: NDArray[np.int64]) -> NDArray[np.float64]:
    """Median over stalled ports of the share of time stalled, shape (runs,)."""
    medians = stalls.filter(pl.col("total") > 0).group_by("run").agg(pl.col("total").median())
    out = np.zeros(len(lengths_ps))
    for run, total in medians.iter_rows():
        out[run] = total / lengths_ps[run]
    return out


@dataclass(frozen=True)
class Draws:
    """Every draw with its results.

    Attributes:
        parameters: One row a draw: the mix, ``drain`` and ``slow``.
        shares: Share of ports with a stall, shape (draws, classes).
        typical: Median stall fraction of the stalled ports, shape (draws,).
        lasting: Whether a draw is :func:`sustained`, shape (draws,).
    """

    parameters: pl.DataFrame
    shares: NDArray[np.float64]
    typical: NDArray[np.float64]
    lasting: NDArray[np.bool_]

    def distance(self) -> NDArray[np.float64]:
        """Root-mean-square difference of the shares.

        Draws that stall too long come after all others, and draws that cannot last after those.
        """
        rms = np.sqrt(((self.shares - PUBLISHED) ** 2).mean(axis=1))
        return np.asarray(rms + (self.typical > MOST) + 2 * ~self.lasting, np.float64)

    def kept(self) -> NDArray[np.int64]:
        """Numbers of the draws that are kept, nearest first."""
        order = np.argsort(self.distance(), kind="stable")
        return np.asarray(order[: max(1, round(KEPT * self.lasting.sum()))], np.int64)


def simulate_draws(mixes: list[Mix], receivers: list[Receivers], folder: Path) -> Draws:
    """Every mix with every kind of receivers."""
    files = []
    for number, kind in enumerate(receivers):
        files.append(str(folder / f"fabric{number}.csv"))
        write_fabric(Path(files[-1]), kind)
    study = sweep(
        base({"file": files[0]}, mixes[0]),
        over={"fabric.file": files, "job": [jobs(mix) for mix in mixes]},
        out=folder / "sweep",
        tables=("links", "truth"),
        workers=1,
    )
    if study.failures:
        raise SystemExit(
            f"{len(study.failures)} draws failed: {next(iter(study.failures.values()))}"
        )
    frame = study.frame.sort("run")
    if frame["fabric.file"].to_list() != [file for file in files for _ in mixes]:
        raise SystemExit("the sweep's order is not receivers by mixes")
    rows = [{**vars(mix), **vars(kind)} for kind in receivers for mix in mixes]
    stalls = ports(study.table("links"), study.table("truth"))
    return Draws(
        pl.DataFrame(rows),
        shares(stalls, len(rows)),
        typical(stalls, frame["end_ps"].to_numpy()),
        np.array([sustained(mix, kind) for kind in receivers for mix in mixes]),
    )


def one_run(
    mix: Mix,
    receivers: Receivers,
    duration: str = DURATION,
    plant: Plant = REDUCED,
    **engine: Any,
) -> pl.DataFrame:
    """Stall of every switch port of one draw, with the run's length: ``…, length_ps``."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fabric.csv"
        write_fabric(path, receivers, plant=plant)
        data = base({"file": str(path)}, mix)
        data["job"] = jobs(mix, duration, plant=plant)
        data["engine"].update(engine)
        run = simulate(load_scenario(data))
    numbered = [run.tables[name].with_columns(run=pl.lit(0)) for name in ("links", "truth")]
    return ports(*numbered).with_columns(length_ps=pl.lit(run.elapsed_ps))
