"""Rate control where buffers that fill cost time: what it could gain, by the fluid model."""

from __future__ import annotations

from collections.abc import Mapping

from tailback.evaluate import Change, Evaluate
from tailback.remedy.proposal import Proposal
from tailback.run import Run

MODEL_ERROR = 0.12
"""What the fluid model errs by where nothing queues for long (docs/rates.md). Only what packets
take longer than that is laid to buffers."""


def propose_rate_control(run: Run, paced: Mapping[str, Evaluate]) -> Proposal | None:
    """Compare the run with the same traffic at explicit rates.

    At explicit rates no buffer fills, so no congestion spreads (document 004). What packets without
    control take longer is what rate control can gain at most.

    Args:
        run: The run as observed, of the packet engine.
        paced: Simulates a change in the fluid model without buffers, by the name of the rates:
            ``max-min``, ``assignment``. The quickest counts.

    Returns:
        The proposal, an estimate; None when packets take no longer than the estimate by more than
        :data:`MODEL_ERROR`.
    """
    estimates = {name: evaluate(Change()).elapsed_ps for name, evaluate in paced.items()}
    if not estimates or run.elapsed_ps <= 0:
        return None
    best = min(estimates, key=lambda name: (estimates[name], name))
    if estimates[best] >= (1 - MODEL_ERROR) * run.elapsed_ps:
        return None
    gain = 1 - estimates[best] / run.elapsed_ps
    return Proposal(
        "rate-control",
        f"Give every flow an explicit rate ({best}, document 004): buffers that fill and block "
        f"others cost up to {gain:.0%} of the time, as the fluid model estimates; not proved by "
        "packets.",
        run.elapsed_ps, estimates[best], "fluid", False,
    )  # fmt: skip
