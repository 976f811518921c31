"""Rate control for runs that lose time to full buffers: every message at an explicit rate."""

from __future__ import annotations

from typing import Literal

from tailback.diagnosis.model import Diagnosis
from tailback.evaluate import Change
from tailback.remedy.proposal import REMEDIES, Proposal, RemedyContext
from tailback.run.run import Run

MODEL_ERROR = 0.12
"""Error of the fluid model without long queues (docs/measurements/accuracy.md). Only time beyond
that is attributed to full buffers."""


@REMEDIES.register("rate-control")
def rate_control(run: Run, diagnosis: Diagnosis, context: RemedyContext) -> list[Proposal]:
    """Explicit rates for all messages, so that no buffer fills (Birk and Zdornov, 2009)."""
    engine = run.scenario.engine
    if engine.pacing.rates is not None or engine.pacing.rates_file is not None:
        return []  # The scenario states rates already.
    if engine.coarse is not None:
        return []  # Coarse packets are not paced, and a scenario cannot state both.
    choices: tuple[Literal["max-min", "assigned"], ...] = ("max-min", "assigned")
    return [
        Proposal(
            "rate-control",
            f"{rates}-rates",
            Change(rates=rates),
            f"Have adapters send every message at an explicit rate ({rates}; Birk and Zdornov, "
            "2009), so that no buffer fills up and blocks other traffic. In a scenario these are "
            f'[engine] injection = "per-destination" and [engine.pacing] kind = "elastic", '
            f'rates = "{rates}".',
            "all adapters in the network, including those of other jobs, keep to their rates",
        )
        for rates in choices
    ]


def worth_proving(observed_ps: int, estimate_ps: int) -> bool:
    """Whether the packet simulation exceeds the time at explicit rates by more than model error.

    Args:
        observed_ps: Time by the packet engine without rate control.
        estimate_ps: Time by the fluid model at explicit rates, in which no buffer fills.
    """
    return estimate_ps < (1 - MODEL_ERROR) * observed_ps
