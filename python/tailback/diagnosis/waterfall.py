"""Where the time goes: from the ideal network to the observed run, one re-simulation per step.

The steps add one factor at a time, always in the same order: paths, transfers within hosts (if the
scenario describes them), the injection rate of adapters, endpoints, the network with the best
placement found, the actual placement, its routing, its slow links, other traffic. A cost that two
factors cause together is charged to the later one. Therefore each factor is also removed
individually from the full run, if that can be simulated (docs/explanation/verdict.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tailback.diagnosis.adapter_load import wire_time_ps
from tailback.diagnosis.model import Cause, CauseShare, Gain, WaterfallBar
from tailback.diagnosis.waterfall_steps import (
    ADAPTIVE,
    INJECTION,
    NON_MINIMAL_RULES,
    PATHS,
    RECEIVING,
    Spreading,
    WaterfallStep,
    waterfall_steps,
)
from tailback.evaluate import Change, EngineVariation, Evaluate, announce
from tailback.io.progress import Progress
from tailback.run.run import Run
from tailback.traffic.program import Program

OBSERVED: Final = "the given run; the difference is chance, or unknown effects"


GIVEN: Final = "the given run"


REMAINDER_MEANING: Final = (
    "the difference between the given run and everything simulated: chance, or unknown effects"
)


Placements = Mapping[str, NDArray[np.uint32]]

CAUSE_OF_STEP: dict[str, Cause] = {
    "in-host": "in-host",
    "pattern": "pattern",
    "network": "capacity",
    "placement": "placement",
    "routing": "routing",
    "slow links": "slow-link",
    "other traffic": "other-traffic",
}
"""Cause of each step whose delta is time lost to contention, or to transfers within hosts."""


CLEARLY_FASTER = 0.02
"""Smallest gain at which another routing rule counts as better; repetitions differ by less."""


ENGINE_VARIATIONS = (
    EngineVariation(buffers=0.5, delays=0.5, other_injection=True, local_rates="low"),
    EngineVariation(buffers=0.5, delays=1.5, local_rates="low"),
    EngineVariation(buffers=1.5, delays=0.5, local_rates="high"),
    EngineVariation(buffers=1.5, delays=1.5, other_injection=True, local_rates="high"),
)
"""Other engine settings with which every step is simulated. Half of the eight combinations of three
settings at two levels, chosen so that no setting always changes together with another (fractional
factorial design: Box and Hunter 1961). ±50 % is the range within which the blind cases draw the
settings of real machines (docs/measurements/accuracy.md). Rates within hosts, which matter for jobs
with several ranks a host alone, change together with the buffers."""


@dataclass(frozen=True)
class VariedTimes:
    """Times of the steps of the waterfall in one variation of the model, by name, picoseconds.

    Attributes:
        steps: Time of each step but ``observed``, in the order of the bars.
        run_ps: Time that the run takes with these settings of the engine: as observed, times the
            ratio of the full simulations with and without them.
        imbalance_ps: Time that the run saves if computation is balanced; 0 if it is.
    """

    steps: Mapping[str, int]
    run_ps: int
    imbalance_ps: int = 0

    @property
    def charged(self) -> dict[Cause, float]:
        """Share of the time charged to each cause; a step that saves time costs 0."""
        costs: dict[Cause, float] = {"imbalance": self.imbalance_ps / max(self.run_ps, 1)}
        before = 0
        for name, time in self.steps.items():
            if name in CAUSE_OF_STEP:
                cause = CAUSE_OF_STEP[name]
                costs[cause] = costs.get(cause, 0.0) + max(time - before, 0) / max(self.run_ps, 1)
            before = time
        return costs


@dataclass(frozen=True)
class Waterfall:
    """The waterfall and the variations of the model that it was simulated with.

    Attributes:
        bars: The bars, ``observed`` last: means over the repetitions.
        shares: Cost of each cause, largest first.
        variations: Times of the steps in each repetition, and with each of
            :data:`ENGINE_VARIATIONS`.
        made_from: The simulated times that it is made from.
    """

    bars: list[WaterfallBar]
    shares: list[CauseShare]
    variations: list[VariedTimes]
    made_from: SimulatedSteps

    def with_receivers(self, least_ps: int) -> Waterfall:
        """The same, with the time that a receiver needs for its bytes in the bar ``injection``.

        Args:
            least_ps: That time, or that of a program that makes do with less, ps.
        """
        return self.made_from.waterfall(least_ps)


@dataclass(frozen=True)
class SimulatedSteps:
    """Simulated times of the steps of a waterfall.

    Attributes:
        run: The run as observed.
        steps: The steps that are simulated, or skipped.
        repeated: Time of each step in each repetition, ps.
        varied: Time that the run takes with each of the other engine settings, and the time of each
            step with these, ps.
        floor_ps: Lower bound of all times.
        wire_ps: Time that the busiest adapter needs to send its bytes.
        removed: Time saved without each cause in each repetition, ps.
        even: Time saved by balanced computation in each repetition, and then with each of the other
            engine settings; empty if it is negligible.
    """

    run: Run
    steps: Sequence[WaterfallStep]
    repeated: Mapping[str, list[int]]
    varied: Sequence[tuple[int, Mapping[str, int]]]
    floor_ps: int
    wire_ps: int
    removed: dict[Cause, list[int]]
    even: Sequence[int]

    def waterfall(self, receive_ps: int = 0) -> Waterfall:
        """The waterfall; the bar ``injection`` ends no sooner than ``receive_ps``."""
        run_ps, repeated, wires = self.run.elapsed_ps, self.repeated, (self.wire_ps, receive_ps)
        times = _bounded(repeated, self.floor_ps, *wires)
        repetitions = range(len(repeated["ideal"]))
        each = [(run_ps, {name: all_[n] for name, all_ in repeated.items()}) for n in repetitions]
        variations = [_varied(ps, self.steps, time, *wires) for ps, time in (*each, *self.varied)]
        if self.even:
            pairs = zip(variations, self.even, strict=True)
            variations = [replace(variation, imbalance_ps=ps) for variation, ps in pairs]
        todo = list(self.steps)
        todo.insert(1, WaterfallStep("paths", Change(), PATHS))
        injection = INJECTION if receive_ps <= self.wire_ps else RECEIVING
        after = 3 if "in-host" in repeated else 2
        todo.insert(after, WaterfallStep("injection", Change(), injection))
        bars, before = [], [0] * len(repetitions)
        for step in todo:
            meaning = f"{step.meaning}: {step.skip}" if step.skip else step.meaning
            bars.append(_bar(step.name, times[step.name], before, meaning))
            before = times[step.name]
        bars.append(_bar("observed", [run_ps] * len(repetitions), before, OBSERVED))
        late = self.even[: len(repetitions)]
        shares = _shares(self.run, bars, self.removed, late, times["other traffic"])
        return Waterfall(bars, shares, variations, self)


def build_waterfall(
    run: Run,
    evaluate: Evaluate,
    seeds: int,
    progress: Progress | None = None,
    placements: Placements | None = None,
    rules: Sequence[str] = (),
    engines: Sequence[EngineVariation] = ENGINE_VARIATIONS,
    even: Program | None = None,
) -> Waterfall:
    """Re-simulate every step ``seeds`` times, and once with each variation of the engine.

    Args:
        run: The run as observed.
        evaluate: Simulates a change.
        seeds: Repetitions with different random seeds; deltas are taken within a repetition.
        progress: Called with the step and the share done.
        placements: Candidate placements: node of each rank, shape (R,), by name.
        rules: Routing rules to try for even spreading, in addition to the one in use.
        engines: Other engine settings to try.
        even: The program with balanced computation; None if it is balanced.
    """
    announce(evaluate, _independent_changes(run, seeds, placements or {}, rules, engines))
    by_own_rule, by_any_rule = _best_spreadings(evaluate, rules, progress)
    # A placement may assume minimal routing: not making detours is no fault of the routing, even
    # if detours would help. If routing does make detours, minimal paths may be better.
    detours = run.scenario.fabric.routes in NON_MINIMAL_RULES
    charged = by_any_rule if detours else by_own_rule
    best = _best_placement(evaluate, placements or {}, charged, progress)
    todo = waterfall_steps(run, best, charged)
    announce(evaluate, _repetitions([step.change for step in todo if not step.skip], seeds))
    n_real = sum(not step.skip for step in todo)
    simulated = _times_of_steps(evaluate, todo, seeds, progress)
    floor = _floor(
        evaluate, placements or {}, (charged.rule, *rules), simulated, todo[0].change, run
    )
    varied = _variations(run, evaluate, todo, simulated, engines)
    saved = list[int]()
    if even is not None:
        saved = _saved_if_even(evaluate, even, simulated["other traffic"], engines, varied)
    if progress is not None:
        progress("removing causes", n_real / (n_real + 1))
    removed = _removed(evaluate, todo, simulated, seeds, by_any_rule, charged, placements or {})
    steps = SimulatedSteps(run, todo, simulated, varied, floor, wire_time_ps(run), removed, saved)
    return steps.waterfall()


def _saved_if_even(
    evaluate: Evaluate,
    even: Program,
    full: Sequence[int],
    engines: Sequence[EngineVariation],
    varied: Sequence[tuple[int, Mapping[str, int]]],
) -> list[int]:
    """Time saved by balanced computation; empty if it is negligible.

    Args:
        evaluate: Simulates a change.
        even: The program with balanced computation.
        full: Time of the run as it is in each repetition.
        engines: Other engine settings.
        varied: Times with each of them.
    """
    saved = [
        max(now - evaluate(Change(program=even, seed_offset=seed)).elapsed_ps, 0)
        for seed, now in enumerate(full)
    ]
    if sum(saved) < CLEARLY_FASTER * sum(full):
        return []
    times = [evaluate(Change(program=even, variation=engine)).elapsed_ps for engine in engines]
    pairs = zip(varied, times, strict=True)
    return [*saved, *(max(time["other traffic"] - ps, 0) for (_, time), ps in pairs)]


def _independent_changes(
    run: Run,
    seeds: int,
    placements: Placements,
    rules: Sequence[str],
    engines: Sequence[EngineVariation],
) -> list[Change]:
    """Changes that are simulated whatever the results of others are, those needed first first."""
    out = [spreading.change for spreading in (Spreading("deterministic"), *_by_rules(rules))]
    placed = [Change(placement=nodes, placement_name=name) for name, nodes in placements.items()]
    if not rules:
        out += [
            replace(change, network="healthy", routing="adaptive", background=False)
            for change in placed
        ]
    steps = [step.change for step in waterfall_steps(run) if not step.skip]
    out += _repetitions(steps, seeds)
    out += [replace(change, network="no-contention", background=False) for change in placed]
    out += [_with_settings(change, engine) for engine in engines for change in steps]
    return [*out, *placed]


def _with_settings(change: Change, engine: EngineVariation) -> Change:
    """The change with other settings of the engine, those that matter on its network.

    Without contention only delays and rates within hosts do. The latter must be those of the steps
    that follow: these would be charged with what slower transfers within hosts cost.
    """
    if change.network == "no-contention":
        engine = EngineVariation(delays=engine.delays, local_rates=engine.local_rates)
    return replace(change, variation=engine)


def _repetitions(changes: Sequence[Change], seeds: int) -> list[Change]:
    return [replace(change, seed_offset=seed) for change in changes for seed in range(seeds)]


def _variations(
    run: Run,
    evaluate: Evaluate,
    steps: Sequence[WaterfallStep],
    simulated: Mapping[str, Sequence[int]],
    engines: Sequence[EngineVariation],
) -> list[tuple[int, Mapping[str, int]]]:
    """Time of the run and of each step with each of the other engine settings, ps.

    Each is simulated with the first repetition's random choices.
    """
    out = list[tuple[int, Mapping[str, int]]]()
    for engine in engines:
        varied = [replace(step, change=_with_settings(step.change, engine)) for step in steps]
        every = _times_of_steps(evaluate, varied, 1, None)
        time = {name: times[0] for name, times in every.items()}
        ratio = time["other traffic"] / max(simulated["other traffic"][0], 1)
        out.append((round(run.elapsed_ps * ratio), time))
    return out


def _varied(
    run_ps: int,
    steps: Sequence[WaterfallStep],
    time: Mapping[str, int],
    wire_ps: int,
    receive_ps: int,
) -> VariedTimes:
    """Times of one variation, in the order of the bars.

    Args:
        run_ps: Time that the run takes in this variation.
        steps: The steps.
        time: Simulated time of each.
        wire_ps: As that of :func:`_bounded`.
        receive_ps: Likewise.
    """
    each = {name: [ps] for name, ps in time.items()}
    bounded = _bounded(each, time["ideal"], wire_ps, receive_ps)
    first = ["paths", *(["in-host"] if "in-host" in time else []), "injection"]
    order = [*first, *(step.name for step in steps if step.name not in ("ideal", "in-host"))]
    return VariedTimes({name: bounded[name][0] for name in order if name in bounded}, run_ps)


def _times_of_steps(
    evaluate: Evaluate,
    steps: Sequence[WaterfallStep],
    seeds: int,
    progress: Progress | None,
) -> dict[str, list[int]]:
    """Times of each step's repetitions; a skipped step takes as long as the previous one."""
    times: dict[str, list[int]] = {}
    real = [step for step in steps if not step.skip]
    for number, step in enumerate(steps):
        if step.skip:
            times[step.name] = times[steps[number - 1].name]
            continue
        if progress is not None:
            progress(f"simulating {step.name}", real.index(step) / (len(real) + 1))
        times[step.name] = _times(evaluate, step.change, seeds)
    return times


def _bounded(
    times: Mapping[str, list[int]], floor_ps: int, wire_ps: int, receive_ps: int
) -> dict[str, list[int]]:
    """Times of all bars but the last, with random differences clipped.

    Args:
        times: Times of the simulated steps.
        floor_ps: Lower bound of all times; ``ideal`` is set to it.
        wire_ps: Time that the busiest adapter needs to send its bytes.
        receive_ps: Time that a receiver needs for its bytes, where these are no cost of the
            pattern.
    """
    # Transfers within hosts cannot save time; a shorter simulation is a difference in the order of
    # events.
    within = [
        max(pair) for pair in zip(times["ideal"], times.get("in-host", times["ideal"]), strict=True)
    ]
    # Paths are shorter on the ideal switch; the time that this saves is not contention.
    injection = [
        max(time, wire_ps, min(receive_ps, star))
        for time, star in zip(within, times["pattern"], strict=True)
    ]
    # If the actual network is faster, the difference to the ideal switch is random.
    now = zip(injection, times["pattern"], times["placement"], strict=True)
    bounded = {
        **times,
        "paths": times["ideal"],
        "ideal": [floor_ps] * len(injection),
        "injection": injection,
        "pattern": [max(floor, min(star, real)) for floor, star, real in now],
    }
    if "in-host" in times:
        bounded["in-host"] = within
    if "network" in times:
        # If the actual placement is the best, placement costs nothing.
        pairs = zip(times["network"], times["placement"], strict=True)
        bounded["network"] = [min(tried, now) for tried, now in pairs]
        # The steps before it have the actual placement. What the best one saves of them, as ranks
        # then share a host, is the placement's: charged to both, one bar would undo the other.
        for name in {"paths", "in-host", "injection", "pattern"} & bounded.keys():
            pairs = zip(bounded[name], bounded["network"], strict=True)
            bounded[name] = [min(actual, best) for actual, best in pairs]
    return bounded


def _floor(
    evaluate: Evaluate,
    placements: Placements,
    rules: Sequence[str | None],
    times: Mapping[str, Sequence[int]],
    ideal: Change,
    run: Run,
) -> int:
    """Lower bound of all times: the shortest contention-free time over all changes tried.

    A different placement changes paths and which ranks share a host; a different rule changes
    paths. So each is simulated without contention. If contention happens to make the program
    faster, or the observed run took less time, that time is the bound.
    """
    tried = [replace(ideal, rule=rule) for rule in rules if rule is not None]
    tried += [
        replace(ideal, placement=nodes, placement_name=name, rule=rule)
        for name, nodes in placements.items()
        for rule in {None, rules[0]}
    ]
    shortest = [evaluate(change).elapsed_ps for change in tried]
    step_times = [time for step in times.values() for time in step]
    return min([*shortest, *step_times, run.elapsed_ps])


def _by_rules(rules: Sequence[str]) -> list[Spreading]:
    return [Spreading(rule=rule) for rule in rules]


def _best_spreadings(
    evaluate: Evaluate, rules: Sequence[str], progress: Progress | None
) -> tuple[Spreading, Spreading]:
    """The routing with which our job alone is fastest: by the network's own rule, and by any.

    Adaptive routing by the network's own rule, unless another is faster by :data:`CLEARLY_FASTER`.
    """
    tried: list[tuple[int, Spreading]] = []
    for spreading in (ADAPTIVE, Spreading("deterministic"), *_by_rules(rules)):
        if progress is not None:
            progress(str(spreading), 0.0)
        tried.append((evaluate(spreading.change).elapsed_ps, spreading))

    def fastest(among: Sequence[tuple[int, Spreading]]) -> Spreading:
        time, spreading = min(among, key=lambda pair: pair[0])
        return spreading if time < (1.0 - CLEARLY_FASTER) * tried[0][0] else ADAPTIVE

    return fastest(tried[:2]), fastest(tried)


def _best_placement(
    evaluate: Evaluate, placements: Placements, spreading: Spreading, progress: Progress | None
) -> tuple[str, NDArray[np.uint32]] | None:
    """The placement with which our job, alone and with this routing, is fastest."""
    tried: list[tuple[int, str]] = []
    for name, nodes in placements.items():
        if progress is not None:
            progress(f"placing by {name}", 0.0)
        change = replace(spreading.change, placement=nodes, placement_name=name)
        tried.append((evaluate(change).elapsed_ps, name))
    if not tried:
        return None
    name = min(tried)[1]
    return name, placements[name]


def _removed(
    evaluate: Evaluate,
    todo: list[WaterfallStep],
    times: dict[str, list[int]],
    seeds: int,
    best: Spreading,
    charged: Spreading,
    placements: Placements,
) -> dict[Cause, list[int]]:
    """Time saved by removing one cause from the full run, for each repetition.

    Changes that slow the run down, as adaptive routing may with other jobs, save 0. For the last
    cause, the waterfall already has the result. Routing is replaced by the ``best`` one,
    even if the waterfall does not use it (``charged``). The fastest placement in the
    full run may differ from that with adaptive routing: static routes favour regular ones.
    """
    full = times["other traffic"]
    step = {s.name: s for s in todo}
    changes: dict[str, Change] = {
        **({"in-host": Change(in_host="free")} if "in-host" in step else {}),
        "other traffic": Change(background=False),
        "slow links": Change(network="healthy"),
        "routing": Change(routing=best.routing, rule=best.rule),
    }
    if "network" in step:
        changes["placement"] = _fastest_placement(evaluate, placements, seeds)
    other = {"routing"} if best != charged else set[str]()
    active = [name for name in changes if not step[name].skip or name in other]
    order = [s.name for s in todo if not s.skip]
    simulated = [changes[name] for name in active if name != order[-1] or name in other]
    announce(evaluate, _repetitions(simulated, seeds))
    out: dict[Cause, list[int]] = {}
    for name in active:
        last = name == order[-1] and name not in other
        without = times[order[-2]] if last else _times(evaluate, changes[name], seeds)
        saved = [a - b for a, b in zip(full, without, strict=True)]
        if name == "placement":
            # If the actual placement is the best, another one saves nothing.
            saved = [max(ps, 0) for ps in saved]
        # Nothing is gained by a change that slows the run down.
        out[CAUSE_OF_STEP[name]] = saved if sum(saved) >= 0 else [0] * len(saved)
    return out


def _fastest_placement(evaluate: Evaluate, placements: Placements, seeds: int) -> Change:
    """The placement of the shortest mean time.

    Placements that take longer in the first repetition than the fastest on average are not
    repeated.
    """
    tried = [Change(placement=nodes, placement_name=name) for name, nodes in placements.items()]
    first = {id(change): evaluate(change).elapsed_ps for change in tried}
    fastest, shortest = tried[0], float("inf")
    for change in sorted(tried, key=lambda change: first[id(change)]):
        if first[id(change)] > shortest:
            break
        mean = sum(_times(evaluate, change, seeds)) / seeds
        if mean < shortest:
            fastest, shortest = change, mean
    return fastest


def _shares(
    run: Run,
    bars: list[WaterfallBar],
    removed: dict[Cause, list[int]],
    late: Sequence[int],
    full: Sequence[int],
) -> list[CauseShare]:
    """Cost of each cause, largest first; a step that saves time costs 0.

    Args:
        run: The run.
        bars: The waterfall.
        removed: Time saved without each cause in each repetition, ps.
        late: Time saved by balanced computation in each repetition, which is no step, ps.
        full: Time of each repetition with all causes, ps: savings are shares of their mean, as the
            gains of remedies are.
    """
    total = max(run.elapsed_ps, 1)
    charged: dict[Cause, list[float]] = {}
    if late:
        charged["imbalance"] = [ps / total for ps in (_mean(late), min(late), max(late))]
        removed = {**removed, "imbalance": list(late)}
    for bar in bars:
        if bar.name in CAUSE_OF_STEP:
            sums = charged.setdefault(CAUSE_OF_STEP[bar.name], [0.0, 0.0, 0.0])
            for i, ps in enumerate((bar.delta_ps, bar.low_ps, bar.high_ps)):
                sums[i] += max(ps, 0) / total
    out = []
    for cause, (value, low, high) in charged.items():
        saved = [ps * len(full) / max(sum(full), 1) for ps in removed.get(cause, [])]
        out.append(
            CauseShare(
                cause=cause,
                charged=value,
                low=low,
                high=high,
                removed=sum(saved) / len(saved) if saved else None,
                removed_low=min(saved) if saved else None,
                removed_high=max(saved) if saved else None,
            )
        )
    return sorted(out, key=lambda share: (-share.charged, share.cause))


def with_gains(shares: Sequence[CauseShare], gains: Mapping[Cause, Gain]) -> list[CauseShare]:
    """The costs, of which each cause that changes remove gains what the best of them does.

    These gains are means over more draws than the waterfall simulated, and those of the remedy.
    """

    def gained(share: CauseShare) -> CauseShare:
        gain = gains.get(share.cause)
        if gain is None:
            return share
        removed, low, high = (max(saved, 0.0) for saved in gain)
        update = {"removed": removed, "removed_low": low, "removed_high": high}
        return share.model_copy(update=update)

    return [gained(share) for share in shares]


def _times(evaluate: Evaluate, change: Change, seeds: int) -> list[int]:
    return [evaluate(replace(change, seed_offset=seed)).elapsed_ps for seed in range(seeds)]


def _bar(name: str, now: list[int], before: list[int], meaning: str) -> WaterfallBar:
    deltas = [a - b for a, b in zip(now, before, strict=True)]
    return WaterfallBar(
        name=name,
        elapsed_ps=_mean(now),
        delta_ps=_mean(now) - _mean(before),
        low_ps=min(deltas),
        high_ps=max(deltas),
        meaning=meaning,
    )


def _mean(values: Iterable[int]) -> int:
    items = list(values)
    return round(sum(items) / len(items))


REMAINDER = "remainder"
"""Displayed name of the step from the full simulation to the observed run."""


def displayed_bars(bars: Sequence[WaterfallBar]) -> list[WaterfallBar]:
    """The bars for display, with the difference to ``observed`` as a separate step.

    Args:
        bars: Waterfall of a diagnosis, ``observed`` last; may be empty.

    Returns:
        The bars with :data:`REMAINDER` before ``observed``, whose own delta is then 0. The step is
        omitted if no repetition differs from the observed time.
    """
    if not bars or bars[-1].name != "observed":
        return list(bars)
    *before, observed = bars
    if not (observed.delta_ps or observed.low_ps or observed.high_ps):
        return list(bars)
    remainder = observed.model_copy(
        update={
            "name": REMAINDER,
            "meaning": REMAINDER_MEANING,
        }
    )
    end = {"delta_ps": 0, "low_ps": 0, "high_ps": 0, "meaning": GIVEN}
    return [*before, remainder, observed.model_copy(update=end)]


def unexplained_share(bars: list[WaterfallBar]) -> float:
    """Share of the observed time not accounted for by re-simulating the known causes.

    Variation between repetitions is excluded; 0 without a waterfall.
    """
    observed = next((bar for bar in bars if bar.name == "observed"), None)
    if observed is None or observed.elapsed_ps <= 0:
        return 0.0
    return max(observed.low_ps, 0) / observed.elapsed_ps


def overshoot_share(bars: list[WaterfallBar]) -> float:
    """Share of the observed time by which the full simulation takes longer in every repetition.

    0 without a waterfall, or if the run took at least as long in a repetition.
    """
    observed = next((bar for bar in bars if bar.name == "observed"), None)
    if observed is None or observed.elapsed_ps <= 0:
        return 0.0
    return max(-observed.high_ps, 0) / observed.elapsed_ps
