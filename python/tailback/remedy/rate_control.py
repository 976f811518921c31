"""Rate control where buffers that fill cost time: every message at an explicit rate."""

from __future__ import annotations

from typing import get_args

from tailback.diagnose.model import Diagnosis
from tailback.evaluate import Change, Rates
from tailback.remedy.proposal import REMEDIES, Proposal, RemedyContext
from tailback.run import Run

MODEL_ERROR = 0.12
"""What the fluid model errs by where nothing queues for long (docs/rates.md). Only what packets
take longer than that is laid to buffers."""


@REMEDIES.register("rate-control")
def rate_control(run: Run, diagnosis: Diagnosis, means: RemedyContext) -> list[Proposal]:
    """Explicit rates for all messages (document 004), kept by the adapters: no buffer fills."""
    pacing = run.scenario.engine.pacing
    if pacing.rates is not None or pacing.rates_file is not None:
        return []  # The scenario states rates already.
    return [
        Proposal(
            "rate-control", f"{rates}-rates", Change(rates=rates),
            f"Give every message an explicit rate ({rates}, document 004), which its adapter "
            "keeps, so that no buffer fills and blocks others.",
            "all adapters of the network, those of other jobs among them, keep to their rates",
        )
        for rates in get_args(Rates)
    ]  # fmt: skip


def worth_proving(observed_ps: int, estimate_ps: int) -> bool:
    """Whether packets take so much longer than at explicit rates that it cannot be the model.

    Args:
        observed_ps: Time of packets without rate control.
        estimate_ps: Time by the fluid model at explicit rates, in which no buffer fills.
    """
    return estimate_ps < (1 - MODEL_ERROR) * observed_ps
