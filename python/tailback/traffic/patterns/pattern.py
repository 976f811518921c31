"""Base classes of synthetic traffic patterns, and compilation of their options to a program."""

from __future__ import annotations

from abc import ABC, abstractmethod

from pydantic import BaseModel, ConfigDict, Field

from tailback.errors import ScenarioError
from tailback.registry import Registry, with_options
from tailback.scenario.quantities import LinkGbps
from tailback.traffic.program import Program

PLACE = "[job.pattern]"

MAX_RANKS = 2**31 - 1
"""Ranks are numbered with 32 bits and a sign, as in MPI."""

MAX_MESSAGES = 2**28 - 1
"""Messages of a run are numbered with 28 bits."""


class Pattern(BaseModel, ABC):
    """Options of one pattern and the construction of its program.

    A pattern is one file: a subclass with its options as fields, registered by name. The first line
    of its docstring is what ``tailback list pattern`` prints.
    """

    # Validators are built at first use: a command uses one pattern of many.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    kind: str = Field(description="name of the pattern")

    def own_ranks(self) -> int | None:
        """Number of ranks fixed by the options, None if they leave it open."""
        return None

    def repetitions(self) -> int:
        """How often every rank sends one message or more."""
        return 1

    def with_line_rate(self, gbps: float | None) -> Pattern:
        """The pattern with a rate of its adapters, unless it states one or needs none."""
        return self

    @abstractmethod
    def program(self, n_ranks: int, seed: int) -> Program:
        """The program of ``n_ranks`` ranks; random choices follow from ``seed`` alone."""


class LineRatePattern(Pattern):
    """A pattern with times that depend on the rate of the adapters."""

    line_rate: LinkGbps | None = Field(
        default=None, description="rate of an adapter; absent: that of the host links"
    )

    def with_line_rate(self, gbps: float | None) -> Pattern:
        """The pattern with a rate of its adapters, unless it states one."""
        return self if self.line_rate is not None else self.model_copy(update={"line_rate": gbps})

    @property
    def line_gbps(self) -> float:
        """The rate; ScenarioError if neither the options nor the fabric state it."""
        if self.line_rate is None:
            raise ScenarioError(
                f"pattern {self.kind!r} has no line rate",
                place=f"{PLACE} line_rate",
                remedy='state it, like line_rate = "100 Gb/s"',
            )
        return self.line_rate


class FreeSizePattern(Pattern):
    """A pattern for any number of ranks from two up."""

    ranks: int | None = Field(default=None, ge=2, description="number of ranks")

    def own_ranks(self) -> int | None:
        """The ``ranks`` option."""
        return self.ranks


PATTERNS: Registry[type[Pattern]] = Registry("pattern", "synthetic traffic")


def parse(options: dict[str, object]) -> Pattern:
    """The pattern ``options["kind"]`` with its options checked, without building its program.

    Raises:
        ScenarioError: Unknown pattern or option, a wrong unit or value.
    """
    return with_options(PATTERNS, options, section=PLACE, page="docs/reference/traffic.md")


def build(
    options: dict[str, object], n_ranks: int | None, seed: int, line_gbps: float | None = None
) -> Program:
    """Program of the pattern ``options["kind"]``.

    Args:
        options: ``kind`` and the pattern's own options, quantities as text with a unit.
        n_ranks: Ranks when the options do not say (``dims`` or ``ranks``).
        seed: Seed of the job.
        line_gbps: Rate of the host links, Gb/s, where the options do not say (``line_rate``).

    Raises:
        ScenarioError: Unknown pattern or option, a wrong unit or value, or no number of ranks.
    """
    pattern = parse(options).with_line_rate(line_gbps)
    kind = pattern.kind
    ranks = pattern.own_ranks() or n_ranks
    if ranks is None:
        raise ScenarioError(
            f"pattern {kind!r} does not say how many ranks it has",
            place=PLACE,
            remedy="add ranks = 128, or the number you want",
        )
    if ranks < 2:
        raise ScenarioError(
            f"pattern {kind!r} has {ranks} rank and needs 2 or more",
            place=PLACE,
            remedy="give it more ranks or hosts",
        )
    if ranks > MAX_RANKS:
        raise ScenarioError(
            f"pattern {kind!r} has {ranks:,} ranks; at most {MAX_RANKS:,} can be numbered",
            place=PLACE,
            remedy="give it fewer ranks",
        )
    if pattern.repetitions() * ranks > MAX_MESSAGES:
        raise ScenarioError(
            f"pattern {kind!r} has {pattern.repetitions():,} rounds of {ranks:,} messages or more; "
            f"at most {MAX_MESSAGES:,} can be numbered",
            place=PLACE,
            remedy="give it fewer rounds or ranks",
        )
    program = pattern.program(ranks, seed)
    program.check()
    return program
