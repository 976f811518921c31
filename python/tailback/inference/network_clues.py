"""What counters and traces say about a network before anything is simulated."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.diagnosis.cable_search import MAX_SHARE
from tailback.diagnosis.topology import LinkTopology, link_totals
from tailback.evidence import MeasuredRun
from tailback.evidence.call_profile import CallProfile
from tailback.evidence.link_counters import LinkCounters
from tailback.evidence.measured_routes import HASHED_VARIANCE, LeafFlows, hashed_variance
from tailback.evidence.other_traffic import UNKNOWN, OtherTraffic
from tailback.evidence.send_times import send_profile
from tailback.evidence.step_times import step_profile
from tailback.fabric.degraded import MIN_GBPS, SlowLink
from tailback.fabric.model import Fabric
from tailback.inference import explain_wording as wording
from tailback.inference.comparisons import (
    CallTimes,
    Comparisons,
    EvidenceComparison,
    LinkSamples,
    NetworkStepTimes,
    PortBytes,
    PortStalls,
    SendSpread,
    SendTimes,
    stall_error_ps,
)
from tailback.inference.evidence import NetworkEvidence
from tailback.run.run import Run
from tailback.simulation import PreparedScenario
from tailback.telemetry.left_out import copies

MIN_OTHER_SHARE = 0.02
"""Ratio of other jobs' bytes to our own from which their traffic is simulated."""

TCP_GBPS = 10.0
"""Rate of hosts up to which Ethernet is taken to carry messages by TCP and to drop packets. Faster
adapters are made for RDMA, which needs a network that pauses or paces instead."""

FLOWS_OF_PAIR = 4
"""Flows of other jobs between two hosts that take paths of their own where counters show paths:
parts of a quarter, whether they are one connection or many."""

Slow = tuple[SlowLink, ...]


@dataclass(frozen=True)
class OtherJobs:
    """Traffic of others, where there is enough of it.

    Attributes:
        traffic: Counted traffic; None if too little to matter.
        whose: The jobs, in words.
        shown: The evidence, in words.
    """

    traffic: OtherTraffic | None = None
    whose: str = ""
    shown: str = ""

    @classmethod
    def of(cls, prepared: PreparedScenario, evidence: NetworkEvidence, run: Run) -> OtherJobs:
        """What counters say of it."""
        traffic = evidence.others
        if traffic is None or not _is_significant(traffic, run):
            return cls()
        return cls(traffic, *_others_text(traffic, evidence))

    def add_to(self, prepared: PreparedScenario, bursts: int | None) -> PreparedScenario:
        """The scenario with this traffic, in ``bursts`` per window of the counters."""
        if self.traffic is None:
            return prepared
        name = f"other traffic ({_job_names(self.traffic)})"
        flows = FLOWS_OF_PAIR if prepared.scenario.engine.flow_seeds else 1
        return prepared.with_other_traffic(name, self.traffic.messages(bursts).rows(), flows)


def _is_significant(others: OtherTraffic, run: Run) -> bool:
    if not others.flows.height:
        return False
    own_bytes = float(run.tables["messages"]["size_bytes"].to_numpy() @ copies(run.tables))
    return others.sent_bytes >= MIN_OTHER_SHARE * max(own_bytes, 1.0)


def _job_names(others: OtherTraffic) -> str:
    return ", ".join(job.job for job in others.jobs[:3]) or UNKNOWN


def _others_text(others: OtherTraffic, evidence: NetworkEvidence) -> tuple[str, str]:
    """Whose traffic it was, and the evidence for it."""
    assert evidence.counters is not None
    seconds = evidence.counters.seconds
    named = [
        wording.job_traffic(
            None if job.job == UNKNOWN else job.job, job.hosts, job.sent_bytes * 8 / seconds / 1e9
        )
        for job in others.jobs[:3]
    ]
    shown = wording.counted_traffic(others.sent_bytes, others.own_overhead - 1.0)
    return "; ".join(named), shown


MIN_ALIKE, ALIKE, CARRIED_MUCH = 3, 1.5, 0.1
"""Number of slow cables from which one factor is no chance. How much they may differ from it: rates
within windows of a queue are off by less. Share of the rate of slow cables from which others carry
enough to count."""


def _degraded(evidence: NetworkEvidence, fabric: Fabric, upwards: float = 0.0) -> Slow:
    """Links that carry less than their rate according to counters of queues.

    A cable is as slow both ways unless the rates of its two directions contradict each other.
    ``upwards``: how far to go from each rate to the upper bound of its 95 % interval, 0–1.
    """
    counters = evidence.counters
    if counters is None or not counters.findings.height:
        return ()
    rows = counters.findings.filter(
        (pl.col("finding") == "degraded") & pl.col("link").is_not_null()
    ).select("link", "intervals", "served_gbps", "served_low_gbps", "served_high_gbps")
    cables: dict[int, list[_ServedRate]] = {}
    for row in map(_ServedRate._make, rows.rows()):
        cables.setdefault(min(row.link, int(fabric.link_reverse[row.link])), []).append(row)
    slow = list[SlowLink]()
    for rates in cables.values():
        least = max(rate.low for rate in rates)
        if len(rates) == 1 and evidence.served_gbps is not None:
            least = max(least, float(evidence.served_gbps[fabric.link_reverse[rates[0].link]]))
        most = min(rate.high for rate in rates)
        if least > most:
            slow += [
                SlowLink(rate.link, _between(rate.gbps, rate.high, upwards), both=False)
                for rate in rates
            ]
        else:
            weights = [rate.intervals for rate in rates]
            mean = float(np.average([rate.gbps for rate in rates], weights=weights))
            # By the direction that queued for longest, which is the one that the run waits for.
            longest = max(rates, key=lambda rate: rate.intervals)
            slow.append(SlowLink(longest.link, _between(max(mean, least), most, upwards)))
    return tuple(slow)


def _between(rate: float, most: float, upwards: float) -> float:
    """A rate between one and its upper bound."""
    return rate + upwards * max(most - rate, 0.0)


class _ServedRate(NamedTuple):
    """Rate that a degraded link serves, with its bounds, and the intervals that show it."""

    link: int
    intervals: int
    gbps: float
    low: float
    high: float


def counted_slow(evidence: NetworkEvidence, fabric: Fabric, upwards: float = 0.0) -> Slow:
    """Slow links by counters, but those of which :func:`impossible_slow` says that it cannot be.

    Those that reach nearly their rates are left out as well: headers that counters lack, and rates
    that a standard rounds, look like this, and no search tries such rates either.

    Args:
        evidence: The counters.
        fabric: The fabric, with the stated rates.
        upwards: How far to go from each rate to the upper bound of its 95 % interval, 0–1.
    """
    slow = _degraded(evidence, fabric, upwards)
    if wrong_unit(slow, evidence, fabric):
        return ()
    nearly = MAX_SHARE * np.asarray(fabric.link_gbps, np.float64)
    return tuple(link for link in slow if MIN_GBPS <= link.gbps < nearly[link.link])


def impossible_slow(evidence: NetworkEvidence, fabric: Fabric) -> str:
    """Why the slow links of counters cannot be as they say, as a sentence; empty if they can."""
    slow = _degraded(evidence, fabric)
    share = wrong_unit(slow, evidence, fabric)
    if share:
        return wording.wrong_unit(len(slow), share)
    stuck = [fabric.link_name(link.link) for link in slow if link.gbps < MIN_GBPS]
    return wording.served_nothing(stuck) if stuck else ""


def wrong_unit(slow: Slow, evidence: NetworkEvidence, fabric: Fabric) -> float:
    """Factor by which all links serve less than the stated rates; 0 if some serve more than that.

    Cables do not fail all alike: that at least half of those that carried much, and three of them,
    are slower by one factor, and that no link was ever faster, are rates in another unit.
    """
    if len(slow) < MIN_ALIKE or evidence.served_gbps is None:
        return 0.0
    stated = np.asarray(fabric.link_gbps, np.float64)
    shares = np.array([link.gbps / stated[link.link] for link in slow])
    share = float(np.median(shares))
    alike = int(((shares > share / ALIKE) & (shares < share * ALIKE)).sum())
    reached = evidence.served_gbps / stated
    cable = np.minimum(np.arange(fabric.n_links), fabric.link_reverse)
    used = len(np.unique(cable[reached > share * CARRIED_MUCH]))
    faster = bool((reached > share * ALIKE).any())
    return 0.0 if faster or alike < max(MIN_ALIKE, used / 2) else share


def is_lossy(evidence: NetworkEvidence, fabric: Fabric) -> bool:
    """Whether the network drops packets: by counters, else as Ethernet of its rate does."""
    counters = evidence.counters
    if counters is not None and (counters.lossy or not np.isnan(counters.stall).all()):
        return counters.lossy
    if fabric.link_interface is None:
        return False
    of_hosts = np.asarray(fabric.link_src) < fabric.n_nodes
    return float(np.asarray(fabric.link_gbps)[of_hosts].max(initial=0.0)) <= TCP_GBPS


def routing_is_stated(prepared: PreparedScenario) -> bool:
    """Whether forwarding tables or the scenario state the paths of messages."""
    scenario = prepared.scenario
    return scenario.fabric.forwarding is not None or not (
        scenario.engine.model_fields_set.isdisjoint(("routing", "adaptive"))
    )


def between_switches(fabric: Fabric) -> NDArray[np.bool_]:
    """Links between switches, shape (L,)."""
    ends = fabric.link_src, fabric.link_dst
    return np.asarray((ends[0] >= fabric.n_nodes) & (ends[1] >= fabric.n_nodes))


def sound_links(evidence: NetworkEvidence, fabric: Fabric) -> NDArray[np.bool_]:
    """Links that do not limit the run by their queues, shape (L,).

    On a lossy network, a link that does has a queue more often than its nominal rate explains. A
    single such reading may be chance, but none shows that the link is sound. Links whose bytes or
    queues were not read are not known to be.
    """
    counters = evidence.counters
    if counters is None or not counters.lossy:
        return np.zeros(fabric.n_links, np.bool_)
    rows = counters.findings.filter(
        pl.col("link").is_not_null()
        & ((pl.col("finding") == "degraded") | (pl.col("queued_share") > pl.col("busy_share")))
    )
    queued = np.isin(np.arange(fabric.n_links), rows["link"].to_numpy())
    return ~np.isnan(counters.sent_bytes) & counters.queues_read & ~queued


def are_counted(evidence: NetworkEvidence, slow: Iterable[SlowLink], fabric: Fabric) -> bool:
    """Whether counters show how much each of these links sent, and the other way of its cable."""
    ends = {end for link in slow for end in (link.link, int(fabric.link_reverse[link.link]))}
    counters = evidence.counters
    return counters is not None and not np.isnan(counters.sent_bytes[list(ends)]).any()


def comparisons(
    prepared: PreparedScenario,
    measured: MeasuredRun,
    evidence: NetworkEvidence,
    run: Run,
    profile: CallProfile,
) -> Comparisons:
    """Kinds of evidence that a simulation can be compared with."""
    program = prepared.observed.program
    topology = LinkTopology.of(run)
    out: list[EvidenceComparison] = [CallTimes(profile, program)]
    sends = send_profile(measured.tables, run)
    if sends is not None:
        out += [SendTimes(sends), SendSpread(sends)]
    steps = step_profile(measured.tables, run)
    out += [] if steps is None else [NetworkStepTimes(steps)]
    counters = evidence.counters
    if counters is not None and not counters.lossy:
        elapsed = modelled_part_ps(measured)
        sizes = run.tables["messages"]["size_bytes"]
        error = stall_error_ps(
            link_totals(run, "bytes"),
            prepared.fabric.link_gbps,
            prepared.scenario.engine.buffer,
            float(sizes.mean() or 0.0),  # type: ignore[arg-type]
        )
        stalls = PortStalls(
            counters.stall_ps, counters.latched, elapsed, error, evidence.waits_counted
        )
        out.append(stalls)
        # With tables the paths are known, and of others it is not known which paths they take.
        if (
            not routing_is_stated(prepared)
            and OtherJobs.of(prepared, evidence, run).traffic is None
            and not _seem_hashed(prepared, counters, run)
        ):
            out.append(PortBytes(counters.sent_bytes, between_switches(prepared.fabric)))
    if evidence.congested is not None and evidence.sampled is not None:
        out.append(LinkSamples(evidence.congested, evidence.sampled, topology.from_node))
    return Comparisons(out)


def _seem_hashed(prepared: PreparedScenario, counters: LinkCounters, run: Run) -> bool:
    """Whether parallel links differ as if each flow were hashed to one of them.

    Which one is chance, which no simulation predicts.
    """
    least, most = HASHED_VARIANCE
    flows = flows_of(prepared, run)
    return least <= hashed_variance(counters, prepared.fabric, flows) <= most


def flows_of(prepared: PreparedScenario, run: Run) -> LeafFlows:
    """What each pair of ranks sends in a run."""
    fabric, node = prepared.fabric, prepared.observed.node
    sent = (
        run.tables["messages"]
        .filter(pl.max_horizontal("src_rank", "dst_rank") < len(node))
        .group_by("src_rank", "dst_rank")
        .agg(pl.col("size_bytes").sum())
        .sort("src_rank", "dst_rank")
    )
    leaf = fabric.node_switch[node].astype(np.int64)
    src, dst = (leaf[sent[name].to_numpy()] for name in ("src_rank", "dst_rank"))
    return LeafFlows(src, dst, sent["size_bytes"].to_numpy().astype(np.float64))


def modelled_part_ps(measured: MeasuredRun) -> int:
    """Measured time that a simulation of the program covers."""
    totals = measured.measured
    return max(totals.elapsed_ps - totals.outside_model_ps, 1)


# --- hosts of the ranks ------------------------------------------------------------------------


def unknown_hosts(prepared: PreparedScenario, measured: MeasuredRun) -> str:
    """A caveat if the hosts of the ranks are assumed; empty if they are known.

    Hosts named by the trace that the fabric has are part of the job's section, like stated ones.
    """
    section, fabric = prepared.observed.section, prepared.fabric
    used = len(np.unique(fabric.node_host[prepared.observed.node]))
    of_rank = measured.tables["hosts"]["host"].to_list()
    recorded = [name for name in of_rank if name is not None]
    if section.hosts != "all" or section.placement_file is not None:
        count = len(set(recorded))
        return wording.other_number_of_hosts(count, used) if count not in (0, used) else ""
    foreign = [name for name in dict.fromkeys(recorded) if name not in set(fabric.host_name)]
    if foreign:
        return wording.foreign_hosts(foreign, fabric.host_name)
    if 0 < len(recorded) < len(of_rank):
        return wording.hosts_of_some(len(recorded), len(of_rank))
    return "" if recorded and len(set(recorded)) == used else wording.HOSTS_NOT_RECORDED
