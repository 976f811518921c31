"""A measured run of many ranks with a hidden slow cable: ``python bench/measured_case.py``.

The machine, the program and the files are those of blind cases: a trace, a discovery, forwarding
tables and port counters. Only the size differs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import blind_programs
import blind_reality
import numpy as np
from blind_case import draw_clocks
from blind_counters import STEPS, Sampling, write_counters
from blind_machine import Machine, d_mod_k, next_links, write_tables
from blind_programs import Work, halo
from blind_reality import Reality
from blind_trace import write_trace

from tailback.scenario.model import FatTree

GRIDS = {512: (16, 32), 4096: (64, 64), 16384: (128, 128)}
"""Ranks in each direction of the halo exchange, by their number."""

PER_HOST = 4
"""Ranks on a host."""

SIZE, ROUNDS, COMPUTE_PS = 65536, 10, 100_000_000
"""Bytes of a message, repetitions, and computation between them: a sixth of the time at most."""

SLOW_SHARE = 0.2
"""Share of its rate that the slow cable has."""

_ENGINE = {
    "packet": "4096 B",
    "header": "40 B",
    "buffer": "49152 B",
    "switch_delay": "80 ns",
    "send_delay": "800 ns",
    "eager": "16384 B",
    "local_rate": "160 Gb/s",
    "local_delay": "400 ns",
    "injection": "round-robin",
}
"""Settings of the machine, none of which is the default that a diagnosis assumes."""

_UTC_NS = 1_790_000_000 * 10**9


def write_measured_case(ranks: int, folder: Path, seed: int = 7) -> str:
    """Write the files of a case; returns the slow cable.

    Args:
        ranks: One of :data:`GRIDS`.
        folder: Created; the files are ``trace``, ``fabric.ibnetdiscover``, ``forwarding`` and
            ``counters``.
        seed: Seed of clocks, computation and the choice of the cable.
    """
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    hosts = ranks // PER_HOST
    per_leaf = 16 if hosts <= 1024 else 32  # A switch has at most 254 ports.
    shape = FatTree(hosts_per_leaf=per_leaf, leaves=hosts // per_leaf, aggregation=per_leaf)
    fabric = Machine(shape, "4x", "EDR").write(folder / "fabric.ibnetdiscover")
    tables = folder / "forwarding" / "lfts.txt"
    tables.parent.mkdir()
    write_tables(tables, fabric, next_links(fabric, d_mod_k(per_leaf, per_leaf)))
    inner = (fabric.link_src >= fabric.n_nodes) & (fabric.link_dst >= fabric.n_nodes)
    slow = int(rng.choice(np.flatnonzero(inner)))
    cable = f"{fabric.vertex_name(int(fabric.link_src[slow]))}[{int(fabric.link_src_port[slow])}]"
    work = Work(seed)
    dims = GRIDS[ranks]
    reality = Reality(
        seed=seed,
        fabric=fabric,
        fabric_file=folder / "fabric.ibnetdiscover",
        tables_file=tables,
        good_tables=tables,
        adaptive=False,
        engine=_ENGINE,
        efficiency=0.95,
        overhead_ps=500_000,
        program=lambda work, without: halo(dims, SIZE, ROUNDS, COMPUTE_PS, work, 5, False),
        work=work,
        quiet=work,
        node=np.repeat(np.arange(hosts, dtype=np.uint32), PER_HOST),
        start_ps=5_000_000_000,
        until_ps=10**12,
        slow=((cable, SLOW_SHARE * float(fabric.link_gbps[slow])),),
        causes=("slow_link",),
    )
    interval_ps = 2_000_000_000
    run = blind_reality.run(reality, marked=True, counters_ps=interval_ps // STEPS)
    scripts = reality.scripts()
    clocks, errors = draw_clocks(rng, hosts)
    write_trace(
        folder / "trace",
        scripts,
        blind_programs.call_times(run, scripts),
        fabric.node_host[reality.node].tolist(),
        fabric.host_name,
        clocks,
        utc_ns=_UTC_NS,
        recorded_offsets=errors,
        chunks=(1 << 18, 1 << 18),
    )
    sampling = Sampling("collect", interval_ps, 1_000_000, True, False, 0.0, seed)
    write_counters(folder / "counters", run, reality.fabric_file, sampling, _UTC_NS)
    return cable


def options_of(folder: Path) -> list[str]:
    """Arguments of ``tailback diagnose`` for a case."""
    return [
        str(folder / "trace"),
        "--fabric",
        str(folder / "fabric.ibnetdiscover"),
        "--forwarding",
        str(folder / "forwarding"),
        "--counters",
        str(folder / "counters"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ranks", type=int, choices=list(GRIDS))
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    print(write_measured_case(options.ranks, options.folder))


if __name__ == "__main__":
    main()
