"""Input of a workflow: a scenario, a trace and its fabric, or the folder of a run."""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack
from urllib.parse import quote

from tailback.errors import (
    InvalidValueError,
    ScenarioError,
    TailbackError,
    known_keywords,
    option,
)
from tailback.fabric.builders import PRESETS
from tailback.fabric.topologies import TOPOLOGIES
from tailback.io.atomic_exchange import recover
from tailback.io.delimited import not_used, shown
from tailback.io.input_files import head_bytes, is_input_file, text_content
from tailback.io.manifest import require_unchanged
from tailback.placement.rank_hosts import rank_columns_not_used, rank_hosts
from tailback.run.run import Run, run_folder
from tailback.scenario.engine import parse_coarse
from tailback.scenario.model import FabricSection, JobSection, Scenario, load, parse
from tailback.sources.lab_case import LabCase
from tailback.sources.recording import recorded_fabric, recorded_forwarding, recorded_local_rates
from tailback.units import parse_gbps


class ScenarioOptions(TypedDict, total=False):
    """Options for a source. Each overrides the scenario's own value.

    Attributes:
        fabric: Network of a trace or capture: a file, the name of a preset, or a scenario or run,
            whose ``[fabric]`` and ``[engine]`` are used.
        cable_rate: Rate of its cables for which its file states none, like ``100 Gb/s``.
        taper: Of a file without numbers of cables: cables below a switch for each one upwards.
        forwarding: Forwarding tables of its switches, as ``dump_lfts.sh`` prints them.
        hosts: Hosts of the job, like ``0-127`` or ``node[001-016]:4`` (4 ranks each).
        ranks_per_host: Ranks on each host for which ``hosts`` gives no number.
        placement: Name of a placement method, or a rank file.
        rankfile: Where each rank ran: a CSV of ranks and hosts, output of ``env`` in each rank, a
            rank file or a host list. Replaces both ``hosts`` and ``placement``.
        compute_scale: Factor on compute times.
        ranks: Number of ranks to extrapolate a trace to, or their grid, like ``8x8x8``.
        seed: Seed of every random choice.
        skip_repeats: Simulate some of the steps that jobs repeat and extrapolate the others
            (docs/explanation/approximations.md).
        coarse: Simulate messages in packets of this size, like ``16 KiB``, or ``auto``
            (docs/explanation/approximations.md).
        local_rate: Rate of a message between ranks of one host, like ``80 Gb/s``.
        memory_rate: Rate that all messages within a host share.
        calibration: File of :func:`tailback.calibration.load`: settings of the engine fitted to a
            machine.
    """

    fabric: str | Path | None
    cable_rate: str | None
    taper: float | None
    forwarding: str | Path | None
    hosts: str | None
    ranks_per_host: int | None
    placement: str | Path | None
    rankfile: str | Path | None
    compute_scale: float | None
    ranks: str | int | None
    seed: int | None
    skip_repeats: bool | None
    coarse: str | None
    local_rate: str | None
    memory_rate: str | None
    calibration: str | Path | None


@dataclass(frozen=True)
class Source:
    """A scenario and where it comes from.

    Attributes:
        scenario: The scenario.
        file: Scenario file to name in errors that occur only when the scenario is built or run.
            None if options changed it: the mistake may be in an option.
        case: The folder of ``tailback lab run`` that it is; None if it is none.
        notes: Notes on unused parts of the files that options name.
    """

    scenario: Scenario
    file: Path | None = None
    case: LabCase | None = None
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(source: SourceLike, **options: Unpack[ScenarioOptions]) -> Source:
        """Read a source; raises ScenarioError as :func:`load_scenario`."""
        if isinstance(source, Source):
            if any(value is not None for value in options.values()):
                return Source.of(source.scenario, **options)
            return source
        if isinstance(source, (Scenario, Mapping)):
            as_read = source if isinstance(source, Scenario) else parse(dict(source))
            scenario = _with_options(as_read.model_copy(deep=True), **options)
            return Source(scenario, notes=notes_on_options(options))
        path = Path(source)
        if (case := LabCase.of(path)) is not None:
            require_unchanged(path)
            scenario = scenario_from(case.trace, **_of_case(case, options))
            scenario = scenario.model_copy(update={"name": path.resolve().name})
            return Source(scenario, case=case, notes=notes_on_options(options))
        changed = any(value is not None for value in options.values())
        scenario = scenario_from(path, **options)
        file = path if is_scenario(path) and not changed else None
        return Source(scenario, file, notes=notes_on_options(options))

    @contextmanager
    def named_in_errors(self, changed: bool = False) -> Iterator[None]:
        """Name the scenario file in errors found while the scenario is built or run.

        Args:
            changed: An option that is not part of the source may be at fault: name no file.
        """
        try:
            yield
        except TailbackError as error:
            if self.file is not None and not changed:
                raise error.located(self.file) from None
            raise


def notes_on_options(
    options: ScenarioOptions, used: Collection[str] = ("fabric", "engine")
) -> tuple[str, ...]:
    """Notes on unused parts of a scenario or run given as fabric, and of a table of ranks.

    Args:
        options: The options, whose files were read before: they are valid.
        used: Sections of a scenario that are used.
    """
    notes = list[str]()
    fabric, rankfile = options.get("fabric"), options.get("rankfile")
    path = Path(fabric or "")
    if fabric is not None and is_run(path):
        run = read_base_run(path)
        sections = " and ".join(f"[{name}]" for name in used)
        notes.append(f"{path.name}: only {sections} of the scenario of this run are used")
        if (remedy := run.summary.get("remedy")) is not None:
            notes[-1] += f", without its remedy {shown(str(remedy))}"
    elif fabric is not None and path.suffix == ".toml" and path.is_file():
        stated = tomllib.loads(text_content(path)).keys() - {*used, "name"}
        notes += [f"{path.name}: {note}" for note in not_used(sorted(stated), "sections and keys")]
    if rankfile is not None and Path(rankfile).is_file():
        notes += rank_columns_not_used(Path(rankfile))
    return tuple(notes)


def _of_case(case: LabCase, options: ScenarioOptions) -> ScenarioOptions:
    """Options for the trace of a case: its fabric and hosts, unless others are given."""
    of_trace = options.copy()
    of_trace["fabric"] = options.get("fabric") or case.fabric
    if options.get("hosts") is None and options.get("placement") is None:
        of_trace["rankfile"] = options.get("rankfile") or case.rankfile
    return of_trace


SourceLike = Source | Scenario | Mapping[str, Any] | str | Path
"""A scenario (object, data, file), a trace, or the folder of a run or diagnosis."""


@known_keywords(ScenarioOptions)
def load_scenario(source: SourceLike, **options: Unpack[ScenarioOptions]) -> Scenario:
    """Read the scenario that other functions run.

    Args:
        source: A scenario file, its data as a dictionary, a trace (which needs ``fabric``), or the
            folder of a run or diagnosis.
        options: ``fabric``, ``hosts``, ``ranks_per_host``, ``placement``, ``compute_scale``,
            ``seed`` and ``calibration``, as the options of the command line. Each overrides the
            scenario's own value.

    Raises:
        ScenarioError: The source cannot be read, or a key, unit or value is wrong.

    Example:
        >>> scenario = tb.load_scenario("examples/demo/demo.toml", placement="rcm")
        >>> scenario = tb.load_scenario("app_trace/", fabric="fabric.txt")
    """
    return Source.of(source, **options).scenario


def report_address(source: Path, page: Path) -> str:
    """Address of the report of a result, or of the result that a run is part of, from a page.

    Args:
        source: The folder of the result or of the run.
        page: The page that links to it.

    Returns:
        The address relative to the page; empty without a report.
    """
    for report in (source / "report.html", source.parent / "report.html"):
        if report.is_file() and (report.parent / "diagnosis.json").is_file():
            return quote(os.path.relpath(report.resolve(), page.resolve().parent))
    return ""


def read_base_run(folder: str | Path) -> Run:
    """Read a run, or the run of a result of ``diagnose``; raises RunError."""
    return Run.read(run_folder(Path(folder)))


def scenario_from(source: Path, **options: Unpack[ScenarioOptions]) -> Scenario:
    """The scenario that a path stands for.

    ``source`` is a scenario (:func:`is_scenario`), the folder of a run or of a diagnosis, or a
    trace, which needs ``fabric`` unless ``tailback record`` stored the fabric with it. Options
    override the settings of its first observed job.

    Raises:
        ScenarioError: The fabric is missing, the source does not exist, or it is a run with a
            remedy, which is not part of its scenario.
    """
    fabric = options.get("fabric")
    recover(Path(os.path.realpath(source)))
    if not source.exists():
        raise ScenarioError(
            "does not exist",
            file=source,
            remedy="check the path, or record a run: "
            "tailback record --out evidence -- mpirun -np 64 ./app",
        )
    if is_run(source):
        scenario = _scenario_of(source)
    elif is_scenario(source):
        scenario = load(source)
    else:
        if _is_counters(source):
            raise ScenarioError(
                "port counters show where data waited, but not whose data or why",
                file=source,
                remedy="use tailback counters; diagnose needs a trace or a scenario",
            )
        if fabric is None and (fabric := recorded_fabric(source)) is not None:
            options["forwarding"] = options.get("forwarding") or recorded_forwarding(source)
        if fabric is None and source.is_dir() and next(source.iterdir(), None) is None:
            raise ScenarioError(
                "the folder is empty",
                file=source,
                remedy="name the folder of a trace: tailback list reader",
            )
        if fabric is None:
            raise ScenarioError(
                "a trace needs a network to run on",
                file=source,
                remedy=f"add {option('fabric')} with a file that ibnetdiscover wrote (others: "
                "tailback list fabric-format), a scenario with [fabric], or a preset: "
                + ", ".join(PRESETS.names()),
            )
        data = {"name": _name(source), **network_data(fabric), "job": [{"trace": source}]}
        scenario = parse(data)
    return _with_options(scenario, **options)


def _scenario_of(folder: Path) -> Scenario:
    """The scenario of a run, or of the run in a diagnosis."""
    run = read_base_run(folder)
    remedy = run.summary.get("remedy")
    if remedy is not None:
        raise ScenarioError(
            f"is the run with remedy {str(remedy)!r}, which is not part of its scenario",
            file=folder,
            remedy="write the remedy into a scenario; or, for a placement, use the run next to "
            f"this one with a rank file of the diagnosis: {option('placement', 'FILE')}",
        )
    return run.scenario


_JOB = re.compile(rb"^[ \t]*\[\[[ \t]*job[ \t]*\]\]", re.M)


def is_run(source: Path) -> bool:
    """Whether ``source`` is the folder of a run or of a diagnosis."""
    return (source / "run.json").is_file() or (source / "diagnosis.json").is_file()


def is_scenario(source: Path) -> bool:
    """Whether ``source`` is a scenario: by its suffix, or by a ``[[job]]`` in it."""
    if source.suffix == ".toml":
        return True
    return is_input_file(source) and _JOB.search(head_bytes(source, 1 << 20)) is not None


def _is_counters(source: Path) -> bool:
    """Whether a reader of port counters recognises the file (run folders are excluded before)."""
    # Deferred: only needed for a file that is no scenario, run or trace.
    from tailback.port_counters.readers import READERS

    try:
        return any(entry.part.sniff(source) for entry in READERS)
    except (OSError, ValueError):
        return False


def network_data(fabric: str | Path) -> dict[str, Any]:
    """The sections ``[fabric]`` and ``[engine]`` that ``--fabric`` stands for.

    For a scenario, or the folder of a run or diagnosis, these are its own. A discovery file and a
    preset state no engine.

    Raises:
        ScenarioError: It is neither a file nor a preset.
        RunError: It is a damaged run.
    """
    path = Path(fabric)
    if is_run(path) or (path.is_file() and path.suffix == ".toml"):
        scenario = read_base_run(path).scenario if is_run(path) else load(path, needs_job=False)
        return scenario.model_dump(mode="json", exclude_unset=True, include={"fabric", "engine"})
    if not path.exists():
        name = str(fabric)
        if name in PRESETS:
            return {"fabric": {"preset": name}}
        raise ScenarioError(
            f"{option('fabric')} {name!r} is neither a file nor a preset",
            remedy=_fabric_remedy(name),
        )
    return {"fabric": {"file": Path(fabric).absolute()}}


def network_section(fabric: str | Path) -> FabricSection:
    """The section ``[fabric]`` of a file, preset or scenario; raises as :func:`network_data`."""
    path = Path(fabric)
    if path.is_file() and is_scenario(path):
        return load(path, needs_job=False).fabric
    return parse({**network_data(fabric), "job": [{"trace": "."}]}).fabric


def _fabric_remedy(fabric: str) -> str:
    """Remedy for a ``--fabric`` that is neither a file nor a preset."""
    shapes = {**dict.fromkeys(TOPOLOGIES.names()), "fat-tree": None}
    close = get_close_matches(fabric.lower().replace("_", "-"), shapes, n=1, cutoff=0.75)
    if not close:
        return (
            f"check the path, or use a preset: {', '.join(PRESETS.names())}; other networks "
            f"({', '.join(sorted(shapes))}) are described in a scenario: "
            "docs/reference/topologies.md"
        )
    if close[0] == "fat-tree":
        keys = "[fabric.fat_tree] with its keys hosts_per_leaf, leaves, aggregation …"
    else:
        required = [
            name
            for name, field in TOPOLOGIES[close[0]].model_fields.items()
            if field.is_required() and name != "kind"
        ]
        options = ", ".join(f"{name} = …" for name in required)
        keys = f'[fabric] topology = {{ kind = "{close[0]}", {options} }}'.replace(", }", " }")
    return (
        f"this topology needs its dimensions: write a scenario with {keys} and [[job]] trace = …, "
        "and pass it instead of the trace: docs/reference/topologies.md"
    )


def _packet_size(coarse: str) -> int | Literal["auto"]:
    """Bytes of ``--coarse``, or ``auto``; ScenarioError if it is neither."""
    try:
        return parse_coarse(coarse)
    except InvalidValueError as error:
        raise ScenarioError(
            error.message, place=option("coarse"), remedy=error.remedy or "write it like '16 KiB'"
        ) from None


def _rate(keyword: str, rate: str) -> float:
    """Gb/s of an option; ScenarioError if it is not a rate."""
    try:
        return parse_gbps(rate)
    except InvalidValueError as error:
        raise ScenarioError(
            error.message, place=option(keyword), remedy=error.remedy or "write it like '100 Gb/s'"
        ) from None


def _with_options(scenario: Scenario, **options: Unpack[ScenarioOptions]) -> Scenario:
    """The scenario with options for its network, its seed and its first observed job."""
    placement, hosts = options.get("placement"), options.get("hosts")
    if (rankfile := options.get("rankfile")) is not None:
        if placement is not None:
            raise ScenarioError(
                f"{option('rankfile')} and {option('placement')} both state where each rank ran",
                file=rankfile,
                remedy="give one of the two",
            )
        placement, hosts = rankfile, hosts or _hosts_of(Path(rankfile))
    _set_network(scenario, options)
    job = next((job for job in scenario.job if job.observed), scenario.job[0])
    if hosts is not None:
        job.hosts = hosts
    if (ranks_per_host := options.get("ranks_per_host")) is not None:
        job.ranks_per_host = ranks_per_host
    if (compute_scale := options.get("compute_scale")) is not None:
        job.compute_scale = compute_scale
    if (ranks := options.get("ranks")) is not None:
        job.ranks = str(ranks)
    if (seed := options.get("seed")) is not None:
        scenario.seed = seed
    if (skip := options.get("skip_repeats")) is not None:
        scenario.engine = scenario.engine.model_copy(update={"skip_repeats": skip})
    if (coarse := options.get("coarse")) is not None:
        scenario.engine = scenario.engine.model_copy(update={"coarse": _packet_size(coarse)})
    stated = {
        f"{name}_rate": _rate(f"{name}_rate", rate)
        for name, rate in (
            ("local", options.get("local_rate")),
            ("memory", options.get("memory_rate")),
        )
        if rate is not None
    }
    if stated:
        # A measured error does not apply to rates that a user states.
        update = {**stated, "local_error": None}
        scenario.engine = scenario.engine.model_copy(update=update)
    if placement is not None:
        _set_placement(job, placement)
    # Options are validated like the scenario.
    changed = parse(scenario.model_dump(mode="json", exclude_unset=True))
    if (calibration := options.get("calibration")) is not None:
        from tailback.calibration.file import load as load_calibration

        changed = load_calibration(calibration).apply(changed)
    engine, trace = changed.engine, next((job.trace for job in changed.job if job.observed), None)
    if trace is not None and engine.local_rate is None and engine.memory_rate is None:
        changed.engine = engine.model_copy(update=recorded_local_rates(trace))
    return changed


def _set_placement(job: JobSection, placement: str | Path) -> None:
    """Set the placement of a job to a file, or to one of the placements that are computed."""
    job.placement_file, job.placement_options = None, {}
    file = Path(placement)
    if file.is_file():
        job.placement_file = file.absolute()
    elif file.suffix or len(file.parts) > 1:
        raise ScenarioError(
            "no such file",
            file=file,
            place=option("placement"),
            remedy="check the path, or name a placement: tailback list placement",
        )
    else:
        job.placement = str(placement)


def _set_network(scenario: Scenario, options: ScenarioOptions) -> None:
    """Set the network of a scenario by the options for it."""
    if (fabric := options.get("fabric")) is not None:
        network = parse({**network_data(fabric), "job": [{"trace": "."}]})
        scenario.fabric = network.fabric
        stated = {name: getattr(network.engine, name) for name in network.engine.model_fields_set}
        scenario.engine = scenario.engine.model_copy(update=stated)
    if (cable_rate := options.get("cable_rate")) is not None:
        rate = {"cable_rate": _rate("cable_rate", cable_rate)}
        scenario.fabric = scenario.fabric.model_copy(update=rate)
    if (taper := options.get("taper")) is not None:
        scenario.fabric.taper = taper
    if (forwarding := options.get("forwarding")) is not None:
        scenario.fabric.forwarding = Path(forwarding).absolute()


def _hosts_of(rankfile: Path) -> str:
    """The hosts of a rank file with the number of ranks on each, in order of their first rank."""
    ranks = Counter(rank_hosts(rankfile))
    return ",".join(f"{host}:{count}" for host, count in ranks.items())


def _name(source: Path) -> str:
    stem = source.resolve().stem if source.is_file() else source.resolve().name
    return path_safe_name(stem) or "trace"


def path_safe_name(name: str) -> str:
    """The name without characters that are special in paths, such as slash, NUL and space."""
    return re.sub(r"[^\w.-]+", "-", name)
