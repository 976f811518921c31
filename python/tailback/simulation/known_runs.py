"""What-if runs that were simulated before: the same question is answered from memory.

A diagnosis asks the same things more than once, by other names: the current placement with adaptive
routing is a candidate and a step of the waterfall, and the best placement is a cause taken away, a
remedy, and the run after it. A simulation is a function of scenario, change and seed, so asking
twice gives the same run.
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
"""Tables of kept runs together: older ones go first."""


@dataclass(eq=False)
class KnownRuns:
    """Runs of one prepared scenario by what was changed.

    Attributes:
        prepared: The scenario.
        max_bytes: Tables that are kept, together.
    """

    prepared: PreparedScenario
    max_bytes: int = MAX_BYTES
    _runs: OrderedDict[Hashable, tuple[Change, Run, int]] = field(default_factory=OrderedDict)

    def find(self, change: Change) -> Run | None:
        """The run of an equal change, None where there was none.

        Telemetry decides nothing, so a run with it also answers where only the time is asked for.
        """
        for measure in {change.measure, True}:
            key = self._key(replace(change, measure=measure))
            if key in self._runs:
                self._runs.move_to_end(key)
                return _copy(self._runs[key][1])
        return None

    def keep(self, change: Change, run: Run) -> None:
        """Remember a run, and forget the oldest where that is too much."""
        size = sum(int(table.estimated_size()) for table in run.tables.values())
        # With the change: a program is known by its identity, which must not be given to another.
        self._runs[self._key(change)] = (change, _copy(run), size)
        while sum(kept[2] for kept in self._runs.values()) > self.max_bytes:
            self._runs.popitem(last=False)

    def _key(self, change: Change) -> Hashable:
        """Equal for changes that make the same scenario."""
        prepared, scenario = self.prepared, self.prepared.scenario
        job = prepared.observed
        placement = change.placement
        if placement is not None and np.array_equal(placement, job.node):
            placement = None
        network = change.network
        if network == "healthy" and nominal(prepared.fabric) is prepared.fabric:
            network = "as-is"
        # With forwarding tables, adaptive routing asked for is routing without them.
        plain = scenario.fabric.forwarding is None
        routing = change.routing or (scenario.engine.routing if plain else None)
        program = change.program
        return (
            None if placement is None else np.asarray(placement, np.uint32).tobytes(),
            network, routing, change.rule,
            None if program is None or program is job.program else id(program),
            change.rates, change.slow, change.limits,
            change.fair_adapters and scenario.engine.injection != "round-robin",
            change.background or all(one.section.observed for one in prepared.jobs),
            change.seed_offset, change.measure, change.computations,
        )  # fmt: skip


def _copy(run: Run) -> Run:
    """The run with a summary and notes of its own; tables are never changed in place."""
    return replace(run, tables=dict(run.tables), summary=dict(run.summary), notes=[*run.notes])
