"""What a command works on: a scenario file, or a trace and a fabric on the command line."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import click

from tailback.cli.models import read_run
from tailback.cli.numbers import FiniteRange
from tailback.counters.readers import READERS
from tailback.errors import ScenarioError, TailbackError
from tailback.exchange import recover
from tailback.fabric.builders import PRESETS
from tailback.fabric.topologies import TOPOLOGIES
from tailback.placement.rank_hosts import rank_hosts
from tailback.scenario import Scenario, load, parse
from tailback.simulate.threads import use_threads

F = TypeVar("F", bound=Callable[..., Any])


def source_options(command: F) -> F:
    """Add the argument SOURCE and the options that go with a trace."""
    decorators = [
        click.argument("source", type=click.Path(path_type=Path)),
        click.option(
            "--fabric", metavar="FILE|PRESET", help="Network of a trace: a file or preset."
        ),
        click.option(
            "--hosts",
            metavar="SPEC",
            help="Hosts of the job, like 0-127 or node[001-016]:4, 4 ranks each (of a trace: all "
            "compute hosts).",
        ),
        click.option(
            "--ranks-per-host",
            type=click.IntRange(1),
            help="Ranks on each host of which --hosts says none (trace: 1).",
        ),
        click.option(
            "--placement", metavar="NAME|FILE", help="How the ranks lie (of a trace: block)."
        ),
        click.option(
            "--rankfile",
            metavar="FILE",
            help="Where each rank ran: a CSV of rank and host, output of 'mpirun … env', a rank "
            "file or host list; gives --hosts and --placement at once.",
        ),
        click.option(
            "--compute-scale", type=FiniteRange(0), help="Multiply compute time (of a trace: by 1)."
        ),
        click.option(
            "--seed", type=click.IntRange(0), help="Seed of every random choice (of a trace: 1)."
        ),
        click.option(
            "--threads",
            type=click.IntRange(1),
            expose_value=False,
            callback=lambda _context, _option, count: use_threads(count),
            help="Threads of the engine (default: idle cores). Results do not depend on it.",
        ),
    ]
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def allow_hosts_option(command: F) -> F:
    """Add the option for the hosts that other placements may use."""
    return click.option(
        "--allow-hosts",
        metavar="SPEC",
        help="Hosts that other placements may use, like --hosts; all: every compute host "
        "(default: those the job runs on). The number of hosts and ranks a host stay.",
    )(command)


def scenario_from(
    source: Path,
    fabric: str | None,
    hosts: str | None,
    ranks_per_host: int | None,
    placement: str | None,
    compute_scale: float | None,
    seed: int | None,
    rankfile: str | None = None,
) -> Scenario:
    """The scenario a user means.

    ``source`` is a scenario (:func:`is_scenario`), the folder of a run or of a diagnosis, or a
    trace, which needs ``fabric``. Options override what a scenario says of its first observed job.

    Raises:
        ScenarioError: The fabric is missing, the source does not exist, or it is a run with a cure
            that its scenario does not state.
    """
    recover(Path(os.path.realpath(source)))
    if not source.exists():
        raise ScenarioError("does not exist", file=source, remedy="check the path")
    if (source / "run.json").is_file() or (source / "diagnosis.json").is_file():
        scenario = _scenario_of(source)
    elif is_scenario(source):
        scenario = load(source)
    else:
        if _is_counters(source):
            raise ScenarioError(
                "port counters tell where data waited, not whose data nor why", file=source,
                remedy="tailback counters says what they can; diagnose needs a trace or scenario",
            )  # fmt: skip
        if fabric is None:
            raise ScenarioError(
                "a trace needs a network to run on", file=source,
                remedy="add --fabric with a file that ibnetdiscover wrote, or a preset: "
                + ", ".join(PRESETS.names()),
            )  # fmt: skip
        data = {"name": _name(source), "fabric": fabric_data(fabric), "job": [{"trace": source}]}
        scenario = parse(data)
        fabric = None
    if fabric is not None:
        scenario.fabric = parse({"fabric": fabric_data(fabric), "job": [{"trace": "."}]}).fabric
    if rankfile is not None:
        if placement is not None:
            raise ScenarioError(
                "--rankfile says where each rank ran, and so does --placement", file=rankfile,
                remedy="give one of the two",
            )  # fmt: skip
        placement, hosts = rankfile, hosts or _hosts_of(Path(rankfile))
    return _override(scenario, hosts, ranks_per_host, placement, compute_scale, seed)


def _hosts_of(rankfile: Path) -> str:
    """The hosts of a rank file with the ranks on each, in the order of their first rank."""
    ranks = Counter(rank_hosts(rankfile))
    return ",".join(f"{host}:{count}" for host, count in ranks.items())


def _scenario_of(folder: Path) -> Scenario:
    """The scenario of a run, or of the run that a diagnosis is of."""
    run = read_run(folder)
    cure = run.summary.get("cure")
    if cure is not None:
        raise ScenarioError(
            f"is the run that proved the cure {str(cure)!r}; its scenario is the one without it",
            file=folder,
            remedy="put the cure into a scenario; a placement can be given as a rank file of the "
            "diagnosis: --placement FILE, on the run beside this one",
        )
    return run.scenario


@contextmanager
def blaming(source: Path, **options: Any) -> Iterator[None]:
    """Name the scenario in what is found wrong with it only once it is built or run.

    Not where ``options`` on the command line changed it: then it may be them.
    """
    try:
        yield
    except TailbackError as error:
        if is_scenario(source) and all(value is None for value in options.values()):
            raise error.located(source) from None
        raise


_JOB = re.compile(rb"^[ \t]*\[\[[ \t]*job[ \t]*\]\]", re.M)


def is_scenario(source: Path) -> bool:
    """Whether ``source`` is a scenario: by its name, or by a job in it, whatever its name is."""
    if source.suffix == ".toml":
        return True
    try:
        if not source.is_file():
            return False
        with source.open("rb") as file:
            return _JOB.search(file.read(1 << 20)) is not None
    except (OSError, ValueError):
        return False


def _is_counters(source: Path) -> bool:
    """Whether a reader of port counters knows the file; a run folder has been dealt with."""
    try:
        return any(entry.part.sniff(source) for entry in READERS)
    except (OSError, ValueError):
        return False


def fabric_data(fabric: str) -> dict[str, Any]:
    """The ``[fabric]`` section that ``--fabric`` stands for.

    Raises:
        ScenarioError: It is neither a file nor a preset.
    """
    if not Path(fabric).exists():
        if fabric in PRESETS:
            return {"preset": fabric}
        raise ScenarioError(
            f"--fabric {fabric!r} is neither a file nor a preset", remedy=_instead(fabric)
        )
    return {"file": Path(fabric).absolute()}


def _instead(fabric: str) -> str:
    """What to do about a ``--fabric`` that is neither a file nor a preset."""
    shapes = {**dict.fromkeys(TOPOLOGIES.names()), "fat-tree": None}
    close = get_close_matches(fabric.lower().replace("_", "-"), shapes, n=1, cutoff=0.75)
    if not close:
        return (
            f"check the path, or take a preset: {', '.join(PRESETS.names())}; other networks "
            f"({', '.join(sorted(shapes))}) are described in a scenario: docs/topologies.md"
        )
    if close[0] == "fat-tree":
        keys = "[fabric.fat_tree] with its keys hosts_per_leaf, leaves, aggregation …"
    else:
        required = [
            name for name, field in TOPOLOGIES[close[0]].model_fields.items()
            if field.is_required() and name != "kind"
        ]  # fmt: skip
        told = ", ".join(f"{name} = …" for name in required)
        keys = f'[fabric] topology = {{ kind = "{close[0]}", {told} }}'.replace(", }", " }")
    return (
        f"it is a shape, which needs its numbers: write a scenario with {keys}, and [[job]] "
        "trace = …, and give that in place of the trace: docs/topologies.md"
    )


def _override(
    scenario: Scenario,
    hosts: str | None,
    ranks_per_host: int | None,
    placement: str | None,
    compute_scale: float | None,
    seed: int | None,
) -> Scenario:
    job = next((job for job in scenario.job if job.observed), scenario.job[0])
    if hosts is not None:
        job.hosts = hosts
    if ranks_per_host is not None:
        job.ranks_per_host = ranks_per_host
    if compute_scale is not None:
        job.compute_scale = compute_scale
    if seed is not None:
        scenario.seed = seed
    if placement is not None:
        job.placement_file, job.placement_options = None, {}
        if Path(placement).is_file():
            job.placement_file = Path(placement).absolute()
        else:
            job.placement = placement
    # What was given as an option keeps to the same limits.
    return parse(scenario.model_dump(mode="json"))


def _name(source: Path) -> str:
    stem = source.resolve().stem if source.is_file() else source.resolve().name
    return plain(stem) or "trace"


def plain(name: str) -> str:
    """The name with nothing that a path takes for more than a name: no slash, no NUL, no space."""
    return re.sub(r"[^\w.-]+", "-", name)
