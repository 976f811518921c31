"""Sentences on what ports counted of errors, pauses, marks and losses, and what that does not say.

``port_events`` finds them; this module words them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from tailback.names.ports import Peers, link_name, port_name
from tailback.units import counted, percent

_SAID: Final = {
    "errors": (
        "counted {} on its link",
        "error",
        "a cable, transceiver or port is faulty; what was hit was sent again or lost",
    ),
    "damaged": (
        "received {} that were damaged on an earlier link",
        "packet",
        "a link further up the path is faulty, not this one",
    ),
    "timeouts": (
        "waited in vain {} for an acknowledgement and sent again",
        "time",
        "packets or acknowledgements were lost, and each of these waits is long",
    ),
    "lost": (
        "was told {} that packets were missing, and sent again",
        "time",
        "packets were lost, or others overtook them on the way",
    ),
    "discarded-sent": (
        "discarded {} instead of sending them",
        "packet",
        "its link was down, or they had waited too long, as when it is paused",
    ),
    "discarded": (
        "discarded {} on arrival for lack of buffers",
        "packet",
        "this end took data more slowly than its link delivered them",
    ),
    "refused": (
        "refused {}",
        "packet",
        "a partition key or a filter of raw packets forbids them: the configuration, not the link",
    ),
    "no-buffer": (
        "had no receive buffer for {}",
        "arrival",
        "the software of this host was late: not the network",
    ),
    "not-ready": (
        "was told {} that the receiver had no buffer",
        "time",
        "the receiving rank was late: not the network",
    ),
    "paused": (
        "received {}",
        "pause frame",
        "the far end of its link stopped it from sending, as "
        "a queue was full there or further on; whose packets filled it is not known",
    ),
    "pausing": (
        "sent {}",
        "pause frame",
        "this end took data more slowly than its link delivered them, and held up the far end",
    ),
    "marked": (
        "received {} with the mark of a long queue (ECN)",
        "packet",
        "paths to this host were congested; where, and by whose packets, is not known",
    ),
    "marking": (
        "marked {} for a long queue (ECN)",
        "packet",
        "its queue was long; whose packets filled it is not known",
    ),
    "notifying": (
        "told senders {} to slow down (CNP)",
        "time",
        "paths to this host were congested; where, and by whose packets, is not known",
    ),
    "slowed": (
        "was asked {} to send more slowly (CNP)",
        "time",
        "its packets met long queues, and DCQCN made it send below the rate of its link",
    ),
    "out-of-order": (
        "received {} out of order",
        "packet",
        "packets were lost, or took different paths (adaptive routing)",
    ),
}
"""What the port did, the unit of the number, and what follows, by kind."""


_LEAST_SHARE: Final = 0.001
"""Share of the time from which a pause is given as a percentage with one decimal."""


def event_port(row: Mapping[str, Any], peers: Peers | None = None) -> str:
    """Name of the port of a row of ``port_events``, and of its far end if known."""
    device, port = str(row["node_name"]), int(row["port"])
    return link_name(port_name(device, port, row["interface"]), (peers or {}).get((device, port)))


def ports_counted(
    rows: pl.DataFrame, peers: Peers | None = None, *, during_run: bool = False
) -> str:
    """What ports counted of one kind, with the largest figure.

    Args:
        rows: Rows of ``port_events`` of one kind, largest first.
        peers: Far ends of links, if known.
        during_run: Whether the counters are those of the time of a job.
    """
    when = "during the run" if during_run else "in the time of the counters"
    worst = rows.row(0, named=True)
    did, unit, follows = _SAID[worst["finding"]]
    name = event_port(worst, peers)
    others = [counter for counter in worst["counters"] if counter not in worst["full"]]
    names = ", ".join(others[:2]) + (" …" if len(others) > 2 else "")
    rate = ""
    if worst["per_second"] and worst["count"]:
        rate = f"{_figure(worst['per_second'])} a second"
    figures = ", ".join(part for part in (rate, _paused(worst), names) if part)
    if worst["full"]:
        # What a full counter counted meanwhile is unknown; what it shows is a lower bound.
        text = f"{name} {did.format('≥ ' + _number(worst['since_reset'], unit))}"
        text += f" since the last reset, with {worst['full'][0]} at its largest value"
    elif worst["finding"] in ("paused", "pausing") and not worst["count"]:
        held = "was paused" if worst["finding"] == "paused" else "paused its far end"
        text = f"{name} {held} {when}"
    else:
        text = f"{name} {did.format(_number(worst['count'], unit))} {when}"
    if rows.height > 1:
        more = counted(rows.height - 1, "other port")
        rest = int(rows["count"].sum()) - int(worst["count"])
        figures += f"; {rest:,} on {more}" if rest else f"; {more} too"
    return f"{text}{f' ({figures})' if figures else ''}: {follows}"


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
