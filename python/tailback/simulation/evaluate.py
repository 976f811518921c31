"""Simulates what-if changes: implements :data:`tailback.evaluate.Evaluate` with the engine."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tailback.evaluate import Change, EngineVariation, Evaluate
from tailback.run.run import Run
from tailback.scenario.model import Scenario
from tailback.simulation.apply_change import UNSHARED, NetworkCache, apply_change, rank_nodes
from tailback.simulation.execute import Watch, execute
from tailback.simulation.prepare import PreparedScenario
from tailback.simulation.probes import ProbeSettings, probes_of
from tailback.simulation.run_cache import RunCache
from tailback.simulation.settings import AdaptiveSettings

INSTANT: dict[str, Any] = {
    "send_delay_ps": 0,
    "switch_delay_ps": 0,
    "local_delay_ps": 0,
    "header_bytes": 0,
    "eager_bytes": 1 << 40,
}
"""Settings of a network without latency, on which no sender waits for its receiver to be ready."""


OTHER_INJECTION = {
    "fifo": "round-robin",
    "round-robin": "fifo",
    "per-destination": "per-destination",
}
"""The other order in which adapters may send.

A queue per destination is not varied: only some adapters have one, and scenarios state it for
congestion control and pacing.
"""

OTHER_LOAD = {"queue": "queue-and-credit", "queue-and-credit": "queue"}
"""The other load by which adaptive routing may compare ports."""

OTHER_SENDS = {"sent": "copied", "copied": "sent"}
"""The other time at which sends up to the eager limit may be complete."""

OTHER_PROGRESS = {"always": "calls", "calls": "always"}
"""The other time at which ranks may answer the handshake of larger messages."""

MAX_BUFFER = (1 << 32) - 1
"""Largest buffer, in bytes, that the engine accepts."""


class Tasks(Protocol):
    """Changes that workers simulate."""

    def open(self, prepared: PreparedScenario) -> None:
        """Set the scenario that all tasks change."""

    def put(self, change: Change) -> int:
        """Add a task; returns its number."""
        ...

    def take(self, number: int) -> Run | None:
        """Wait for the run of a task; None if the caller has to simulate it."""
        ...


def make_evaluate(
    prepared: PreparedScenario,
    watch: Watch | None = None,
    *,
    threads: int | None = None,
    simulated: Iterable[tuple[Change, Run]] = (),
    tasks: Tasks | None = None,
) -> Evaluate:
    """A function that re-simulates ``prepared``, packet by packet, with one thing changed.

    Routes are computed once per network, and runs are cached, except hypotheses of slow cables.

    Args:
        prepared: The scenario, read and placed.
        watch: As in :func:`tailback.simulation.simulate`.
        threads: As in :func:`tailback.simulation.simulate`.
        simulated: Runs of changes that were simulated already. The run of ``prepared`` as it is,
            with telemetry, has the key ``Change(measure=True)``.
        tasks: Where announced changes are put for workers.
    """
    runs = RunCache(prepared)
    for change, run in simulated:
        runs.keep(change, run)
    if tasks is not None:
        tasks.open(prepared)
    return PacketEvaluation(make_simulation(prepared, watch, threads=threads), runs, tasks)


@dataclass(eq=False)
class PacketEvaluation:
    """Re-simulates changes, each at most once; announced ones on workers.

    Attributes:
        simulate: Simulates a change.
        runs: Runs so far.
        tasks: Where announced changes are put for workers.
    """

    simulate: Evaluate
    runs: RunCache
    tasks: Tasks | None = None
    _pending: dict[Hashable, int] = field(default_factory=dict)

    def __call__(self, change: Change) -> Run:
        """The run with a change."""
        run = self.runs.find(change)
        if run is None:
            change = self._add_telemetry(change)
            run = self._take_from_worker(change) or self.simulate(change)
            # Slow cables are hypotheses of a search, which tries many and each only once.
            if not change.slow:
                self.runs.keep(change, run)
        return run

    def announce(self, changes: Iterable[Change]) -> None:
        """Put changes that are not known yet where workers find them."""
        if self.tasks is None:
            return
        for change in changes:
            change = self._add_telemetry(change)
            if self.runs.find(change) is None and self._task_number(change) is None:
                self._pending[self.runs.key(change)] = self.tasks.put(change)

    def _add_telemetry(self, change: Change) -> Change:
        """The change as it is simulated: a candidate with telemetry, for its proof."""
        return replace(change, measure=change.measure or self.runs.is_candidate(change))

    def _task_number(self, change: Change) -> int | None:
        """Number of the task of an announced change; telemetry does not affect times."""
        for measure in (change.measure, True):
            number = self._pending.get(self.runs.key(replace(change, measure=measure)))
            if number is not None:
                return number
        return None

    def _take_from_worker(self, change: Change) -> Run | None:
        """The run that a worker has simulated; None if the change has to be simulated here."""
        number = self._task_number(change)
        if number is None or self.tasks is None:
            return None
        self._pending = {key: task for key, task in self._pending.items() if task != number}
        return self.tasks.take(number)


def has_no_probes(scenario: Scenario) -> bool:
    """Whether a run of the scenario has the tables that a change with telemetry has."""
    return scenario.telemetry.scheme != "off" and probes_of(scenario) == ProbeSettings()


def make_simulation(
    prepared: PreparedScenario, watch: Watch | None = None, *, threads: int | None = None
) -> Evaluate:
    """A function that simulates ``prepared`` with one thing changed, without a cache of runs."""
    networks = NetworkCache(prepared)

    def simulated(change: Change) -> Run:
        workload = apply_change(prepared, change)
        fabric, routes = networks.of(change)
        changes: dict[str, Any] = {
            "seed": prepared.scenario.seed + change.seed_offset,
            "contention": change.network not in UNSHARED,
            # What-if runs are evaluated by samples and times only, so they need no probes.
            "probes": ProbeSettings(),
        }
        if change.variation is not None:
            changes |= _varied_settings(prepared.scenario, change.variation)
            if change.rates is not None:
                # Explicit rates need a queue per destination, which a variation leaves as it is.
                changes.pop("injection", None)
        if change.fair_adapters:
            changes["injection"] = "round-robin"
        if change.network == "instant":
            changes |= INSTANT
        if change.computations:
            changes["record_computation"] = True
        if not change.measure:
            changes["measure"] = False
        elif change.totals_only and not prepared.scenario.engine.skip_repeats:
            changes |= {"windows": 1, "stamping": (False,) * fabric.n_links}
        return execute(
            workload,
            routes=routes,
            fabric=fabric,
            nodes=rank_nodes(prepared, change),
            only_observed=not change.background,
            watch=watch,
            threads=threads,
            **changes,
        )

    return simulated


def _varied_settings(scenario: Scenario, variation: EngineVariation) -> dict[str, Any]:
    """Fields of the engine settings that a variation changes."""
    engine, delays = scenario.engine, variation.delays
    payload = max(round(engine.simulated_packet * variation.packets), 1)
    header = round(scenario.packet_header_bytes * engine.simulated_packet / engine.packet)
    packet = payload + header
    # A smaller buffer than stated would lack the headroom of a PAUSE.
    buffers = (
        max(variation.buffers, 1.0) if engine.flow_control.kind == "pfc" else variation.buffers
    )
    buffer = max(round(engine.simulated_buffer * buffers), packet)
    local_gbps, memory_gbps = engine.local_rates(variation.local_rates)
    varied: dict[str, Any] = {
        "buffer_bytes": min(buffer, MAX_BUFFER),
        "switch_delay_ps": round(engine.switch_delay * delays),
        "send_delay_ps": round(engine.send_delay * delays),
        "local_delay_ps": round(engine.local_delay * delays),
        "local_gbps": local_gbps,
        "memory_gbps": memory_gbps,
    }
    if variation.packets != 1:
        varied["packet_bytes"] = payload
    if variation.other_adaptive:
        adaptive = AdaptiveSettings.of(engine.adaptive)
        varied["adaptive"] = replace(adaptive, load=OTHER_LOAD[adaptive.load])
    if variation.other_injection:
        varied["injection"] = OTHER_INJECTION[engine.injection]
    if variation.other_sends:
        varied["eager_sends"] = OTHER_SENDS[engine.eager_sends]
    if variation.other_progress:
        varied["progress"] = OTHER_PROGRESS[engine.progress]
    return varied
