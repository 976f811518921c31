"""Evidence on the network while a job ran: port counters, other jobs, samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tailback.arrays import Floats
from tailback.diagnosis.topology import link_totals
from tailback.errors import TailbackError
from tailback.evidence import MeasuredRun
from tailback.evidence.contradicting_counters import require_counted_messages
from tailback.evidence.counter_alignment import JoinError, Sent
from tailback.evidence.host_interfaces import host_interfaces
from tailback.evidence.jobs import JobList
from tailback.evidence.link_counters import LinkCounters, join_counters, served_gbps
from tailback.evidence.other_traffic import OtherTraffic, find_other_traffic
from tailback.evidence.silent_counters import silent_cables, used_cables, without_silent
from tailback.fabric.model import Fabric
from tailback.io.delimited import NotUsed, not_used
from tailback.names.hosts import HostNames
from tailback.names.ports import port_name
from tailback.port_counters.far_ends import Contradiction, check_cabling, described
from tailback.port_counters.findings import port_verdict
from tailback.port_counters.findings.port_events import port_events, within
from tailback.run.run import Run
from tailback.simulation import PreparedScenario
from tailback.simulation.captures import captured_run
from tailback.simulation.routes import forwarded_links
from tailback.sources.captures import with_capture_telemetry
from tailback.telemetry.captured import CaptureError, is_capture
from tailback.telemetry.estimate import link_estimates
from tailback.telemetry.header_counts import NOISY_AT_ZERO, ONE_RESERVOIR
from tailback.telemetry.left_out import whole_messages
from tailback.telemetry.samples_csv import read_samples
from tailback.traffic.readers.otf2.names import EXPANDED_CALLS
from tailback.units import counted

if TYPE_CHECKING:
    from tailback.port_counters.analysis.sources import CounterSource

JOBS_WITHOUT_TIME = (
    "the job list is not used: the trace does not record when the job ran (UTC), and there are no "
    "counters to find that from"
)
"""Note on a job list that cannot be aligned with the trace."""

TIME_NOT_CHECKED = NotUsed(
    "not checked: whether trace and counters are of one time. The trace records neither UTC nor "
    "when the messages of collectives were sent"
)
"""Note on counters that were aligned by modelled messages."""

COUNTED_TOO_LITTLE = (
    "the counters are used only for errors and for the rates that links have reached: they cover "
    "less than half of the job on every link"
)
"""Note on counters that were read during a small part of the job."""


@dataclass(frozen=True)
class ListedJobs:
    """The jobs of the machine, and which of them is ours.

    Attributes:
        jobs: The list.
        own_ids: Identifiers of our job; empty if unknown.
        source: Where the list comes from, in words; empty: the user gave it.
    """

    jobs: JobList
    own_ids: frozenset[str] = frozenset()
    source: str = ""


@dataclass(frozen=True)
class NetworkEvidence:
    """Evidence besides the trace.

    Attributes:
        counters: Port counters by link; None without counters.
        others: Traffic of other jobs; None without counters of host ports.
        jobs: Names of jobs that ran at the same time; None without a job list.
        jobs_from: Where the job list comes from, in words; empty: the user gave it.
        notes: Remarks on evidence that is not used.
        unused_interfaces: Interfaces of each host that do not carry the job's messages.
        port_events: Table ``port_events`` of the ports that the job used; None without counters.
        link_events: The same with ``link``, which leaves the port, and ``in_files``: events between
            the first and the last reading. Rows without events in the time of the job have no
            ``count``.
        unused: Remarks on what is in the files and not used.
        served_gbps: Rate that each link can serve at least, as it has sent at that rate, 0 if
            unknown, shape (L,); None without counters.
        waits_counted: Whether ports that counted no waits in the time of the job had counted some
            before.
        congested: Congested fraction of each link from samples in our packets, NaN if unknown,
            shape (L,); None without samples.
        sampled: Our packets on each link from the same samples, shape (L,).
        estimates: The same with intervals, a row for each sampled link, as
            ``tailback.telemetry.estimate.link_estimates`` returns them; None without samples.
        sampled_calls: The same packets by link and call of their receivers, as ``Sampled.calls``;
            None where the samples do not tell.
    """

    counters: LinkCounters | None = None
    others: OtherTraffic | None = None
    jobs: tuple[str, ...] | None = None
    jobs_from: str = ""
    notes: tuple[str, ...] = ()
    unused_interfaces: Mapping[str, frozenset[str]] = field(default_factory=dict)
    port_events: pl.DataFrame | None = None
    link_events: pl.DataFrame | None = None
    unused: tuple[str, ...] = ()
    served_gbps: Floats | None = None
    waits_counted: bool = False
    congested: Floats | None = None
    sampled: Floats | None = None
    estimates: pl.DataFrame | None = None
    sampled_calls: pl.DataFrame | None = None


def with_samples(
    evidence: NetworkEvidence, samples: str | Path | None, prepared: PreparedScenario
) -> NetworkEvidence:
    """The evidence with samples from a CSV or a capture; raises TailbackError."""
    if samples is None:
        return evidence
    fabric, path, calls = prepared.fabric, Path(samples), None
    if is_capture(path):
        scenario, assumed = with_capture_telemetry(prepared.scenario)
        run = captured_run([path], scenario, assumed=assumed)
        if why := run.summary.get("without_samples"):
            raise CaptureError(
                f"has no samples: {why}",
                file=path,
                remedy="leave it out, or state what the switches write: [telemetry] of a scenario",
            )
        table, scheme = run.tables["samples"], run.scenario.telemetry.scheme
        shared, notes = scheme in ONE_RESERVOIR, tuple(run.notes)
    else:
        sampled = read_samples(path, fabric)
        table, scheme = sampled.samples, "full"
        shared = sampled.one_reservoir or scenario_scheme(prepared) in ONE_RESERVOIR
        notes = tuple(sampled.notes)
        calls = None if sampled.calls.is_empty() else sampled.calls
    rows = table.group_by("link").agg(pl.col("hop_weight", "congested_weight").sum())
    fraction, packets = np.full(fabric.n_links, np.nan), np.zeros(fabric.n_links)
    link, weight = rows["link"].to_numpy(), rows["hop_weight"].to_numpy().astype(np.float64)
    packets[link] = weight
    fraction[link] = rows["congested_weight"].to_numpy() / np.maximum(weight, 1.0)
    estimates = link_estimates(table, hashed=scheme in NOISY_AT_ZERO, shared=shared)
    if evidence.counters is not None:
        used = silent_cables(evidence.counters, fabric) & (packets > 0)
        used |= used[fabric.link_reverse]
        why = "packets were sampled on them"
        counters, silent = without_silent(evidence.counters, used, fabric, why)
        evidence = replace(evidence, counters=counters, unused=(*silent, *evidence.unused))
    return replace(
        evidence,
        congested=fraction,
        sampled=packets,
        estimates=estimates,
        sampled_calls=calls,
        notes=(*evidence.notes, *notes),
    )


def scenario_scheme(prepared: PreparedScenario) -> str:
    """Telemetry scheme that the scenario names; ``full``, with the widest intervals, if none."""
    telemetry = prepared.scenario.telemetry
    return telemetry.scheme if "scheme" in telemetry.model_fields_set else "full"


def read_network_evidence(
    prepared: PreparedScenario,
    measured: MeasuredRun,
    run: Run,
    counters: Sequence[str | Path],
    jobs: ListedJobs | None,
) -> NetworkEvidence:
    """Read counters, and align them and the job list with the trace.

    Args:
        prepared: The scenario with the job's own traffic.
        measured: The measured run.
        run: The expected run, which has the messages of collectives.
        counters: Files or folders of port counters, as ``tailback counters`` takes them.
        jobs: The jobs of the machine.

    Raises:
        TailbackError: A file cannot be read, or does not belong to the fabric or the time.
    """
    if not counters:
        return _jobs_alone(jobs, prepared, measured)
    fabric = prepared.fabric
    sent = own_messages(measured, run)
    rows, source, contradicted = link_intervals([Path(path) for path in counters], prepared)
    rows, doubts = _without_contradicted(
        rows, contradicted, _cables_of(run, fabric), fabric, Path(counters[0])
    )
    events = source.counters.all_events()
    interfaces = host_interfaces(rows, fabric, sent, _span(measured))
    intervals = interfaces.rows
    try:
        joined = join_counters(
            intervals,
            fabric,
            sent,
            elapsed_ps=measured.measured.elapsed_ps,
            origin_unix_ns=measured.origin_unix_ns,
            lossy=port_verdict.drops_packets(intervals),
        )
    except JoinError as error:
        why = "; ".join((error.message, *interfaces.notes))
        raise JoinError(why, file=counters[0], remedy=error.remedy) from None
    stated = prepared.scenario.fabric.forwarding is not None
    crossed = (link_totals(run, "bytes") > 0) & stated
    used = used_cables(joined, fabric, sent, crossed)
    joined, silent = without_silent(joined, used, fabric, "messages of the trace crossed them")
    require_counted_messages(intervals, joined, fabric, sent, counters[0])
    notes = [
        *joined.notes,
        *interfaces.notes,
        *_inexact_stalls(intervals),
    ]
    joined = replace(joined, notes=notes)
    of_host, names, unclear = _jobs_of_hosts(jobs, prepared, joined.start_ns, joined.end_ns)
    others = find_other_traffic(
        joined,
        fabric,
        sent,
        of_host,
        packet_bytes=prepared.scenario.engine.packet,
        routes=forwarded_links(prepared.scenario, fabric),
    )
    if others is not None:
        joined = replace(joined, notes=[*joined.notes, *others.notes])
    jobs_from = "" if jobs is None else jobs.source
    left_out = (*doubts, *source.notes, *unclear)
    ports = _ports_of_links(intervals, _cables_of(run, fabric))
    during_job = _of_ports(within(events, joined.start_ns, joined.end_ns), ports)
    counted_events = port_events(during_job, interfaces.unused)
    in_files = port_events(_of_ports(events, ports), interfaces.unused)
    evidence = NetworkEvidence(
        jobs=names,
        jobs_from=jobs_from,
        notes=left_out,
        unused=(
            *silent,
            *_foreign_ports(intervals),
            *([] if joined.alignment.is_checked else [TIME_NOT_CHECKED]),
            *not_used(source.unknown, "counters"),
        ),
        served_gbps=served_gbps(intervals, fabric.n_links),
        waits_counted=source.counters.waits_counted,
        port_events=counted_events,
        link_events=link_events(counted_events, in_files, ports),
    )
    if np.isnan(joined.sent_bytes).all():
        # Too little of the job is counted to say how busy any link was.
        return replace(evidence, notes=(*left_out, COUNTED_TOO_LITTLE))
    unused = interfaces.unused
    return replace(evidence, counters=joined, others=others, unused_interfaces=unused)


def _cables_of(run: Run, fabric: Fabric) -> list[int]:
    """Links of the cables that the messages of a run cross, in either direction."""
    used = link_totals(run, "bytes") > 0
    return [int(link) for link in np.flatnonzero(used | used[fabric.link_reverse])]


_PORT_NAME = pl.coalesce("interface", pl.col("port").cast(pl.String)).alias("_name")
"""Name of a port among those of its device."""

_PORT = ("node_name", "_name")


def _ports_of_links(intervals: pl.DataFrame, links: list[int]) -> pl.DataFrame:
    """Device, name and link of the ports that some links leave.

    Args:
        intervals: Rows of ``counter_intervals`` with ``link``.
        links: The links.
    """
    rows = intervals.filter(pl.col("link").is_in(links))
    return rows.select("node_name", _PORT_NAME, "link").unique(_PORT, maintain_order=True)


def _of_ports(events: pl.DataFrame, ports: pl.DataFrame) -> pl.DataFrame:
    """Rows of ``port_events.READINGS`` of some ports.

    Args:
        events: Readings of errors, pauses and marks.
        ports: The ports, as :func:`_ports_of_links` returns them.
    """
    return events.with_columns(_PORT_NAME).join(ports, on=_PORT, how="semi").drop("_name")


def link_events(
    during_job: pl.DataFrame, in_files: pl.DataFrame, ports: pl.DataFrame
) -> pl.DataFrame:
    """Events of links in the time of a job, beside those of the whole time of the readings.

    Args:
        during_job: Rows of ``port_events``.
        in_files: The same of all readings.
        ports: The ports with their links.

    Returns:
        Rows of ``port_events`` with ``link`` and ``in_files``.
    """
    key = (*_PORT, "finding")
    total = in_files.with_columns(_PORT_NAME).select(
        *key, pl.col("counters").alias("_counters"), pl.col("count").alias("in_files")
    )
    return (
        during_job.with_columns(_PORT_NAME)
        .join(total, on=key, how="full", coalesce=True, maintain_order="left_right")
        .with_columns(pl.coalesce("counters", "_counters"), pl.col("full").fill_null([]))
        .join(ports, on=_PORT, how="inner", maintain_order="left")
        .drop("_name", "_counters")
    )


def host_events(events: pl.DataFrame, fabric: Fabric) -> pl.DataFrame:
    """Events that hosts counted while they recorded a job, as :func:`link_events` returns them.

    Args:
        events: Rows of ``port_events`` with names of hosts.
        fabric: The fabric. Hosts with several ports are left out: which of them counted is unknown.
    """
    ports = _ports(fabric).filter(pl.len().over("node_name") == 1).select("node_name", "link")
    rows = events.join(ports, on="node_name", how="inner", maintain_order="left")
    return rows.with_columns(in_files="count")


def _span(measured: MeasuredRun) -> tuple[int, int] | None:
    """Start and end of the run in UTC nanoseconds; None if the trace does not record it."""
    start = measured.origin_unix_ns
    return None if start is None else (start, start + max(measured.measured.elapsed_ps // 1000, 1))


def _jobs_alone(
    jobs: ListedJobs | None, prepared: PreparedScenario, measured: MeasuredRun
) -> NetworkEvidence:
    """The evidence of a job list without counters."""
    if jobs is None:
        return NetworkEvidence()
    span = _span(measured)
    if span is None:
        return NetworkEvidence(notes=(JOBS_WITHOUT_TIME,))
    _, names, unclear = _jobs_of_hosts(jobs, prepared, *span)
    return NetworkEvidence(jobs=names, jobs_from=jobs.source, notes=unclear)


def link_intervals(
    paths: list[Path], prepared: PreparedScenario
) -> tuple[pl.DataFrame, CounterSource, list[Contradiction]]:
    """What counters say of the prepared fabric.

    Returns:
        Rows of ``counter_intervals`` with the links of the fabric; all that the files have, whose
        events have the names of the fabric; and ports with another far end than in the fabric.
    """
    # Deferred: most diagnoses have no counters, and readers and analyses are many modules.
    from tailback.port_counters.analysis import port_inventory
    from tailback.port_counters.analysis.port_inventory import PortInventory
    from tailback.port_counters.analysis.sources import load

    source = load(paths)
    section, fabric = prepared.scenario.fabric, prepared.fabric
    inventory = PortInventory()
    if section.file is not None:
        inventory = port_inventory.from_discovery(section.file)
    elif source.run is not None:
        inventory = port_inventory.from_run(source.run)
    rows = (
        source.intervals(inventory, None)[0]
        .rows.collect()
        .drop("link")
        .join(_ports(fabric), on=["node_name", "port"], how="left", maintain_order="left")
    )
    source.counters.events = port_inventory.name_ports(source.counters.events, inventory)[0]
    _, spellings = port_inventory.with_fabric_names(source.counters.readings, inventory)
    # Readers also note what evidence does not use.
    source.notes = [*source.counters.left_out, *spellings]
    ports = _ports(fabric).iter_rows()
    peers = {
        (name, port): fabric.port_name(int(fabric.link_reverse[link])) for name, port, link in ports
    }
    return rows, source, source.contradictions(inventory, peers)


def _without_contradicted(
    rows: pl.DataFrame,
    contradicted: Sequence[Contradiction],
    cables: Sequence[int],
    fabric: Fabric,
    file: Path,
) -> tuple[pl.DataFrame, list[str]]:
    """The intervals without those of cables whose far ends are contradicted, and a note on these.

    Args:
        rows: Rows of ``counter_intervals`` with ``link``.
        contradicted: Ports with another far end than in the fabric.
        cables: Links of the cables that the job's messages cross.
        fabric: The fabric.
        file: For errors.

    Raises:
        JoinError: The job's messages cross one of these cables: which of them is unknown.
    """
    if not contradicted:
        return rows, []
    link_of = {(name, port): link for name, port, link in _ports(fabric).iter_rows()}
    of_port = {(each.node_name, each.port): each for each in contradicted}
    links = {int(link_of[place]) for place in of_port}
    used = links & set(cables)
    described_first = [each for place, each in of_port.items() if link_of[place] in used]
    text = described(described_first or contradicted, "the fabric")
    if used:
        raise JoinError(text, file=file, remedy=check_cabling())
    ends = links | {int(fabric.link_reverse[link]) for link in links}
    kept = rows.filter(~pl.col("link").is_in(ends).fill_null(False))
    return kept, [NotUsed(f"ports of {counted(len(links), 'cable')} not used: {text}")]


def _inexact_stalls(intervals: pl.DataFrame) -> list[str]:
    """A note on ports whose stalls are known within bounds only, as their ticks are."""
    inexact = intervals.filter(pl.col("stall_high_fraction") > pl.col("stall_fraction"))
    ports = inexact.select("node_name", "port").n_unique()
    if not ports:
        return []
    return [
        f"the stalls of {counted(ports, 'port')} are lower bounds: the length of their ticks is "
        "known within bounds only"
    ]


def _foreign_ports(intervals: pl.DataFrame) -> list[str]:
    """A note on ports with counters that the fabric does not have."""
    ports = intervals.group_by("node_name", _PORT_NAME).agg(pl.col("link").is_null().all())
    foreign = ports.filter("link").sort(*_PORT)
    if foreign.is_empty():
        return []
    device, port = foreign.select(*_PORT).row(0)
    return [
        NotUsed(
            f"counters of {foreign.height} of {ports.height} ports, which are not in the fabric: "
            f"{port_name(device, port)}{' and others' if foreign.height > 1 else ''}"
        )
    ]


def _ports(fabric: Fabric) -> pl.DataFrame:
    """Link that leaves each port, by the device's name and the port's number.

    The adapter of a host that has only one is also known by the name of the host.
    """
    by_device = pl.DataFrame(
        {
            "node_name": [fabric.vertex_name(int(v)) for v in fabric.link_src],
            "port": fabric.link_src_port,
            "link": np.arange(fabric.n_links),
        },
        schema={"node_name": pl.String, "port": pl.UInt16, "link": pl.UInt32},
    )
    adapters = np.bincount(fabric.node_host, minlength=fabric.n_hosts)
    host = {
        fabric.node_name[node]: fabric.host_name[at]
        for node, at in enumerate(fabric.node_host.tolist())
        if adapters[at] == 1
    }
    by_host = by_device.with_columns(
        pl.col("node_name").replace_strict(host, default=None, return_dtype=pl.String)
    ).drop_nulls("node_name")
    return pl.concat([by_device, by_host]).unique(
        ["node_name", "port"], keep="first", maintain_order=True
    )


def own_messages(measured: MeasuredRun, run: Run) -> Sent:
    """Messages of the job that cross the network, at their measured times.

    Traces do not record the messages of collectives: those of the model are used, with its times
    scaled to the measured run. Those of steps left out are spread over the time of these.
    """
    node = (
        run.tables["ranks"]
        .join(run.tables["jobs"].filter("observed").select("job"), on="job", how="semi")
        .sort("job_rank")["node"]
        .to_numpy()
        .astype(np.int64)
    )
    table = measured.tables["transfers"].with_columns(
        pl.coalesce("recv_done_ps", "send_done_ps", "send_leave_ps").alias("end_ps")
    )
    parts = [
        (
            node[table["src_rank"].to_numpy()],
            node[table["dst_rank"].to_numpy()],
            table["size_bytes"].to_numpy().astype(np.float64),
            table["send_enter_ps"].to_numpy().astype(np.float64),
            table["end_ps"].to_numpy().astype(np.float64),
        )
    ]
    observed = run.tables["jobs"].filter("observed")["job"]
    labels = run.tables["labels"].filter(
        pl.col("job").is_in(observed.implode()) & pl.col("call").is_in(EXPANDED_CALLS)
    )
    log = whole_messages(run.tables).join(labels.select("label"), on="label", how="semi")
    if log.height:
        ranks = run.tables["ranks"].sort("rank")["node"].to_numpy().astype(np.int64)
        stretch = measured.measured.elapsed_ps / max(run.elapsed_ps, 1)
        parts.append(
            (
                ranks[log["src_rank"].to_numpy()],
                ranks[log["dst_rank"].to_numpy()],
                log["size_bytes"].to_numpy().astype(np.float64),
                log["post_ps"].to_numpy().astype(np.float64) * stretch,
                log["arrival_ps"].to_numpy().astype(np.float64) * stretch,
            )
        )
    src, dst, size, start, end = (np.concatenate(column) for column in zip(*parts, strict=True))
    assumed = np.arange(len(src)) >= len(parts[0][0])
    # Clocks compared by messages of one direction may be far off, but all times lie in the run.
    last = float(measured.measured.elapsed_ps)
    joined = Sent(src, dst, size, np.clip(start, 0.0, last), np.clip(end, 0.0, last), assumed)
    host = run.tables["nodes"].sort("node")["host"].to_numpy()
    return joined.of(host[joined.src_node] != host[joined.dst_node])


def _jobs_of_hosts(
    listed: ListedJobs | None, prepared: PreparedScenario, start_ns: int, end_ns: int
) -> tuple[dict[str, str], tuple[str, ...] | None, tuple[str, ...]]:
    """Job of each host that other jobs used while ours ran, the names of those jobs, and notes.

    Our job is known by its identifier, so that another one on the same hosts is not taken for it;
    without an identifier, it is whichever ran on them. A host whose name may be that of several in
    the fabric is left out.
    """
    if listed is None:
        return {}, None, ()
    fabric = prepared.fabric
    mine = {fabric.host_name[h] for h in fabric.node_host[prepared.observed.node].tolist()}
    fabric_hosts = HostNames(fabric.host_name)
    own_ids = {_without_server(job) for job in listed.own_ids}
    of_host: dict[str, str] = {}
    names = set()
    unclear: dict[str, str] = {}
    for job, hosts in listed.jobs.during(start_ns, end_ns).select("job", "hosts").rows():
        job_hosts = []
        for host in map(str, hosts):
            try:
                job_hosts.append(fabric_hosts.find(host) or host)
            except TailbackError as error:
                unclear[host] = error.message
        if not job_hosts:
            continue
        if _without_server(job) in own_ids if own_ids else set(job_hosts) & mine:
            continue  # Ours.
        of_host |= dict.fromkeys(job_hosts, str(job))
        names.add(str(job))
    notes = [
        f"hosts of the job list left out: {len(unclear)}; {why}"
        for why in list(unclear.values())[:1]
    ]
    return of_host, tuple(sorted(names)), tuple(notes)


def _without_server(job: str) -> str:
    """Identifier of a job without the name of the server, which PBS may shorten: ``17.pbs``."""
    return job.partition(".")[0]
