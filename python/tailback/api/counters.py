"""Analysis of port counters alone: ``tb.counters`` and ``tailback counters``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import polars as pl

from tailback.collector.running import are_converted, convert_running
from tailback.errors import known_keywords, option
from tailback.evidence.culprits import JobHarm, Overlaps, explain_stalls, host_course
from tailback.evidence.jobs import read_jobs
from tailback.evidence.route_overlap import RouteOverlap
from tailback.fabric.lft import forwarding as forwarding_of
from tailback.fabric.lft import read_lfts
from tailback.io.delimited import for_spreadsheets
from tailback.io.input_files import text_content
from tailback.port_counters.analysis import port_inventory, verdict
from tailback.port_counters.analysis.cluster import Cluster
from tailback.port_counters.analysis.course import bins_of, stall_course
from tailback.port_counters.analysis.limits import limits
from tailback.port_counters.analysis.passes import LOCAL_ENGINE, Engine
from tailback.port_counters.analysis.port_inventory import PortInventory
from tailback.port_counters.analysis.sources import CounterSource, load
from tailback.port_counters.analysis.survey import AnalysisOptions, analyse, recent, stated_peers
from tailback.port_counters.analysis.traffic_levels import traffic_levels
from tailback.port_counters.analysis.verdict import Verdict
from tailback.port_counters.findings import port_verdict
from tailback.port_counters.findings.port_verdict import PortVerdict
from tailback.port_counters.readers import collection
from tailback.port_counters.schema import ETHERNET, CounterError
from tailback.report.counters_page import write_counters_page
from tailback.run.run import AtomicDirectory
from tailback.units import counted
from tailback.workers import dask_client


@dataclass(frozen=True, eq=False)
class CountersResult:
    """Analysis of port counters.

    Attributes:
        verdict: Whether ports stalled, which, and for how long: ``kind``, ``ports``, ``groups`` …
        source: What the counters were read from.
        inventory: The ports to which the counters belong.
        queues: For a lossy network (Ethernet): which ports queue, drop packets or serve less than
            their rate; None for counters of stalls.
        jobs: What jobs lost to stalls and which job held them up; None without a job list.
        course: How long each port stalled in each bin of time, rows of ``stall_course``; None
            unless asked for.
        levels: Rates of hosts and ports that shares of the time exceed, rows of
            ``traffic_levels``; None unless asked for.
    """

    verdict: Verdict
    source: CounterSource
    inventory: PortInventory
    queues: PortVerdict | None = None
    jobs: JobHarm | None = None
    course: pl.DataFrame | None = None
    levels: pl.DataFrame | None = None

    def __repr__(self) -> str:
        ports = counted(self.frame.height, "port")
        return f"<Counters of {ports}: {self.verdict.kind}, {len(self.tables)} tables>"

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """Tables by name (docs/how-to/counters.md)."""
        asked_for = {"stall_course": self.course, "traffic_levels": self.levels}
        of_jobs = {name: frame for name, frame in asked_for.items() if frame is not None}
        if self.jobs is not None:
            of_jobs |= {"job_stalls": self.jobs.jobs, "job_pairs": self.jobs.pairs}
            of_jobs |= {"job_runs": self.jobs.runs}
        if self.queues is None:
            return of_jobs | {
                "ports": self.verdict.ports,
                "groups": self.verdict.groups,
                "ill_links": self.verdict.ill,
                "link_balances": self.verdict.balances,
                "link_changes": self.verdict.changes,
            }
        return of_jobs | {
            "ill_links": self.verdict.ill,
            "link_changes": self.verdict.changes,
            "ports": self.verdict.ports,
            "port_findings": self.queues.findings,
            "queue_windows": self.queues.windows,
        }

    @property
    def frame(self) -> pl.DataFrame:
        """One row a port, worst first."""
        return self.verdict.ports

    def to_pandas(self) -> Any:
        """:attr:`frame` as a pandas data frame; needs pandas and pyarrow."""
        return self.frame.to_pandas()

    @property
    def facts(self) -> dict[str, Any]:
        """The verdict and its limits as plain values."""
        sources: dict[str, Any] = {"sources": self.source.kinds}
        if self.jobs is not None:
            sources["jobs"] = self.jobs.jobs.to_dicts()
            sources["job_pairs"] = self.jobs.pairs.to_dicts()
            sources["job_runs"] = self.jobs.runs.to_dicts()
            sources["job_notes"] = self.jobs.notes
        if self.queues is not None:
            names = ("notes", "unknown", "noticed")
            about = {name: getattr(self.verdict, name) for name in names}
            about |= {"ill_links": self.verdict.ill.to_dicts()}
            return {**port_verdict.facts(self.queues), **about, **sources}
        shown = limits(self.verdict, self.inventory.wiring)
        return {**verdict.facts(self.verdict), **shown, **sources}

    def write(self, folder: str | Path, *, force: bool = False, csv: bool = False) -> Path:
        """Write every table as Parquet, and :attr:`facts` as ``counters.json``.

        Args:
            folder: A new folder; written completely or not at all.
            force: Replace that folder if Tailback wrote it.
            csv: Write every table as CSV too.

        Raises:
            RunError: The folder exists (without ``force``) or cannot be written.
        """
        with AtomicDirectory(Path(folder), force=force) as place:
            for name, frame in self.tables.items():
                frame.write_parquet(place / f"{name}.parquet")
                if csv:
                    lists = [c for c, d in frame.schema.items() if d == pl.List(pl.String)]
                    flat = frame.with_columns(pl.col(lists).list.join(", ")) if lists else frame
                    for_spreadsheets(flat).write_csv(place / f"{name}.csv")
            text = json.dumps({"counters": self.facts}, indent=2, sort_keys=True)
            (place / "counters.json").write_text(text + "\n", encoding="utf-8")
        return Path(folder)

    def write_page(self, path: str | Path) -> Path:
        """Write ill links, changes, jobs and the course of stalls as one HTML file.

        Args:
            path: The file; an existing one is replaced.

        Raises:
            CounterError: It was read without ``course``.
            RunError: The file cannot be written.
        """
        if self.course is None:
            raise CounterError(
                "has no course of stalls", remedy="read the counters with course=True"
            )
        title = ", ".join(file.name for file in self.source.files[:3]) or "archive"
        headline = (
            verdict.sentence(self.verdict)
            if self.queues is None
            else port_verdict.sentence(self.queues)
        )
        return write_counters_page(path, self.verdict, self.course, self.jobs, title, headline)

    def _repr_html_(self) -> str:
        return self.frame._repr_html_()


@known_keywords()
def counters(
    files: Sequence[str | Path] | str | Path,
    *,
    reader: str | None = None,
    fabric: str | Path | None = None,
    subsystems: Mapping[str, str] | None = None,
    tick_ns: float | None = None,
    every_ns: int | None = None,
    threshold: float = 0.01,
    last_ns: int | None = None,
    muted: str | Path | None = None,
    jobs: str | Path | None = None,
    forwarding: str | Path | None = None,
    cluster: str | None = None,
    course: bool = False,
    levels: bool = False,
) -> CountersResult:
    """Find out where ports stall, from counters alone.

    Args:
        files: What ``perfquery`` or ``ibqueryerrors --data`` printed (one file an instant), a sysfs
            tree, an LDMS CSV, the folder of a collection, run or diagnosis, or a Parquet archive.
        reader: Format of the files (``tailback list counter-source``); detected by default.
        fabric: Output of ``ibnetdiscover``: names, speeds, tiers and directions of the ports.
        subsystems: Classes of switches: name → regular expression on switch or host names.
        tick_ns: Length of a tick of PortXmitWait, nanoseconds.
        every_ns: Time between files without time stamps, nanoseconds.
        threshold: Share of time stalled from which a port counts as stalling, 0–1.
        last_ns: Restricts the analysis to the intervals that end within the last so many
            nanoseconds of the recorded time.
        muted: Text file with a device or port a line, like ``leaf03`` or ``leaf03[7]``, whose links
            are not listed as in need of a hand.
        jobs: List of the jobs that ran (``sacct``, ``squeue``, ``qstat -f`` or a CSV): what each
            lost to stalls, and which job held it up.
        forwarding: Output of ``dump_lfts``: only jobs whose routes share links are compared.
        cluster: Address of a Dask scheduler that processes an archive.
        course: Also find how long each port stalled in each bin of time, as a page needs it.
        levels: Also find how much hosts and ports sent, and how often it was more.

    Raises:
        TailbackError: A file cannot be read, or contains impossible values.

    Example:
        >>> found = tb.counters(["12h00.txt", "12h10.txt"], fabric="fabric.txt")
        >>> found.verdict.kind, found.frame.head()
        >>> found.write("stalls")
    """
    paths = [files] if isinstance(files, (str, Path)) else files
    if not paths:
        raise CounterError("no file of counters is given", remedy="name one or more files")
    with ExitStack() as stack:
        source = _load([Path(path) for path in paths], reader, every_ns, stack)
        stated = None if fabric is None else Path(fabric)
        inventory = _inventory(source, stated, dict(subsystems or {}))
        engine: Engine = LOCAL_ENGINE
        if cluster is not None:
            engine = Cluster(stack.enter_context(dask_client(cluster)))
        options = AnalysisOptions(
            tick_ns=tick_ns,
            threshold=threshold,
            last_ns=last_ns,
            muted=() if muted is None else _names_in(Path(muted)),
        )
        judged = analyse(source, inventory, options, engine)
        queues = _queues(source, inventory, options, judged.peers)
        tables = None if forwarding is None else Path(forwarding)
        harm = None
        if jobs is not None:
            harm = _job_harm(source, inventory, options, Path(jobs), tables, engine)
        over_time = exceeded = None
        if course:
            archive = recent(source.intervals(inventory, tick_ns)[0], last_ns)
            bins = bins_of(judged.ports)
            over_time = stall_course(archive, judged.start_ns, judged.end_ns, engine, bins)
        if levels:
            archive = recent(source.intervals(inventory, tick_ns)[0], last_ns)
            hosts = _hosts(source, inventory)
            exceeded = traffic_levels(archive, judged.ports, *hosts, engine)
    return CountersResult(judged, source, inventory, queues, harm, over_time, exceeded)


def _hosts(
    source: CounterSource, inventory: PortInventory
) -> tuple[dict[str, str], dict[tuple[str, int], str]]:
    """Host of each adapter by its name, and of each switch port that leads to one."""
    host_of = dict(inventory.hosts)
    if not host_of:
        adapters = source.fabric_ports.filter(~pl.col("switch"))["node_name"].unique()
        host_of = {str(name): str(name).split(" ")[0] for name in adapters}
    peers = inventory.peers() or stated_peers(source.fabric_ports)
    far = {place: name.rpartition("[")[0] for place, name in peers.items()}
    return host_of, {place: host_of[name] for place, name in far.items() if name in host_of}


def _job_harm(
    source: CounterSource,
    inventory: PortInventory,
    options: AnalysisOptions,
    jobs: Path,
    forwarding_tables: Path | None,
    engine: Engine,
) -> JobHarm:
    """What the jobs of a list lost to stalls, and which jobs held them up."""
    host_of, receivers = _hosts(source, inventory)
    archive = recent(source.intervals(inventory, options.tick_ns)[0], options.last_ns)
    course = host_course(archive, host_of, receivers, engine) if host_of else None
    if course is None:
        raise CounterError(
            "has no effect: no counters of the adapters of hosts",
            place=option("jobs"),
            remedy=f"collect the ports of hosts too, and give {option('fabric')} with their names",
        )
    listed = read_jobs(jobs)
    overlaps: Overlaps = lambda mine, others: None  # noqa: E731
    if forwarding_tables is not None:
        if inventory.fabric is None:
            raise CounterError(
                "has no effect without a fabric",
                place=option("forwarding"),
                remedy=f"give {option('fabric')}",
            )
        tables = forwarding_of(inventory.fabric, read_lfts(forwarding_tables))
        overlaps = RouteOverlap(inventory.fabric, tables)
    return explain_stalls(course, listed, overlaps)


def _load(
    paths: list[Path], reader: str | None, every_ns: int | None, stack: ExitStack
) -> CounterSource:
    """The counters of files, with what running collectors have not converted yet."""
    for _ in range(_ATTEMPTS):
        running = []
        for path in paths:
            if reader in (None, "collection") and collection.sniff(path):
                folder = Path(stack.enter_context(TemporaryDirectory(prefix="tailback-")))
                if numbers := convert_running(path, folder):
                    running.append((path, folder, numbers))
        waiting = {note for path, *_ in running for note in collection.unfinished(path)}
        folders = [folder for _, folder, _ in running]
        source = load([*paths, *folders], reader, every_ns=every_ns)
        if not any(are_converted(path, numbers) for path, _, numbers in running):
            break
    source.notes = [note for note in source.notes if note not in waiting]
    return source


_ATTEMPTS: Final = 3
"""How often to read collections whose segments are converted at the same time."""


def _names_in(path: Path) -> list[str]:
    """The lines of a file of names, without blank ones and comments (``#``)."""
    lines = text_content(path, CounterError).splitlines()
    return [name for line in lines if (name := line.partition("#")[0].strip())]


def _queues(
    source: CounterSource,
    inventory: PortInventory,
    options: AnalysisOptions,
    peers: Mapping[tuple[str, int], str],
) -> PortVerdict | None:
    """The verdict on a lossy network; None for counters of another kind of network."""
    readings = source.counters.readings
    queued = readings["backlog_bytes"].is_not_null().any()
    ethernet = ETHERNET in source.kinds
    if not (queued or ethernet or readings["drops"].is_not_null().any()):
        return None
    archive = recent(source.intervals(inventory, options.tick_ns)[0], options.last_ns)
    intervals = archive.rows.collect()
    if intervals.is_empty():
        return None
    if not (port_verdict.is_lossy(intervals) or port_verdict.is_ethernet(intervals)):
        return None
    return port_verdict.assess_ports(
        intervals,
        threshold=options.threshold,
        peers=dict(peers),
        events=source.port_events(inventory, options.last_ns),
    )


def _inventory(
    source: CounterSource, fabric: Path | None, subsystems: dict[str, str]
) -> PortInventory:
    """The ports: of the given fabric, or of the one that the source contains."""
    if fabric is not None:
        return port_inventory.from_discovery(fabric, subsystems)
    if source.run is not None:
        return port_inventory.from_run(source.run)
    return PortInventory()
