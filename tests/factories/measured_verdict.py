"""A measured run and its explanation, as a diagnosis has them: made up, for pictures."""

from __future__ import annotations

from tailback.diagnosis.explanation import Cost, Explanation, SampledLink, SharedLink
from tailback.diagnosis.model import Diagnosis
from tailback.evidence.model import (
    Efficiency,
    LateRank,
    Measured,
    Part,
    PhaseTime,
)
from tests.factories.measured_times import ONE_CLOCK
from tests.factories.webdriver import HOSTILE

MS = 10**9
PARTS = {"computation": 40, "late_sender": 30, "wait_nxn": 9, "transfer": 20.7, "noise": 0.3}
"""Milliseconds of each part of a hundred measured ones."""

EXPLAINED = {
    "computation (mean over ranks)": 40,
    "adapters at line rate": 15,
    "placement": 25,
    "network": 0.2,
    "not explained": 19.8,
}


def as_measured(diagnosis: Diagnosis, links: list[tuple[int, str]]) -> Diagnosis:
    """The same diagnosis of a run that was measured; ``links`` were sampled by real packets."""
    elapsed_ps = 100 * MS
    parts = [
        Part(
            name=name,
            ps=round(ms * MS),
            low_ps=round(0.8 * ms * MS),
            high_ps=round(1.1 * ms * MS),
            share=ms / 100,
        )
        for name, ms in PARTS.items()
    ]
    measured = Measured(
        elapsed_ps=elapsed_ps,
        low_ps=elapsed_ps,
        high_ps=elapsed_ps,
        n_ranks=16,
        parts=parts,
        phases=[
            PhaseTime(
                phase="MPI_Recv" + HOSTILE,
                ps=60 * MS,
                parts={"late_sender": 30 * MS, "transfer": 30 * MS},
            )
        ],
        wait_states={},
        latecomers=[LateRank(rank=7, waited_ps=8 * MS, noise_ps=MS, host="h07")],
        efficiency=Efficiency(load_balance=0.8, communication=0.5, parallel=0.4),
        clocks=ONE_CLOCK,
        hosts=None,
        notes=[],
    )
    explanation = Explanation(
        elapsed_ps=elapsed_ps,
        parts={name: round(ms * MS) for name, ms in EXPLAINED.items()},
        costs=[
            Cost(
                cause="placement",
                ps=25 * MS,
                low_ps=20 * MS,
                high_ps=30 * MS,
                share=0.25,
                subject=f"{links[0][1]} is full",
                evidence="",
                rests_on=("trace", "model"),
            )
        ],
        not_explained_ps=round(19.8 * MS),
        model_error_ps=0,
        missing=[],
        sources=["trace"],
        shared_links=[SharedLink(link=links[1][1], ours=0.4, jobs={"21": 0.5}, error=0.02)],
        sampled_links=[
            SampledLink(
                link=name,
                number=number,
                packets=1000.0 - i,
                congested_fraction=0.5 / (i + 1),
                low=0.4 / (i + 1),
                high=0.6 / (i + 1),
            )
            for i, (number, name) in enumerate(links)
        ],
    )
    return diagnosis.model_copy(
        update={
            "measured": measured,
            "explanation": explanation,
            "elapsed_ps": elapsed_ps,
            "times": "expected",
        }
    )
