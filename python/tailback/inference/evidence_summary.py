"""What evidence other than the trace says about a measured run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tailback.diagnosis.explanation import (
    BusBandwidth,
    EvidenceRow,
    Origin,
    PortEvents,
    SampledLink,
    SharedLink,
    SubjectLink,
    SuspectLink,
)
from tailback.inference.changes_over_time import ChangeOverTime
from tailback.inference.decision import Alternative
from tailback.inference.next_measurement import MeasurementChoice
from tailback.inference.smallest_fault import FaultSizes
from tailback.inference.unknown_job import UnknownJob


@dataclass(frozen=True)
class EvidenceSummary:
    """Results from evidence other than the trace, as included in the expected run.

    Attributes:
        slow: One line for each slow link: the link and its rates.
        slow_links: The candidates, or the slow links if there are none, as data.
        slow_shown_by: Evidence for the slow links.
        others: Source of other traffic; empty if there is none.
        others_shown_by: Evidence for the other traffic.
        shared_links: Links that our job shares with other jobs.
        sampled_links: Links with the most congested packets by the samples in our packets.
        port_events: What ports counted of errors, pauses, marks and losses.
        unknown_timing: Probability that a cable with errors delays messages at other times than
            was simulated, so that it may cost less than the simulation says.
        noise_in_calls_ps: Time that interruptions inside calls take, ps: mean and most.
        usual_delays: Factor of delays over those assumed, if longer ones are likely; otherwise 0.
        suspect_links: Suspect links, before the costs of slow links are known.
        unknown_job: An unknown job; not part of the expected run, so its cost is added to it.
        alternatives: The hypotheses, that of the expected run first; empty if none were compared.
        lossy: The network drops packets when queues are full.
        others_range: Possible decrease and increase of the run time, depending on how bursty the
            other traffic was, ps.
        others_more_ps: Increase of the cost of other traffic over the expected run: the mean over
            its possible arrangements, ps.
        slow_more_ps: Increase of the cost of slow links over the expected run, ps: time that they
            needed for the bytes that they counted, which the model sends over other links.
        extrapolated_ps: Half of the 95 % interval of the expected time, where repeated steps were
            extrapolated, ps; 0 where none were.
        rests_on: Kinds of evidence for slow links and for other traffic.
        candidates: Links of which one is slow, if the evidence cannot determine which.
        place_open: The candidates need not contain the slow link, as the paths are unknown.
        slow_anywhere: Which links may be slow if even their number is large; empty if none is.
        assumed_hosts: Why the hosts of the ranks are an assumption, as a sentence; empty if they
            are known.
        ranks_missing: Which part of the ranks is not recorded, like "2 of 4 ranks"; empty if all
            are.
        impossible: Why what was found cannot be true, as a sentence; empty if it can.
        sources: Evidence used, one line each.
        measurements: What may be measured, by what it would tell; None if nothing was compared.
        sizes: Sizes of faults that would have been seen; None if nothing was compared.
        evidence: All rows of evidence.
        bus_bandwidths: Bus bandwidth of NCCL's collectives, measured and expected.
        collisions: Flows that a hash puts on one path; empty without.
        change: A part of the run in which calls take longer than the expected run explains; None
            if there is none, or too little to tell.
    """

    slow: tuple[str, ...] = ()
    slow_links: tuple[SubjectLink, ...] = ()
    slow_shown_by: str = ""
    others: str = ""
    others_shown_by: str = ""
    shared_links: tuple[SharedLink, ...] = ()
    sampled_links: tuple[SampledLink, ...] = ()
    port_events: tuple[PortEvents, ...] = ()
    unknown_timing: float = 0.0
    noise_in_calls_ps: tuple[int, int] = (0, 0)
    usual_delays: float = 0.0
    suspect_links: tuple[SuspectLink, ...] = ()
    others_range: tuple[int, int] = (0, 0)
    others_more_ps: int = 0
    slow_more_ps: int = 0
    unknown_job: UnknownJob | None = None
    alternatives: tuple[Alternative, ...] = ()
    lossy: bool = False
    extrapolated_ps: int = 0
    rests_on: Mapping[str, tuple[Origin, ...]] = field(default_factory=dict)
    candidates: tuple[str, ...] = ()
    place_open: bool = False
    slow_anywhere: str = ""
    assumed_hosts: str = ""
    ranks_missing: str = ""
    impossible: str = ""
    sources: tuple[str, ...] = ()
    measurements: MeasurementChoice | None = None
    sizes: FaultSizes | None = None
    evidence: tuple[EvidenceRow, ...] = ()
    bus_bandwidths: tuple[BusBandwidth, ...] = ()
    collisions: str = ""
    change: ChangeOverTime | None = None

    @property
    def unknown_job_ps(self) -> int:
        """Cost of the unknown job; 0 if there is none."""
        return 0 if self.unknown_job is None else self.unknown_job.ps

    @property
    def added_ps(self) -> int:
        """Cost of other traffic, slow links and noise beyond that in the expected run."""
        hidden = self.unknown_job_ps + self.others_more_ps + self.slow_more_ps
        return hidden + self.noise_in_calls_ps[0]
