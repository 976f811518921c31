"""Measured runs made by simulation: a trace of a run in which cables are slow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tailback.evaluate import Change
from tailback.fabric.degraded import SlowLink
from tailback.inference.machine_models import with_acknowledged_sends
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import make_evaluate, prepare
from tests.factories.otf2_traces import writing
from tests.factories.simulated_traces import RESOLUTION, scripts_of

STENCIL: Mapping[str, Any] = {
    "kind": "stencil2d",
    "dims": [4, 4],
    "size": "256 KiB",
    "rounds": 10,
    "post": "all",
    "boundary": "skip",
    "compute": "30 us",
}
"""Neighbours on 16 ranks that compute for a while between exchanges."""


def traced(
    folder: Path,
    slow: Sequence[int] = (),
    share: float = 1.0,
    *,
    pattern: Mapping[str, Any] = STENCIL,
    engine: Mapping[str, Any] | None = None,
    hosts: str = "all",
    aggregation: int = 4,
) -> tuple[dict[str, Any], Run]:
    """A scenario with the trace of a run on a fat tree of 16 hosts, and the run.

    Args:
        folder: Where the trace is written.
        slow: Links that are slow both ways.
        share: Share of their rate that they have.
        pattern: The program.
        engine: Settings that the scenario states.
        hosts: Hosts of the job.
        aggregation: Switches above the leaves.
    """
    data: dict[str, Any] = {
        "fabric": {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": aggregation}},
        "job": [{"pattern": dict(pattern), "hosts": hosts}],
    }
    if engine is not None:
        data["engine"] = dict(engine)
    prepared = with_acknowledged_sends(prepare(parse(data)))
    fabric = prepared.fabric
    cables = tuple(SlowLink(link, share * float(fabric.link_gbps[link])) for link in slow)
    run = make_evaluate(prepared)(Change(computations=True, measure=True, slow=cables))
    names = [fabric.host_name[node] for node in prepared.observed.node]
    scripts = scripts_of(prepared.observed.program, run)
    trace = writing(folder)(scripts, resolution=RESOLUTION, hosts=names)
    return {**data, "job": [{"trace": str(trace)}]}, run
