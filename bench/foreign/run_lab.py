r"""How often a diagnosis is right on real packets of programs that Tailback was not built on.

    python bench/foreign/run_lab.py --make DIR --cases 20 --seed 7 [--judge] [--save answers.json]

As root. ``lab_programs.c`` has a wavefront, a pipeline, a master with workers, writers, a ring,
two kinds of all-to-all, a conjugate gradient and a broadcast. Each case draws one of them, rates,
queues and spines of a fabric of network namespaces, and the causes: none in one case of five, two
in another. The program runs with all causes, and without each of them: the difference of the
times is what the cause costs. Cases and verdicts are counted as in ``run.py``, which judges them.

Other work on the machine disturbs the runs; a case takes half a minute. Those that are in the
folder are only judged, which needs no root.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from run import NOTHING, add_judging, figures, judged, text

from tailback.lab import fabric
from tailback.lab.plan import Plan
from tailback.lab.record import record
from tailback.lab.spec import LabSpec

SOURCE = Path(__file__).with_name("lab_programs.c")

Programs = Mapping[str, tuple[int, int, int]]
"""Iterations, bytes of a message and milliseconds of computation of programs, to be varied."""

PROGRAMS: Programs = {
    "wavefront": (30, 14_000, 12),
    "pipeline": (200, 25_000, 7),
    "master": (20, 50_000, 30),
    "writer": (60, 60_000, 20),
    "ring": (25, 10_000, 30),
    "transpose": (30, 10_000, 25),
    "pairwise": (25, 10_000, 25),
    "gradient": (50, 40_000, 15),
    "broadcast": (40, 40_000, 25),
}

PLACED = ("gradient", "pipeline", "ring", "wavefront")
"""Programs that depend on the placement of their ranks."""

NAMES = {
    "slow-cable": "slow_link",
    "imbalance": "imbalance",
    "noise": "noise",
    "placement": "placement",
    "one-spine": "routing",
    "cross-traffic": "other_traffic",
    "bursts": "other_traffic",
}
"""The verdict that names each kind of cause."""

SINGLE_SHARE, DOUBLE_SHARE = 0.10, 0.05
"""A cause counts if it costs that share of the time: alone, or beside another."""

ATTEMPTS = 4
"""Draws of a case before it is given up: half a minute each."""

JOB_HOSTS = ("h00", "h01", "h10", "h11", "h20", "h21", "h30", "h31")
"""Hosts of the job, leaf after leaf: ranks next to each other share one."""

SPARE_HOSTS = ("h02", "h12", "h22", "h32")
"""Hosts of other traffic, one of each leaf."""


@dataclass(frozen=True)
class Draw:
    """A case before it ran.

    Attributes:
        spec: The lab.
        program: Name and arguments.
        causes: As ``tailback lab run --cause`` takes them.
        path_seed: Seed of ECMP.
    """

    spec: LabSpec
    program: tuple[str, ...]
    causes: tuple[str, ...]
    path_seed: int

    @property
    def kind(self) -> str:
        """Kinds of the causes."""
        return "+".join(cause.partition(":")[0] for cause in self.causes) or "healthy"


def draw(number: int, seed: int, attempt: int, programs: Programs, placed: Sequence[str]) -> Draw:
    """Draw a case of some programs, of which ``placed`` depend on the placement of ranks."""
    dice = random.Random(f"{seed} {number} {attempt}")
    spines = dice.choice([2, 2, 3])
    spec = LabSpec.model_validate(
        {
            "name": f"foreign{os.getpid() % 100_000}",
            "fabric": {
                "spines": spines,
                "host_rate": f"{dice.randint(40, 80)} Mb/s",
                "spine_rate": f"{dice.randint(25, 60)} Mb/s",
                "queue": f"{dice.randint(150, 600)} kB",
            },
            "job": {"hosts": list(JOB_HOSTS), "ranks_per_host": 2},
        }
    )
    kinds = _kinds(number, dice)
    # Workers that compute longer get fewer tasks, and any place is as good for them.
    # Any order of ranks but the best costs a broadcast time, so it is never healthy.
    names = sorted(set(programs) - {"master" if kinds else "broadcast"})
    name = dice.choice(placed if "placement" in kinds else names)
    iterations, size, compute_ms = programs[name]
    program = (
        name,
        str(iterations),
        str(round(size * dice.uniform(0.7, 1.6))),
        f"{compute_ms * dice.uniform(0.7, 1.4):.1f}",
    )
    causes = tuple(_cause(kind, dice, spines) for kind in kinds)
    return Draw(spec, program, causes, dice.randrange(1, 10**6))


def _kinds(number: int, dice: random.Random) -> list[str]:
    if number % 5 == 0:
        return []
    if number % 5 == 1:
        pair = dice.sample(sorted(NAMES), 2)
        # Both are the same cause.
        return pair if set(pair) != {"cross-traffic", "bursts"} else ["bursts", "slow-cable"]
    turn = number // 5 * 3 + number % 5 - 2
    return [list(NAMES)[turn % len(NAMES)]]


def _cause(kind: str, dice: random.Random, spines: int) -> str:
    """The cause as ``tailback lab run --cause`` takes it."""
    if kind == "slow-cable":
        host = dice.choice(JOB_HOSTS)
        upper = f"s{dice.randrange(spines)}"
        ends = dice.choice([f"{host}-l{host[1]}", f"l{host[1]}-{upper}"])
        return f"slow-cable:{ends}={dice.randint(15, 50)}%"
    if kind == "imbalance":
        ranks = dice.sample(range(16), dice.choice([1, 1, 2, 3]))
        return "imbalance:" + ",".join(f"{r}={dice.uniform(2.0, 6.0):.1f}" for r in sorted(ranks))
    if kind == "noise":
        return f"noise:{dice.randint(3, 8)}%,{dice.randint(40, 100)}ms,{dice.randrange(10**6)}"
    if kind == "placement":
        return "placement:" + dice.choice(["by-leaf", "by-node", "split-pairs", "random,7"])
    if kind == "one-spine":
        return f"one-spine:s{dice.randrange(spines)}"
    flows = ",".join(
        f"{'-'.join(dice.sample(SPARE_HOSTS, 2))}*{dice.randint(2, 6)}"
        for _ in range(dice.choice([1, 2, 3]))
    )
    if kind == "cross-traffic":
        return f"cross-traffic:{flows}"
    on_s = dice.uniform(0.2, 0.8)
    return f"bursts:{flows},{on_s:.1f}s/{on_s * dice.uniform(0.5, 2.0):.1f}s"


@contextmanager
def _lab(spec: LabSpec) -> Iterator[Plan]:
    fabric.bring_up(spec)
    try:
        yield fabric.find(spec.name)
    finally:
        fabric.take_down(spec.name)


Timed = Callable[[Plan, Draw, Sequence[str], Path], float]
"""Runs a case with some of its causes, writes its files to a folder; returns seconds."""


def run_programs(binary: Path) -> Timed:
    """Runs the programs of ``lab_programs.c``."""

    def timed(plan: Plan, case: Draw, causes: Sequence[str], out: Path) -> float:
        program = [str(binary), *case.program]
        record(plan, causes, program, out, force=True, path_seed=case.path_seed)
        truth = json.loads((out / "truth" / "truth.json").read_text())
        return float(truth["loop_s"])

    return timed


def write_case(draws: Iterable[Draw], folder: Path, timed: Timed) -> None:
    """Run draws until each cause of one costs what it must.

    Raises:
        RuntimeError: None counts.
    """
    for case in draws:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with _lab(case.spec) as plan, tempfile.TemporaryDirectory() as scratch:
            observed = timed(plan, case, case.causes, folder / "run")
            costs: dict[str, float] = {}
            for cause in case.causes:
                others = tuple(other for other in case.causes if other != cause)
                without = timed(plan, case, others, Path(scratch) / "without")
                costs[NAMES[cause.partition(":")[0]]] = 1.0 - without / observed
        needed = SINGLE_SHARE if len(case.causes) < 2 else DOUBLE_SHARE
        print(f"{folder.name}: {case.kind} of {case.program[0]}: {costs}", file=sys.stderr)
        if all(cost >= needed for cost in costs.values()):
            _write_truth(case, costs, folder)
            return
    shutil.rmtree(folder)
    raise RuntimeError(f"no draw of {folder.name} counts")


def _write_truth(case: Draw, costs: dict[str, float], folder: Path) -> None:
    if (folder / "run" / "truth").is_dir():
        (folder / "run" / "truth").rename(folder / "lab-truth")
    (folder / "run").rename(folder / "seen")
    files = {
        "trace": "trace",
        "fabric": "links.csv",
        "rankfile": "rank_host.csv",
        "counters": "counters.csv.gz",
    }
    (folder / "seen" / "case.json").write_text(json.dumps(files, indent=1) + "\n")
    costs = dict(sorted(costs.items(), key=lambda item: -item[1]))
    main = next(iter(costs), "healthy")
    truth = {
        "kind": case.kind,
        "main": main,
        "accepted": [k for k, cost in costs.items() if cost >= 0.9 * costs[main]] or list(NOTHING),
        "costs": costs,
        "program": case.program[0],
        "arguments": case.program,
        "causes": case.causes,
        "spec": case.spec.model_dump(mode="json"),
    }
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")


def parsed(description: str | None) -> argparse.Namespace:
    """The options; the folder of the cases is there."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--make", type=Path, metavar="DIR", required=True)
    add_judging(parser)
    options = parser.parse_args()
    options.make.mkdir(parents=True, exist_ok=True)
    return options


def main() -> int:
    options = parsed(__doc__)
    program = options.make / "programs"
    if not program.is_file():
        subprocess.run(["mpicc", "-O2", "-o", program, SOURCE, "-lm"], check=True)
    return make_and_judge(options, "lab", PROGRAMS, PLACED, run_programs(program))


def make_and_judge(
    options: argparse.Namespace, name: str, programs: Programs, placed: Sequence[str], timed: Timed
) -> int:
    """Make the cases that are missing, named ``name`` and their number, and judge them."""
    made = []
    for number in range(options.first, options.first + options.cases):
        folder = options.make / f"{name}-{options.seed}-{number:03d}"
        if not (folder / "truth.json").is_file():
            draws = (
                draw(number, options.seed, attempt, programs, placed) for attempt in range(ATTEMPTS)
            )
            try:
                write_case(draws, folder, timed)
            except RuntimeError as error:
                print(error, file=sys.stderr)
                continue
        made.append(folder)
    if not options.judge:
        return 0
    answers = judged(made, options)
    print(json.dumps(figures(answers), indent=1) if options.json else text(answers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
