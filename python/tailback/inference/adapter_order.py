"""Head-of-line waiting of messages in their own adapter, separated from the cost of the pattern.

If adapters send messages one after another, a message to a free receiver waits for those ahead of
it. On the ideal switch, this delays even runs without overloaded receivers; adapters that share
their link among messages would avoid it. It is therefore not a cost of the pattern.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailback.diagnosis.model import CauseShare, Diagnosis, WaterfallBar

ADAPTER_ORDER = "adapter order"
"""Name of the waterfall bar and of the part of the measured time."""

_MEANING = "the same with adapters that send messages one after another"


def split_adapter_order(diagnosis: Diagnosis, order_ps: Sequence[int]) -> Diagnosis:
    """Split the pattern bar of a diagnosis in two, and reduce the share of the pattern.

    Args:
        diagnosis: Diagnosis of the expected run.
        order_ps: Time saved on an ideal switch if adapters share their link, by repetition.
    """
    pattern = next((bar for bar in diagnosis.waterfall if bar.name == "pattern"), None)
    mean = round(sum(order_ps) / max(len(order_ps), 1))
    if pattern is None or mean <= 0 or pattern.delta_ps <= 0:
        return diagnosis
    order = min(mean, pattern.delta_ps)
    bars: list[WaterfallBar] = []
    for bar in diagnosis.waterfall:
        if bar is not pattern:
            bars.append(bar)
            continue
        low, high = (max(ps - order, 0) for ps in (bar.low_ps, bar.high_ps))
        elapsed, delta = bar.elapsed_ps - order, bar.delta_ps - order
        bars.append(
            bar.model_copy(
                update={"elapsed_ps": elapsed, "delta_ps": delta, "low_ps": low, "high_ps": high}
            )
        )
        bars.append(
            WaterfallBar(
                name=ADAPTER_ORDER,
                elapsed_ps=bar.elapsed_ps,
                delta_ps=order,
                low_ps=min(*order_ps, order),
                high_ps=max(*order_ps, order),
                meaning=_MEANING,
            )
        )
    part = order / max(diagnosis.modelled_ps, 1)
    shares = [_reduced(s, part) if s.cause == "pattern" else s for s in diagnosis.shares]
    shares.sort(key=lambda share: (-share.charged, share.cause))
    return diagnosis.model_copy(update={"waterfall": bars, "shares": shares})


def _reduced(share: CauseShare, part: float) -> CauseShare:
    """The share of a cause, reduced by a part of the time."""
    names = ("charged", "low", "high", "removed", "removed_low", "removed_high")
    values = {name: getattr(share, name) for name in names}
    return share.model_copy(
        update={n: max(value - part, 0.0) for n, value in values.items() if value is not None}
    )
