"""Regret of the optimiser: recommended changes against the best by exhaustive search.

    python bench/remedy_regret.py --count 200 --seed 1 --write

Scenarios of at most 16 ranks are drawn by seed: fat trees, tori and dragonflies, patterns,
placements, routings, slow cables, and in half of them another job. The optimiser searches
placements on the hosts in use and on free ones, routings, rates, repairs and rewrites, as
``tailback diagnose --allow-hosts all`` does. Exhaustive search simulates every combination of one
change, or none, of each kind. The best is chosen by the mean gain over fresh seeds, with fresh
draws of the other job's traffic; it must gain in the observed run and in 57 of 60 further draws, as
a recommended change must in 19 of 20: ten draws pass every third change that loses in one of ten.
Gains are stated of seeds that chose neither.

regret    gain of the best minus gain of the recommended, in points of the time
harm      whether the recommended loses on fresh seeds
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from _shared import cpu_seconds, put

from tailback import TailbackError
from tailback.api.candidates import DEFAULT_METHODS, make_candidates
from tailback.diagnosis import diagnose_cause
from tailback.evaluate import Change, Evaluate
from tailback.remedy import REMEDIES, Proposal, RemedyContext, find_remedy, usable_kinds
from tailback.remedy.optimiser import combine
from tailback.remedy.proof import MAX_LOSERS, current_placement
from tailback.remedy.screening import screen
from tailback.scenario.model import Scenario, parse
from tailback.simulation import (
    FluidOptions,
    make_evaluate,
    make_fluid_evaluate,
    other_rules,
    prepare,
    simulate,
)
from tailback.units import percent

PAGE = Path(__file__).resolve().parents[1] / "docs" / "measurements" / "accuracy.md"
SEEDS = 3
DRAWS = 20
FRESH, SURE, JUDGING = range(1000, 1010), range(3000, 3060), range(2000, 2010)
"""Seeds that order the best, those in which it must gain, and those by which gains are stated; the
optimiser uses none."""
FINALISTS = 12
"""Combinations, fastest with two seeds, of which all fresh ones choose the best."""
CLOSE = 0.03
WORTH = 0.02


@dataclass(frozen=True)
class Regret:
    """One scenario.

    Attributes:
        number: Its number.
        cause: The verdict.
        space: Combinations that exhaustive search simulated.
        proved: Candidates that the optimiser proved.
        recommended: What is recommended to users; empty if nothing is.
        gain: Its gain on fresh seeds.
        best: The best change of the same kinds.
        best_gain: Its gain.
        fastest: The best change of any kind that the optimiser found.
        fastest_gain: Its gain.
        any_best: The best change of any kind.
        any_gain: Its gain.
    """

    number: int
    cause: str
    space: int
    proved: int
    recommended: str
    gain: float
    best: str
    best_gain: float
    fastest: str
    fastest_gain: float
    any_best: str
    any_gain: float


def draw(seed: int, number: int) -> Scenario:
    """Scenario ``number`` of a seed."""
    rng = np.random.Generator(np.random.Philox(key=[seed, number]))
    fabric, nodes = _fabric(rng)
    beside = rng.random() < 0.5
    ranks = int(rng.choice([8, 12, 16]))
    hosts = rng.permutation(nodes)
    jobs: list[dict[str, Any]] = [
        {
            "hosts": ",".join(map(str, sorted(hosts[:ranks].tolist()))),
            "placement": str(rng.choice(["block", "random", "round-robin", "round-robin-leaves"])),
            "pattern": _pattern(rng, ranks),
        }
    ]
    spare = nodes - ranks
    if beside and spare >= 10:
        count = int(rng.integers(4, min(spare - 4, 12) + 1))
        taken = sorted(hosts[ranks : ranks + count].tolist())
        others: dict[str, Any] = {
            "kind": str(rng.choice(["uniform", "permutation"])),
            "ranks": count,
            "messages": int(rng.integers(6, 20)),
            "size": f"{2 ** int(rng.integers(5, 8))} KiB",
            "post": "all",
        }
        jobs.append(
            {
                "name": "others",
                "observed": False,
                "hosts": ",".join(map(str, taken)),
                "pattern": others,
            }
        )
    data: dict[str, Any] = {
        "name": "generated",
        "seed": int(rng.integers(1, 2**31)),
        "fabric": fabric,
        "job": jobs,
        "engine": {
            "routing": str(rng.choice(["adaptive", "deterministic", "random"], p=[0.5, 0.3, 0.2])),
            "buffer": str(rng.choice(["16 KiB", "32 KiB", "64 KiB"])),
            "packet": str(rng.choice(["2 KiB", "4 KiB"])),
            "injection": str(rng.choice(["fifo", "round-robin"])),
        },
    }
    if rng.random() < 0.15:
        network = prepare(parse(data)).fabric
        link = int(rng.integers(network.n_links))
        data["fabric"] = {
            **fabric,
            "degraded": [{"cable": network.port_name(link), "rate": "15 Gb/s"}],
        }
    return parse(data)


def _fabric(rng: np.random.Generator) -> tuple[dict[str, Any], int]:
    pick = rng.random()
    if pick < 0.7:
        each, leaves = int(rng.choice([4, 6, 8])), int(rng.choice([4, 5, 6]))
        up = int(rng.integers(1, max(each // 2, 2) + 1))
        tree = {"hosts_per_leaf": each, "leaves": leaves, "aggregation": up}
        return {"fat_tree": tree}, each * leaves
    if pick < 0.85:
        dims = [[4, 4], [6, 4]][int(rng.integers(2))]
        options = {"kind": "torus", "dims": dims, "nodes_per_switch": 2, "rates": ["100 Gb/s"]}
        return {"topology": options}, 2 * int(np.prod(dims))
    options = {
        "kind": "dragonfly",
        "nodes_per_router": 2,
        "routers": 4,
        "global_ports": 1,
        "groups": 5,
    }
    return {"topology": options}, 40


def _pattern(rng: np.random.Generator, ranks: int) -> dict[str, Any]:
    size = f"{2 ** int(rng.integers(5, 9))} KiB"
    kind = str(
        rng.choice(
            ["stencil2d", "ring", "permutation", "uniform", "alltoall-naive", "reduce-naive"],
            p=[0.4, 0.12, 0.12, 0.12, 0.12, 0.12],
        )
    )
    if kind == "stencil2d":
        return {
            "kind": kind,
            "dims": [4, ranks // 4],
            "size": size,
            "rounds": int(rng.integers(1, 4)),
            "post": str(rng.choice(["sequence", "all"])),
            "periodic": bool(rng.random() < 0.5),
            "boundary": "skip",
        }
    if kind == "alltoall-naive":
        return {"kind": kind, "ranks": ranks, "size": size}
    if kind == "reduce-naive":
        return {"kind": kind, "ranks": ranks, "size": size, "arrays": int(rng.integers(2, 7))}
    return {"kind": kind, "ranks": ranks, "size": size, "messages": int(rng.integers(2, 6))}


def measure(seed: int, number: int) -> Regret | None:
    """The regret in one scenario; None if the network is not the cause."""
    prepared = prepare(draw(seed, number), "all")
    run = simulate(prepared)
    evaluate = make_evaluate(prepared)
    quantum = max(100_000, run.elapsed_ps // 2000)
    quick = make_fluid_evaluate(prepared, FluidOptions(windows=0, quantum_ps=quantum))
    placed, _ = make_candidates(prepared, DEFAULT_METHODS, run, lambda *_: None)
    made, now = {variant.name: node for variant, node in placed.items()}, current_placement(run)
    kept = frozenset(made if len(run.scenario.job) > 1 else {now})
    screened = screen(made, quick, always=kept)
    rules, program = other_rules(prepared.scenario), prepared.observed.program
    diagnosis = diagnose_cause(run, evaluate, placements=screened.kept, rules=rules, seeds=1)
    context = RemedyContext(
        evaluate,
        quick,
        screened.kept,
        screened.estimate_ps,
        program,
        rules,
        ruled_out={name: node for name, node in made.items() if name not in screened.kept},
        draws=DRAWS,
    )
    search = find_remedy(run, diagnosis, context, seeds=SEEDS)
    if not search.candidates:
        return None
    everything = replace(context, placements=made, estimates={})
    proposals = [
        proposal
        for entry in REMEDIES
        for proposal in entry.part(run, diagnosis, everything)
        if not proposal.not_applicable
    ]
    space = list(combinations(proposals))
    changes = {proposal.name: proposal for proposal in space}
    first = {p.name: mean(_times(evaluate, p.change, [0, *FRESH[:1]])) for p in space}
    usable = usable_kinds(diagnosis.cause)

    def gains_of(name: str, seeds: Sequence[int]) -> list[float]:
        change = changes[name].change if name else Change()
        pairs = zip(_times(evaluate, change, seeds), _times(evaluate, Change(), seeds), strict=True)
        return [1 - time / before for time, before in pairs]

    def is_sure(name: str) -> bool:
        losers = sum(gains_of(name, [seed])[0] <= 0 for seed in SURE)
        return losers <= MAX_LOSERS * len(SURE)

    def best_of(allowed: Sequence[Proposal]) -> str:
        ordered = sorted((p.name for p in allowed), key=lambda name: (first[name], name))
        finalists = [name for name in ordered[:FINALISTS] if gains_of(name, [0])[0] > 0]
        finalists.sort(key=lambda name: -mean(gains_of(name, FRESH)))
        return next((name for name in finalists if is_sure(name)), "")

    def gain_of(name: str) -> float:
        return mean(gains_of(name, JUDGING))

    recommended = search.remedy.name if search.remedy is not None else ""
    preferred = [p for p in space if p.kinds <= usable]
    fastest = search.best[0]
    best, any_best = best_of(preferred), best_of(space)
    if mean(gains_of(best, FRESH)) < WORTH:
        # Nothing that users can do helps: what operators can do is recommended.
        best = any_best
    return Regret(
        number,
        diagnosis.cause,
        len(space),
        sum(candidate.proved for candidate in search.candidates),
        recommended,
        gain_of(recommended),
        best,
        gain_of(best),
        fastest,
        gain_of(fastest),
        any_best,
        gain_of(any_best),
    )


def combinations(proposals: Sequence[Proposal]) -> list[Proposal]:
    """Every combination of at most one proposal of each kind, without the empty one."""
    kinds = list(dict.fromkeys(proposal.kind for proposal in proposals))
    choices = [[None, *(p for p in proposals if p.kind == kind)] for kind in kinds]
    combined = []
    for chosen in itertools.product(*choices):
        parts = [proposal for proposal in chosen if proposal is not None]
        if parts:
            combined.append(combine(parts) if len(parts) > 1 else parts[0])
    return combined


def _times(evaluate: Evaluate, change: Change, seeds: Sequence[int]) -> list[float]:
    """Time with each seed; infinite if the change cannot be simulated."""
    try:
        return [
            float(evaluate(replace(change, seed_offset=seed, others_draw=seed)).elapsed_ps)
            for seed in seeds
        ]
    except TailbackError:
        return [float("inf")] * len(seeds)


class Results:
    """Results of scenarios, kept in a file: a scenario that is in it is not measured again.

    Args:
        file: One JSON object a line: seed, number, result and processor time; None keeps nothing.
        seed: Seed of the scenarios.

    Attributes:
        seconds: Processor time of the results so far.
    """

    def __init__(self, file: Path | None, seed: int) -> None:
        self._file, self._seed = file, seed
        lines = file.read_text().splitlines() if file is not None and file.exists() else []
        kept = [json.loads(line) for line in lines]
        self._kept = {row["number"]: row for row in kept if row["seed"] == seed}
        self.seconds = 0.0

    def of(self, number: int) -> Regret | None:
        """The regret in one scenario, as :func:`measure`."""
        if number not in self._kept:
            began = cpu_seconds()
            case = measure(self._seed, number)
            row = {
                "seed": self._seed,
                "number": number,
                "regret": None if case is None else asdict(case),
                "seconds": cpu_seconds() - began,
            }
            self._kept[number] = row
            if self._file is not None:
                with self._file.open("a") as file:
                    file.write(f"{json.dumps(row)}\n")
        row = self._kept[number]
        self.seconds += row["seconds"]
        return None if row["regret"] is None else Regret(**row["regret"])


def table(cases: Sequence[Regret]) -> str:
    """The table of the page."""
    rows = [
        ("recommended, of what it may change", [(c.best_gain, c.gain) for c in cases]),
        ("fastest found, of everything", [(c.any_gain, c.fastest_gain) for c in cases]),
    ]
    lines = [
        "| | scenarios | best gain, median | within 3 points | median regret | largest | harmful |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for what, pairs in rows:
        regrets = [max(best - gain, 0.0) for best, gain in pairs]
        close = sum(regret <= CLOSE for regret in regrets)
        harmful = sum(gain < 0 for _, gain in pairs)
        lines.append(
            f"| {what} | {len(pairs)} | {percent(median(best for best, _ in pairs))} "
            f"| {close} ({percent(close / len(pairs))}) | {100 * median(regrets):.1f} "
            f"| {100 * max(regrets):.1f} | {harmful} |"
        )
    proved, space = sum(case.proved for case in cases), sum(case.space for case in cases)
    return "\n".join([*lines, "", f"The optimiser proved {proved} of {space} combinations."])


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--count", type=int, default=200, help="scenarios")
    parser.add_argument("--seed", type=int, default=1, help="seed of the scenarios")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="table in the page on accuracy")
    parser.add_argument("--keep", type=Path, help="file of results; those in it are kept")
    asked = parser.parse_args()
    results = Results(asked.keep, asked.seed)
    cases = list[Regret]()
    for number in range(asked.first, asked.first + asked.count):
        try:
            case = results.of(number)
        except TailbackError as error:
            print(f"{number}: {error}", file=sys.stderr)
            continue
        if case is not None:
            cases.append(case)
            print(case, file=sys.stderr, flush=True)
    if not cases:
        print("in none of the scenarios is the network the cause", file=sys.stderr)
        return 1
    text = table(cases)
    print(json.dumps([asdict(case) for case in cases], indent=2) if asked.json else text)
    if asked.write:
        arguments = f"--count {asked.count} --seed {asked.seed} --write"
        put(PAGE, {"regret": text}, arguments, results.seconds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
