"""The proof of a proposal: a packet simulation of our job under the original conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean

import polars as pl

from tailback.budget import optional
from tailback.diagnosis.model import MIN_GAIN, USER_KINDS, Candidate, Gain, Kind, Status
from tailback.errors import RunError, TailbackError
from tailback.evaluate import Change, EngineVariation, Evaluate, announce
from tailback.io.progress import Progress
from tailback.remedy.proposal import Proposal, RemedyContext
from tailback.remedy.screening import NO_TIME
from tailback.run.run import Run

CONFIRMED = 3
"""Repetitions after which a gain is stated.

Three of three are faster than three others by chance with probability 1 in 20, one of one with 1 in
2. :func:`prove` says when two suffice.
"""


MAX_LOSERS = 0.05
"""Share of the draws of an ensemble in which a recommended change may lose."""

MORE_DRAWS = 3
"""Times as many draws decide on a change that loses in too many, where no other helps: one that
loses in 2 % of all draws is then passed over with a probability of 1.4 %, not 6 %."""

Group = tuple[Kind, bool]
"""As :attr:`Proposal.group`."""


FIELD_OF_DRAWS, SEMIFINALISTS, FINALISTS = 2, 8, 3
"""Candidates of a class that are compared in one draw more than the observed, as a multiple of the
draws, of which simulations are affordable; in a quarter of the draws; and in all."""


def current_placement(run: Run) -> str:
    """Name of the placement that the observed job ran with."""
    jobs = run.tables["jobs"].filter("observed")
    return str(jobs["placement"][0]) if jobs.height else ""


def prove(
    proposals: Sequence[Proposal],
    evaluate: Evaluate,
    *,
    unchanged: str = "",
    estimates: Mapping[str, int] | None = None,
    seeds: int = 3,
    progress: Progress | None = None,
) -> list[Candidate]:
    """Simulate every proposal and sort by time. Those that could not be simulated come last.

    A proposal that is clearly slower than the fastest of its kind is simulated once only: no
    repetition would make it the remedy. Two repetitions suffice if both are clearly faster, or
    clearly slower, than the unchanged run. Otherwise the fastest proposal that improves on the
    unchanged run gets at least :data:`CONFIRMED` repetitions, as does the unchanged run, even if
    fewer were requested.

    Args:
        proposals: What to try; the unchanged run may be one of them.
        evaluate: Simulates a change packet by packet.
        unchanged: Name of the unchanged run, which is always repeated: others are compared with it.
        estimates: Times by the fluid model, by name, to be recorded with the candidates.
        seeds: Repetitions with other random choices, at least 1.
        progress: Called with the proposal and the share done, 0–1.

    Raises:
        RunError: ``seeds`` is below 1.
    """
    if seeds < 1:
        raise RunError(f"seeds = {seeds}", remedy="give at least 1 repetition")
    trials = [_Trial(proposal, (estimates or {}).get(proposal.name, 0)) for proposal in proposals]
    announce(
        evaluate,
        [
            trial.change(seed)
            for trial in trials
            for seed in range(seeds if trial.proposal.name == unchanged else 1)
        ],
    )
    for number, trial in enumerate(trials):
        if progress is not None:
            name = f"trying {trial.proposal.kind} {trial.proposal.name}"
            progress(name, number / len(proposals))
        trial.repeat(evaluate, 1)
    before = next((trial for trial in trials if trial.proposal.name == unchanged), None)
    if before is not None:
        before.repeat(evaluate, seeds)
    ordered = sorted(trials, key=lambda trial: fastest_first(trial.candidate))
    quickest: dict[Group, _Trial] = {}
    for trial in ordered:
        quickest.setdefault(trial.proposal.group, trial)
    # The fastest of each kind come first: the others are compared with their repetitions.
    for compared in (
        list(quickest.values()),
        [trial for trial in ordered if trial not in quickest.values()],
    ):
        _repeat(compared, quickest, before, evaluate, seeds)
    if before is not None and not before.error:
        for group in quickest:
            _confirm([t for t in ordered if t.proposal.group == group], before, evaluate)
    return sorted((trial.candidate for trial in trials), key=fastest_first)


def _repeat(
    trials: Sequence[_Trial],
    quickest: Mapping[Group, _Trial],
    before: _Trial | None,
    evaluate: Evaluate,
    seeds: int,
) -> None:
    """Repeat trials that may be the fastest of their kind, as often as they need."""
    contenders = [
        trial
        for trial in trials
        if trial is quickest[trial.proposal.group]
        or not trial.slower_than(quickest[trial.proposal.group])
    ]
    for at_least in (min(seeds, 2), seeds):
        if at_least > 2 and before is not None:
            contenders = [
                trial
                for trial in contenders
                if not (trial.slower_than(before) or before.slower_than(trial))
            ]
        announce(
            evaluate,
            [
                trial.change(seed)
                for trial in contenders
                if not trial.error
                for seed in range(len(trial.times_ps), at_least)
            ],
        )
        for trial in contenders:
            trial.repeat(evaluate, at_least)


def _confirm(trials: Sequence[_Trial], before: _Trial, evaluate: Evaluate) -> None:
    """Repeat trials of one kind until the fastest improvement, if any, has enough repetitions."""
    while True:
        better = [
            trial
            for trial in trials
            if trial is not before and is_improvement(trial.candidate, before.candidate)
        ]
        best = min(better, key=lambda trial: fastest_first(trial.candidate), default=None)
        pair = [] if best is None else [best, before]
        fewest = min((len(trial.times_ps) for trial in pair), default=CONFIRMED)
        if fewest >= CONFIRMED or (best is not None and fewest > 1 and before.slower_than(best)):
            return
        for trial in pair:
            trial.repeat(evaluate, fewest + 1)
            if trial.error or len(trial.times_ps) <= fewest:
                return


def fastest_first(candidate: Candidate) -> tuple[bool, int, str]:
    """Sort key: fastest first, those that were not simulated last."""
    return not candidate.proved, candidate.elapsed_ps, candidate.name


def not_simulated(
    proposal: Proposal, status: Status, reason: str, estimate_ps: int = 0
) -> Candidate:
    """A proposal that is not simulated, and why."""
    return Candidate(
        name=proposal.name,
        kind=proposal.kind,
        variant=proposal.variant,
        parts=proposal.parts,
        part_kinds=proposal.part_kinds,
        action=proposal.action,
        assumes=proposal.assumes,
        openmpi_options=proposal.openmpi_options,
        estimate_ps=estimate_ps,
        status=status,
        reason=reason,
    )


@dataclass(eq=False)
class _Trial:
    """Simulations of one proposal.

    Attributes:
        proposal: The proposal.
        estimate_ps: Its time by the fluid model, 0 if unknown.
        times_ps: Time of each repetition so far.
        path_length: Average number of switches on the way of a packet.
        congested: Share of packet-hops that were congested.
        error: Why it is not simulated.
        status: The status of one that is not.
    """

    proposal: Proposal
    estimate_ps: int
    times_ps: list[int] = field(default_factory=list)
    path_length: float = 0.0
    congested: float | None = None
    error: str = ""
    status: Status = Status.FAILED

    def change(self, seed: int) -> Change:
        """The change that a repetition simulates.

        Congestion is measured once. The other repetitions only give the spread of the time.
        """
        return replace(self.proposal.change, seed_offset=seed, measure=seed == 0)

    def repeat(self, evaluate: Evaluate, seeds: int) -> None:
        """Simulate until there are ``seeds`` repetitions, or no time is left."""
        try:
            with optional("remedies"):
                for seed in range(len(self.times_ps), 0 if self.error else seeds):
                    run = evaluate(self.change(seed))
                    self.times_ps.append(run.elapsed_ps)
                    if seed == 0:
                        self.path_length = float(run.summary.get("average_path_length", 0.0))
                        self.congested = congested_hops(run)
        except TailbackError as error:
            self.error = str(error)
        if not (self.times_ps or self.error):
            self.error, self.status = NO_TIME, Status.NO_TIME

    def slower_than(self, other: _Trial) -> bool:
        """Whether it is slower than ``other`` in every repetition of both.

        The gap must be twice as large as repetitions differ, and larger than the smallest gain.
        """
        if self.error or other.error:
            return bool(self.error)
        (low, high), (faster, slower) = (
            (min(trial.times_ps), max(trial.times_ps)) for trial in (self, other)
        )
        return low > slower + max(2 * (high - low), 2 * (slower - faster), MIN_GAIN * slower)

    @property
    def candidate(self) -> Candidate:
        """The proposal with its times of the repetitions so far."""
        if self.error:
            return not_simulated(self.proposal, self.status, self.error, self.estimate_ps)
        proposal, times = self.proposal, self.times_ps
        return Candidate(
            name=proposal.name,
            kind=proposal.kind,
            variant=proposal.variant,
            parts=proposal.parts,
            part_kinds=proposal.part_kinds,
            action=proposal.action,
            assumes=proposal.assumes,
            openmpi_options=proposal.openmpi_options,
            estimate_ps=self.estimate_ps,
            elapsed_ps=round(sum(times) / len(times)),
            low_ps=min(times),
            high_ps=max(times),
            repetitions=len(times),
            path_length=self.path_length,
            congested_fraction=self.congested,
        )


def congested_hops(run: Run) -> float | None:
    """Congested packet-hops over packet-hops of our job, as the simulation counted them.

    None if telemetry is off: ``[telemetry] scheme = "off"``.
    Injection links are left out: an adapter that holds a message is busy, not congested.
    """
    if run.scenario.telemetry.scheme == "off":
        return None
    inner = run.tables["links"].filter(~pl.col("from_node"))["link"]
    truth = run.tables["truth"].filter(pl.col("link").is_in(inner.implode()))
    packets = float(truth["observed_packets"].sum())
    return float(truth["observed_congested_packets"].sum()) / packets if packets > 0 else 0.0


def gains_as_stated(candidate: Candidate, before: Candidate) -> bool:
    """Whether it gains :data:`MIN_GAIN` on average over the ensemble.

    Without an ensemble, its slowest repetition must also beat all before.
    """
    if not candidate.proved or candidate.elapsed_ps <= 0 or before.elapsed_ps <= 0:
        return False
    if candidate.gain is not None:
        return candidate.gain >= MIN_GAIN
    return mean_gain(candidate, before) >= MIN_GAIN and candidate.high_ps < before.low_ps


def is_improvement(candidate: Candidate, before: Candidate) -> bool:
    """Whether it gains so much as the scenario states the engine, and gains with other settings."""
    certain = candidate.gain_low is None or candidate.gain_low > 0
    return certain and gains_as_stated(candidate, before)


def improvements(
    candidates: Sequence[Candidate], unchanged: str
) -> tuple[Candidate | None, list[Candidate]]:
    """The unchanged run, if it was simulated, and the candidates that help, best first."""
    before = next((c for c in candidates if c.name == unchanged and c.proved), None)
    if before is None:
        return None, []
    better = [c for c in candidates if c.name != unchanged and is_improvement(c, before)]
    # Without the comparison in all draws a gain may be chance.
    compared = [c for c in better if c.ensemble or not any(each.ensemble for each in candidates)]
    return before, sorted(compared, key=lambda c: (-mean_gain(c, before), c.name))


def mean_gain(candidate: Candidate, before: Candidate) -> float:
    """Share of the time that a candidate saves, on average over the ensemble, or repetitions."""
    return (
        candidate.gain
        if candidate.gain is not None
        else 1.0 - candidate.elapsed_ps / before.elapsed_ps
    )


def gain_of(candidate: Candidate, before: Candidate) -> Gain:
    """Share of the time that a candidate saves, with its range."""
    low, high = candidate.gain_low, candidate.gain_high
    if low is None or high is None:
        low = 1.0 - candidate.high_ps / before.low_ps
        high = 1.0 - candidate.low_ps / before.high_ps
    return Gain(mean_gain(candidate, before), low, high)


def with_gain_intervals(
    run: Run,
    candidates: Sequence[Candidate],
    before: Candidate,
    changes: Mapping[str, Change],
    context: RemedyContext,
    usable: frozenset[Kind] = USER_KINDS,
    progress: Progress | None = None,
) -> list[Candidate]:
    """The candidates; those that may be recommended with their gains over an ensemble.

    A gain is the difference between two simulations with the same random choices, the same draw of
    others' traffic and the same engine settings: those of the scenario in every draw, and the
    engines of the context. The fastest of each class (kinds that users can apply, usable ones, all,
    and each kind alone) are compared in a quarter of the draws, where each draw halves the field,
    and the best of these in all. If a candidate loses with one of the engines, or in more draws
    than :data:`MAX_LOSERS` allows, the next one is compared too. Then parts of the best change are,
    if they are about as fast as all of it.

    Args:
        run: The observed run.
        candidates: The proved candidates.
        before: The unchanged run.
        changes: The change of each candidate, by name.
        context: How to simulate, in how many draws, and with which other engine settings.
        usable: Kinds of change that are recommended before others.
        progress: Called with what is compared and the share done, 0–1.
    """
    step = progress or (lambda _what, _share: None)
    engines = [Change(variation=e) for e in _engines_that_matter(run, context.engines)]
    faster = [
        c
        for c in sorted(candidates, key=fastest_first)
        if c.proved and c.name != before.name and c.elapsed_ps < before.elapsed_ps
    ]
    repeated = min((c.repetitions for c in [*faster, before]), default=1)
    draws = _draws(repeated, max(context.draws, before.repetitions))
    count = max(len(draws) // 4, min(len(draws), CONFIRMED))
    few = draws[:: len(draws) // count][:count]
    everything = frozenset[Kind]().union(*(candidate.kinds for candidate in faster))
    widest = max(FIELD_OF_DRAWS * len(draws), SEMIFINALISTS)
    classes = [
        _distinct([c for c in faster if c.kinds <= kinds])[:widest]
        for kinds in (USER_KINDS, usable, everything)
    ]
    compared: dict[str, Candidate] = {}
    with optional("intervals of gains"):
        for number, contenders in enumerate(classes):
            step(f"comparing changes in {len(draws)} draws", number / (len(classes) + 1))
            ordered = _semifinalists(contenders, changes, few, context)
            most = FINALISTS if len(draws) > CONFIRMED else 1
            _compare(ordered, most, compared, before, changes, (draws, engines), context)
            _decide_in_more_draws(ordered, compared, before, changes, (draws, engines), context)
        step(f"comparing changes in {len(draws)} draws", len(classes) / (len(classes) + 1))
        simpler = _simpler_than_best(faster, compared, before)[:FINALISTS]
        _compare(simpler, FINALISTS, compared, before, changes, (draws, engines), context)
        for kind in sorted(everything):
            alone = [c for c in faster if c.kinds == {kind}]
            _compare(alone, 1, compared, before, changes, (draws, engines), context)
    return [compared.get(candidate.name, candidate) for candidate in candidates]


def _simpler_than_best(
    faster: Sequence[Candidate], compared: Mapping[str, Candidate], before: Candidate
) -> list[Candidate]:
    """Parts of the best compared change that are about as fast as all of it, the fewest first."""
    helping = [c for c in compared.values() if is_improvement(c, before)]
    best = max(helping, key=lambda c: (mean_gain(c, before), c.name), default=None)
    if best is None:
        return []
    fewer = [c for c in faster if {*(c.parts or (c.name,))} < {*best.parts}]
    alike = [c for c in fewer if best.elapsed_ps > (1 - MIN_GAIN) * c.elapsed_ps]
    return sorted(alike, key=lambda c: (len(c.kinds), fastest_first(c)))


def _distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates, of those with the same times only the simplest: further parts do nothing."""
    simplest: dict[tuple[int, ...], Candidate] = {}
    for candidate in sorted(candidates, key=lambda c: (len(c.kinds), fastest_first(c))):
        times = candidate.elapsed_ps, candidate.low_ps, candidate.high_ps, candidate.repetitions
        simplest.setdefault(times, candidate)
    return sorted(simplest.values(), key=fastest_first)


def _semifinalists(
    contenders: Sequence[Candidate],
    changes: Mapping[str, Change],
    few: Sequence[Change],
    context: RemedyContext,
) -> list[Candidate]:
    """The contenders that lose in the fewest of some draws, then those that gain most in them.

    The field is halved after each draw: what is fastest in the draw that was observed may lose in
    most others.
    """
    field, seen = list(contenders), min(2, len(few))
    while True:
        seen = seen if len(field) > SEMIFINALISTS else len(few)
        gains = {c.name: _paired_gains(changes[c.name], few[:seen], context) for c in field}
        field.sort(key=lambda c: (sum(g <= 0 for g in gains[c.name]), -mean(gains[c.name])))
        if seen == len(few):
            return field[:SEMIFINALISTS]
        field = field[: max(SEMIFINALISTS, (len(field) + 1) // 2)]
        seen += 1


def _compare(
    contenders: Sequence[Candidate],
    most: int,
    compared: dict[str, Candidate],
    before: Candidate,
    changes: Mapping[str, Change],
    ensemble: tuple[Sequence[Change], Sequence[Change]],
    context: RemedyContext,
) -> None:
    """Compare contenders with the unchanged run until ``most`` are compared and one of them helps.

    Args:
        contenders: The most promising first.
        most: How many to compare if one helps.
        compared: Those that were compared, by name; added to.
        before: The unchanged run.
        changes: The change of each candidate, by name.
        ensemble: Draws, and other engine settings.
        context: How to simulate.
    """
    draws, engines = ensemble
    helps = False
    for number, candidate in enumerate(contenders):
        if helps and number >= most:
            return
        if candidate.name not in compared:
            change = changes[candidate.name]
            compared[candidate.name] = _with_interval(candidate, change, draws, engines, context)
        helps = helps or is_improvement(compared[candidate.name], before)


def _decide_in_more_draws(
    contenders: Sequence[Candidate],
    compared: dict[str, Candidate],
    before: Candidate,
    changes: Mapping[str, Change],
    ensemble: tuple[Sequence[Change], Sequence[Change]],
    context: RemedyContext,
) -> None:
    """Compare the contender that gains most in more draws, if none helps and that may be chance.

    Args:
        contenders: The contenders of a class.
        compared: Those that were compared, by name; one is replaced.
        before: The unchanged run.
        changes: The change of each candidate, by name.
        ensemble: Draws so far, and other engine settings.
        context: How to simulate.
    """
    draws, engines = ensemble
    mine = [compared[c.name] for c in contenders if c.name in compared]
    if any(is_improvement(candidate, before) for candidate in mine):
        return
    more = [*draws, *_draws(0, MORE_DRAWS * len(draws))[len(draws) :]]
    losers = {
        c.name: sum(gain <= 0 for gain in _paired_gains(changes[c.name], draws, context))
        for c in mine
    }
    undecided = [
        candidate
        for candidate in mine
        if gains_as_stated(candidate, before) and losers[candidate.name] <= MAX_LOSERS * len(more)
    ]
    best = max(undecided, key=lambda c: (mean_gain(c, before), c.name), default=None)
    if best is not None:
        change = changes[best.name]
        compared[best.name] = _with_interval(best, change, more, engines, context)


def _with_interval(
    candidate: Candidate,
    change: Change,
    draws: Sequence[Change],
    engines: Sequence[Change],
    context: RemedyContext,
) -> Candidate:
    """The candidate with its gain in draws, and its range in them and with other engines."""
    gains = _paired_gains(change, draws, context)
    varied = _paired_gains(change, engines, context)
    kept = [*sorted(gains)[int(MAX_LOSERS * len(gains)) :], *varied]
    update = {
        "gain": mean(gains),
        "gain_low": min(kept),
        "gain_high": max(kept),
        "ensemble": len(gains),
    }
    return candidate.model_copy(update=update)


def _draws(repeated: int, draws: int) -> list[Change]:
    """The draws of an ensemble: first the repetitions, then those with other traffic of others."""
    return [
        Change(seed_offset=n, others_draw=n if n >= repeated else 0, measure=n == 0)
        for n in range(draws)
    ]


def _paired_gains(
    change: Change, conditions: Sequence[Change], context: RemedyContext
) -> list[float]:
    """What a change gains under each condition: a draw, or another engine setting."""
    evaluate = context.evaluate
    pairs = [
        [
            replace(
                base,
                seed_offset=condition.seed_offset,
                others_draw=condition.others_draw,
                measure=condition.measure,
                variation=condition.variation,
            )
            for base in (change, Change())
        ]
        for condition in conditions
    ]
    announce(evaluate, [varied for pair in pairs for varied in pair])
    gains = list[float]()
    for changed, unchanged in pairs:
        after, before = evaluate(changed).elapsed_ps, evaluate(unchanged).elapsed_ps
        gains.append(1 - after / before)
    return gains


def with_sensitivity(candidate: Candidate, change: Change, context: RemedyContext) -> Candidate:
    """The candidate, with the engine setting that lowers its gain most.

    Args:
        candidate: A proved candidate.
        change: How it is simulated.
        context: How to simulate, and the settings by name.
    """
    update: dict[str, str | float] = {}
    with optional("intervals of gains"):
        names = list(context.settings)
        gains = _paired_gains(
            change, [Change(variation=context.settings[name]) for name in names], context
        )
        if names:
            least, name = min(zip(gains, names, strict=True))
            update = {"sensitive_to": name, "sensitive_gain": least}
    return candidate.model_copy(update=update)


def _engines_that_matter(run: Run, engines: Sequence[EngineVariation]) -> list[EngineVariation]:
    """The engines, without those that differ only in rates that no message of the job has."""
    section = run.scenario.engine
    if section.local_rates("low") != section.local_rates("high") and _shares_hosts(run):
        return list(engines)
    apart = [replace(engine, local_rates="as-is") for engine in engines]
    return [engine for engine in dict.fromkeys(apart) if engine != EngineVariation()]


def _shares_hosts(run: Run) -> bool:
    """Whether a host has several ranks of the observed job."""
    observed = run.tables["jobs"].filter("observed")["job"]
    ranks = run.tables["ranks"].filter(pl.col("job").is_in(observed.implode()))
    hosts = ranks.join(run.tables["nodes"].select("node", "host"), on="node")["host"]
    return hosts.n_unique() < hosts.len()
