"""Summary of a measured run, shown on the screen and written to ``diagnosis.json``."""

from __future__ import annotations

from tailback.frozen_model import FrozenModel

PARTS_OUTSIDE_MODEL = ("other_mpi", "not_running", "not_recorded")
"""Parts of the measured time that are not modelled: start and end, calls without data, gaps."""


class Part(FrozenModel):
    """A part of the measured time, averaged over the ranks.

    Attributes:
        name: One of ``tailback.evidence.split.PARTS``.
        ps: Duration; the parts sum to the measured time.
        low_ps: Lower bound, given the uncertainty of the clocks.
        high_ps: Upper bound.
        share: Share of the measured time, 0–1.
    """

    name: str
    ps: int
    low_ps: int
    high_ps: int
    share: float


class PhaseTime(FrozenModel):
    """Duration of a phase, averaged over the ranks.

    Attributes:
        phase: Innermost region of the program, or the call.
        ps: Duration.
        parts: Duration of each part by name, without empty parts.
    """

    phase: str
    ps: int
    parts: dict[str, int]


class Efficiency(FrozenModel):
    """POP efficiencies, 0–1 (docs/explanation/verdict.md).

    Attributes:
        load_balance: Mean over maximum of the ranks' computation.
        communication: Maximum of the ranks' computation over the measured time.
        parallel: Product of the two: mean computation over the measured time.
        serialisation: Maximum of the ranks' computation over the time on an ideal network; None
            without a replay on one.
        transfer: Time on an ideal network over the measured time; None without such a replay.
    """

    load_balance: float
    communication: float
    parallel: float
    serialisation: float | None = None
    transfer: float | None = None

    def with_ideal_network(self, ideal_ps: int, elapsed_ps: int) -> Efficiency:
        """Add the two factors of communication efficiency: serialisation and transfer.

        Args:
            ideal_ps: Time of a replay with zero latency and infinite bandwidth.
            elapsed_ps: The measured time.
        """
        # If the simulated time exceeds the measured one, all of the loss is serialisation.
        transfer = min(max(ideal_ps, 1) / max(elapsed_ps, 1), 1.0)
        serialisation = min(self.communication / transfer, 1.0)
        return self.model_copy(update={"serialisation": serialisation, "transfer": transfer})


class ClockReport(FrozenModel):
    """Synchronisation of the ranks' clocks.

    Attributes:
        unit: Unit that got its own offset: ``none``, ``host`` or ``rank``.
        drifting: Whether drifts were needed too.
        largest_offset_ps: Largest difference of two offsets.
        recorded_offsets: Number of clock offsets in the trace; OTF2 has applied them.
        error_ps: Median width of the bounds on clock differences; None if most pairs are not
            bounded on both sides.
        largest_error_ps: Largest width, over pairs bounded on both sides.
        one_way: Number of pairs of clocks that are not bounded on both sides.
        violated: Number of causality violations (messages received before they were sent) by the
            clocks as recorded.
        largest_violation_ps: Largest of these violations.
        repaired: Number of violations that remained after the offsets and were repaired.
        largest_repair_ps: Largest of the repaired violations.
        left: Number of violations that remain after the repair.
        clocks: Number of clocks: ranks that a recording says share one count once; 0 unknown.
    """

    unit: str
    drifting: bool
    largest_offset_ps: int
    recorded_offsets: int
    error_ps: int | None
    largest_error_ps: int
    one_way: int
    violated: int
    largest_violation_ps: int
    repaired: int
    largest_repair_ps: int
    left: int
    clocks: int = 0


class HostReport(FrozenModel):
    """Hosts of the ranks.

    Attributes:
        source: Where the hosts come from.
        hosts: Number of hosts.
        most_ranks: Maximum number of ranks on a host.
    """

    source: str
    hosts: int
    most_ranks: int


class LateRank(FrozenModel):
    """A rank whose computation delayed others.

    Attributes:
        rank: World rank.
        waited_ps: Total time that other ranks waited for it.
        noise_ps: Part of ``waited_ps`` due to computations that took longer than usual; the rest is
            imbalance.
        excess_ps: Time that it computes longer than the median rank, if it is slow
            (:data:`tailback.evidence.measure.SLOW_RANK_RATIO`); otherwise 0.
        host: Its host, empty if unknown.
        idle_share: Share of ``excess_ps`` in which its accelerator waited for its host; None if
            unknown, or if it is no accelerator.
    """

    rank: int
    waited_ps: int
    noise_ps: int = 0
    excess_ps: int = 0
    host: str = ""
    idle_share: float | None = None


class Measured(FrozenModel):
    """Summary of a measured run.

    Attributes:
        elapsed_ps: Time from the start of the first rank to the end of the last.
        low_ps: Lower bound, given the uncertainty of the clocks.
        high_ps: Upper bound.
        n_ranks: Number of ranks.
        parts: Breakdown of ``elapsed_ps``, averaged over the ranks.
        phases: Breakdown by phase, longest first; phases beyond the first 20 are merged.
        wait_states: Severity of each Scalasca wait state, averaged over the ranks, regardless of
            its reason.
        latecomers: Ranks that compute much longer than others, then those whose computation caused
            the most waiting.
        slow_rank_waits_ps: Time spent waiting for the computation of slow ranks, averaged over the
            ranks.
        dependency_waits_ps: Time spent waiting for computation in chains of ranks that receive,
            compute and send on, averaged over the ranks.
        ended_early_ps: Time between the end of a rank and the end of the run, averaged over the
            ranks; part of ``not_running``.
        efficiency: POP efficiencies.
        clocks: Clock synchronisation.
        hosts: Hosts of the ranks; None if unknown.
        notes: Information missing in the trace, and how it was handled.
        caveat: What the times are not, as a sentence without a full stop; empty if they are all of
            the run.
        not_recorded: Ranks of which nothing is recorded, like "1 of 2 ranks"; empty if all are.
        durations_only: Whether only the durations of calls are recorded, not when they began.
        parallelism: Dimensions of parallelism of a training run, like "tensor parallel 8, data
            parallel 4"; empty if its communicators show none.
        counted_paths: Whether counters show which paths its flows took.
    """

    elapsed_ps: int
    low_ps: int
    high_ps: int
    n_ranks: int
    parts: list[Part]
    phases: list[PhaseTime]
    wait_states: dict[str, int]
    latecomers: list[LateRank]
    slow_rank_waits_ps: int = 0
    dependency_waits_ps: int = 0
    ended_early_ps: int = 0
    efficiency: Efficiency
    clocks: ClockReport
    hosts: HostReport | None
    notes: list[str]
    caveat: str = ""
    not_recorded: str = ""
    durations_only: bool = False
    parallelism: str = ""
    counted_paths: bool = False

    def with_ideal_network(self, ideal_ps: int) -> Measured:
        """Add the efficiencies from a replay on an ideal network that took ``ideal_ps``."""
        efficiency = self.efficiency.with_ideal_network(ideal_ps, self.elapsed_ps)
        return self.model_copy(update={"efficiency": efficiency})

    @property
    def instant_ps(self) -> int:
        """Time on a network without delay, ps; 0 without such a replay."""
        return round((self.efficiency.transfer or 0.0) * self.elapsed_ps)

    def part(self, name: str) -> int:
        """Duration of a part in picoseconds, 0 if absent."""
        return next((part.ps for part in self.parts if part.name == name), 0)

    @property
    def outside_model_ps(self) -> int:
        """Time that a simulation of the program does not model, averaged over the ranks.

        Excludes ``ended_early_ps``, because simulated ranks also end at different times.
        """
        return max(sum(map(self.part, PARTS_OUTSIDE_MODEL)) - self.ended_early_ps, 0)
