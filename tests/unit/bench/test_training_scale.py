"""Steps of many accelerators: what is written of them is what readers read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from training_scale import SimulatedStep, Step, separated, write_inspector

from tailback.scenario.model import NcclSection, parse
from tailback.traffic.nccl.steps import COMPUTE_ONLY, GpuProgram
from tailback.traffic.patterns import parse as parse_pattern
from tailback.traffic.readers import timed_reader

SMALL = {
    "kind": "training",
    "tensor": 2,
    "pipeline": 2,
    "data": 2,
    "layers": 2,
    "microbatches": 2,
    "activation": "1 MiB",
    "gradient": "1 MiB",
    "compute": "1 ms",
}


def small_step() -> Step:
    pattern: Any = parse_pattern(SMALL)
    source: GpuProgram = pattern.activity(8)
    timeline = [separated(each) for each in source.timeline]
    source = GpuProgram("small", [rank // 2 for rank in range(8)], source.collectives, timeline)
    return Step(
        source, parse({"fabric": {"preset": "tapered"}, "job": [{"pattern": SMALL}]}), NcclSection()
    )


def test_computation_separates_all_collectives() -> None:
    for timeline in small_step().source.timeline:
        kinds = [number == COMPUTE_ONLY for number, _ in timeline]
        assert kinds == [True, False] * (len(kinds) // 2) + [True]


def test_written_step_is_read_again(tmp_path: Path) -> None:
    step = small_step()
    calls = [[k for k, _ in each if k != COMPUTE_ONLY] for each in step.source.timeline]
    # Collectives one after another: each begins on all ranks when the one before has ended.
    times = [np.array([[k * 10**9, k * 10**9 + 5 * 10**8] for k in each]) for each in calls]
    hosts = [f"n{rank // 2}" for rank in range(8)]
    run = SimulatedStep(10**12, times, hosts)
    rng = np.random.default_rng(1)
    write_inspector(tmp_path / "trace", step, run, rng)
    reader = timed_reader(tmp_path / "trace")
    assert reader is not None
    recorded = reader.record(tmp_path / "trace")
    written = Counter(
        "SendRecv" if call in ("SendRecv", "Exchange") else call
        for each in calls
        for call in (step.source.collectives[k].call for k in each)
    )
    read = Counter(recorded.names[name].removeprefix("nccl") for name in recorded.calls.name)
    assert read == written
    assert recorded.parallelism == "tensor parallel 2, data parallel 2, pipeline parallel 2"
