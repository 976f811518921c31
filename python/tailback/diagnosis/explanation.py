"""Where the measured time of a run went, by cause, and what of it nothing explains.

Slow links and other traffic that were found are added to the expected run. Then each cause is
removed on its own: the time saved is its cost (counterfactual). Measured time that the expected run
does not account for is *not explained*; it is no cause.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from tailback.frozen_model import FrozenModel

Origin = Literal["trace", "counters", "model", "telemetry"]
"""Evidence behind a part: recorded times, port counters, a simulation, samples in packets."""


class Cost(FrozenModel):
    """What one cause costs.

    Attributes:
        cause: Its name, as in ``Diagnosis.cause``.
        ps: Time that the run would save without it, picoseconds.
        low_ps: Smallest of it over the ensemble.
        high_ps: Largest.
        share: ``ps`` over the measured time, 0–1.
        subject: The link and its rates, the job, or the ranks.
        evidence: What shows it, one sentence.
        rests_on: Kinds of evidence behind it.
    """

    cause: str
    ps: int
    low_ps: int
    high_ps: int
    share: float
    subject: str
    evidence: str
    rests_on: tuple[Origin, ...]


class SharedLink(FrozenModel):
    """A link between switches that other jobs use besides ours, by regression in time.

    Attributes:
        link: Its name.
        ours: Share of its bytes that is ours, 0–1.
        jobs: Share of each other job, by its identifier, largest first.
        error: Largest standard error of these shares.
    """

    link: str
    ours: float
    jobs: dict[str, float]
    error: float


class Explanation(FrozenModel):
    """The measured time, explained.

    Raises:
        ValueError: The parts and what is not explained do not add up to the measured time.

    Attributes:
        elapsed_ps: Measured time.
        parts: Components of the time, by name, in picoseconds and in the order in which they are
            added: set-up and end, computation, adapters …, and ``not explained``, which may be
            negative where the model expects more than was measured. They add up to ``elapsed_ps``.
        costs: What each cause costs, largest first; costs of causes that act together overlap.
        not_explained_ps: Measured time less what the model expects with everything found.
        model_error_ps: Error of the model due to unknown properties of the machine.
        missing: What further evidence would settle what is open, and the command that gets it.
        sources: What evidence there was, one line each.
        shared_links: Links on which traffic of other jobs meets ours, those with most of theirs
            first; empty where counters do not tell jobs apart.
    """

    elapsed_ps: int
    parts: dict[str, int]
    costs: list[Cost]
    not_explained_ps: int
    model_error_ps: int
    missing: list[str]
    sources: list[str]
    shared_links: list[SharedLink] = Field(default_factory=list)

    @model_validator(mode="after")
    def _adds_up(self) -> Explanation:
        if sum(self.parts.values()) != self.elapsed_ps:
            raise ValueError(
                f"parts add up to {sum(self.parts.values())} ps of {self.elapsed_ps} ps measured"
            )
        return self

    def cost(self, cause: str) -> Cost | None:
        """The cost of a cause, None if it was not examined."""
        return next((cost for cost in self.costs if cost.cause == cause), None)
