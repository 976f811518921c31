"""Outcomes of simulations by the packet engine and by the fluid model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tailback import _core

Columns: TypeAlias = Mapping[str, Any]
"""Columns of a table by name, all of one length."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelledOutcome:
    """Outcome with the attributes of :class:`_core.PacketOutcome`, but not of the engine alone.

    Columns and values that were not computed are null; there are no probes.
    """

    packets: int
    packet_hops: int
    vc_refused: int | None = None
    marked_packets: int | None = None
    notifications: int = 0
    pauses: int = 0
    paused_ps: int = 0
    events: int
    adapters_shared: bool = True
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
class ExtrapolatedOutcome(ModelledOutcome):
    """Outcome of a run with skipped steps.

    Attributes:
        window_starts: Start of each window: windows of skips are longer than the others.
        skip_windows: Index of the window of each skip.
        messages_left_out: Number of messages of skipped steps, which have no row.
        observed_left_out: Number of data packets of observed jobs in skipped steps.
        links_half: Half the width of the 95 % interval of the bytes of all links at once, relative
            to them, the widest; None without telemetry.
    """

    window_starts: NDArray[np.uint64]
    skip_windows: list[int]
    messages_left_out: int
    observed_left_out: int
    links_half: float | None = None


Outcome: TypeAlias = _core.PacketOutcome | ModelledOutcome
"""Any outcome that tables can be made from."""
