"""What simulated hypotheses predicted, so that none is simulated twice.

A search for slow cables repeats itself: the cables that it tries first come again among all others,
rates that are fitted meet rates tried before, and each is tried with adapters that take turns and
with adapters that send one message after another. Where calls block, no adapter ever has a choice,
and both give the same run. Only predictions are kept, no tables: a few numbers each.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tailback.simulation import PreparedScenario

V = TypeVar("V")

TAKING_TURNS = frozenset({"fifo", "round-robin"})
"""Injection of adapters that differ only in which of several messages they send from next."""


@dataclass(frozen=True)
class Conditions:
    """All that determines a simulation of a hypothesis.

    Attributes:
        rest: All of it but the next.
        injection: How adapters share their link.
        keeps: Objects that ``rest`` names by their identity.
    """

    rest: Hashable
    injection: str
    keeps: tuple[object, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, prepared: PreparedScenario) -> Conditions:
        """The conditions of a scenario without a change."""
        scenario = prepared.scenario
        engine = scenario.engine.model_copy(update={"injection": "fifo"})
        text = scenario.model_copy(update={"engine": engine}).model_dump_json()
        keeps = (prepared.fabric, *(job.program for job in prepared.jobs))
        nodes = tuple(job.node.tobytes() for job in prepared.jobs)
        rest = text, tuple(map(id, keeps)), nodes
        return cls(rest, scenario.engine.injection, keeps)

    def with_change(self, *change: Hashable) -> Conditions:
        """The same with something changed."""
        return Conditions((self.rest, *change), self.injection, self.keeps)


@dataclass(eq=False)
class KnownPredictions(Generic[V]):
    """Predictions by the conditions of their simulation."""

    _found: dict[Hashable, dict[str, tuple[V, Conditions]]] = field(default_factory=dict)
    _unshared: dict[Hashable, V] = field(default_factory=dict)

    def find_or(self, conditions: Conditions, simulate: Callable[[], tuple[V, bool]]) -> V:
        """The prediction under these conditions, simulated unless known.

        Args:
            conditions: The conditions.
            simulate: Simulates; returns the prediction, and whether adapters had several messages
                to choose from (``Run.adapters_shared``).
        """
        same = self._found.setdefault(conditions.rest, {})
        if conditions.injection in same:
            return same[conditions.injection][0]
        if conditions.injection in TAKING_TURNS and conditions.rest in self._unshared:
            return self._unshared[conditions.rest]
        found, shared = simulate()
        same[conditions.injection] = found, conditions
        if conditions.injection in TAKING_TURNS and not shared:
            self._unshared[conditions.rest] = found
        return found
