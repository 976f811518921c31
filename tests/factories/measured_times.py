"""Where the measured time of a run went."""

from __future__ import annotations

from tailback.evidence.model import ClockReport, Efficiency, Measured, Part

MS = 10**9

ONE_CLOCK = ClockReport(
    unit="none",
    drifting=False,
    largest_offset_ps=0,
    recorded_offsets=0,
    error_ps=0,
    largest_error_ps=0,
    one_way=0,
    violated=0,
    largest_violation_ps=0,
    repaired=0,
    largest_repair_ps=0,
    left=0,
)


def measured(elapsed_ms: int, computing_ms: int = 10, outside_ms: int = 0) -> Measured:
    """A run of four ranks that took so many ms, with computation and calls outside the model."""
    transfer = (elapsed_ms - computing_ms - outside_ms) * MS
    parts = {"computation": computing_ms * MS, "transfer": transfer, "other_mpi": outside_ms * MS}
    elapsed = elapsed_ms * MS
    return Measured(
        elapsed_ps=elapsed,
        low_ps=elapsed,
        high_ps=elapsed,
        n_ranks=4,
        parts=[
            Part(name=name, ps=ps, low_ps=ps, high_ps=ps, share=ps / elapsed)
            for name, ps in parts.items()
        ],
        phases=[],
        wait_states={},
        latecomers=[],
        efficiency=Efficiency(load_balance=1.0, communication=0.1, parallel=0.1),
        clocks=ONE_CLOCK,
        hosts=None,
        notes=[],
    )
