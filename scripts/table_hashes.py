"""SHA-256 of every table of some 250 small runs: shows that a change to the code keeps all results.

    python scripts/table_hashes.py > before.txt
    … change the code, rebuild the extension …
    python scripts/table_hashes.py > after.txt && cmp before.txt after.txt

The runs cover every topology with each of its routing rules, the engine's settings, sampling
schemes and probes, the traffic patterns, the fluid model and the short examples, on one thread and
on two. Each line holds the run, the table, and a hash of the table's content: names, types and
values of its columns. Nothing that depends on the date or the machine is hashed. The summary of a
run has a line of its own.

Takes less than a CPU minute. `--only TEXT` prints only the runs whose name contains TEXT.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tailback import _core  # noqa: E402
from tailback.fluid import FlowPaths, assignment, max_min, simulate_flows  # noqa: E402
from tailback.run.run import Run  # noqa: E402
from tailback.scenario.model import load, parse  # noqa: E402
from tailback.simulation import (  # noqa: E402
    FluidOptions,
    decode_samples,
    prepare,
    simulate,
    simulate_fluid,
)

EXAMPLES = ROOT / "examples"

ALLTOALL = {"pattern": {"kind": "alltoall", "ranks": 16, "size": "24 KiB", "compute": "2 us"}}
TREE = {"kind": "k-ary-n-tree", "k": 4, "n": 2}
TAPERED = {"kind": "pgft", "children": [6, 3, 4], "parents": [1, 3, 2]}
TORUS = {"kind": "torus", "dims": [4, 4], "delay": "20 ns"}
LIGHTS = {"threshold": "16 KiB"}

TOPOLOGIES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "torus": (TORUS, ["dimension-order", "valiant", "ugal", "up-down"]),
    "torus-5d": (
        {"kind": "torus", "dims": [2, 3, 2, 2, 2], "cables": [1, 2, 1, 1, 1]},
        ["dimension-order", "ugal"],
    ),
    "half-wrapped": (
        {"kind": "torus", "dims": [4, 4], "wrap": [True, False]},
        ["dimension-order", "valiant"],
    ),
    "mesh": (
        {"kind": "mesh", "dims": [3, 4, 2], "tie": "parity"},
        ["dimension-order", "valiant", "ugal", "up-down"],
    ),
    "blue-waters": ({"kind": "blue-waters", "dims": [4, 3, 4]}, ["dimension-order", "valiant"]),
    "hyperx": (
        {"kind": "hyperx", "dims": [4, 3], "cables": [1, 2], "nodes_per_switch": 2},
        ["minimal", "valiant", "ugal", "up-down"],
    ),
    "dragonfly": (
        {
            "kind": "dragonfly",
            "groups": 5,
            "nodes_per_router": 1,
            "routers": 4,
            "global_ports": 1,
        },
        ["minimal", "valiant", "ugal", "up-down"],
    ),
    "dragonfly-plus": (
        {
            "kind": "dragonfly-plus",
            "nodes_per_leaf": 2,
            "leaves": 3,
            "spines": 2,
            "groups": 3,
            "global_ports": 1,
        },
        ["minimal", "valiant", "ugal", "up-down"],
    ),
    "tree": (TREE, ["up-down"]),
    "tapered": (TAPERED, ["up-down"]),
    "modified-tree": (
        {"kind": "modified-k-ary-n-tree", "k": 3, "n": 3, "width": 2},
        ["horizontal", "up-down"],
    ),
    "rails": ({"kind": "pgft", "children": [8, 4], "parents": [1, 4], "rails": 2}, ["up-down"]),
    "planes": ({"kind": "k-ary-n-tree", "k": 4, "n": 2, "planes": 2}, ["up-down"]),
    "yellowstone": (
        {
            "kind": "yellowstone",
            "hosts_per_tor": 2,
            "tors_per_group": 3,
            "groups": 3,
            "directors": 2,
            "leaves": 7,
            "spines": 2,
            "servers_per_leaf": 2,
        },
        ["up-down"],
    ),
}

ENGINE: dict[str, dict[str, Any]] = {
    "packet": {"packet": "2 KiB", "header": "64 B"},
    "one-packet-buffers": {"buffer": "4 KiB"},
    "output-buffering": {"buffering": "output", "buffer": "16 KiB"},
    "store-and-forward": {"switching": "store-and-forward"},
    "random": {"routing": "random"},
    "deterministic": {"routing": "deterministic"},
    "vc": {"routing": "vc", "vc_entries": 8},
    "vc-short-of-entries": {"routing": "vc", "vc_entries": 1, "buffer": "8 KiB"},
    "round-robin-outputs": {"arbitration": "round-robin"},
    "crossbar": {"crossbar_speedup": 1.5},
    "slow-crossbar": {"crossbar_speedup": 0.5, "arbitration": "round-robin"},
    "injection-round-robin": {"injection": "round-robin"},
    "injection-per-destination": {"injection": "per-destination"},
    "eager": {"eager": "1 GiB", "send_delay": "0 ns"},
    "rendezvous": {"eager": "0 B"},
    "infiniband": {
        "injection": "per-destination",
        "congestion_control": {**LIGHTS, "victims": True},
    },
    "dcms": {
        "injection": "per-destination",
        "congestion_control": {**LIGHTS, "scheme": "dcms"},
    },
    "rgbcc": {
        "injection": "per-destination",
        "congestion_control": {**LIGHTS, "scheme": "rgbcc", "green": "8 KiB"},
    },
    "ecmp": {"routing": "ecmp"},
    "pfc": {"flow_control": {"kind": "pfc", "xoff": "8 KiB"}, "buffer": "32 KiB"},
    "dcqcn": {
        "injection": "per-destination",
        "routing": "ecmp",
        "buffer": "32 KiB",
        "flow_control": {"kind": "pfc", "xoff": "8 KiB", "xon": "2 KiB"},
        "congestion_control": {"scheme": "dcqcn"},
        "dcqcn": {"kmax": "20 kB", "pmax": 0.5},
    },
    "elastic-assigned": {
        "injection": "per-destination",
        "pacing": {"kind": "elastic", "rates": "assigned"},
    },
    "spaced-max-min": {
        "injection": "per-destination",
        "pacing": {"kind": "spaced", "rates": "max-min", "offset": "random"},
    },
    "leaky-bucket": {
        "injection": "per-destination",
        "pacing": {"kind": "leaky-bucket", "rates": "assigned", "share": 0.8, "offset": "none"},
    },
}

TELEMETRY: dict[str, dict[str, Any]] = {
    "off": {"scheme": "off"},
    "injection": {"count_injection": True},
    "queue": {"rule": "queue", "rule_bytes": "8 KiB"},
    "credit": {"rule": "credit", "rule_bytes": "32 KiB", "when": "insertion"},
    "proportional": {"rule": "proportional", "when": "departure"},
    "insertion": {"when": "insertion"},
    "departure": {"when": "departure", "windows": 7},
    "single-bit": {"scheme": "single-bit"},
    "compact": {"scheme": "compact", "hash_bits": 3},
    "coordinated": {"scheme": "coordinated", "hash_bits": 5},
    "xor-digest": {"scheme": "xor-digest", "hash_bits": 4},
    "csig": {"scheme": "csig"},
    "node-marking": {"scheme": "node-marking", "hash_bits": 8},
    "edge-marking": {"scheme": "edge-marking", "hash_bits": 8, "count_bits": 3},
    "one-in-three": {"scheme": "coordinated", "hash_bits": 5, "one_in": 3},
    "few-packets": {"scheme": "compact", "packets": 100},
    "full-packets": {"packets": 500},
    "full-slots": {"slots": 2},
    "compact-slots": {"scheme": "compact", "slots": 2, "hash_bits": 3},
    "coordinated-slots": {"scheme": "coordinated", "slots": 2, "hash_bits": 3},
    "lfsr": {"scheme": "compact", "hash_bits": 3, "randomness": "lfsr"},
    "sender": {"scheme": "compact", "count_bits": 6, "randomness": "sender"},
    "receivers": {"receivers": True},
}

PROBES: dict[str, dict[str, Any]] = {
    "counters": {"counters": "3 us"},
    "queues": {"queues": "2 us"},
    "both": {"counters": "3 us", "queues": "1 us"},
}

PATTERNS: dict[str, dict[str, Any]] = {
    "stencil2d": {"dims": [5, 4], "size": "48 KiB", "rounds": 2},
    "stencil3d": {"dims": [3, 2, 4], "periodic": True, "post": "all", "size": "16 KiB"},
    "minighost": {"dims": [3, 4, 2], "cells": [20, 16, 12], "variables": 3, "compute": "2 us"},
    "fft2d": {"plane": [4, 3], "planes": 2, "size": "16 KiB", "compute": "1 us"},
    "ring": {"ranks": 24, "size": "64 KiB", "messages": 3},
    "permutation": {"ranks": 48, "size": "64 KiB", "messages": 2, "post": "all"},
    "uniform": {"ranks": 48, "size": "16 KiB", "messages": 8},
    "paced": {"ranks": 24, "size": "8 KiB", "load": 0.5, "duration": "40 us", "servers": 4},
    "alltoall-naive": {"ranks": 24, "size": "8 KiB"},
    "reduce-naive": {"ranks": 24, "arrays": 5},
    "reduce-tree": {"ranks": 24, "arrays": 5},
    "transpose": {"dims": [6, 4], "size": "16 KiB"},
}

SCHEMES = (
    "full",
    "single_bit",
    "compact",
    "coordinated",
    "node_marking",
    "edge_marking",
    "xor_digest",
    "full_int",
    "csig",
)
HASHES = ("gf", "md5", "crc", "mult", "double_mult", "parity")

SHORT_EXAMPLES = (
    "alltoall/alltoall",
    "congestion/hot-spot",
    "demo/demo",
    "probes/probes",
    "rates/rates",
)


def two_jobs(*, engine: Mapping[str, Any] | None = None, **sections: Any) -> dict[str, Any]:
    """One job and a background on a tapered tree with short buffers, so that packets stall."""
    return {
        "seed": 7,
        "engine": {"buffer": "16 KiB", **(engine or {})},
        "fabric": {"topology": TAPERED},
        "job": [
            {**ALLTOALL, "hosts": "0-15", "ranks_per_host": 1},
            {
                "name": "other",
                "hosts": "16-71",
                "observed": False,
                "pattern": {"kind": "uniform", "ranks": 56, "messages": 8, "size": "32 KiB"},
            },
        ],
        **sections,
    }


def scenarios() -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and contents of the scenarios that are simulated."""
    for name, (topology, rules) in TOPOLOGIES.items():
        for rule in rules:
            fabric = {"topology": topology, "routes": rule}
            yield f"{name}/{rule}", {"fabric": fabric, "job": [ALLTOALL]}
        fabric = {"topology": topology, "routes": rules[0]}
        engine = {"buffer": "8 KiB", "routing": "deterministic"}
        yield f"{name}/tight", {"fabric": fabric, "job": [ALLTOALL], "engine": engine}
    for name, engine in ENGINE.items():
        yield f"engine/{name}", two_jobs(engine=engine)
    for name, telemetry in TELEMETRY.items():
        yield f"telemetry/{name}", two_jobs(telemetry=telemetry)
    for name, probes in PROBES.items():
        yield f"probes/{name}", two_jobs(probes=probes)
        arbitrated = {"arbitration": "round-robin"}
        yield f"probes/{name}-arbitrated", two_jobs(probes=probes, engine=arbitrated)
    carried = {"scheme": "coordinated", "hash_bits": 5}
    yield "probes/all", two_jobs(probes=PROBES["both"], telemetry=carried)
    for name, options in PATTERNS.items():
        job = {"pattern": {"kind": name, **options}, "placement": "random"}
        yield f"pattern/{name}", {"fabric": {"topology": TAPERED}, "job": [job]}
    shared_hosts = {**ALLTOALL, "ranks_per_host": 4}
    yield "ranks-of-a-host", {"fabric": {"topology": TAPERED}, "job": [shared_hosts]}
    yield (
        "services",
        two_jobs(engine={"services": 2, "lane_weights": ["8 KiB", "32 KiB"]})
        | {
            "job": [{**job, "service": service} for service, job in enumerate(two_jobs()["job"])],
        },
    )
    slow = {"topology": TAPERED, "degraded": [{"cable": "n05[1]", "rate": "25 Gb/s"}]}
    yield "degraded", {"fabric": slow, "job": [ALLTOALL]}


def runs() -> Iterator[tuple[str, Run]]:
    """Every run, by name."""
    for name, data in scenarios():
        scenario = parse(data)
        for threads in (1, 2):
            run = simulate(scenario, threads=threads)
            yield f"{name} threads={threads}", run
        if run.tables["packets"].height and scenario.telemetry.scheme != "single-bit":
            yield f"{name} received", decode_samples(run)
    for name in SHORT_EXAMPLES:
        yield f"examples/{name}", simulate(load(EXAMPLES / f"{name}.toml"), threads=1)
    for name in (
        "tree/up-down",
        "torus/ugal",
        "dragonfly/valiant",
        "modified-tree/horizontal",
        "engine/vc",
        "engine/deterministic",
        "ranks-of-a-host",
    ):
        prepared = prepare(parse(dict(scenarios())[name]))
        yield f"{name} fluid", simulate_fluid(prepared)
        options = FluidOptions(rates="assignment", first_buffer=False, lines=True, quantum_ps=0)
        yield f"{name} fluid assignment", simulate_fluid(prepared, options)


def arrays() -> Iterator[tuple[str, dict[str, Any]]]:
    """Results of the fluid library and of the schemes that belong to no run: columns by name."""
    random = np.random.default_rng(5)
    links = [random.choice(12, random.integers(1, 5), replace=False).tolist() for _ in range(40)]
    paths = FlowPaths.of(links)
    capacity, size = random.uniform(1, 9, 12), random.integers(1, 1 << 20, 40)
    start = random.integers(0, 1 << 20, 40)
    yield "max-min", {"rate": max_min(capacity, paths)}
    yield "assignment", vars(assignment(capacity, paths, size))
    yield "flows", vars(simulate_flows(capacity, paths, size, start))
    ids = random.integers(0, 1 << 24, 2000, dtype=np.uint32)
    paths = random.integers(1, 40, (2000, 5), dtype=np.uint32)
    levels = random.integers(0, 3, (2000, 5), dtype=np.uint8)
    hops = random.integers(1, 6, 2000, dtype=np.uint8)
    for scheme in SCHEMES:
        for name in HASHES if scheme == "coordinated" else HASHES[:1]:
            header = _core.run_scheme(
                scheme,
                ids,
                hops,
                paths,
                levels,
                3,
                bits=4,
                size=4,
                probability=0.2,
                hash=name,
                field_bits=24,
            )
            yield f"scheme {scheme} {name}", header
    sent, numbers = paths[:, 0].copy(), np.arange(1, 40, dtype=np.uint32)
    hashed = _core.link_hash("gf", ids, sent, 4, 24)
    weights = np.ones(len(ids), np.uint8)
    for how in ("direct", "transform"):
        yield f"decode {how}", {"count": _core.decode(ids, hashed, weights, numbers, 4, 24, how)}


def digest(columns: Mapping[str, Any]) -> str:
    """SHA-256 of columns: their names, types and values, in order of names."""
    sha = hashlib.sha256()
    for name in sorted(columns):
        column = columns[name]
        series = column if isinstance(column, pl.Series) else pl.Series(np.ravel(column))
        sha.update(f"{name}\0{series.dtype}\0{len(series)}\0".encode())
        sha.update(series.is_null().to_numpy().tobytes())
        if series.dtype.is_numeric():
            sha.update(np.ascontiguousarray(series.fill_null(0).to_numpy()).tobytes())
        else:
            sha.update(json.dumps(series.to_list(), default=str).encode())
    return sha.hexdigest()


def main() -> None:
    """Print a line for every table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="runs whose name contains this")
    only = parser.parse_args().only
    for name, run in runs():
        if only not in name:
            continue
        for table, frame in run.tables.items():
            print(f"{name}\t{table}\t{digest(frame.to_dict())}")
        summary = json.dumps(run.summary, sort_keys=True, default=str)
        print(f"{name}\tsummary\t{hashlib.sha256(summary.encode()).hexdigest()}", flush=True)
    for name, columns in arrays():
        if only in name:
            print(f"{name}\tarrays\t{digest(columns)}", flush=True)


if __name__ == "__main__":
    main()
