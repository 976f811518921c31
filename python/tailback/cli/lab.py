"""``tailback lab``: a real network on this machine, with a known fault."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import click

from tailback.cli.grouped_help import SuggestingGroup
from tailback.cli.option_types import quiet_option
from tailback.cli.progress import meter
from tailback.errors import RunError, TailbackError
from tailback.io.folders import check_writable, shell_path
from tailback.io.manifest import read_manifest
from tailback.lab import causes, fabric, spec, telemetry
from tailback.lab.datapath.record import append_until
from tailback.lab.datapath.sampling import PacketScheme
from tailback.lab.record import record
from tailback.lab.remedies import RecommendedChange
from tailback.names.display import printable
from tailback.sources.diagnosis_folder import RANK_FILES, RATES_FILE, read_diagnosis
from tailback.units import counted


@click.group(cls=SuggestingGroup)
def lab() -> None:
    """Run an MPI program across a real network on this machine, with a known fault.

    Hosts and switches are network namespaces, cables are veth pairs with a rate. A run
    writes the input of a diagnosis (trace, links, ranks, counters) and, separately, the truth.
    Needs Linux and root.

    \b
    tailback lab up examples/lab/leaf-spine.toml
    tailback lab run --out case --secret 7 -- ./halo 4 4 60 40000 15
    tailback lab down
    """


@lab.command()
@click.argument("source", metavar="SPEC", type=click.Path(path_type=Path))
@click.option(
    "--telemetry",
    "scheme",
    metavar="SCHEME",
    help="Sample packets in every port: single-bit, compact, coordinated or full, with "
    "the bits of the hash, like coordinated:4; or entropy-ecn, marks without samples.",
)
def up(source: Path, scheme: str | None) -> None:
    """Bring up the fabric of SPEC, a TOML file."""
    sampling = None if scheme is None else PacketScheme.parse(scheme)
    plan = fabric.bring_up(spec.load(source), sampling)
    click.echo(
        f"lab {plan.spec.name} is up: {counted(len(plan.hosts), 'host')}, "
        f"{'1 leaf' if len(plan.leaves) == 1 else f'{len(plan.leaves)} leaves'}, "
        f"{counted(len(plan.spines), 'spine')}"
        + (f"; its ports sample packets: {sampling}" if sampling else "")
    )
    click.echo("NEXT  tailback lab run --out case --secret 7 -- PROGRAM")


@lab.command(epilog="docs/reference/lab.md says what each cause is.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder of the case.")
@click.option(
    "--cause",
    "written",
    multiple=True,
    metavar="CAUSE",
    help="A fault, like slow-cable:l2-s1=60%; may be repeated.",
)
@click.option(
    "--secret",
    type=click.IntRange(0),
    metavar="SEED",
    help="Draw the causes at random; only truth/ names them.",
)
@click.option(
    "--like",
    type=click.Path(path_type=Path),
    metavar="CASE",
    help="Repeat the causes and paths of an earlier case, unshown.",
)
@click.option(
    "--rankfile",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Place the ranks by a rank file or a rank_host.csv.",
)
@click.option(
    "--remedy",
    type=click.Path(path_type=Path),
    metavar="DIAGNOSIS",
    help="Apply the remedy of a diagnosis: placement, repair, static routes, rates.",
)
@click.option("--lab", "name", metavar="NAME", help="Which lab (default: the only one).")
@click.option("--force", is_flag=True, help="Replace the folder if Tailback wrote it.")
@quiet_option
def run(
    program: tuple[str, ...],
    out: Path,
    written: tuple[str, ...],
    secret: int | None,
    like: Path | None,
    rankfile: Path | None,
    remedy: Path | None,
    name: str | None,
    force: bool,
    quiet: bool,
) -> None:
    """Run PROGRAM, an MPI program with its arguments, and write a case.

    \b
    Causes are written like this:
      slow-cable:l2-s1=60%
      imbalance:9=3,12=1.5
      noise:5%,60ms
      placement:by-leaf (or by-node, split-pairs, random,7)
      one-spine:s0
      cross-traffic:h02-h22*3,h32-h12*3
      bursts:h02-h22*3,0.4s/0.6s

    \b
    With the remedy of its diagnosis:
      tailback lab run --out after --like case --remedy diagnosis -- PROGRAM
      tailback confirm diagnosis after
    """
    _refuse_two({"--cause": written, "--secret": secret is not None, "--like": like})
    _refuse_two({"--rankfile": rankfile, "--remedy": remedy})
    check_writable(out, force=force, sources=[path for path in (like, rankfile, remedy) if path])
    plan = fabric.find(name)
    chosen, paths = written, None
    if secret is not None:
        chosen, paths = tuple(causes.draw(secret, plan)), causes.path_seed(secret)
    elif like is not None:
        chosen, paths = causes.replay(like)
    change = None if remedy is None else recommended_change(remedy)
    with meter(quiet) as progress:
        record(
            plan,
            chosen,
            program,
            out,
            force=force,
            path_seed=paths,
            rankfile=rankfile,
            remedy=change,
            step=lambda what: progress.step(what, 0.0),
        )
    click.echo(printable(f"NEXT  tailback diagnose {shell_path(out)}"))


def recommended_change(folder: Path) -> RecommendedChange:
    """What a diagnosis recommends, with its files for applying it.

    Raises:
        RunError: There is no diagnosis, it recommends no change, or a file of it was changed.
    """
    diagnosis = read_diagnosis(folder)
    remedy = diagnosis.remedy
    if remedy is None or not remedy.name:
        raise RunError(
            f"recommends no change (verdict: {diagnosis.cause})",
            file=folder,
            remedy="give a placement of your own as a rank file",
        )
    kind_of = {candidate.name: candidate.kind for candidate in remedy.candidates}
    combined = next(c for c in remedy.candidates if c.name == remedy.name)
    kind_of |= dict(zip(combined.parts, combined.part_kinds, strict=True))
    ranks = next((name for name in RANK_FILES if name in remedy.files), None)
    rates = RATES_FILE if RATES_FILE in remedy.files else None
    for name in filter(None, (ranks, rates)):
        read_manifest(folder).check(name)
    return RecommendedChange(
        folder,
        {part: kind_of[part] for part in remedy.parts},
        None if ranks is None else folder / ranks,
        None if rates is None else folder / rates,
        diagnosis.slow_links,
    )


def _refuse_two(options: dict[str, object]) -> None:
    """Raise TailbackError if more than one of some options is there."""
    names = [name for name, value in options.items() if value]
    if len(names) > 1:
        raise TailbackError(f"{' and '.join(names)} exclude each other", remedy="give one of them")


@lab.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="CSV file; continued if it is there.",
)
@click.option("--lab", "name", metavar="NAME", help="Which lab (default: the only one).")
def samples(out: Path, name: str | None) -> None:
    """Append what receivers count to a file every second, until Ctrl-C.

    For programs that do not run by `tailback lab run`, in a lab that was brought up with
    --telemetry. Counts are since then: where this command was killed, start it again with the same
    file, and nothing is lost.
    """
    plan = fabric.find(name)
    sampling = fabric.sampling_of(plan)
    if sampling is None:
        raise TailbackError(
            f"the ports of lab {plan.spec.name!r} do not sample packets",
            remedy="take it down, and bring it up with --telemetry coordinated",
        )
    end = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: end.set())
    try:
        append_until(telemetry.receivers(plan, sampling, fabric.folder_of(plan)), out, end.wait)
    except OSError as error:
        raise TailbackError(
            f"cannot be written: {error.strerror}",
            file=out,
            remedy="free space, or choose another file",
        ) from None


@lab.command()
@click.argument("name", required=False)
def down(name: str | None) -> None:
    """Take a lab down: its processes, namespaces and files; without NAME, every lab."""
    gone = [
        lab_name for lab_name in ([name] if name else fabric.names()) if fabric.take_down(lab_name)
    ]
    click.echo(printable(f"taken down: {', '.join(gone)}") if gone else "no lab is up")
