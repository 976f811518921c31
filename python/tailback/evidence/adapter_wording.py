"""Sentences on what adapters of hosts counted, and what that does not say.

``adapter_findings`` finds them; this module words them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from tailback.units import counted, percent

_SAID: Final = {
    "errors": ("counted {} on its link", "error",
               "a cable, transceiver or port may be faulty; what was hit was sent again or lost"),
    "timeouts": ("waited in vain {} for an acknowledgement and sent again", "time",
                 "packets or acknowledgements were lost, and each of these waits is long"),
    "lost": ("was told {} that packets were missing, and sent again", "time",
             "packets were lost, or others overtook them on the way"),
    "discarded-sent": ("discarded {} instead of sending them", "packet",
                       "its link was down, or they had waited too long, as when it is paused"),
    "discarded": ("discarded {} on arrival for lack of buffers", "packet",
                  "this host took data more slowly than the network delivered them"),
    "no-buffer": ("had no receive buffer for {}", "arrival",
                  "the software of this host was late: not the network"),
    "not-ready": ("was told {} that the receiver had no buffer", "time",
                  "the receiving rank was late: not the network"),
    "paused": ("received {}", "pause frame", "the far end of its link stopped it from sending, as "
               "a queue was full there or further on; whose packets filled it is not known"),
    "pausing": ("sent {}", "pause frame", "this host took data more slowly than the network "
                "delivered them, and held up its switch"),
    "marked": ("received {} with the mark of a long queue (ECN)", "packet",
               "paths to this host were congested; where, and by whose packets, is not known"),
    "notifying": ("told senders {} to slow down (CNP)", "time",
                  "paths to this host were congested; where, and by whose packets, is not known"),
    "slowed": ("was asked {} to send more slowly (CNP)", "time",
               "its packets met long queues, and DCQCN made it send below the rate of its link"),
    "out-of-order": ("received {} out of order", "packet",
                     "packets were lost, or took different paths (adaptive routing)"),
}  # fmt: skip
"""What the adapter did, the unit of the number, and what follows, by kind."""


_LEAST_SHARE: Final = 0.001


def adapter_label(row: Mapping[str, Any]) -> str:
    """Host and interface: ``host n3 (eth2)``."""
    return f"host {row['node_name']} ({row['interface']})"


def adapters_counted(rows: pl.DataFrame) -> str:
    """What adapters counted of one kind, with the largest figure; rows largest first."""
    worst = rows.row(0, named=True)
    did, unit, follows = _SAID[worst["finding"]]
    names = ", ".join(worst["counters"][:2]) + (" …" if len(worst["counters"]) > 2 else "")
    rate = "" if worst["per_second"] is None else f"{_figure(worst['per_second'])} a second"
    figures = ", ".join(part for part in (rate, _paused(worst), names) if part)
    text = f"the adapter of {adapter_label(worst)} {did.format(_number(worst['count'], unit))}"
    if worst["finding"] == "paused" and not worst["count"]:
        text = f"the adapter of {adapter_label(worst)} was paused"
    if rows.height > 1:
        more = counted(rows.height - 1, "other adapter")
        rest = int(rows["count"].sum()) - int(worst["count"])
        figures += f"; {rest:,} on {more}" if rest else f"; {more} too"
    return f"{text} during the run ({figures}): {follows}"


def _number(count: int, unit: str) -> str:
    if unit == "time":
        return "once" if count == 1 else f"{count:,} times"
    return f"{count:,} {unit}{'s' * (count != 1)}"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _paused(row: Mapping[str, Any]) -> str:
    share = row["paused_share"]
    if share is None:
        return ""
    shown = percent(min(share, 1.0), 1) if share >= _LEAST_SHARE else "less than 0.1 %"
    return f"paused {shown} of the time"
