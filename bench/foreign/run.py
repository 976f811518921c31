r"""How often a diagnosis is right in a reality that shares nothing with Tailback's model.

    python bench/foreign/run.py --make DIR --cases 20 --seed 7
    python bench/foreign/run.py --make DIR --cases 20 --seed 7 --judge --save answers.json

``packets.cpp`` simulates programs on a network with hidden causes. It is by another design than
Tailback's engine: input queues with a virtual queue for each output, served in turn; adapters that
serve queue pairs in turn; eager and rendezvous messages, with and without progress outside calls;
collectives and clocks of its own. ``--make`` writes the files of ordinary tools to ``NAME/seen``
and the truth to ``NAME/truth.json``. ``--judge`` gives ``tailback diagnose`` all files, then trace,
network and tables alone, and compares its verdicts with the truth: what the run takes without each
cause.

A case counts only if its single cause costs 10 % of the time or more, and each of two 5 %. The main
cause is the one that costs most; one that costs 90 % of that is right, too. *Healthy* and
*capacity* cases are right if no cause is named that a change would remove.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

# The benchmark is run by its path, so what it shares with others is not on Python's.
sys.path.append(str(Path(__file__).resolve().parents[1]))
from _cases import make_cases
from foreign_case import KINDS, NAMES, Confirmed, find_case
from foreign_files import (
    Clocks,
    Reader,
    write_counters,
    write_discovery,
    write_jobs,
    write_links,
    write_tables,
    write_trace,
)
from foreign_machine import simulate

VERSION = 2
"""Version of the cases; those of another version are made again."""

LIMIT_S = 300
"""Processor time of a diagnosis: twice what the slowest blind case takes."""

UTC_NS = 1_795_000_000 * 10**9
EDGES = (0.0, 0.5, 0.7, 0.8, 0.9, 1.0001)
"""Bins of stated probability."""

SURE = 0.9
"""From here on a wrong answer is listed."""

NOTHING = ("healthy", "injection", "capacity", "not_network", "none")
"""Answers that are right where no change of the network, program or placement would help."""

UNDETERMINED = ("undetermined", "not_determined")
ALARMS = frozenset(NAMES.get(kind, kind) for kind in KINDS) - {"capacity"}


# --- making ----------------------------------------------------------------------------------


def write_case(number: int, seed: int, folder: Path) -> dict[str, Any]:
    """Make a case; returns its truth.

    Raises:
        RuntimeError: No draw of the number counts.
    """
    confirmed = find_case(number, seed)
    case, machine = confirmed.case, confirmed.case.machine
    rng = np.random.Generator(np.random.Philox(key=[seed, number << 8 | 254]))
    seen = folder / "seen"
    seen.mkdir(parents=True)
    utc_ns = UTC_NS + int(rng.integers(10**7)) * 10**9 + int(rng.integers(10**9))
    form = "ethernet" if machine.ethernet else str(rng.choice(["perfquery", "prometheus"]))
    reader = Reader(
        form,
        int(min(confirmed.elapsed_ps / rng.uniform(6, 20), int(case.settings["start_ps"]) / 2)),
        round(rng.uniform(-10, 10) * 1e6),
        bool(rng.random() < 0.75),
        int(rng.choice([8, 128])),
    )
    world = case.world()
    world.settings |= {
        "interval_ps": reader.interval_ps,
        "tail_ps": 3 * reader.interval_ps,
    }
    # A reader goes from port to port, and waits for the rest of its interval.
    pace = reader.interval_ps * rng.uniform(0.1, 0.6) / len(machine.links)
    world.phase_ps = [int(pace * (n + rng.random())) for n in range(len(machine.links))]
    result = simulate(world)
    clocks = Clocks.drawn(rng, machine.hosts)
    write_trace(seen / "trace", case, case.build(), result, clocks, utc_ns)
    fabric = "links.csv" if machine.ethernet else "fabric.ibnetdiscover"
    (write_links if machine.ethernet else write_discovery)(seen / fabric, machine)
    tables = case.routing == "static"
    if tables:
        write_tables(seen / "lfts.txt", machine, world.table)
    write_counters(seen / "counters", machine, result, reader, utc_ns, seed)
    write_jobs(seen / "jobs.csv", case, utc_ns, result.end_ps)
    files = {"trace": "trace", "fabric": fabric, "counters": "counters", "jobs": "jobs.csv"}
    files |= {"forwarding": "lfts.txt"} if tables else {}
    (seen / "case.json").write_text(json.dumps(files, indent=1) + "\n", encoding="utf-8")
    truth = _truth(replace(confirmed, elapsed_ps=result.elapsed_ps), reader)
    text = json.dumps(truth, indent=1) + "\n"
    (folder / "truth.json").write_text(text, encoding="utf-8")
    return truth


def _truth(confirmed: Confirmed, reader: Reader) -> dict[str, Any]:
    case, elapsed = confirmed.case, confirmed.elapsed_ps
    causes = [] if case.kind in ("healthy", "capacity") else case.kind.split("+")
    costs = {
        NAMES.get(kind, kind): 1.0 - confirmed.without_ps[kind] / elapsed
        for kind in sorted(causes, key=lambda kind: confirmed.without_ps[kind])
    }
    main = next(iter(costs), case.kind)
    accepted = [kind for kind, cost in costs.items() if cost >= 0.9 * costs[main]]
    machine = case.machine
    wrong = case.causes | {}
    for kind in ("slow_link", "flaky"):
        if kind in wrong:
            ends = [[machine.name(v) for v in machine.links[at]] for at in wrong[kind]["links"]]
            wrong[kind] = wrong[kind] | {"named": ends}
    return {
        "version": VERSION,
        "seed": case.seed,
        "number": case.number,
        "kind": case.kind,
        "main": main,
        "accepted": accepted or list(NOTHING),
        "costs": costs,
        "elapsed_ps": elapsed,
        "without_ps": confirmed.without_ps,
        "clean_ps": confirmed.clean_ps,
        "inside_mpi": confirmed.mpi,
        "causes": wrong,
        "program": case.program,
        "shape": asdict(case.shape),
        "ranks": case.ranks,
        "ranks_per_host": case.ranks_per_host,
        "routing": case.routing,
        "machine": asdict(machine),
        "settings": case.settings,
        "reader": asdict(reader),
    }


# --- judging ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """A verdict and what it should have been.

    Attributes:
        case: Name of the case.
        kind, main, program: Of the case.
        evidence: ``all`` or ``trace``.
        cause: What was named; empty without a verdict.
        confidence: As stated.
        right: It is.
        cost: True share of the time of the main cause.
        stated: The same as stated, with its limits, if the main cause is among the stated costs.
        headline: Of the diagnosis, or why there is none.
    """

    case: str
    kind: str
    main: str
    program: str
    evidence: str
    cause: str
    confidence: float
    right: bool
    cost: float
    stated: tuple[float, float, float] | None
    headline: str

    @property
    def costed(self) -> bool:
        """The verdict names a true cause and says what it costs."""
        return self.right and self.cost > 0 and self.cause == self.main and bool(self.stated)

    @property
    def within(self) -> bool:
        """The stated range holds the true cost."""
        return self.stated is not None and self.stated[1] <= self.cost <= self.stated[2]

    @property
    def outcome(self) -> str:
        """Right, undetermined, wrong or failed."""
        if not self.cause:
            return "failed"
        if self.right:
            return "right"
        return "undetermined" if self.cause in UNDETERMINED else "wrong"


def judge(name: str, truth: dict[str, Any], diagnosis: dict[str, Any], evidence: str) -> Answer:
    """Compare ``diagnosis.json`` with the truth."""
    cause = str(diagnosis.get("cause") or "").replace("-", "_")
    stated = None
    for part in (diagnosis.get("explanation") or {}).get("costs", []):
        if part["cause"].replace("-", "_") == truth["main"]:
            measured = diagnosis["elapsed_ps"]
            stated = (part["share"], part["low_ps"] / measured, part["high_ps"] / measured)
    return Answer(
        name,
        truth["kind"],
        truth["main"],
        truth["program"],
        evidence,
        cause,
        float(diagnosis.get("confidence") or 0.0),
        cause in truth["accepted"],
        truth["costs"].get(truth["main"], 0.0),
        stated,
        str(diagnosis.get("headline") or ""),
    )


def diagnose(folder: Path, evidence: str, limit_s: float, out: Path) -> dict[str, Any]:
    """``diagnosis.json`` of a case.

    Raises:
        RuntimeError: There is none; says why.
    """
    seen = folder / "seen"
    files = json.loads((seen / "case.json").read_text(encoding="utf-8"))
    inputs = [str(seen / files["trace"])]
    for name in (
        "fabric",
        "forwarding",
        "rankfile",
        *(("counters", "jobs") if evidence == "all" else ()),
    ):
        path = seen / files.get(name, "")
        if name in files:
            single = path.is_dir() and len(list(path.iterdir())) > 1
            for file in sorted(path.iterdir()) if single else [path]:
                inputs += [f"--{name}", str(file)]
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "tailback", "diagnose", *inputs, "--out", str(out), "--quiet"]
    # Processor time, so that the answer does not depend on what else the machine does.
    cpu = int(limit_s)
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 5)),
    )
    if done.returncode == -signal.SIGXCPU:
        raise RuntimeError(f"took more than {cpu} s of processor time")
    made = out / "diagnosis.json"
    if not made.is_file():
        raise RuntimeError(f"exit {done.returncode}: {done.stderr.strip()[-400:]}")
    (out / "screen.txt").write_text(done.stdout, encoding="utf-8")
    diagnosis: dict[str, Any] = json.loads(made.read_text(encoding="utf-8"))
    return diagnosis


def answer(folder: Path, evidence: str, limit_s: float, keep: bool) -> Answer:
    """Diagnose a case and judge the verdict."""
    truth = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as scratch:
        out = (folder if keep else Path(scratch)) / f"diagnosis-{evidence}"
        try:
            return judge(folder.name, truth, diagnose(folder, evidence, limit_s, out), evidence)
        except RuntimeError as error:
            empty = judge(folder.name, truth, {}, evidence)
            return replace(empty, right=False, headline=str(error))


def judged(folders: Iterable[Path], options: argparse.Namespace) -> list[Answer]:
    """The answers with all evidence, then by the trace alone; saved after each, if asked for."""
    answers: list[Answer] = []
    for evidence in ("all", "trace"):
        for folder in folders:
            answers.append(answer(folder, evidence, options.limit, options.keep))
            a = answers[-1]
            print(f"{a.case} {evidence}: {a.main}: {a.outcome} {a.cause}", file=sys.stderr)
            if options.save:
                rows = [asdict(a) | {"outcome": a.outcome} for a in answers]
                options.save.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return answers


def add_judging(parser: argparse.ArgumentParser) -> None:
    """The options of a benchmark that judges cases."""
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--judge", action="store_true", help="diagnose them, too")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="CPU seconds of a diagnosis")
    parser.add_argument("--keep", action="store_true", help="keep diagnoses beside the cases")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--save", type=Path, help="write every answer to this file (JSON)")


# --- figures ---------------------------------------------------------------------------------


def figures(answers: list[Answer]) -> dict[str, Any]:
    """Counts and shares by evidence."""
    out: dict[str, Any] = {}
    for evidence in ("all", "trace"):
        mine = [a for a in answers if a.evidence == evidence]
        healthy = [a for a in mine if a.main == "healthy"]
        costed = [a for a in mine if a.costed]
        out[evidence] = {
            "cases": len(mine),
            **dict(Counter(a.outcome for a in mine)),
            "false_alarms": [sum(a.cause in ALARMS for a in healthy), len(healthy)],
            "by_main": {
                main: dict(Counter(a.outcome for a in mine if a.main == main))
                for main in sorted({a.main for a in mine})
            },
            "stated": bins(mine),
            "cost_in_range": [sum(a.within for a in costed), len(costed)],
            "sure_and_wrong": [
                a.case for a in mine if a.outcome == "wrong" and a.confidence >= SURE
            ],
        }
    return out


def bins(answers: list[Answer]) -> list[dict[str, float]]:
    """Stated probabilities of named causes against the share that is right."""
    named = [a for a in answers if a.cause and a.cause not in UNDETERMINED]
    out = []
    for low, high in pairwise(EDGES):
        inside = [a for a in named if low <= a.confidence < high]
        if inside:
            out.append(
                {
                    "from": low,
                    "to": min(high, 1.0),
                    "answers": len(inside),
                    "stated": float(np.mean([a.confidence for a in inside])),
                    "right": sum(a.right for a in inside) / len(inside),
                }
            )
    return out


def text(answers: list[Answer]) -> str:
    """What is printed without ``--json``."""
    made = figures(answers)
    lines = []
    order = ("right", "undetermined", "wrong", "failed")
    for evidence, about in made.items():
        lines.append(f"{evidence}: {about['cases']} cases")
        lines.append(f"  {'main cause':16}" + "".join(f"{name:>14}" for name in order))
        rows = [*about["by_main"].items(), ("all", about)]
        lines += [
            f"  {main:16}" + "".join(f"{counts.get(name, 0):>14}" for name in order)
            for main, counts in rows
        ]
        alarms, healthy = about["false_alarms"]
        inside, costed = about["cost_in_range"]
        lines.append(f"  false alarms {alarms} of {healthy} healthy")
        lines.append(f"  true cost in the stated range {inside} of {costed}")
        lines += [
            f"  stated {b['from']:.0%}-{b['to']:.0%}: {b['answers']} answers, mean "
            f"{b['stated']:.0%}, right {b['right']:.0%}"
            for b in about["stated"]
        ]
        lines.append(f"  wrong at {SURE:.0%} or more: {', '.join(about['sure_and_wrong']) or '-'}")
    lines += [
        f"{a.case} {a.evidence:5} {a.program:9} {a.kind}: {a.outcome}, {a.cause or '-'} "
        f"({a.confidence:.0%}): {a.headline[:160]}"
        for a in answers
        if not a.right
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--make", type=Path, metavar="DIR", help="folder of the cases")
    add_judging(parser)
    options = parser.parse_args()
    if options.cases < 1 or options.first < 0 or options.seed < 0:
        parser.error("--cases must be at least 1, --first and --seed 0")
    default = Path(tempfile.gettempdir()) / f"tailback-foreign-cases-{os.getuid()}"
    folder = options.make or default
    folder.mkdir(parents=True, exist_ok=True)
    seed = options.seed
    numbers = range(options.first, options.first + options.cases)
    made = make_cases(
        {folder / f"case-{seed}-{number:03d}": number for number in numbers},
        lambda number, path: write_case(number, seed, path),
        "truth.json",
        version=VERSION,
    )
    if options.make and not options.judge:
        return 0
    answers = judged(made, options)
    print(json.dumps(figures(answers), indent=1) if options.json else text(answers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
