"""Messages of a job that its hosts' ports count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import polars as pl

from tailback.inference.evidence import own_messages
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import simulate

RANKS, HOSTS, MIB = 8, 4, 1 << 20


def ring_on_rails() -> Run:
    """Each rank sends to the next; a host has two ranks, each with an adapter of its own."""
    return simulate(
        parse(
            {
                "fabric": {
                    "topology": {"kind": "pgft", "children": [4, 4], "parents": [1, 4], "rails": 2}
                },
                "job": [
                    {
                        "pattern": {"kind": "ring", "ranks": RANKS, "size": "1 MiB"},
                        "ranks_per_host": 2,
                    }
                ],
                "telemetry": {"scheme": "full"},
            }
        )
    )


def measured() -> Any:
    transfers = pl.DataFrame(
        {
            "src_rank": list(range(RANKS)),
            "dst_rank": [(r + 1) % RANKS for r in range(RANKS)],
            "size_bytes": [MIB] * RANKS,
            "send_enter_ps": [0] * RANKS,
            "send_leave_ps": [9] * RANKS,
            "send_done_ps": [10] * RANKS,
            "recv_done_ps": [10] * RANKS,
        }
    )
    return SimpleNamespace(tables={"transfers": transfers}, measured=SimpleNamespace(elapsed_ps=10))


def test_messages_within_a_host_cross_no_port() -> None:
    run = ring_on_rails()
    nodes = run.tables["ranks"]["node"]
    assert nodes.n_unique() == RANKS and run.tables["nodes"]["host"].n_unique() >= HOSTS
    assert own_messages(measured(), run).size_bytes.sum() == HOSTS * MIB
