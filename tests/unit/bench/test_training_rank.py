"""Ranks of the training job on real packets: what they send, and what they write of it."""

from __future__ import annotations

from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from training_rank import Rank

from tailback.evidence import measure


@pytest.mark.parametrize(("algorithm", "network"), [("ring", 1), ("tree", 2), ("tree-in-turn", 3)])
def test_ranks_write_their_sums_and_steps(algorithm: str, network: int, tmp_path: Path) -> None:
    n = 4
    config: dict[str, Any] = {
        "hosts": [f"n{rank // 2}" for rank in range(n)],
        "addresses": [f"127.0.{network}.{rank + 1}" for rank in range(n)],
        "algorithm": algorithm,
        "sums": 2,
        "bytes": 100_000,
        "compute_s": 0.005,
        "slow": {"3": 20.0},
        "noise": [0.0, 0.0, 1],
    }

    def run(rank: int) -> None:
        process = Rank(config, rank)
        process.run()
        process.write(tmp_path)

    threads = [Thread(target=run, args=(rank,)) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    run_measured = measure(tmp_path)
    assert run_measured.measured.latecomers[0].rank == 3
    steps = run_measured.tables["steps"]
    # Ranks of a host exchange data themselves.
    between = {(0, 2), (2, 0)} if algorithm != "ring" else {(1, 2), (3, 0)}
    assert set(steps.select("src_rank", "dst_rank").iter_rows()) == between
    sent = 2 * 100_000 * 2 * (n - 1) // n if algorithm == "ring" else 2 * 100_000
    of_last_rank = steps.filter(steps["src_rank"] == steps["src_rank"].max())
    assert of_last_rank["size_bytes"].sum() == sent
