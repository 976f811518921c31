"""Cache of what-if runs.

A diagnosis requests the same run for several purposes. The current placement with adaptive routing
is a candidate and a step of the waterfall. The best placement is a cause removed, a remedy, and the
run after it. A simulation is a function of scenario, change and seed, so the same request always
gives the same run.

Runs of one program have equal columns: sender, receiver, size and label of each message. The cache
holds such columns once.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
import polars as pl

from tailback.evaluate import Change
from tailback.fabric.degraded import nominal
from tailback.run.run import Run
from tailback.simulation.prepare import PreparedScenario

MAX_BYTES = 1_000_000_000
"""Maximum total size of cached tables. The least recently used runs are evicted."""

COMPARED_BYTES = 1 << 16
"""Size from which columns are compared: it is not worth it for smaller ones."""


@dataclass(frozen=True, eq=False)
class _CachedRun:
    """A run, and the change whose program its key identifies by id(), which must not be reused.

    Attributes:
        change: The change.
        run: The run.
        columns: Columns that are compared with those of other runs, by table and name.
        other_bytes: Size of all other columns.
    """

    change: Change
    run: Run
    columns: dict[tuple[str, str], pl.Series]
    other_bytes: int


@dataclass(eq=False)
class _SharedColumns:
    """Columns of cached runs, equal ones once.

    Attributes:
        total_bytes: Size of all.
    """

    total_bytes: int = 0
    _latest: dict[tuple[str, str], pl.Series] = field(default_factory=dict)
    _users: Counter[int] = field(default_factory=Counter)

    def add(self, name: tuple[str, str], column: pl.Series) -> pl.Series:
        """The column, or an equal one that the latest run with such a column has."""
        latest = self._latest.get(name)
        same = latest is not None and latest.dtype == column.dtype and len(latest) == len(column)
        if latest is not None and same and latest.equals(column):
            column = latest
        self._latest[name] = column
        if not self._users[id(column)]:
            self.total_bytes += int(column.estimated_size())
        self._users[id(column)] += 1
        return column

    def remove(self, name: tuple[str, str], column: pl.Series) -> None:
        """Forget one use of a column that :meth:`add` returned."""
        self._users[id(column)] -= 1
        if self._users[id(column)]:
            return
        del self._users[id(column)]
        self.total_bytes -= int(column.estimated_size())
        if self._latest.get(name) is column:
            del self._latest[name]


@dataclass(eq=False)
class RunCache:
    """Cached runs of one prepared scenario, by change.

    Attributes:
        prepared: The scenario.
        max_bytes: Maximum total size of cached tables.
    """

    prepared: PreparedScenario
    max_bytes: int = MAX_BYTES
    _runs: OrderedDict[Hashable, _CachedRun] = field(default_factory=OrderedDict)
    _shared: _SharedColumns = field(default_factory=_SharedColumns)
    _other_bytes: int = 0

    def find(self, change: Change) -> Run | None:
        """The cached run of an equal change, or None.

        Neither telemetry nor a record of computations affects times, so a run with them also serves
        requests without. Where routing leaves no choice, other seeds only draw other samples.
        """
        if not change.measure and self._is_determined(change):
            change = replace(change, seed_offset=0)
        for measure, computations in product({change.measure, True}, {change.computations, True}):
            key = self.key(replace(change, measure=measure, computations=computations))
            if key in self._runs:
                self._runs.move_to_end(key)
                return _copy_run(self._runs[key].run)
        return None

    def is_candidate(self, change: Change) -> bool:
        """Whether it is only another placement: its proof needs the same run with telemetry."""
        alone = Change(placement=change.placement)
        return change.placement is not None and self.key(replace(change, measure=False)) == (
            self.key(alone)
        )

    def keep(self, change: Change, run: Run) -> None:
        """Cache a run; evict the least recently used ones beyond ``max_bytes``."""
        key = self.key(change)
        if key in self._runs:
            self._evict(key)
        large = {
            (name, column.name): self._shared.add((name, column.name), column)
            for name, table in run.tables.items()
            for column in table.get_columns()
            if column.estimated_size() >= COMPARED_BYTES
        }
        other = sum(int(table.estimated_size()) for table in run.tables.values())
        other -= sum(int(column.estimated_size()) for column in large.values())
        tables = {
            name: table.with_columns(column for (of, _), column in large.items() if of == name)
            for name, table in run.tables.items()
        }
        kept = replace(_copy_run(run), tables=tables)
        self._runs[key] = _CachedRun(change, kept, large, other)
        self._other_bytes += other
        while self._runs and self._shared.total_bytes + self._other_bytes > self.max_bytes:
            self._evict(next(iter(self._runs)))

    def _evict(self, key: Hashable) -> None:
        """Forget a run."""
        gone = self._runs.pop(key)
        self._other_bytes -= gone.other_bytes
        for at, column in gone.columns.items():
            self._shared.remove(at, column)

    def key(self, change: Change) -> Hashable:
        """Cache key, equal for changes that result in the same scenario."""
        if not change.measure and self._is_determined(change):
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
            network,
            routing,
            change.rule,
            change.queue_pairs,
            None if program is None or program is job.program else id(program),
            change.rates,
            change.slow,
            change.limits,
            change.in_host,
            change.fair_adapters and scenario.engine.injection != "round-robin",
            change.background or all(placed.section.observed for placed in prepared.jobs),
            change.seed_offset,
            change.others_draw if scenario.draws_others else 0,
            change.measure,
            change.measure and change.totals_only,
            change.computations,
            change.variation,
        )

    def _is_determined(self, change: Change) -> bool:
        """Whether the seed has no effect on times: no packet has a choice of paths.

        On one ideal switch there is only one path, and without contention a message takes the time
        of a shortest one. Forwarding tables name one link. Congestion control and pacing can also
        draw random numbers, and so may the extrapolation of steps.
        """
        scenario = self.prepared.scenario
        engine = scenario.engine
        if (
            change.rates is not None
            or engine.skip_repeats
            or engine.congestion_control is not None
            or engine.pacing.kind != "off"
        ):
            return False
        if change.network in ("star", "no-contention"):
            return True
        # If adaptive routing is requested, forwarding tables are ignored.
        stated = scenario.fabric.forwarding is not None and change.routing != "adaptive"
        return stated and (change.rule is None or change.routing == "deterministic")


def _copy_run(run: Run) -> Run:
    """A copy with its own summary and notes. Tables are shared, since they are never modified."""
    return replace(run, tables=dict(run.tables), summary=dict(run.summary), notes=[*run.notes])
