"""What a simulation hands back: of the packet engine or of the fluid model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tailback import _core

Columns: TypeAlias = Mapping[str, Any]
"""Columns of a table by name, all of one length."""


@dataclass(frozen=True, kw_only=True)
class RateOutcome:
    """What came of a run of the fluid model, with the attributes of :class:`_core.PacketOutcome`.

    Columns that the model does not know are null, and so are figures; there are no probes.
    """

    packets: int
    packet_hops: int
    vc_refused: None = None
    marked_packets: None = None
    events: int
    end_ps: int
    complete: bool = True
    window_ps: int
    ranks: Columns
    computations: Columns = field(default_factory=dict)
    messages: Columns
    samples: Columns
    truth: Columns
    counters_ps: int = 0
    counters: Columns = field(default_factory=dict)
    queues_ps: int = 0
    queues: Columns = field(default_factory=dict)
    one_in: int = 0
    carried: Columns = field(default_factory=dict)


Outcome: TypeAlias = _core.PacketOutcome | RateOutcome
"""What tables are made of."""
