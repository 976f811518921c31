"""Breakdown of a run's measured time by cause, and the part that remains unexplained.

Detected slow links and other traffic are added to the expected run. Then each cause is removed on
its own: the time saved is its cost (counterfactual). Measured time that the expected run does not
account for is *not explained* and is not attributed to any cause.
"""

from __future__ import annotations

import shlex
from typing import Final, Literal

from pydantic import Field, model_validator

from tailback.errors import option
from tailback.frozen_model import FrozenModel
from tailback.units import format_bytes, format_time, percent

Origin = Literal["trace", "counters", "fabric", "model", "telemetry"]
"""Evidence behind a part: recorded times, port counters, rates that the fabric states, a
simulation, samples in packets."""


class SubjectLink(FrozenModel):
    """A link that is the subject of a cost.

    Attributes:
        link: Its number in the tables of the run.
        name: Its name.
        text: Its name and rates.
    """

    link: int
    name: str
    text: str


class Cost(FrozenModel):
    """Cost of one cause.

    Attributes:
        cause: Name of the cause, as in ``Diagnosis.cause``.
        ps: Time that the run would save without the cause, picoseconds.
        low_ps: Minimum of ``ps`` over the ensemble.
        high_ps: Maximum of ``ps`` over the ensemble.
        share: ``ps`` over the measured time, 0–1.
        subject: The link and its rates, the job, or the ranks.
        links: The links of ``subject``, the likeliest first; empty for other subjects.
        one_of_links: Only one of them has the fault, and the evidence does not tell which.
        evidence: One sentence on the evidence.
        rests_on: Kinds of evidence that the cost is based on.
    """

    cause: str
    ps: int
    low_ps: int
    high_ps: int
    share: float
    subject: str
    links: tuple[SubjectLink, ...] = ()
    one_of_links: bool = False
    evidence: str
    rests_on: tuple[Origin, ...]


class SharedLink(FrozenModel):
    """A link between switches that our job shares with other jobs, from regression over time.

    Attributes:
        link: Name of the link.
        ours: Our job's share of its bytes, 0–1.
        jobs: Share of each other job, by job identifier, largest first.
        error: Largest standard error of these shares.
    """

    link: str
    ours: float
    jobs: dict[str, float]
    error: float


class SampledLink(FrozenModel):
    """A link as the samples in our real packets show it.

    Attributes:
        link: Name of the link.
        number: Its number in table ``links``.
        packets: Our packets through it, estimated.
        congested_fraction: Share of them that met congestion there, 0–1.
        low: Lower bound of its 95 % interval.
        high: Upper bound.
        calls: Congested packets by the MPI call in which their receiver was when they arrived.
            Empty where the samples do not tell.
    """

    link: str
    number: int
    packets: float
    congested_fraction: float
    low: float
    high: float
    calls: dict[str, float] = Field(default_factory=dict)


class PortCount(FrozenModel):
    """What one port counted of one kind.

    Attributes:
        device: Its switch, adapter or host.
        port: Its number, 0 where ports have names alone.
        interface: Its name; None where ports have numbers alone.
        counters: Counters that rose or are full, as the source names them.
        count: Events while the program ran.
        at_least: ``count`` and ``per_second`` are lower bounds: a counter was reset, or has a
            threshold.
        full: Counters at their largest value, which count no more.
        per_second: The same a second; None if unknown.
        paused_share: Share of the time that it was paused, 0–1; None if unknown.
    """

    device: str
    port: int
    interface: str | None
    counters: tuple[str, ...]
    count: int
    at_least: bool
    full: tuple[str, ...]
    per_second: float | None
    paused_share: float | None


SuspicionKind = Literal["rate", "errors", "slower", "pauses", "drops", "samples"]
"""Why a link is suspect: a rate below nominal, errors, a fall of its speed, pauses, drops, or
samples of congestion."""


class SuspectLink(FrozenModel):
    """A link that the evidence makes suspect and that the job's messages cross.

    Attributes:
        link: Its number in the tables of the run.
        name: Its name.
        suspected_for: Kinds of evidence against it, or against the other direction of its cable.
        evidence: What they show, in words.
        status: ``named``: a slow link with a cost in the verdict; ``candidate``: neither named nor
            excluded; ``ruled-out``.
        reason: Why it is ruled out, or why it is not; empty for a named one.
        share: Mean share of the measured time that it costs if it is slow, 0–1; None if unknown.
        low: Lower bound of the 95 % interval of ``share``.
        high: Upper bound.
    """

    link: int
    name: str
    suspected_for: tuple[SuspicionKind, ...]
    evidence: str
    status: Literal["named", "candidate", "ruled-out"]
    reason: str
    share: float | None
    low: float | None
    high: float | None

    @property
    def statement(self) -> str:
        """One sentence with all of it."""
        verdict = {
            "named": "in the verdict as a slow link",
            "candidate": self.reason,
            "ruled-out": f"ruled out because {self.reason}",
        }[self.status]
        return f"{self.name}: {self.evidence}; {verdict}"

    @property
    def may_have_errors(self) -> bool:
        """Whether its cable is suspected for errors, which are not shown to cost nothing."""
        faulty = not {"errors", "slower"}.isdisjoint(self.suspected_for)
        return faulty and self.status == "candidate"


class PortEvents(FrozenModel):
    """What ports counted of one kind, such as errors, pause frames or lost packets.

    The counters do not know whose packets they were.

    Attributes:
        finding: Kind, as in table ``port_events``.
        statement: One sentence, with the largest figure, and what does and does not follow.
        ports: The ports, largest first.
    """

    finding: str
    statement: str
    ports: list[PortCount]


SubjectKind = Literal["run", "link", "host", "switch", "rank", "call", "job"]
"""What a row of evidence is about."""

Source = Literal["trace", "counters", "fabric", "forwarding", "jobs", "samples", "model"]
"""Where its value comes from: recorded times, port counters, the fabric file, forwarding tables,
the job list, samples in packets, or a simulation."""

Unit = Literal["ps", "B", "Gb/s", "share", "count", "ratio"]
"""Unit of its value."""


def _with_unit(value: float, unit: Unit) -> str:
    if unit == "ps":
        return format_time(value)
    if unit == "B":
        return format_bytes(value)
    if unit == "share":
        return percent(value)
    if unit == "Gb/s":
        return f"{value:.3g} Gb/s" if value >= 1.0 else f"{1000.0 * value:.3g} Mb/s"
    return f"{value:.3g}"


class EvidenceRow(FrozenModel):
    """One value of the evidence, and what it says of each cause.

    Attributes:
        subject: Name of the link, host, rank, call or job; for a run, what is summed up.
        kind: What the subject is.
        start_ps: Start of the time that the value is of, ps from the start of the run.
        end_ps: End of that time.
        quantity: What was measured.
        value: Its value.
        unit: Unit of ``value`` and ``error``.
        error: Standard error of the value; None if unknown.
        source: Where it comes from.
        log_ratios: By cause, the natural logarithm of the likelihood of the row with the cause over
            that without it; positive values speak for the cause. A row of the run contains the
            ranks, calls or links that are summed up in it.
        says: By cause, what follows from the row otherwise.
    """

    subject: str
    kind: SubjectKind
    start_ps: int
    end_ps: int
    quantity: str
    value: float
    unit: Unit
    error: float | None = None
    source: Source
    log_ratios: dict[str, float] = Field(default_factory=dict)
    says: dict[str, str] = Field(default_factory=dict)

    @property
    def text(self) -> str:
        """The value with its error."""
        value = _with_unit(self.value, self.unit)
        if self.error is None:
            return value
        error = _with_unit(self.error, self.unit)
        number, _, unit = value.partition(" ")
        return f"{number if error.endswith(f' {unit}') else value} ± {error}"

    @property
    def weight(self) -> float:
        """Largest absolute logarithm of a likelihood ratio; 0 without one."""
        return max(map(abs, self.log_ratios.values()), default=0.0)


MeasurementKind = Literal[
    "hosts", "jobs", "forwarding", "errors", "counters", "pairs", "second-run"
]
"""What may be measured next: the hosts of the ranks, the jobs at that time, forwarding tables,
errors of ports, counters of ports, rates between pairs of hosts, or the program again with its
ranks shifted by one host."""


class NextMeasurement(FrozenModel):
    """The measurement that would tell most about the cause.

    Attributes:
        kind: What is measured.
        subjects: Names of the links or hosts that it is of; empty for all.
        bits: By how much the entropy over the causes is expected to fall, bits.
        command: The command, as words.
        output: File for what the command prints; empty if it writes its own.
        text: What it shows and how to pass it, as a clause.
    """

    kind: MeasurementKind
    subjects: list[str]
    bits: float
    command: list[str]
    output: str = ""
    text: str

    @property
    def command_line(self) -> str:
        """The command to type."""
        line = shlex.join(self.command)
        return f"{line} > {self.output}" if self.output else line


class VisibleCables(FrozenModel):
    """The smallest fault of a cable that would have been seen.

    Attributes:
        role: Whether the cables lead to hosts.
        used: Number of cables of this role that carry the job's messages.
        tried: Number of them that were simulated.
        seen: Number of these, more than half, that would have been seen at ``rate_share``.
        rate_share: Largest share of their rate at which these would have been seen to be slow, 0–1;
            None if at none.
    """

    role: Literal["host", "between switches"]
    used: int
    tried: int
    seen: int
    rate_share: float | None

    @property
    def statement(self) -> str:
        """What would have been seen, as a clause."""
        cable = "host cable" if self.role == "host" else "cable between switches"
        of_all = f"tried, of {self.used} with your messages"
        if self.rate_share is None:
            return f"hardly any slow {cable} ({self.tried} {of_all})"
        rate = percent(self.rate_share)
        return f"a {cable} at {rate} of its rate or less ({self.seen} of {self.tried} {of_all})"


class SmallestFault(FrozenModel):
    """The smallest faults that would have been seen in a healthy run.

    Attributes:
        cables: Slow cables, by role.
        job_gbps: Least mean rate of each host that the job does not use at which another job on
            all of them would have been seen, Gb/s; None if at none, or without such hosts.
    """

    cables: list[VisibleCables]
    job_gbps: float | None

    @property
    def statement(self) -> str:
        """What would have been seen, and what need not have been, as a sentence."""
        shown = [cables.statement for cables in self.cables]
        if self.job_gbps is not None:
            shown.append(f"a job on all other hosts at {self.job_gbps:.2g} Gb/s each or more")
        return (
            f"Faults that would have shown: {'; '.join(shown)}. Smaller ones, and cables that your "
            "messages hardly wait for, need not have."
        )


ABOVE_LINE: Final = 1.1
"""Bus bandwidth over the rate of the links that no error of clocks explains: kernels end on all
ranks within some microseconds of one another."""


class BusBandwidth(FrozenModel):
    """Bus bandwidth of one kind of collective, as nccl-tests defines it, in GB/s.

    Medians over the repetitions; times are those of the last rank to begin.

    Attributes:
        call: NCCL's name.
        size_bytes: Bytes of the whole buffer.
        communicator: Name of the communicator, or of one of them.
        n_ranks: Ranks of the group.
        n_hosts: Their hosts.
        count: Repetitions.
        line_gbytes: Line rate of the slowest host's adapters; None within a host.
        expected_gbytes: On this fabric without faults, by simulation.
        explained_gbytes: The same with the slow links and other traffic that were found.
        measured_gbytes: Measured.
        with_waits_gbytes: Measured by the median rank, which may wait for late ranks.
    """

    call: str
    size_bytes: int
    communicator: str
    n_ranks: int
    n_hosts: int
    count: int
    line_gbytes: float | None
    expected_gbytes: float
    explained_gbytes: float
    measured_gbytes: float
    with_waits_gbytes: float

    @property
    def contradicts_fabric(self) -> str:
        """Why the stated rate of links cannot be true; empty if it can."""
        if self.line_gbytes is None or self.measured_gbytes <= ABOVE_LINE * self.line_gbytes:
            return ""
        return (
            f"{self.call} of {format_bytes(self.size_bytes)} has a bus bandwidth of "
            f"{self.measured_gbytes:.3g} GB/s, where the links of {option('fabric')} carry "
            f"{self.line_gbytes:.3g}: check their rates"
        )


class Explanation(FrozenModel):
    """Breakdown of the measured time.

    Raises:
        ValueError: The parts, including ``not explained``, do not add up to the measured time.

    Attributes:
        elapsed_ps: Measured time.
        parts: Components of the time, by name, in picoseconds and in the order in which they are
            added: set-up and end, computation, adapters …, and ``not explained``, which is negative
            if the expected time exceeds the measured one. They add up to ``elapsed_ps``.
        costs: Cost of each cause, largest first; costs of interacting causes overlap.
        not_explained_ps: Measured time minus the expected time with all detected causes.
        model_error_ps: Error of the model due to unknown properties of the machine.
        missing: Further evidence that would resolve open questions, and the command to collect it;
            if the verdict is undetermined, by expected information.
        next_measurement: The first of these; None if the verdict is not undetermined, or if no
            measurement would help.
        sources: Evidence used, one line each.
        smallest_fault: The smallest faults that would have been seen; None if the verdict is not
            healthy, or if simulating them takes too long.
        shared_links: Links that our job shares with other jobs, largest foreign share first; empty
            if the counters cannot separate jobs.
        sampled_links: Links with the most congested packets by the samples in our packets; empty
            without samples.
        port_events: What ports counted of errors, pauses, marks and losses; empty if nothing.
        suspect_links: Suspect links that the job's messages cross: each is named,
            a candidate, or ruled out.
        bus_bandwidths: Bus bandwidth of NCCL's collectives, most bytes first.
    """

    elapsed_ps: int
    parts: dict[str, int]
    costs: list[Cost]
    not_explained_ps: int
    model_error_ps: int
    missing: list[str]
    next_measurement: NextMeasurement | None = None
    sources: list[str]
    smallest_fault: SmallestFault | None = None
    shared_links: list[SharedLink] = Field(default_factory=list)
    sampled_links: list[SampledLink] = Field(default_factory=list)
    port_events: list[PortEvents] = Field(default_factory=list)
    suspect_links: list[SuspectLink] = Field(default_factory=list)
    bus_bandwidths: list[BusBandwidth] = Field(default_factory=list)

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
