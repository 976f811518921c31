"""Draws blind cases: a machine, a job on it, and faults confirmed by counterfactual simulation.

A case is a function of its number, its split and the seed. A draw is kept only if removing the
causes saves as much time as its kind of case requires, and if nothing else slows the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from blind_counters import STEPS
from blind_machine import Choice, Machine, d_mod_k, drawn, next_links, write_tables
from blind_programs import Script, Work, collect, exchange, halo, handover
from blind_reality import Counterfactual, Neighbour, Reality, placed
from numpy.typing import NDArray

from tailback.errors import PlacementError
from tailback.fabric import Fabric
from tailback.fabric.rates import data_rate_gbps
from tailback.scenario.model import FatTree

ATTEMPTS = 25
WORTH = 0.10
"""Share of the measured time that a single cause must cost."""
WORTH_MIXED = 0.05
"""The same of each cause of a mixture."""
NATURAL = 0.04
"""Largest share of the time that adaptive routes or another placement may save in a run without
causes that counts as healthy."""
OTHER_PLACEMENTS = ("tile", "metis", "round-robin")
"""Placements on the same hosts that are tried in a run without causes."""

MOST_CALLS = 12_000
"""Approximate number of MPI calls of a job."""

MOST_HOPS, LONG_HOPS = 2e6, 6e6
"""Approximate number of packet hops of a job, and of one that lasts seconds."""

MS = 10**9

KINDS: dict[str, tuple[str, ...]] = {
    "healthy": (),
    "slow_cable": ("slow_link",),
    "hidden_job": ("other_traffic",),
    "imbalance": ("imbalance",),
    "placement": ("placement",),
    "noise": ("noise",),
    "routing": ("routing",),
    "incast": ("pattern",),
    "late_partner": ("late_partner",),
    "slow_cable+hidden_job": ("slow_link", "other_traffic"),
    "imbalance+hidden_job": ("imbalance", "other_traffic"),
    "imbalance+slow_cable": ("imbalance", "slow_link"),
    "noise+slow_cable": ("noise", "slow_link"),
    "noise+placement": ("noise", "placement"),
    "placement+hidden_job": ("placement", "other_traffic"),
    "imbalance+incast": ("imbalance", "pattern"),
}
"""Kinds of cases and the causes that act in them."""

SEQUENCE = (
    "healthy",
    "slow_cable",
    "hidden_job",
    "imbalance",
    "placement",
    "healthy",
    "noise",
    "routing",
    "incast",
    "slow_cable+hidden_job",
    "healthy",
    "hidden_job",
    "slow_cable",
    "late_partner",
    "imbalance+hidden_job",
    "healthy",
    "placement",
    "imbalance",
    "hidden_job",
    "imbalance+slow_cable",
    "healthy",
    "slow_cable",
    "noise",
    "routing",
    "noise+slow_cable",
    "healthy",
    "hidden_job",
    "incast",
    "late_partner",
    "placement+hidden_job",
    "healthy",
    "slow_cable",
    "hidden_job",
    "imbalance+incast",
    "noise+placement",
)
"""Kind of each case by its number, repeated cyclically."""

LONG_EVERY, LONG_AT = 12, 6
"""One in so many cases lasts seconds and has counters at 1 s."""


@dataclass(frozen=True)
class Case:
    """A blind case.

    Attributes:
        kind: One of :data:`KINDS`.
        long: It lasts seconds.
        reality: What happened.
        counterfactual: The costs of its causes.
        interval_ps: Time between readings of a port.
        facts: The drawn values, for the truth.
        rejected: Draws that were not confirmed.
    """

    kind: str
    long: bool
    reality: Reality
    counterfactual: Counterfactual
    interval_ps: int
    facts: dict[str, Any]
    rejected: int


class UnconfirmedError(Exception):
    """A draw in which the causes do not cost what the kind promises."""


def draw(number: int, split: str, seed: int, folder: Path) -> Case:
    """Case ``number`` of a split; its fabric and tables are written into ``folder``.

    Raises:
        RuntimeError: No draw was confirmed.
    """
    kind = SEQUENCE[number % len(SEQUENCE)]
    long = number % LONG_EVERY == LONG_AT
    reasons = []
    for attempt in range(ATTEMPTS):
        key = (number << 8) | attempt
        rng = np.random.Generator(np.random.Philox(key=[seed * 2 + (split == "judge"), key]))
        try:
            return _attempt(rng, kind, long, folder, attempt)
        except UnconfirmedError as reason:
            reasons.append(str(reason))
    raise RuntimeError(f"case {number} ({kind}): no draw was confirmed: {'; '.join(reasons)}")


def _attempt(rng: np.random.Generator, kind: str, long: bool, folder: Path, attempt: int) -> Case:
    causes = KINDS[kind]
    world = _World.draw(rng, causes, long, folder)
    application = _application(rng, world, causes, long)
    reality = _reality(rng, world, application, causes, folder)
    counterfactual = _outlasted(Counterfactual(reality, world.interval_ps // STEPS))
    _confirm(counterfactual)
    reality = counterfactual.reality
    facts = {**world.facts, **application.facts}
    facts["engine"] = reality.engine
    facts["link_efficiency"] = reality.efficiency
    facts["overhead_ps"] = reality.overhead_ps
    return Case(kind, long, reality, counterfactual, world.interval_ps, facts, attempt)


def _outlasted(counterfactual: Counterfactual) -> Counterfactual:
    """The same with other jobs that continue until our job has ended, even if they delay it.

    Raises UnconfirmedError if the routes or the placement are bad without any cause.
    """
    reality, clean = counterfactual.reality, counterfactual.clean_ps
    if not reality.adaptive:
        best = Counterfactual(replace(reality, adaptive=True)).clean_ps
        if clean - best > NATURAL * clean:
            raise UnconfirmedError(f"routes by load save {1 - best / clean:.0%} of a clean run")
    for name in OTHER_PLACEMENTS:
        try:
            node = placed(reality, name)
        except PlacementError:
            continue  # Tiles need ranks that form a grid.
        moved = Counterfactual(replace(reality, good_node=node))
        if clean - (best := moved.time_ps({*reality.causes, "placement"})) > NATURAL * clean:
            raise UnconfirmedError(f"placement {name} saves {1 - best / clean:.0%} of a clean run")
    if "other_traffic" not in reality.causes:
        return counterfactual
    alone = counterfactual.time_ps(["other_traffic"])
    reality = replace(reality, until_ps=reality.start_ps + round(1.4 * alone))
    # No simulation so far includes the other jobs.
    return replace(counterfactual, reality=reality)


def _confirm(counterfactual: Counterfactual) -> None:
    """Raise UnconfirmedError unless each cause costs enough."""
    causes = counterfactual.reality.causes
    if not causes:
        return
    elapsed_ps, clean = counterfactual.time_ps(), counterfactual.clean_ps
    worth = WORTH if len(causes) == 1 else WORTH_MIXED
    if elapsed_ps - clean < WORTH * elapsed_ps:
        raise UnconfirmedError(f"{', '.join(causes)} cost {1 - clean / elapsed_ps:.0%}")
    for cause, saved in counterfactual.removed_ps().items():
        if saved < worth * elapsed_ps:
            raise UnconfirmedError(f"{cause} costs {saved / elapsed_ps:.0%}")


# --- machines --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _World:
    """A machine, its routes, and the hosts of each job."""

    machine: Machine
    fabric: Fabric
    gbps: float
    adaptive: bool
    tables: NDArray[np.uint32]
    good: NDArray[np.uint32]
    hosts: NDArray[np.uint32]
    others: NDArray[np.uint32]
    per_host: int
    interval_ps: int
    length_ps: int
    facts: dict[str, Any]

    @classmethod
    def draw(
        cls, rng: np.random.Generator, causes: tuple[str, ...], long: bool, folder: Path
    ) -> _World:
        """Draw a machine on which the causes can act."""
        tapered = bool({"placement", "other_traffic"} & set(causes)) or rng.random() < 0.3
        shape = _shape(rng, tapered and "routing" not in causes, long)
        width, speed = (
            ("1x", "SDR")
            if long
            else ("4x", str(rng.choice(["QDR", "FDR", "EDR"], p=[0.5, 0.3, 0.2])))
        )
        machine = Machine(shape, width, speed)
        fabric = machine.write(folder / "fabric.ibnetdiscover")
        good = next_links(fabric, d_mod_k(shape.hosts_per_leaf, shape.aggregation))
        adaptive = "routing" not in causes and bool(rng.random() < 0.2)
        choose: Choice | None = None
        if "routing" in causes:
            choose = drawn(int(rng.integers(2**31)), float(rng.uniform(0.5, 1.0)))
        tables = good if choose is None else next_links(fabric, choose)
        if not adaptive:
            write_tables(folder / "lfts.txt", fabric, tables)
        if choose is not None:
            write_tables(folder / "good-lfts.txt", fabric, good)
        shared = "other_traffic" in causes
        hosts, others = _allocate(rng, fabric, shape.hosts_per_leaf, shared)
        per_host = 1 if rng.random() < 0.8 else 2
        interval = 10**12 if long else int(rng.choice([10, 10, 20, 50])) * MS
        if long and rng.random() < 0.3:
            interval //= 4
        gbps = data_rate_gbps(width, speed)
        assert gbps is not None
        length = float(rng.uniform(3.0, 4.2) * 10**12)
        if not long:
            # Fast links carry more packets in the same time.
            length = float(np.exp(rng.uniform(np.log(5), np.log(40)))) * MS * (32 / gbps) ** 0.5
        facts = {
            "hosts": fabric.n_hosts,
            "switches": fabric.n_switches,
            "speed": f"{width}{speed}",
            "adaptive": adaptive,
            "levels": int(fabric.switch_tier.max()) + 1,
        }
        return cls(
            machine,
            fabric,
            gbps,
            adaptive,
            tables,
            good,
            hosts,
            others,
            per_host,
            interval,
            round(length),
            facts,
        )


def _shape(rng: np.random.Generator, tapered: bool, long: bool) -> FatTree:
    if long:
        return FatTree(hosts_per_leaf=8, leaves=8, aggregation=4 if tapered else 8)
    if rng.random() < 0.4:
        up = 2 if tapered else 4
        pods, leaves = int(rng.choice([2, 4])), int(rng.choice([4, 4, 8]))
        cores = up * leaves // 2
        return FatTree(
            hosts_per_leaf=4,
            leaves=leaves,
            aggregation=up,
            pods=pods,
            cores=cores,
            aggregation_uplinks=cores // up if tapered else cores,
        )
    hosts = int(rng.choice([8, 16]))
    leaves = int(rng.choice([4, 6, 8]))
    return FatTree(hosts_per_leaf=hosts, leaves=leaves, aggregation=hosts // (2 if tapered else 1))


def _allocate(
    rng: np.random.Generator, fabric: Fabric, per_leaf: int, shared: bool
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Our hosts and the others': halves of leaves, as on a busy machine, or whole leaves."""
    n = fabric.n_hosts
    leaf, within = np.arange(n) // per_leaf, np.arange(n) % per_leaf
    if shared or rng.random() < 0.5:
        mine = (within < per_leaf // 2) == bool(rng.integers(2))
    else:
        mine = leaf < max(n // per_leaf * 3 // 4, 1)
    hosts = np.flatnonzero(mine)
    size = max(p for p in (16, 24, 32, 48, 64) if p <= len(hosts))
    hosts = hosts[:size]
    others = np.setdiff1d(np.arange(n), hosts)
    return hosts.astype(np.uint32), others.astype(np.uint32)


# --- jobs ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Application:
    """The program of our job: ``make(work, without)`` returns its scripts."""

    make: Callable[[Work, frozenset[str]], list[Script]]
    ranks: int
    facts: dict[str, Any]


def _grid(rng: np.random.Generator, ranks: int, dimensions: int) -> tuple[int, ...]:
    if dimensions == 1:
        return (ranks,)
    side = round(ranks ** (1 / dimensions))
    best = min((d for d in range(2, ranks + 1) if ranks % d == 0), key=lambda d: abs(d - side))
    other_sides = _grid(rng, ranks // best, dimensions - 1)
    return tuple(int(x) for x in rng.permutation([best, *other_sides]))


def _application(
    rng: np.random.Generator, world: _World, causes: tuple[str, ...], long: bool
) -> _Application:
    """Draw a program that lasts about as long as the case should."""
    ranks = len(world.hosts) * world.per_host
    ps_per_byte = 8000 / world.gbps
    network = set(causes) & {"slow_link", "other_traffic", "placement", "routing", "pattern"}
    share = float(rng.uniform(0.35, 0.7) if network else rng.uniform(0.08, 0.5))
    if long:
        share = float(rng.uniform(0.3, 0.45) if network else rng.uniform(0.1, 0.3))
    size = int(2 ** rng.integers(19, 22)) if long else int(2 ** rng.integers(15, 19))
    reduce_every = int(rng.choice([0, 1, 4, 10]))
    kind, messages = _pattern(rng, world, causes, ranks)
    sent = messages * size * world.per_host * ps_per_byte
    compute = sent * (1 - share) / share
    if kind == "handover":
        compute = sent * float(rng.uniform(1.5, 6.0))
    # Few large messages rather than many small ones: every call costs time to simulate.
    most = max(MOST_CALLS // (ranks * 2 * (messages + 1)), 8)
    while size < 4 << 20 and world.length_ps / (sent + compute) > most:
        size, sent, compute = 2 * size, 2 * sent, 2 * compute
    hops = ranks * messages * size / 4096 * 4
    most = min(most, int((LONG_HOPS if long else MOST_HOPS) / hops))
    rounds = int(np.clip(world.length_ps / (sent + compute), 6, max(most, 6)))
    facts: dict[str, Any] = {
        "program": kind,
        "ranks": ranks,
        "ranks_per_host": world.per_host,
        "size_bytes": size,
        "rounds": rounds,
        "compute_ps": round(compute),
        "reduce_every": reduce_every,
    }

    make: Callable[[Work, frozenset[str]], list[Script]]
    if kind == "halo":
        dims = _grid(rng, ranks, int(rng.choice([2, 3])))
        blocking = bool(rng.random() < 0.3)
        facts |= {"grid": list(dims), "blocking": blocking}

        def make(work: Work, without: frozenset[str]) -> list[Script]:
            return halo(dims, size, rounds, compute, work, reduce_every, blocking)

    elif kind == "exchange":
        shifts = [1, ranks - 1, ranks // 2]
        facts["shifts"] = shifts

        def make(work: Work, without: frozenset[str]) -> list[Script]:
            return exchange(ranks, shifts, size, rounds, compute, work, reduce_every)

    elif kind == "collect":
        roots = max(ranks // messages, 1)
        facts["roots"] = roots

        def make(work: Work, without: frozenset[str]) -> list[Script]:
            spread = "pattern" in without
            return collect(ranks, roots, size, rounds, compute, work, spread)

    else:

        def make(work: Work, without: frozenset[str]) -> list[Script]:
            return handover(ranks, size, rounds, compute, work, "late_partner" not in without)

    return _Application(make, ranks, facts)


def _pattern(
    rng: np.random.Generator, world: _World, causes: tuple[str, ...], ranks: int
) -> tuple[str, int]:
    """Kind of the program and how many messages a rank sends (or a root gets) a round."""
    if "pattern" in causes:
        return "collect", int(rng.choice([4, 8, 16]))
    if "late_partner" in causes:
        return "handover", 1
    if "placement" in causes or rng.random() < 0.6:
        return "halo", 4
    return "exchange", 3


# --- what goes wrong -------------------------------------------------------------------------


def _engine(rng: np.random.Generator) -> tuple[dict[str, Any], float, int]:
    """Settings of the engine, the links' efficiency and the overhead of calls, ±50 %."""

    def around(value: float) -> float:
        return value * float(rng.uniform(0.5, 1.5))

    engine = {
        "packet": f"{int(rng.choice([2048, 4096]))} B",
        "header": f"{round(around(52))} B",
        "buffer": f"{round(around(65536)) // 4096 * 4096} B",
        "switch_delay": f"{round(around(60))} ns",
        "send_delay": f"{round(around(1000))} ns",
        "eager": f"{round(around(16384))} B",
        "local_rate": f"{around(200):.1f} Gb/s",
        "local_delay": f"{round(around(500))} ns",
        "injection": str(rng.choice(["fifo", "round-robin"])),
    }
    return engine, float(rng.uniform(0.88, 1.0)), round(around(500_000))


def _reality(
    rng: np.random.Generator,
    world: _World,
    application: _Application,
    causes: tuple[str, ...],
    folder: Path,
) -> Reality:
    """Apply the causes."""
    engine, efficiency, overhead = _engine(rng)
    quiet = Work(
        int(rng.integers(2**31)),
        float(rng.uniform(0.001, 0.015)),
        {},
        float(rng.uniform(20, 100)),
        8e6,
    )
    work = quiet
    if "imbalance" in causes:
        slow = rng.choice(application.ranks, int(rng.integers(1, 5)), replace=False)
        work = replace(work, slow={int(r): float(rng.uniform(1.25, 2.2)) for r in slow})
    if "noise" in causes:
        detour = float(np.exp(rng.uniform(np.log(50e6), np.log(600e6))))
        work = replace(
            work, rate_per_s=float(rng.uniform(0.03, 0.25)) / (detour * 1e-12), detour_ps=detour
        )
    good = np.repeat(world.hosts, world.per_host)
    node = rng.permutation(good) if "placement" in causes else good
    start = round(world.interval_ps * float(rng.uniform(0.3, 1.2)))
    until = start + world.length_ps
    neighbours = _neighbours(rng, world, "other_traffic" in causes)
    reality = Reality(
        seed=int(rng.integers(1, 2**31)),
        fabric=world.fabric,
        fabric_file=folder / "fabric.ibnetdiscover",
        tables_file=None if world.adaptive else folder / "lfts.txt",
        good_tables=folder / ("good-lfts.txt" if "routing" in causes else "lfts.txt"),
        adaptive=world.adaptive,
        engine=engine,
        efficiency=efficiency,
        overhead_ps=overhead,
        program=application.make,
        work=work,
        quiet=quiet,
        node=node.astype(np.uint32),
        good_node=good.astype(np.uint32),
        start_ps=start,
        until_ps=until,
        neighbours=tuple(neighbours),
        causes=causes,
    )
    if "slow_link" in causes:
        reality = replace(reality, slow=_slow_cable(rng, world, reality))
    return reality


def _slow_cable(
    rng: np.random.Generator, world: _World, reality: Reality
) -> tuple[tuple[str, float], ...]:
    """One cable that much of our traffic crosses, and its reduced rate."""
    load = _loads(world, reality)
    fabric = world.fabric
    inner = (fabric.link_src >= fabric.n_nodes) & (fabric.link_dst >= fabric.n_nodes)
    if rng.random() < 0.25:
        inner = ~inner
    used = np.flatnonzero(inner & (load > 0))
    if not len(used):
        raise UnconfirmedError("our traffic crosses no such cable")
    heavy = used[np.argsort(-load[used])][: max(len(used) // 4, 1)]
    link = int(rng.choice(heavy))
    name = f"{fabric.vertex_name(int(fabric.link_src[link]))}[{int(fabric.link_src_port[link])}]"
    return ((name, float(fabric.link_gbps[link] * rng.uniform(0.25, 0.8))),)


def _loads(world: _World, reality: Reality) -> NDArray[np.float64]:
    """Bytes of our messages over each link by the tables, shape (L,)."""
    fabric = world.fabric
    load = np.zeros(fabric.n_links)
    first = {
        int(fabric.link_src[at]): at
        for at in range(fabric.n_links)
        if fabric.link_src[at] < fabric.n_nodes
    }
    for rank, script in enumerate(reality.scripts()):
        for call in script:
            if call.name not in ("MPI_Send", "MPI_Isend"):
                continue
            src, dst = int(reality.node[rank]), int(reality.node[call.peer])
            at = first[src]
            while src != dst:
                load[at] += call.size_bytes
                vertex = int(fabric.link_dst[at])
                if vertex == dst:
                    break
                at = int(world.tables[vertex - fabric.n_nodes, dst])
    return load


def _neighbours(rng: np.random.Generator, world: _World, guilty: bool) -> list[Neighbour]:
    """Other jobs: the one that delays ours, and some that do not."""
    out = []
    others = world.others
    leaf = world.fabric.node_switch[others]
    ours = np.unique(world.fabric.node_switch[world.hosts])
    beside = others[np.isin(leaf, ours)]
    rate = world.gbps / 8000
    period = world.length_ps / float(rng.uniform(6, 25))
    if guilty:
        if len(beside) < 12:
            raise UnconfirmedError("no hosts beside ours for another job")
        most = min(len(beside), 12 if world.interval_ps >= 200 * MS else 24)
        size = int(rng.integers(max(most * 2 // 3, 8), most + 1))
        hosts = rng.choice(beside, size, replace=False)
        out.append(
            Neighbour(
                str(int(rng.integers(1000, 9999))),
                hosts.tolist(),
                {
                    "partner": _derangement(rng, size),
                    "rate": rate,
                    "period_ps": period,
                    "size": int(2 ** rng.integers(17, 20)),
                    "seed": int(rng.integers(2**31)),
                    "duty": (float(rng.uniform(0.05, 0.4)), float(rng.uniform(0.6, 1.0))),
                    "inflight": int(rng.choice([2, 4])),
                },
                bool(rng.random() < 0.75),
                False,
            )
        )
    elif rng.random() < 0.5 and len(others) >= 4:
        # A job whose partners are all on its own leaf: it shares no link with us.
        which = int(rng.choice(np.unique(leaf)))
        hosts = others[leaf == which]
        if len(hosts) >= 2:
            out.append(
                Neighbour(
                    str(int(rng.integers(1000, 9999))),
                    hosts.tolist(),
                    {
                        "partner": np.roll(np.arange(len(hosts)), 1),
                        "rate": rate,
                        "period_ps": period,
                        "size": 1 << 16,
                        "seed": int(rng.integers(2**31)),
                        "duty": (0.05, 0.4),
                        "inflight": 1,
                    },
                    True,
                    True,
                )
            )
    return out


def _derangement(rng: np.random.Generator, n: int) -> NDArray[np.int64]:
    order = rng.permutation(n)
    partner = np.empty(n, np.int64)
    partner[order] = np.roll(order, 1)
    return partner
