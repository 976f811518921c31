"""A remedy other than a placement: what to change, and whether that was proved."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Proposal:
    """What to change, and what that gains.

    Attributes:
        name: ``adaptive-routing`` or ``rate-control``.
        action: One sentence: what to do, what it gains, and by which model.
        before_ps: Time as it is (mean over repetitions).
        after_ps: Time with the change (mean over repetitions).
        model: Which model the time with the change comes from.
        proved: Whether the packet engine simulated the change; else it is an estimate.
    """

    name: Literal["adaptive-routing", "rate-control"]
    action: str
    before_ps: int
    after_ps: int
    model: Literal["packet", "fluid"]
    proved: bool

    @property
    def gain(self) -> float:
        """``1 - after / before``."""
        return 1.0 - self.after_ps / self.before_ps if self.before_ps else 0.0
