"""The scenarios on which the diagnosis is measured: generated, with labels known by construction.

A scenario is a function of its number alone. The number's parity is its split: even numbers are for
development, odd ones only for testing. Its label is the cause that was built in; a draw is kept
only if counterfactual simulation confirms it (:func:`confirm`): removing that cause, and nothing
else, must recover most of the lost time. None of this uses samples or the diagnosis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl

from tailback import Scenario, TailbackError
from tailback.evaluate import Change, Evaluate
from tailback.placement import place
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import PreparedScenario, make_evaluate, prepare

LABELS = (
    "pattern",
    "placement",
    "other-traffic",
    "routing",
    "slow-link",
    "injection",
    "not-network",
)

ATTEMPTS = 60
WORTH = 0.08
"""Share of the observed time that removing the cause must save: well above what the diagnosis calls
worth fixing, so that the label is unambiguous."""

MOST = 0.6
"""Share of all lost time that it must recover."""

RIVAL = 0.5
"""How much removing any other cause alone may recover, relative to the labelled one."""

TRIED = ("block", "metis", "tile", "round-robin")


@dataclass(frozen=True)
class Case:
    """One scenario with its label.

    Attributes:
        number: Its number, from which everything follows.
        label: The cause that was built in.
        kind: Kind of fabric.
        scenario: Everything, as it happened.
        saved: Share of the observed time saved by removing each cause alone, and ``lost``.
        rejected: Draws of this number that counterfactual simulation did not confirm.
    """

    number: int
    label: str
    kind: str
    scenario: Scenario
    saved: dict[str, float] = field(default_factory=dict)
    rejected: int = 0

    @property
    def split(self) -> str:
        """``build`` or ``judge``."""
        return "judge" if self.number % 2 else "build"

    def as_known(self) -> Scenario:
        """The scenario as a user knows it: no other job, no cable below its nominal rate."""
        data = self.scenario.model_dump(mode="json")
        data["job"] = [job for job in data["job"] if job["observed"]]
        data["fabric"]["degraded"] = []
        return Scenario.model_validate(data)


Draw = Callable[[np.random.Generator], tuple[str, dict[str, Any]]]


# --- fabrics ---------------------------------------------------------------------------------


def _tree(rng: np.random.Generator, taper: float) -> tuple[str, dict[str, Any], int]:
    """A fat tree of two or three levels; ``taper`` is up-links over hosts of a leaf."""
    hosts = int(rng.choice([4, 8, 16]))
    up = max(round(hosts * taper), 1)
    if rng.random() < 0.35 and hosts <= 8:
        pods, leaves = int(rng.choice([2, 3, 4])), int(rng.choice([2, 4]))
        cores = up * max(leaves // 2, 1) if taper < 1 else up * leaves
        shape = {
            "hosts_per_leaf": hosts,
            "leaves": leaves,
            "aggregation": up,
            "pods": pods,
            "cores": cores,
            "aggregation_uplinks": cores // up,
        }
        return "fat tree, 3 levels", {"fat_tree": shape}, hosts * leaves * pods
    leaves = int(rng.choice([4, 6, 8] if hosts > 4 else [4, 8, 12]))
    shape = {"hosts_per_leaf": hosts, "leaves": leaves, "aggregation": up}
    return "fat tree, 2 levels", {"fat_tree": shape}, hosts * leaves


def _torus(rng: np.random.Generator) -> tuple[str, dict[str, Any], int]:
    dims = [[4, 4], [6, 6], [4, 4, 4], [8, 4], [4, 4, 2]][int(rng.integers(5))]
    each = int(rng.choice([1, 2])) if np.prod(dims) <= 36 else 1
    options = {"kind": "torus", "dims": dims, "nodes_per_switch": each, "rates": ["100 Gb/s"]}
    return "torus", {"topology": options}, int(np.prod(dims)) * each


def _dragonfly(rng: np.random.Generator) -> tuple[str, dict[str, Any], int]:
    routers, ports = (4, 2) if rng.random() < 0.5 else (4, 1)
    groups, each = (9 if ports == 2 else 5), int(rng.choice([1, 2, 3]))
    options = {
        "kind": "dragonfly",
        "nodes_per_router": each,
        "routers": routers,
        "global_ports": ports,
        "groups": groups,
    }
    section: dict[str, Any] = {"topology": options}
    if rng.random() < 0.3:
        section["routes"] = "ugal"
    return "dragonfly", section, groups * routers * each


def _hyperx(rng: np.random.Generator) -> tuple[str, dict[str, Any], int]:
    dims = [[4, 4], [3, 3], [5, 3]][int(rng.integers(3))]
    each = int(rng.choice([2, 4]))
    options = {"kind": "hyperx", "dims": dims, "nodes_per_switch": each, "rates": ["100 Gb/s"]}
    return "hyperx", {"topology": options}, int(np.prod(dims)) * each


def _any(rng: np.random.Generator, taper: float) -> tuple[str, dict[str, Any], int]:
    pick = rng.random()
    if pick < 0.5:
        return _tree(rng, taper)
    return (_torus, _dragonfly, _hyperx)[int((pick - 0.5) * 6)](rng)


# --- traffic ---------------------------------------------------------------------------------


def _size(rng: np.random.Generator, low: int, high: int) -> str:
    """A message size between two powers of two, in KiB."""
    return f"{2 ** int(rng.integers(low, high + 1))} KiB"


def _grid(ranks: int, rng: np.random.Generator, dimensions: int) -> list[int]:
    """Extents near a square (or cube) whose product is at most ``ranks``."""
    if dimensions == 2:
        x = max(d for d in range(1, int(ranks**0.5) + 1) if ranks % d == 0)
        grid = [x, ranks // x]
    else:
        z = max(d for d in range(1, round(ranks ** (1 / 3)) + 1) if ranks % d == 0)
        grid = [*_grid(ranks // z, rng, 2), z]
    rng.shuffle(grid)
    return grid


def _stencil(rng: np.random.Generator, ranks: int) -> dict[str, Any]:
    dimensions = int(rng.choice([2, 3]))
    return {
        "kind": f"stencil{dimensions}d",
        "dims": _grid(ranks, rng, dimensions),
        "size": _size(rng, 6, 8),
        "rounds": int(rng.integers(1, 4)),
        "post": str(rng.choice(["sequence", "all"], p=[0.7, 0.3])),
        "periodic": bool(rng.random() < 0.5),
        "boundary": "skip",
    }


def _stream(rng: np.random.Generator, kind: str, ranks: int) -> dict[str, Any]:
    return {
        "kind": kind,
        "ranks": ranks,
        "size": _size(rng, 6, 9),
        "messages": int(rng.integers(2, 6)),
    }


def _local(rng: np.random.Generator, ranks: int) -> dict[str, Any]:
    """Traffic that a good placement keeps local."""
    return _stencil(rng, ranks) if rng.random() < 0.75 else _stream(rng, "ring", ranks)


def _engine(rng: np.random.Generator, routing: str) -> dict[str, Any]:
    return {
        "routing": routing,
        "buffer": str(rng.choice(["32 KiB", "64 KiB", "128 KiB"])),
        "packet": str(rng.choice(["2 KiB", "4 KiB"])),
        "injection": str(rng.choice(["fifo", "round-robin"])),
    }


def _spread(rng: np.random.Generator) -> str:
    return str(rng.choice(["adaptive", "random"], p=[0.8, 0.2]))


def _scenario(
    rng: np.random.Generator, fabric: dict[str, Any], jobs: list[dict[str, Any]], routing: str
) -> dict[str, Any]:
    return {
        "name": "generated",
        "seed": int(rng.integers(1, 2**31)),
        "fabric": fabric,
        "job": jobs,
        "engine": _engine(rng, routing),
        "telemetry": {"windows": int(rng.choice([8, 12]))},
    }


# --- one cause each --------------------------------------------------------------------------


def draw_pattern(rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """Nodes are sent more than they can receive, in a network that could carry it."""
    kind, fabric, nodes = _any(rng, 1.0)
    if rng.random() < 0.5:
        ranks = int(rng.integers(max(nodes // 2, 8), nodes + 1))
        pattern: dict[str, Any] = {
            "kind": "reduce-naive",
            "ranks": ranks,
            "size": _size(rng, 3, 6),
            "arrays": int(rng.integers(4, 13)),
            "root": int(rng.integers(ranks)),
        }
    else:
        pattern = _stream(rng, "uniform", nodes)
        pattern["post"] = str(rng.choice(["sequence", "all"]))
    placement = str(rng.choice(["block", "random"]))
    job = {"pattern": pattern, "placement": placement}
    return kind, _scenario(rng, fabric, [job], _spread(rng))


def draw_placement(rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """Neighbours are far apart in a network with less capacity inside than at its edge."""
    kind, fabric, nodes = _any(rng, float(rng.choice([0.25, 0.5, 0.5, 0.75])))
    each = int(rng.choice([1, 1, 1, 2, 4]))
    job = {
        "pattern": _local(rng, nodes * each),
        "ranks_per_host": each,
        "placement": str(rng.choice(["random", "random", "round-robin-leaves", "block"])),
    }
    return kind, _scenario(rng, fabric, [job], _spread(rng))


def draw_other(rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """Another job shares the links of ours, which would run well alone."""
    kind, fabric, nodes = _any(rng, float(rng.choice([0.5, 0.75, 1.0])))
    stride = int(rng.choice([2, 2, 3]))
    mine = [n for n in range(nodes) if n % stride == 0]
    others = [n for n in range(nodes) if n % stride]
    pattern = (
        _local(rng, len(mine)) if rng.random() < 0.6 else _stream(rng, "permutation", len(mine))
    )
    noise: dict[str, Any]
    if rng.random() < 0.75:
        noise = {**_stream(rng, "uniform", len(others)), "post": "all", "messages": 12}
    else:
        noise = {
            "kind": "reduce-naive",
            "ranks": len(others),
            "size": "64 KiB",
            "arrays": 12,
            "root": int(rng.integers(len(others))),
        }
    jobs = [
        {"pattern": pattern, "hosts": ",".join(map(str, mine)), "placement": "block"},
        {
            "name": "others",
            "pattern": noise,
            "hosts": ",".join(map(str, others)),
            "observed": False,
            "placement": "random",
            "repeat": int(rng.integers(1, 4)),
        },
    ]
    routing = str(rng.choice(["adaptive", "random", "deterministic"], p=[0.6, 0.15, 0.25]))
    return kind, _scenario(rng, fabric, jobs, routing)


def draw_routing(rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """Static routes put several flows on one link of a tree that has capacity for all."""
    kind, fabric, nodes = _tree(rng, 1.0)
    pick = rng.random()
    if pick < 0.6:
        pattern = _stream(rng, "permutation", nodes)
    elif pick < 0.8:
        pattern = _stencil(rng, nodes)
    else:
        pattern = _stream(rng, "ring", nodes)
    job = {"pattern": pattern, "placement": "random"}
    return kind, _scenario(rng, fabric, [job], "deterministic")


def draw_slow(rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """One cable serves a fraction of its rate; the network is otherwise fast enough."""
    kind, fabric, nodes = _any(rng, 1.0)
    pattern = _stencil(rng, nodes) if rng.random() < 0.5 else _stream(rng, "permutation", nodes)
    routing = str(rng.choice(["adaptive", "random", "deterministic"], p=[0.4, 0.35, 0.25]))
    data = _scenario(rng, fabric, [{"pattern": pattern, "placement": "block"}], routing)
    network = prepare(parse(data)).fabric
    ends = network.link_src if rng.random() < 0.3 else network.link_src[network.link_src >= nodes]
    start = int(rng.choice(ends))
    port = int(rng.choice(network.link_src_port[network.link_src == start]))
    rate = float(rng.choice([10.0, 25.0, 40.0, 50.0]))
    fabric["degraded"] = [
        {"cable": f"{network.vertex_name(start)}[{port}]", "rate": f"{rate:g} Gb/s"}
    ]
    return kind, data


def draw_injection(rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """Adapters send all the time at their own line rate and nothing delays them."""
    kind, fabric, nodes = _any(rng, float(rng.choice([1.0, 1.5])))
    if rng.random() < 0.5:
        pattern = {**_stream(rng, "ring", nodes), "size": _size(rng, 8, 10)}
    else:
        pattern = {**_stencil(rng, nodes), "size": _size(rng, 7, 9)}
    pattern["post"] = str(rng.choice(["sequence", "all"]))
    return kind, _scenario(rng, fabric, [{"pattern": pattern, "placement": "block"}], _spread(rng))


def draw_not_network(rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """Computation, imbalance or the latency of small messages takes the time."""
    kind, fabric, nodes = _any(rng, float(rng.choice([0.5, 1.0])))
    pattern = _stencil(rng, nodes)
    if rng.random() < 0.6:
        pattern["compute"] = f"{int(rng.integers(200, 3000))} us"
        pattern["rounds"] = int(rng.integers(2, 5))
    else:
        pattern |= {"size": f"{int(rng.integers(1, 9)) * 256} B", "rounds": 40, "post": "sequence"}
    placement = str(rng.choice(["block", "random"]))
    return kind, _scenario(
        rng, fabric, [{"pattern": pattern, "placement": placement}], _spread(rng)
    )


DRAWS: dict[str, Draw] = {
    "pattern": draw_pattern,
    "placement": draw_placement,
    "other-traffic": draw_other,
    "routing": draw_routing,
    "slow-link": draw_slow,
    "injection": draw_injection,
    "not-network": draw_not_network,
}


# --- labels, by counterfactual simulation ----------------------------------------------------


def make(number: int) -> Case:
    """Scenario ``number`` with its label, confirmed.

    Raises:
        RuntimeError: No draw of this number was confirmed.
    """
    label = LABELS[number // 2 % len(LABELS)]
    for attempt in range(ATTEMPTS):
        rng = np.random.Generator(np.random.Philox(key=[number, attempt]))
        kind, data = DRAWS[label](rng)
        try:
            scenario = parse(data)
            prepared = prepare(scenario)
            saved = counterfactuals(prepared)
        except TailbackError:
            continue  # This draw does not fit: too few hosts for a grid, for example.
        if confirm(label, saved):
            return Case(number, label, kind, scenario, saved, attempt)
    raise RuntimeError(f"scenario {number} ({label}): no draw of {ATTEMPTS} was confirmed")


def counterfactuals(prepared: PreparedScenario) -> dict[str, float]:
    """Share of the observed time that is saved by removing one cause alone.

    Returns:
        ``pattern``: endpoints that never queue; ``placement``: the best placement tried;
        ``other-traffic``: our job alone; ``routing``: adaptive; ``slow-link``: all cables healthy;
        ``rates``: adapters twice as fast on one ideal switch; ``lost``: everything but the
        adapters' own time; ``wire``: the busiest adapter's bytes at line rate, in observed times.
    """
    evaluate = make_evaluate(prepared)
    run = evaluate(Change())
    observed = run.elapsed_ps
    wire = wire_time(run, prepared)
    ideal = max(elapsed(evaluate, network="no-contention", background=False), wire)
    star = max(elapsed(evaluate, network="star", background=False), ideal)
    saved = {
        "lost": observed - ideal,
        "pattern": star - ideal,
        "placement": observed - best_placement(prepared, evaluate, observed),
        "other-traffic": observed - elapsed(evaluate, background=False),
        "routing": observed - elapsed(evaluate, routing="adaptive"),
        "slow-link": observed - elapsed(evaluate, network="healthy"),
        "rates": star - elapsed(fast_adapters(prepared), network="star", background=False),
        "wire": wire,
    }
    return {name: value / observed for name, value in saved.items()}


def confirm(label: str, saved: dict[str, float]) -> bool:
    """Whether the counterfactuals confirm the label, with a margin."""
    if label == "not-network":
        return saved["lost"] < 0.03 and saved["wire"] < 0.3 and saved["rates"] < 0.2
    if label == "injection":
        return saved["lost"] < 0.04 and saved["wire"] > 0.65 and saved["rates"] > 0.25
    gain = saved[label]
    rivals = [saved[name] for name in ("placement", "other-traffic", "routing", "slow-link")]
    if label == "routing":
        # If static routes collide, another placement may avoid that too; but with evenly spread
        # routes this placement would be no problem, so the routes are the cause.
        rivals.remove(saved["placement"])
    if label != "pattern":
        rivals.remove(gain)
        rivals.append(saved["pattern"])
    return gain >= WORTH and gain >= MOST * saved["lost"] and max(rivals) <= RIVAL * gain


def elapsed(evaluate: Evaluate, **change: Any) -> int:
    """Time of our job under a change."""
    return evaluate(Change(**change)).elapsed_ps


def wire_time(run: Run, prepared: PreparedScenario) -> int:
    """Time that our busiest adapter needs to send (or receive) its bytes at line rate."""
    ranks = run.tables["ranks"].select("rank", "node", "job")
    observed = run.tables["jobs"].filter("observed")["job"]
    ranks = ranks.filter(pl.col("job").is_in(observed.implode()))
    log = run.tables["messages"].filter(pl.col("switch_hops") > 0)
    sent = log.join(ranks, left_on="src_rank", right_on="rank").group_by("node")
    most = sent.agg(pl.col("size_bytes").sum())["size_bytes"].max()
    fabric = prepared.fabric
    rate = float(fabric.link_gbps[fabric.link_src < fabric.n_nodes].max())
    return round(float(most or 0) * 8000.0 / rate)  # type: ignore[arg-type]


def best_placement(prepared: PreparedScenario, evaluate: Evaluate, observed: int) -> int:
    """The shortest time of our job under any placement tried, including its own."""
    best = observed
    for name in TRIED:
        try:
            node = place(name, prepared.observed.problem, {})
        except TailbackError:
            continue
        best = min(best, evaluate(Change(placement=node)).elapsed_ps)
    return best


def fast_adapters(prepared: PreparedScenario) -> Evaluate:
    """The same with adapters of twice the rate."""
    fabric = prepared.fabric
    rate = (fabric.link_gbps if fabric.nominal_gbps is None else fabric.nominal_gbps).copy()
    edge = (fabric.link_src < fabric.n_nodes) | (fabric.link_dst < fabric.n_nodes)
    rate[edge] *= 2.0
    faster = replace(fabric, link_gbps=rate, nominal_gbps=None)
    return make_evaluate(replace(prepared, fabric=faster))
