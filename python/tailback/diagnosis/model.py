"""Data model of a diagnosis, shared by terminal output, JSON and report."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, Self

import numpy as np
from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from tailback.arrays import Floats
from tailback.budget import BudgetUse
from tailback.diagnosis.explanation import EvidenceRow, Explanation
from tailback.evidence.model import Measured
from tailback.frozen_model import FrozenModel
from tailback.placement.variant import PlacementVariant
from tailback.units import counted, percent

Cause = Literal[
    "pattern",
    "placement",
    "capacity",
    "routing",
    "slow-link",
    "other-traffic",
    "injection",
    "in-host",
    "not-network",
    "imbalance",
    "noise",
    "late-partner",
    "healthy",
    "undetermined",
]
"""Main cause of the time lost by a run.

- ``pattern``: nodes are sent more than they can receive (an endpoint is the root);
- ``placement``: our own traffic fills links inside the network, and another placement avoids it;
- ``capacity``: our own traffic fills links inside the network under the best placement, too;
- ``routing``: our own traffic fills some links while their equivalents are idle;
- ``slow-link``: a link is slower than its equivalents, or than its nominal rate;
- ``other-traffic``: links are filled by other traffic;
- ``injection``: the line rate of the adapters, without contention;
- ``in-host``: transfers within hosts, such as over NVLink, take the time;
- ``not-network``: computation, imbalance or latency;
- ``imbalance``: ranks compute for different times, and others wait for them;
- ``noise`` (measured runs only): the same computation sometimes takes longer;
- ``late-partner`` (measured runs only): ranks wait for partners that compute before they send;
- ``healthy`` (measured runs only): no cause costs enough to be a fault;
- ``undetermined``: the samples, or a recording that the model does not explain, do not determine
the cause.
"""

Basis = Literal["re-simulation", "hypothesis", "samples"]
"""Basis of a verdict: time charged by re-simulation; the hypothesis of a slow cable or of other
traffic to explain what re-simulation of all known causes does not; or samples and message log."""


Times = Literal["expected", "measured"]
"""Source of the times: a simulation, subject to model error, or a measurement."""


Kind = Literal["placement", "pattern", "routing", "rate-control", "repair", "combined"]
"""What a remedy changes: where ranks run, how the program communicates, how packets are routed,
how fast adapters send, slow cables, or several of these together."""

USER_KINDS: frozenset[Kind] = frozenset({"placement", "pattern"})
"""Kinds of remedy that users can apply without the operators of the network."""

SAME_PROGRAM: frozenset[Kind] = frozenset({"placement", "routing", "rate-control", "repair"})
"""Kinds that do not change the program, so its ideal time is a lower bound for them too."""


class Estimate(FrozenModel):
    """An estimated number with its standard error and 95 % interval."""

    value: float
    standard_error: float
    low: float
    high: float

    @classmethod
    def of_share(cls, value: float, error: float, low: float, high: float) -> Estimate:
        """The estimate of a share: values above 1 due to sampling noise are shown as 1."""
        return cls(
            value=min(float(value), 1.0),
            standard_error=float(error),
            low=min(float(low), 1.0),
            high=min(float(high), 1.0),
        )

    @classmethod
    def of_draws(cls, draws: Floats) -> Estimate:
        """The estimate of a number from draws of it: their median and 95 % interval."""
        low, value, high = np.percentile(draws, (2.5, 50.0, 97.5)).tolist()
        return cls(value=value, standard_error=float(draws.std()), low=low, high=high)


class LinkEvidence(FrozenModel):
    """One link that supports a finding.

    Attributes:
        link: Number of the link in table ``links``; its number in a file of the fabric may differ.
        name: ``source[port] → destination[port]``.
        tier: Tier of the cable (0 = host link).
        direction: up, down or flat.
        flat_direction: Between switches of a network without tiers: ``X+``, ``local``; empty for
            other links.
        phase: Phase with most of its congested packets.
        utilization: Our own traffic's share of the line rate in its congested windows, 0–1.
        congested_fraction: Share of our packets that met congestion there, 0–1.
        samples: Hop samples that the estimates are based on.
        tree_links: Congested links that wait on this one (the size of its congestion tree).
    """

    link: int
    name: str
    tier: int
    direction: str
    phase: str
    utilization: Estimate
    congested_fraction: Estimate
    samples: int
    tree_links: int
    flat_direction: str = ""


class Agreement(FrozenModel):
    """In how many variations of the model a verdict holds.

    Attributes:
        holds: Variations with the same main cause.
        of: All variations.
        otherwise: Most frequent main cause of the others; None if there are none.
        identified: Probability that unexplained time is attributed to the right cause; 1 if the
            verdict does not rest on unexplained time.
    """

    holds: int
    of: int
    otherwise: Cause | None = None
    identified: float = 1.0


class Finding(FrozenModel):
    """One rule that fired.

    Attributes:
        code: Stable code of the rule, e.g. ``TB002``; ``TB000`` if the main cause follows from
            re-simulation or the message log, and not from a rule.
        cause: Cause that the finding supports.
        title: One line.
        explanation: Observations and why they indicate the cause, with numbers.
        share: Share of all congested packets in its congestion trees, 0–1.
        phases: Phases affected, heaviest first.
        links: Roots of the congestion trees, heaviest first.
        advice: What to do next, one sentence.
    """

    code: str
    cause: Cause
    title: str
    explanation: str
    share: float
    phases: list[str]
    links: list[LinkEvidence]
    advice: str


class WaterfallBar(FrozenModel):
    """One step of the waterfall: a re-simulation with one more real-world factor.

    Attributes:
        name: ``ideal``, ``paths``, ``in-host``, ``injection``, ``pattern``, ``network``,
            ``placement``, ``routing``, ``slow links``, ``other traffic``, ``observed``.
        elapsed_ps: Time of that re-simulation (mean over seeds).
        delta_ps: Time that this step adds to the previous one.
        low_ps: Smallest delta over the seeds.
        high_ps: Largest delta over the seeds.
        meaning: What was simulated.
    """

    name: str
    elapsed_ps: int
    delta_ps: int
    low_ps: int
    high_ps: int
    meaning: str


class CauseShare(FrozenModel):
    """Cost of one cause, computed in two ways.

    Causes interact, so the cost of one depends on which others are present. ``charged`` adds the
    cause to those before it in the waterfall; ``removed`` is what can be gained: only this cause is
    removed from the full run. The difference between the two is due to the interaction with other
    causes.

    Raises:
        ValueError: ``removed`` is negative: a change that slows a run down removes no cause.

    Attributes:
        cause: The cause.
        charged: Share of the observed time charged to the cause in the waterfall.
        low: Minimum of ``charged`` over the repetitions.
        high: Maximum of ``charged`` over the repetitions.
        removed: Share of the observed time saved by removing only this cause, 0 if no change of its
            kind saves time; None if that cannot be simulated (endpoints, the capacity of the
            network, unexplained time) or was not.
        removed_low: Minimum of ``removed`` over the repetitions.
        removed_high: Maximum of ``removed`` over the repetitions.
    """

    cause: Cause
    charged: float
    low: float
    high: float
    removed: float | None = None
    removed_low: float | None = None
    removed_high: float | None = None

    @model_validator(mode="after")
    def _saves(self) -> Self:
        if self.removed is not None and self.removed < 0:
            raise ValueError(f"removing {self.cause} cannot save {self.removed:.3f} of the time")
        return self


class Gain(NamedTuple):
    """What a change saves, as shares of the time: mean, least and most of the repetitions."""

    mean: float
    low: float
    high: float


class Status(StrEnum):
    """Outcome of a candidate; only proved ones have a packet-level time."""

    PROVED = "proved"
    """Simulated packet by packet."""
    RULED_OUT = "ruled-out"
    """Not simulated: too slow in a simpler model."""
    NOT_APPLICABLE = "not-applicable"
    """It does not apply to this program."""
    IMPLAUSIBLE = "implausible"
    """Its simulated time is below the ideal time, so the model is not valid for it."""
    FAILED = "failed"
    """It could not be generated or simulated."""
    NO_TIME = "no-time"
    """Not simulated: it did not fit the time budget."""


LABELS: Final = {
    Status.RULED_OUT: "not simulated",
    Status.NOT_APPLICABLE: "does not apply",
    Status.NO_TIME: "not simulated",
}
"""Displayed prefix of the reason, by status; other statuses have none."""


MIN_GAIN = 0.02
"""Minimum gain of a recommended remedy. Its slowest repetition must also be faster than the fastest
one without it."""


class Candidate(FrozenModel):
    """A remedy that was tried: estimated by the fluid model, proved packet by packet.

    Attributes:
        name: Its name in ``tailback list placement`` or ``rewrite``, or of the routing or rates.
        kind: What it changes.
        variant: For a placement, how it was generated; None if only its name is known, and for
            other kinds.
        parts: Names of the candidates that a combined one consists of; empty for others.
        part_kinds: Their kinds.
        action: What to do, one sentence; empty for placements.
        assumes: Condition for it to be possible or to compute the same result; empty if there is
            none.
        openmpi_options: Options of Open MPI's ``mpirun`` that make it, or part of it; empty if
            none do.
        estimate_ps: Time of our job by the fluid model, 0 if not estimated.
        elapsed_ps: Time of our job by the packet engine (mean over seeds), 0 if not simulated.
        low_ps: Minimum of ``elapsed_ps`` over the seeds.
        high_ps: Maximum of ``elapsed_ps`` over the seeds.
        gain: Mean gain over an ensemble of simulations, paired by seed; None if not simulated. In a
            measured run, this and the other gains are shares of the measured time.
        gain_low: Smallest gain in the ensemble and with other engine settings, without the lowest
            twentieth of the draws.
        gain_high: Largest gain, likewise.
        ensemble: Number of draws in the ensemble: of routing seeds, and of others' traffic.
        sensitive_to: Setting of the engine that changes the gain most; empty if not simulated.
        sensitive_gain: Gain with that setting.
        repetitions: Number of seeds simulated: 1 if it is clearly slower than others of its kind, 2
            if its gain is clear.
        path_length: Average number of switches a packet visits.
        congested_fraction: Congested packet-hops over packet-hops, null if they were not counted.
        status: Outcome.
        reason: Why it was not proved; empty if it was.
    """

    name: str
    kind: Kind = "placement"
    variant: PlacementVariant | None = None
    parts: tuple[str, ...] = ()
    part_kinds: tuple[Kind, ...] = ()
    action: str = ""
    assumes: str = ""
    openmpi_options: str = ""
    estimate_ps: int = 0
    elapsed_ps: int = 0
    low_ps: int = 0
    high_ps: int = 0
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    ensemble: int = 0
    sensitive_to: str = ""
    sensitive_gain: float | None = None
    repetitions: int = 0
    path_length: float = 0.0
    congested_fraction: float | None = None
    status: Status = Status.PROVED
    reason: str = ""

    @property
    def proved(self) -> bool:
        """Whether it was simulated packet by packet."""
        return self.status is Status.PROVED

    @property
    def kinds(self) -> frozenset[Kind]:
        """Everything that it changes."""
        return frozenset(self.part_kinds or (self.kind,))

    @property
    def by_users(self) -> bool:
        """Whether users can apply it without the operators of the network."""
        return self.kinds <= USER_KINDS

    @property
    def remark(self) -> str:
        """Displayed reason why it was not proved; empty if it was."""
        label = LABELS.get(self.status)
        return f"{label}: {self.reason}" if label else self.reason

    @model_validator(mode="after")
    def _reason_unless_proved(self) -> Self:
        if self.proved == bool(self.reason):
            raise ValueError(f"candidate {self.name!r} is {self.status} for {self.reason!r}")
        return self


COMBINED_SHOWN = 4
"""Combinations of changes that are listed besides the recommended one."""

Saves = Callable[[Candidate, Candidate], str]
"""Says how much less time a candidate takes than the unchanged run."""


class Remedy(FrozenModel):
    """The recommended change and its gain.

    Raises:
        ValueError: The recommended candidate does not exist, was not proved, or is no faster than
            the unchanged run.

    Attributes:
        actions: What to do, most important first, and the gain.
        name: Name of the recommended candidate, empty if none helps.
        parts: Names of the candidates that it combines, or its own; empty if none helps.
        placement: Name of the recommended placement (the remedy itself or an interim measure),
            empty if none helps.
        before_ps: Time without the remedy, re-simulated like the candidates; without
            re-simulation, as observed.
        after_ps: Predicted time with the remedy.
        gain: Share of the time that it saves: ``predicted_gain.value``, or in a forecast the mean
            over all draws of the ensemble.
        predicted_gain: Share of the measured time that it saves, with the error of the model; None
            if nothing was measured, or if it does not help. Of advice without a change, what the
            cause costs that it removes.
        removes: The cause that it removes, and nothing else: its gain is what this cause costs in a
            measured run, or what a forecast gains without it. None for other changes.
        candidates: All candidates tried, best first.
        files: Files for applying it: name → purpose.
        commands: Commands to run with them, one for each launcher.
        avoid: Names of links to avoid: slow, or filled by other jobs.
    """

    actions: tuple[str, ...]
    name: str = ""
    parts: tuple[str, ...] = ()
    placement: str
    before_ps: int
    after_ps: int
    gain: float
    predicted_gain: Estimate | None = None
    removes: Cause | None = None
    candidates: list[Candidate]
    files: dict[str, str]
    commands: list[str]
    avoid: list[str] = Field(default_factory=list)

    @property
    def action(self) -> str:
        """All actions as one text."""
        return " ".join(self.actions)

    @property
    def shown_candidates(self) -> list[Candidate]:
        """The proved candidates that are listed: of combined ones the remedy and the fastest."""
        proved = [c for c in self.candidates if c.proved]
        combined = [c.name for c in proved if c.kind == "combined" and c.name != self.name]
        return [c for c in proved if c.name not in combined[COMBINED_SHOWN:]]

    @property
    def gain_range(self) -> str:
        """The gain as displayed: of a measured run with its 95 % interval."""
        if (predicted := self.predicted_gain) is None:
            return percent(self.gain)
        return f"{percent(self.gain)} ({percent(predicted.low)} to {percent(predicted.high)})"

    @model_validator(mode="after")
    def _proved_to_help(self) -> Self:
        proved = {c.name: c for c in self.candidates if c.proved}
        for what, name in (("remedy", self.name), ("placement", self.placement)):
            if not name:
                continue
            if name not in proved:
                raise ValueError(f"{what} {name!r} is recommended without a proof")
            # What is part of the remedy need not help alone.
            alone = name == self.name or name not in self.parts
            if alone and proved[name].elapsed_ps >= self.before_ps:
                raise ValueError(
                    f"{what} {name!r} is recommended, and takes {proved[name].elapsed_ps} ps "
                    f"instead of {self.before_ps} ps"
                )
        parts = (proved[self.name].parts or (self.name,)) if self.name else ()
        if self.parts != parts:
            raise ValueError(f"remedy {self.name!r} has parts {self.parts}, not {parts}")
        after = proved[self.name].elapsed_ps if self.name else self.before_ps
        if self.after_ps != after:
            raise ValueError(f"after_ps = {self.after_ps}, which is not what was proved: {after}")
        return self


class Sampling(FrozenModel):
    """Quality of the samples that the verdict is based on.

    Attributes:
        scheme: Telemetry scheme of the samples, ``off`` for none.
        header_bits: Bits that the scheme uses in a packet header.
        packets: Packets received with a sample.
        links_seen: Links with at least one hop sample.
        links_sure: Links with enough samples for a verdict.
        sufficient: Whether there are enough samples for the verdict.
        note: One sentence, with the samples that are still needed.
    """

    scheme: str = "full"
    header_bits: int = 0
    packets: int
    links_seen: int
    links_sure: int
    sufficient: bool
    note: str


class Forecast(FrozenModel):
    """What a forecast is of; nothing of it was measured.

    Attributes:
        fabric: File or preset of the network, or the kind of its topology.
        ranks: Ranks of the job.
        placement: How they are placed.
        communication_alone: Whether computation takes no time.
        weak_scaling: Whether the recorded program is extrapolated to these ranks, with the bytes
            and computation of each rank as recorded.
    """

    fabric: str
    ranks: int
    placement: str
    communication_alone: bool = False
    weak_scaling: bool = False

    def __str__(self) -> str:
        alone = ", communication alone" if self.communication_alone else ""
        placed = f"{self.placement} placement" if self.placement != "file" else "placed by a file"
        scaled = " by weak scaling" if self.weak_scaling else ""
        return f"on {self.fabric}, {counted(self.ranks, 'rank')}{scaled}, {placed}{alone}"


class Diagnosis(FrozenModel):
    """A diagnosis: verdict, evidence and remedy.

    Raises:
        ValueError: The fields are inconsistent: no finding has the main cause, or a time of the
            unchanged program is shorter than the ideal time.

    Attributes:
        cause: Main cause.
        headline: One sentence: the verdict.
        findings: Rules that fired, largest share first.
        waterfall: Breakdown of the time, from the ideal to the diagnosed run (``observed``, whose
            time is expected or measured, see ``times``); empty without re-simulation.
        remedy: The recommended remedy; None if nothing needs to be done.
        top_links: Most congested links, regardless of findings.
        sampling: Quality of the samples that the verdict is based on.
        elapsed_ps: Measured time of our job, or the expected time if nothing was measured.
        expected_ps: Time that the model expects for our job.
        measured: The measured run; None for a forecast.
        forecast: What a forecast is of; None for a measured run.
        not_explained_ps: Measured minus expected time, which includes the recorded computation;
            with an explanation, also minus unmodelled time (set-up, end, calls without data). None
            if nothing was measured or the expected run has other settings.
        not_explained_low_ps: Lower bound, given the uncertainty of the clocks.
        not_explained_high_ps: Upper bound.
        explanation: Breakdown of the measured time by cause; None if nothing was measured.
        communication_fraction: Share of rank time blocked in communication, 0–1: exposed
            communication, in which ranks also wait for late ones.
        hidden_fraction: Share of rank time in which ranks compute while their messages are in
            flight, 0–1: hidden communication; None if it was not simulated, as with skipped steps.
        warnings: Warnings of readers and rules.
        assumptions: Those of ``warnings`` that are always shown: what was not simulated or
            compared, and rates that may be assumed.
        confidence: Probability that ``cause`` is the main cause, or one of ``alternatives``, 0–1,
            given how the costs vary over the variations of the model; for a measured run, the share
            of the runs consistent with the evidence in which it is.
        alternatives: Other causes whose removal saves mostly the same time in a forecast, where the
            variations of the model do not say which is the main cause.
        chances: Probability that each cause is the main one, of ``healthy``, and of
            ``unexplained``: a cause that is none of these. If no cause has
            :data:`tailback.diagnosis.confidence.SURE`, the verdict is undetermined.
        basis: The evidence that ``cause`` is based on.
        agreement: In how many variations of the model the verdict holds; None if the verdict is
            undetermined or explains a measured run.
        shares: Cost of each cause by re-simulation, largest first; empty without it.
        slow_links: Names of the slow links, if they are the cause: those found by re-simulation,
            else those listed in the scenario.
        times: Whether ``elapsed_ps`` and the bars are measured or expected.
        times_from: The same as a sentence, with the data that was not used.
        evidence: All evidence, the most decisive rows first; of a forecast, the costs by
            re-simulation and the findings of rules.
        not_recorded: What the trace does not contain, a few words each; empty without a trace.
        not_used: Those of ``warnings`` on what was read and not used; always shown.
        captured: Whether the run is a packet capture: ranks are then unknown and
            ``communication_fraction`` is meaningless.
        budget: The time budget and what it left out; None without one.
    """

    cause: Cause
    headline: str
    findings: list[Finding]
    waterfall: list[WaterfallBar]
    remedy: Remedy | None
    top_links: list[LinkEvidence]
    sampling: Sampling
    elapsed_ps: int
    communication_fraction: float
    hidden_fraction: float | None = None
    warnings: list[str]
    assumptions: list[str] = Field(default_factory=list)
    confidence: float = 0.0
    chances: dict[str, float] = Field(default_factory=dict)
    alternatives: list[Cause] = Field(default_factory=list)
    basis: Basis = "samples"
    agreement: Agreement | None = None
    shares: list[CauseShare] = Field(default_factory=list)
    slow_links: list[str] = Field(default_factory=list)
    times: Times = "expected"
    times_from: str = ""
    expected_ps: int | None = None
    measured: Measured | None = None
    forecast: Forecast | None = None
    not_explained_ps: int | None = None
    not_explained_low_ps: int | None = None
    not_explained_high_ps: int | None = None
    explanation: Explanation | None = None
    evidence: list[EvidenceRow] = Field(default_factory=list)
    not_recorded: list[str] = Field(default_factory=list)
    not_used: list[str] = Field(default_factory=list)
    captured: bool = False
    budget: BudgetUse | None = None

    @property
    def modelled_ps(self) -> int:
        """Time that the model expects."""
        return self.elapsed_ps if self.expected_ps is None else self.expected_ps

    def time_with(self, candidate: Candidate) -> tuple[int, int, int]:
        """Simulated time with a proved candidate of the remedy: mean, least and most, ps.

        In a forecast those of the ensemble, if the candidate was compared in it: its gain and this
        time are on one screen. Otherwise those of the repetitions.
        """
        low, mean, high = candidate.gain_low, candidate.gain, candidate.gain_high
        if self.explanation is not None or self.remedy is None or mean is None:
            low_ps, high_ps = (
                ps or candidate.elapsed_ps for ps in (candidate.low_ps, candidate.high_ps)
            )
            return candidate.elapsed_ps, low_ps, high_ps
        gains = mean, mean if high is None else high, mean if low is None else low
        mean_ps, low_ps, high_ps = (round((1.0 - gain) * self.remedy.before_ps) for gain in gains)
        return mean_ps, low_ps, high_ps

    @property
    def ideal_ps(self) -> int:
        """Lower bound of the program's time on its hosts, 0 without re-simulation."""
        return next((bar.elapsed_ps for bar in self.waterfall if bar.name == "ideal"), 0)

    @model_serializer(mode="wrap")
    def _without_unused_budget(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = serialize(self)
        if self.budget is None:
            data.pop("budget", None)
        return data

    @model_validator(mode="after")
    def _cause_is_found(self) -> Self:
        causes = {finding.cause for finding in self.findings}
        if self.cause not in causes:
            raise ValueError(
                f"the cause is {self.cause!r}, which no finding has: {', '.join(sorted(causes))}"
            )
        return self

    @model_validator(mode="after")
    def _nothing_beats_the_ideal(self) -> Self:
        for bar in self.waterfall:
            self._not_below(bar.name, bar.elapsed_ps)
        if self.remedy is not None:
            self._not_below("before", self.remedy.before_ps)
            for candidate in self.remedy.candidates:
                if candidate.proved and candidate.kinds <= SAME_PROGRAM:
                    self._not_below(candidate.name, candidate.low_ps)
                    self._not_below(candidate.name, candidate.elapsed_ps)
        return self

    def _not_below(self, name: str, elapsed_ps: int) -> None:
        if elapsed_ps < self.ideal_ps:
            raise ValueError(f"{name} takes {elapsed_ps} ps, less than the ideal {self.ideal_ps}")
