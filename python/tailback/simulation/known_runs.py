"""Cache of what-if runs.

A diagnosis requests the same run more than once for different purposes: the current placement with
adaptive routing is a candidate and a step of the waterfall; the best placement is a cause removed,
a remedy, and the run after it. A simulation is a function of scenario, change and seed, so the same
request always gives the same run.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field, replace

import numpy as np

from tailback.evaluate import Change
from tailback.fabric.degraded import nominal
from tailback.run import Run
from tailback.simulation.prepare import PreparedScenario

MAX_BYTES = 1_000_000_000
"""Maximum total size of cached tables; the least recently used runs are evicted."""


@dataclass(eq=False)
class KnownRuns:
    """Cached runs of one prepared scenario, by change.

    Attributes:
        prepared: The scenario.
        max_bytes: Maximum total size of cached tables.
    """

    prepared: PreparedScenario
    max_bytes: int = MAX_BYTES
    _runs: OrderedDict[Hashable, tuple[Change, Run, int]] = field(default_factory=OrderedDict)

    def find(self, change: Change) -> Run | None:
        """The cached run of an equal change, or None.

        Telemetry does not affect times, so a run with telemetry also serves requests without it.
        """
        for measure in {change.measure, True}:
            key = self.key(replace(change, measure=measure))
            if key in self._runs:
                self._runs.move_to_end(key)
                return _copy(self._runs[key][1])
        return None

    def is_candidate(self, change: Change) -> bool:
        """Whether it is only another placement: its proof needs the same run with telemetry."""
        alone = Change(placement=change.placement)
        return change.placement is not None and self.key(replace(change, measure=False)) == (
            self.key(alone)
        )

    def keep(self, change: Change, run: Run) -> None:
        """Cache a run; evict the least recently used ones beyond ``max_bytes``."""
        size = sum(int(table.estimated_size()) for table in run.tables.values())
        # The change is kept too: its program is identified by id(), which must not be reused.
        self._runs[self.key(change)] = (change, _copy(run), size)
        while sum(kept[2] for kept in self._runs.values()) > self.max_bytes:
            self._runs.popitem(last=False)

    def key(self, change: Change) -> Hashable:
        """Cache key, equal for changes that result in the same scenario."""
        if self._is_determined(change):
            change = replace(change, seed_offset=0)
        prepared, scenario = self.prepared, self.prepared.scenario
        job = prepared.observed
        placement = change.placement
        if placement is not None and np.array_equal(placement, job.node):
            placement = None
        network = change.network
        if network == "healthy" and nominal(prepared.fabric) is prepared.fabric:
            network = "as-is"
        # If adaptive routing is requested, forwarding tables are ignored.
        plain = scenario.fabric.forwarding is None
        routing = change.routing or (scenario.engine.routing if plain else None)
        program = change.program
        return (
            None if placement is None else np.asarray(placement, np.uint32).tobytes(),
            network, routing, change.rule,
            None if program is None or program is job.program else id(program),
            change.rates, change.slow, change.limits, change.in_host,
            change.fair_adapters and scenario.engine.injection != "round-robin",
            change.background or all(one.section.observed for one in prepared.jobs),
            change.seed_offset, change.measure, change.computations, change.variation,
        )  # fmt: skip

    def _is_determined(self, change: Change) -> bool:
        """Whether the seed has no effect: on one ideal switch there is only one path.

        Without contention, a message takes the time of a shortest path. Congestion control and
        pacing can also draw random numbers, and so does telemetry.
        """
        engine = self.prepared.scenario.engine
        return (
            change.network in ("star", "no-contention") and not change.measure
            and change.rates is None
            and engine.congestion_control is None and engine.pacing.kind == "off"
        )  # fmt: skip


def _copy(run: Run) -> Run:
    """A copy with its own summary and notes; tables are shared, as they are never modified."""
    return replace(run, tables=dict(run.tables), summary=dict(run.summary), notes=[*run.notes])
