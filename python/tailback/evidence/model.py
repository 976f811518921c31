"""Summary of a measured run: the same object on the screen and in ``diagnosis.json``."""

from __future__ import annotations

from tailback.frozen_model import FrozenModel

PARTS_OUTSIDE_MODEL = ("other_mpi", "not_running", "not_recorded")
"""Parts of the measured time that are not modelled: set-up and end, calls without data, gaps."""


class Part(FrozenModel):
    """A part of the measured time, as a mean over the ranks.

    Attributes:
        name: One of ``tailback.evidence.split.PARTS``.
        ps: How long; those of all parts add up to the measured time.
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
    """What a phase took, as a mean over the ranks.

    Attributes:
        phase: Innermost region of the program, or the call.
        ps: How long.
        parts: Time of each part, by name; parts without time are left out.
    """

    phase: str
    ps: int
    parts: dict[str, int]


class Efficiency(FrozenModel):
    """Efficiencies as the POP project defines them, 0–1 (docs/explanation/measured.md).

    Attributes:
        load_balance: Mean over maximum of the ranks' computation.
        communication: Maximum of the ranks' computation over the measured time.
        parallel: Product of the two: mean computation over the measured time.
        serialisation: Maximum of the computation over the time with an ideal network; None without
            such a replay.
        transfer: Time with an ideal network over the measured time; None without such a replay.
    """

    load_balance: float
    communication: float
    parallel: float
    serialisation: float | None = None
    transfer: float | None = None

    def with_ideal_network(self, ideal_ps: int, elapsed_ps: int) -> Efficiency:
        """The efficiencies with those of communication: serialisation and transfer.

        Args:
            ideal_ps: Time of a replay with zero latency and infinite bandwidth.
            elapsed_ps: The measured time.
        """
        # If the model's time is longer than measured, all of the loss is serialisation.
        transfer = min(max(ideal_ps, 1) / max(elapsed_ps, 1), 1.0)
        serialisation = min(self.communication / transfer, 1.0)
        return self.model_copy(update={"serialisation": serialisation, "transfer": transfer})


class ClockReport(FrozenModel):
    """Results on the clocks of the ranks.

    Attributes:
        unit: What was given an offset: ``none``, ``host`` or ``rank``.
        drifting: Whether drifts were needed too.
        largest_offset_ps: Largest difference of two offsets.
        recorded_offsets: Clock offsets that the trace holds; OTF2 has applied them.
        error_ps: Median width of the bounds on the difference of two clocks; None if most pairs
            lack messages in both directions.
        largest_error_ps: Largest width, over pairs with messages in both directions.
        one_way: Pairs of clocks with messages in at most one direction.
        violated: Messages received before they were sent, by the clocks as recorded.
        largest_violation_ps: Most by which one was.
        repaired: Messages that still were after the offsets, and were repaired.
        largest_repair_ps: Most by which one was.
        left: Messages still received before they were sent at the end.
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


class HostReport(FrozenModel):
    """Where ranks ran.

    Attributes:
        source: Source of that information.
        hosts: Number of hosts.
        most_ranks: Ranks on the host with most of them.
    """

    source: str
    hosts: int
    most_ranks: int


class LateRank(FrozenModel):
    """A rank on whose computation others waited.

    Attributes:
        rank: World rank.
        waited_ps: Time that other ranks waited for it, summed over them.
        noise_ps: Part of it that they waited because a computation took longer than it usually
            does; the rest is imbalance.
        host: Host it ran on, empty where unknown.
    """

    rank: int
    waited_ps: int
    noise_ps: int = 0
    host: str = ""


class Measured(FrozenModel):
    """The measured run in short.

    Attributes:
        elapsed_ps: From the first rank's beginning to the last one's end.
        low_ps: Lower bound, given the uncertainty of the clocks.
        high_ps: Upper bound.
        n_ranks: Number of ranks.
        parts: Where that time went, as a mean over the ranks; adds up to ``elapsed_ps``.
        phases: The same by phase, longest first; phases beyond the first 20 are summed up.
        wait_states: Severity of each wait state as Scalasca names it, as a mean over the ranks,
            whatever was waited for.
        latecomers: Ranks whose computation was waited for most.
        slow_rank_waits_ps: Waits for the computation of ranks that compute far longer than the
            median rank, as a mean over the ranks.
        ended_early_ps: How long ranks had ended while others still ran, as a mean over the ranks:
            part of ``not_running``.
        efficiency: Efficiencies.
        clocks: What was found about the clocks.
        hosts: Where ranks ran, None where unknown.
        notes: What the trace lacks, and what was done about it.
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
    ended_early_ps: int = 0
    efficiency: Efficiency
    clocks: ClockReport
    hosts: HostReport | None
    notes: list[str]

    def with_ideal_network(self, ideal_ps: int) -> Measured:
        """With the efficiencies that a replay on an ideal network gives, which took so long."""
        efficiency = self.efficiency.with_ideal_network(ideal_ps, self.elapsed_ps)
        return self.model_copy(update={"efficiency": efficiency})

    def part(self, name: str) -> int:
        """Picoseconds of a part, 0 where there is none."""
        return next((part.ps for part in self.parts if part.name == name), 0)

    @property
    def outside_model_ps(self) -> int:
        """Time that a simulation of the program has nothing of, as a mean over the ranks.

        In the simulation, too, ranks end while others still run.
        """
        return max(sum(map(self.part, PARTS_OUTSIDE_MODEL)) - self.ended_early_ps, 0)
