"""What a simulation hands back: of the packet engine or of the fluid model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

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


@dataclass(frozen=True, kw_only=True, eq=False)
class ExtrapolatedOutcome:
    """A simulated run with what was left out of it, with the attributes of its outcome.

    Attributes:
        window_starts: First picosecond of each window: those of skips are longer than the others.
        skip_windows: Window of each skip.
        messages_left_out: Messages that have no row.
        observed_left_out: Data packets of those of observed jobs.
    """

    packets: int
    packet_hops: int
    vc_refused: int | None
    marked_packets: int | None
    events: int
    end_ps: int
    complete: bool
    window_ps: int
    window_starts: NDArray[np.uint64]
    skip_windows: list[int]
    messages_left_out: int
    observed_left_out: int
    ranks: Columns
    computations: Columns
    messages: Columns
    samples: Columns
    truth: Columns
    counters_ps: int = 0
    counters: Columns = field(default_factory=dict)
    queues_ps: int = 0
    queues: Columns = field(default_factory=dict)
    one_in: int = 0
    carried: Columns = field(default_factory=dict)


Outcome: TypeAlias = _core.PacketOutcome | RateOutcome | ExtrapolatedOutcome
"""What tables are made of."""
