"""Proposals of a diagnosis: changes that can be simulated, one file per kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tailback.diagnosis.model import USER_KINDS, Diagnosis, Kind
from tailback.evaluate import Change, EngineVariation, Evaluate
from tailback.placement.variant import PlacementVariant
from tailback.registry import Registry
from tailback.run.run import Run
from tailback.traffic.program import Program

Placements = Mapping[str, NDArray[np.uint32]]

RATES_WITHIN_HOSTS = EngineVariation(local_rates="low"), EngineVariation(local_rates="high")
"""The bounds of the rates within hosts, which are rarely known: a placement that keeps messages
within hosts gains more the higher they are."""


@dataclass(frozen=True, eq=False)
class Proposal:
    """A change that may help.

    Attributes:
        kind: Kind of change.
        name: Its name in lists.
        change: How it is simulated.
        action: What to do, one sentence; empty for placements, whose name says it.
        assumes: What it assumes; empty if nothing.
        combines: The combined proposals; empty for others.
        variant: How a placement was computed; None if unknown, or for other kinds.
        openmpi: Options of Open MPI's ``mpirun`` that make it; empty if none do.
        not_applicable: Why it does not apply to the program; empty if it does.
    """

    kind: Kind
    name: str
    change: Change = field(default_factory=Change)
    action: str = ""
    assumes: str = ""
    combines: tuple[Proposal, ...] = ()
    variant: PlacementVariant | None = None
    openmpi: str = ""
    not_applicable: str = ""

    @property
    def single(self) -> tuple[Proposal, ...]:
        """The proposals that it combines, or itself."""
        return self.combines or (self,)

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the combined proposals; empty for others."""
        return tuple(part.name for part in self.combines)

    @property
    def openmpi_options(self) -> str:
        """Options of ``mpirun`` of all its parts."""
        return " ".join(dict.fromkeys(part.openmpi for part in self.single if part.openmpi))

    @property
    def part_kinds(self) -> tuple[Kind, ...]:
        """Their kinds."""
        return tuple(part.kind for part in self.combines)

    @property
    def kinds(self) -> frozenset[Kind]:
        """Everything that it changes."""
        return frozenset(part.kind for part in self.single)

    @property
    def group(self) -> tuple[Kind, bool]:
        """Proposals among which the fastest is sought: those of a kind, by users or not."""
        return self.kind, self.kinds <= USER_KINDS


@dataclass(frozen=True, eq=False)
class RemedyContext:
    """Inputs of a search for remedies.

    Attributes:
        evaluate: Simulates a change packet by packet.
        quick: The same with the fluid model. None gives no estimates.
        placements: Placements to try: node of each rank, shape (R,), by name.
        estimates: Times of placements that were estimated before, picoseconds, by name.
        ruled_out: Placements that are slow alone by their estimates. They are only tried with
            other changes.
        program: Traffic of the observed job; None if it is not to be changed.
        rules: Routing rules that the topology has besides the one in use.
        kinds: Kinds of remedies to propose; None for all.
        variants: How the placements to try were computed, by name, if known.
        engines: Other engine settings with which the best candidates are simulated.
        floor_ps: Time of the run without contention. Rates are then only tried if they could still
            be faster than the placements. 0 tries them in any case.
        coarse: Simulates a change with coarse packets; None if messages have too few packets.
        draws: Draws of routing seeds and of others' traffic in which the best candidates are
            compared with the unchanged run; 0: only the repetitions.
        settings: Settings of the engine, by name, to which the best candidate may be sensitive.
    """

    evaluate: Evaluate
    quick: Evaluate | None = None
    placements: Placements = field(default_factory=dict)
    estimates: Mapping[str, int] = field(default_factory=dict)
    program: Program | None = None
    rules: Sequence[str] = ()
    kinds: frozenset[str] | None = None
    variants: Mapping[str, PlacementVariant] = field(default_factory=dict)
    engines: Sequence[EngineVariation] = RATES_WITHIN_HOSTS
    floor_ps: int = 0
    ruled_out: Placements = field(default_factory=dict)
    coarse: Evaluate | None = None
    draws: int = 0
    settings: Mapping[str, EngineVariation] = field(default_factory=dict)


Proposer = Callable[[Run, Diagnosis, RemedyContext], list[Proposal]]

REMEDIES: Registry[Proposer] = Registry(
    "remedy", "kinds of remedies that a diagnosis proposes and tries"
)
