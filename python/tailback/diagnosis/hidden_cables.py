"""Search for slow cables in a measured run that the scenario does not list.

A slow cable is a hypothesis that predicts the evidence: the time each rank spends in each of its
calls (:mod:`tailback.evidence.call_profile`), the stall time of ports, and the time of the run.
Cables are tried one at a time with several rates, then in combination. A cable is reported as the
cause only if the simulation with it agrees far better with all the evidence, accounts for the
additional time of the run, and does both better than every other cable. Otherwise the time remains
unexplained, and the cables that explain it equally well are listed as candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tailback.evaluate import Change, Evaluate
from tailback.fabric.degraded import SlowLink, within_engine
from tailback.fabric.model import Fabric
from tailback.run import Run

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_RATES = 4
"""Maximum number of rates tried for a cable."""

FIRST_SHARES = (0.25, 0.6)
"""Share of the nominal rate tried first for each cable: from the lower value, if most of the time
is missing, to the higher one, if almost none is. Far too low a rate makes all ranks wait, whichever
cable it is."""

MAX_SHARE = 0.95
"""Share of its nominal rate above which a cable does not count as slow."""

MIN_MISFIT_REDUCTION = 0.6
"""Share of the misfit to the evidence that a cable must remove. Any slow cable removes some of it
by making ranks wait: the best one removes 0.48 in the healthy run of the real-packet lab, and the
correct one 0.80 in the run with a slow cable."""

MAX_NAMED_MISFIT = 0.8
"""Largest misfit at which a cable is reported as possibly slow: in two blind runs with weak
evidence, wrong cables left 0.89 to 1, and the correct one of the second run 0.76."""

MIN_TIME_EXPLAINED = 0.4
"""Share of the missing time that a cable must explain."""

MAX_TIME_RATIO = 1.03
"""Ratio of simulated to measured time above which a hypothesis is rejected: its cost exceeds the
missing time."""

REFINE_MISFIT, STOP_MISFIT = 0.4, 0.03
"""Misfit at the first rate below which the rate of a cable is fitted immediately, and misfit at the
fitted rate below which no further cable is tried: only an adjacent one could fit as well."""

MIN_MISFIT = 0.0005
"""Misfit of the run without slow cables below which there is nothing to explain: call times agree
to 2 % up to a common factor. In a halo exchange all ranks soon wait equally long; only the lead
that each built up before that locates the slow cable."""

AGREEING_MISFIT = 0.02
"""Misfit without slow cables at which a kind of evidence gets half its weight: healthy runs of
simulated machines differ from the model by 0.001 to 0.015."""

DISTINCT_MISFIT_RATIO = 0.5
"""Largest ratio of the best cable's misfit to another's at which the other is ruled out: with
adaptive or hashed routing, the paths of messages are unknown."""

MAX_LINK_MISFIT = 0.57
"""Misfit to per-link evidence, relative to that without slow cables, above which a cable is ruled
out: any slow cable makes all ranks wait, but only ports upstream of it stall. The correct cables
left 0 to 0.33 on three simulated machines and 0.53 on a fourth with other traffic; the best wrong
one left 0.61 on a fifth."""

MAX_ONE_WAY = 8
"""Maximum number of suspects per list whose directions are tried separately: where only one
direction was slow, the correct cable was among the first four."""

ONE_WAY_MISFIT_RATIO = 0.8
"""Largest ratio of the misfit with one slow direction to that with both at which only that
direction counts as slow: most faulty cables are slow in both. With one slow direction, the ratio
was 0.06."""

SEVERAL_MISFIT = 0.1
"""Misfit of the best single cable above which combinations of two or three are tried: a single
correct cable left 0.006 and 0.012 on two simulated machines with counters."""

MAX_REFINED = 6
"""Maximum number of cables whose rate is fitted after all were tried at one rate."""

MAX_CABLES = 3
"""Maximum number of slow cables in a hypothesis."""


MODEL_ERROR = 0.05
"""Standard error of the simulated time of a run, as a share of it."""

MISFIT_WEIGHT = 4.0
"""Weight of the misfit to calls and stalls, relative to that without hidden causes: a misfit of 1
counts as much as a time that is off by two standard errors."""


class Misfit(Protocol):
    """Distance of a simulation from one kind of evidence; 0 means no difference."""

    def __call__(self, run: Run) -> float | None:
        """The misfit of a run; None if it cannot be compared."""


@dataclass(frozen=True)
class Trial:
    """Result of simulating a set of slow cables.

    Attributes:
        cables: The links.
        misfit: Distance from the evidence, relative to that of the run without slow cables.
        elapsed_ps: Simulated time of the run with these cables.
        link_misfit: The same for per-link evidence only; None if there is none.
    """

    cables: tuple[SlowLink, ...]
    misfit: float
    elapsed_ps: int
    link_misfit: float | None = None

    @property
    def contradicted(self) -> bool:
        """Whether per-link evidence contradicts these cables."""
        return self.link_misfit is not None and self.link_misfit > MAX_LINK_MISFIT


@dataclass(frozen=True)
class CableSearch:
    """Result of the search.

    Attributes:
        found: The slow cables; None if the evidence is not conclusive.
        rivals: Other single cables that explain the evidence as well as the best one.
        best: The best trial; None if there was none.
        tried: Number of simulations.
    """

    found: Trial | None = None
    rivals: tuple[Trial, ...] = ()
    best: Trial | None = None
    tried: int = 0


@dataclass
class _HiddenCableSearch:
    evaluate: Evaluate
    comparisons: Sequence[Misfit]
    measured_ps: int
    healthy: Run
    nominal: Floats
    base: list[float] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    measure: bool = True
    most_trials: int = 1000
    tried: int = 0

    @property
    def exhausted(self) -> bool:
        """Whether the simulation budget is used up."""
        return self.tried >= self.most_trials

    @property
    def expected_ps(self) -> int:
        """Time of the run without slow cables."""
        return self.healthy.elapsed_ps

    def start(self) -> bool:
        """Set baseline misfits and weights; False if there is nothing to compare or explain."""
        misfits = [compare(self.healthy) for compare in self.comparisons]
        self.comparisons = [
            compare
            for compare, misfit in zip(self.comparisons, misfits, strict=True)
            if misfit is not None
        ]
        known = [misfit for misfit in misfits if misfit is not None]
        # Evidence that already agrees carries little information.
        self.weights = [
            float(getattr(compare, "weight", 1.0)) * misfit / (misfit + AGREEING_MISFIT)
            for compare, misfit in zip(self.comparisons, known, strict=True)
        ]
        self.base = known
        return max(known, default=0.0) >= MIN_MISFIT

    def attempt(self, cables: tuple[SlowLink, ...]) -> Trial:
        """Simulate slow cables."""
        self.tried += 1
        cables = within_engine(cables)
        run = self.evaluate(Change(slow=cables, computations=True, measure=self.measure))
        # Per kind of evidence: log-likelihood of normal errors of unknown variance.
        misfits = [compare(run) for compare in self.comparisons]
        logs = [
            0.0 if now is None else weight * math.log((now + MIN_MISFIT) / (base + MIN_MISFIT))
            for now, base, weight in zip(misfits, self.base, self.weights, strict=True)
        ]
        compared = zip(self.comparisons, misfits, self.base, strict=True)
        link_ratios = [
            now / base for compare, now, base in compared
            if getattr(compare, "per_link", False) and now is not None and base >= AGREEING_MISFIT
        ]  # fmt: skip
        misfit = math.exp(sum(logs) / sum(self.weights))
        return Trial(cables, misfit, run.elapsed_ps, max(link_ratios, default=None))

    def fits_time(self, trial: Trial) -> bool:
        """Whether the trial explains enough of the missing time without exceeding it."""
        missing = max(self.measured_ps - self.expected_ps, 1)
        return (
            trial.elapsed_ps <= MAX_TIME_RATIO * self.measured_ps
            and trial.elapsed_ps - self.expected_ps >= MIN_TIME_EXPLAINED * missing
        )

    def distance(self, trial: Trial) -> float:
        """Distance from the evidence and the measured time: the objective for fitting rates."""
        off = (trial.elapsed_ps - self.measured_ps) / (MODEL_ERROR * self.measured_ps)
        return trial.misfit + off**2 / MISFIT_WEIGHT

    def is_conclusive(self, singles: Sequence[Trial]) -> bool:
        """Whether the search can stop.

        Call times alone are not sufficient: all ranks wait for one another, so an adjacent cable
        may fit nearly as well as the correct one, which may come later in the list.
        """
        several = len(self.comparisons) > 1
        return several and any(single.misfit < STOP_MISFIT for single in singles)

    def first(self, before: tuple[SlowLink, ...], link: int, both: bool = True) -> Trial | None:
        """Trial of a cable at the first rate; None if the cable carries too little traffic."""
        missing = max(self.measured_ps - self.expected_ps, 1)
        low, high = FIRST_SHARES
        share = max(high - (high - low) * 1.5 * missing / self.measured_ps, low)
        nominal = float(self.nominal[link])
        trial = self.attempt((*before, SlowLink(link, share * nominal, both)))
        if trial.elapsed_ps - self.expected_ps < 0.02 * missing:
            return None
        ratio = trial.elapsed_ps / self.measured_ps
        if ratio > MAX_TIME_RATIO and share * ratio < MAX_SHARE:
            # Excessive waiting of all ranks hides the differences between cables.
            trial = self.attempt((*before, SlowLink(link, share * ratio * nominal, both)))
        return trial

    def best_rate(self, first: Trial) -> Trial | None:
        """Fit the rate of the last cable so that the simulated time matches the measured one.

        The time grows as the rate falls: with its inverse, once the cable is the bottleneck. None
        if the run takes too long at every rate tried.
        """
        *before, (link, rate, both) = first.cables
        share, trial = rate / float(self.nominal[link]), first
        best: Trial | None = None
        missing = max(self.measured_ps - self.expected_ps, 1)
        for _ in range(MAX_RATES):
            fits = trial.elapsed_ps <= MAX_TIME_RATIO * self.measured_ps
            if fits and (best is None or self.distance(trial) < self.distance(best)):
                best = trial
            if abs(trial.elapsed_ps - self.measured_ps) <= 0.05 * missing:
                break
            change = trial.elapsed_ps / self.measured_ps
            share *= float(np.clip(change if change > 1 else change**1.5, 0.4, 2.2))
            if not 0.02 < share < MAX_SHARE or self.exhausted:
                break
            rate = share * float(self.nominal[link])
            trial = self.attempt((*before, SlowLink(link, rate, both)))
        return best

    def screen(
        self, suspects: Sequence[int], progress: Callable[[str, float], None] | None
    ) -> tuple[list[Trial], list[Trial]]:
        """Single-cable trials of all suspects: with fitted rates, and at the first rate only.

        Every suspect is tried at one rate before more rates are fitted: any cable that all ranks
        wait for fits well, but the correct one fits far better.
        """
        screened, singles = list[Trial](), list[Trial]()
        best = REFINE_MISFIT / DISTINCT_MISFIT_RATIO
        for number, link in enumerate(suspects):
            if progress is not None:
                progress("looking for slow cables", number / len(suspects))
            trial = self.first((), link)
            if trial is None:
                continue
            # Far better than all before: the search may be able to stop here.
            promising = trial.misfit < DISTINCT_MISFIT_RATIO * best
            best = min(best, trial.misfit)
            refined = self.best_rate(trial) if promising else None
            if refined is None:
                screened.append(trial)
                continue
            singles.append(refined)
            best = min(best, refined.misfit)
            if self.is_conclusive(singles):
                break
        screened.sort(key=_misfit)
        return singles, screened

    def one_way(
        self, both_ways: Sequence[Trial], ahead: Sequence[int], reverse: Ints, most: int
    ) -> list[Trial]:
        """One-direction trials of the best cables, and of links downstream of stalled ports.

        Only those that fit clearly better than the cable slowed in both directions.
        """
        known = {trial.cables[0].link: trial.misfit for trial in reversed(both_ways)}
        best = [trial.cables[0].link for trial in both_ways[: most // 2]]
        tried = [*ahead[:most], *(way for link in best for way in (link, int(reverse[link])))]
        out = []
        for link in dict.fromkeys(tried):
            if self.exhausted:
                break
            trial = self.first((), link, both=False)
            whole = known.get(min(link, int(reverse[link])), math.inf)
            if trial is not None and trial.misfit < ONE_WAY_MISFIT_RATIO * whole:
                out.append(trial)
        return sorted(out, key=_misfit)

    def single_cables(
        self,
        suspects: Sequence[int],
        ahead: Sequence[int],
        reverse: Ints,
        progress: Callable[[str, float], None] | None,
    ) -> tuple[list[Trial], list[Trial]]:
        """Single-cable trials: those with fitted rates, and those at the first rate only.

        Both are sorted by misfit. The second explain too little to be pursued alone.
        """
        singles, screened = self.screen(suspects, progress)
        if not self.is_conclusive(singles):
            both_ways = sorted([*singles, *screened], key=_misfit)
            most = _likeliest(len(suspects))
            screened += self.one_way(both_ways, ahead, reverse, most)
            screened.sort(key=_misfit)
            refined = map(self.best_rate, sorted(screened, key=_rank)[:MAX_REFINED])
            singles += [trial for trial in refined if trial is not None]
        singles.sort(key=_rank)
        return singles, screened

    def parallel(self, best: Trial, fabric: Fabric) -> list[Trial]:
        """Trials with the same rate on each link that routing may use instead of the best one.

        These ignore the simulation budget: only they show whether the link is ambiguous.
        """
        ((link, rate, both),) = best.cables
        trials = [
            self.attempt((SlowLink(other, rate, both),)) for other in _parallel_links(link, fabric)
        ]
        return [trial for trial in trials if self.fits_time(trial)]

    def tuned(self, trial: Trial) -> Trial:
        """Refine the rate of the last cable in small steps."""
        for step in (0.85, 1.18, 0.93, 1.08):
            *others, (link, rate, both) = trial.cables
            if rate * step >= float(self.nominal[link]) or self.exhausted:
                continue
            tried = self.attempt((*others, SlowLink(link, rate * step, both)))
            fits = tried.elapsed_ps <= MAX_TIME_RATIO * self.measured_ps
            if fits and self.distance(tried) < self.distance(trial):
                trial = tried
        return trial


def search_cables(
    evaluate: Evaluate,
    comparisons: Sequence[Misfit],
    suspects: Sequence[int],
    fabric: Fabric,
    *,
    measured_ps: int,
    healthy: Run,
    measure: bool,
    ahead: Sequence[int] = (),
    most_trials: int = 1000,
    progress: Callable[[str, float], None] | None = None,
) -> CableSearch:
    """Look for slow cables that explain the evidence.

    Args:
        evaluate: Simulates a change of the expected run.
        comparisons: Kinds of evidence.
        suspects: One link of each cable to try, most likely first.
        fabric: The fabric.
        measured_ps: Time measured in and between calls.
        healthy: The expected run without slow cables, with the data that the comparisons need.
        measure: Whether a comparison needs link measurements.
        ahead: Links that stalled ports wait for, from counters: only this direction may be slow.
        most_trials: Simulation budget, after which no further rates or cables are tried.
        progress: Called with the current step.
    """
    nominal = np.asarray(fabric.link_gbps, np.float64)
    reverse = np.asarray(fabric.link_reverse, np.int64)
    search = _HiddenCableSearch(
        evaluate, comparisons, measured_ps, healthy, nominal, measure=measure,
        most_trials=most_trials,
    )  # fmt: skip
    if not suspects or not search.start():
        return CableSearch()
    singles, screened = search.single_cables(suspects, ahead, reverse, progress)
    if not singles:
        return CableSearch(tried=search.tried)
    first = singles[0]
    order = [search.tuned(trial) if _as_good(trial, first) else trial for trial in singles]
    order.sort(key=_rank)
    if order[0].misfit <= 1.0 - MIN_MISFIT_REDUCTION and search.fits_time(order[0]):
        order = sorted([*order, *search.parallel(order[0], fabric)], key=_rank)
    order = _one_of_each_cable(order, reverse, search.fits_time)
    best = order[0]
    rivals = [
        trial for trial in order[1:]
        if _as_good(trial, best) and search.fits_time(trial) and trial.misfit <= MAX_NAMED_MISFIT
        and not trial.contradicted
    ]  # fmt: skip
    convincing = best.misfit <= 1.0 - MIN_MISFIT_REDUCTION and search.fits_time(best)
    convincing = convincing and not best.contradicted
    found = best if convincing else None
    if SEVERAL_MISFIT < best.misfit < 0.8:
        together = _several(search, best, sorted([*order[1:], *screened], key=_misfit), ahead)
        if together is not None:
            found, rivals = together, []
    confirmed = best.link_misfit is not None and not best.contradicted and search.fits_time(best)
    named = best.misfit <= MAX_NAMED_MISFIT and (rivals or confirmed)
    if found is None and not named:
        return CableSearch(tried=search.tried)
    return CableSearch(found, tuple(rivals[:4]), best, search.tried)


def _several(
    search: _HiddenCableSearch, best: Trial, others: Sequence[Trial], ahead: Sequence[int]
) -> Trial | None:
    """Two or three cables together, if they fit far better than a single one.

    The search starts from the best single cable, and from the best one downstream of stalled ports.
    """
    most = _likeliest(len(others))
    starts = [best, *(trial for trial in others if trial.cables[0].link in ahead[:most])][:2]
    more = [trial.cables[0] for trial in others[:most]]
    more += [cable for cable in (trial.cables[0] for trial in others) if cable.link in ahead[:most]]
    found = None
    for start in starts:
        trial = _added(search, start, more)
        if found is None or trial.misfit < found.misfit:
            found = trial
    assert found is not None
    better = found.misfit <= 0.5 * min(best.misfit, 1.0 - MIN_MISFIT_REDUCTION)
    better = better and search.fits_time(found) and not found.contradicted
    return found if len(found.cables) > 1 and better else None


def _added(search: _HiddenCableSearch, start: Trial, others: Sequence[SlowLink]) -> Trial:
    """Add cables to a trial while each one at least halves the misfit."""
    current = start
    directions = list(dict.fromkeys((cable.link, cable.both) for cable in others))
    while len(current.cables) < MAX_CABLES and not search.exhausted:
        used = {cable.link for cable in current.cables}
        firsts = [
            search.first(current.cables, link, both=both)
            for link, both in directions
            if link not in used
        ]
        likely = sorted((trial for trial in firsts if trial is not None), key=_misfit)[:2]
        tried = [trial for trial in map(search.best_rate, likely) if trial is not None]
        extended = min(tried, key=_misfit, default=None)
        if extended is None or extended.misfit > 0.5 * current.misfit:
            break
        current = search.tuned(extended)
    return current


def _parallel_links(link: int, fabric: Fabric) -> list[int]:
    """Links in the same direction between switches that leave, or enter, the same lower switch.

    Without forwarding tables, messages may take any of them, so each may fit the evidence.
    """
    up = np.sign(fabric.link_up)
    end = fabric.link_src if up[link] > 0 else fabric.link_dst
    between = (fabric.link_src >= fabric.n_nodes) & (fabric.link_dst >= fabric.n_nodes)
    alike = between & (end == end[link]) & (up == up[link]) & (up != 0)
    return [int(other) for other in np.flatnonzero(alike) if other != link]


def _likeliest(suspects: int) -> int:
    """Number of suspects to try further: a quarter of them, within limits."""
    return min(MAX_ONE_WAY, max(suspects // 4, 2))


def _misfit(trial: Trial) -> float:
    return trial.misfit


def _rank(trial: Trial) -> tuple[bool, float]:
    """Sort key: by misfit, trials that per-link evidence contradicts last."""
    return trial.contradicted, trial.misfit


def _one_of_each_cable(
    trials: Sequence[Trial], reverse: Ints, fits_time: Callable[[Trial], bool]
) -> list[Trial]:
    """The best trial of each cable, in one direction or both, best first.

    Trials that fit the measured time are preferred to those that do not.
    """
    chosen: dict[int, Trial] = {}
    for trial in sorted(trials, key=lambda trial: (not fits_time(trial), *_rank(trial))):
        link = trial.cables[0].link
        chosen.setdefault(min(link, int(reverse[link])), trial)
    return sorted(chosen.values(), key=_rank)


def _as_good(trial: Trial, best: Trial) -> bool:
    """Whether a trial fits the evidence about as well as the best one."""
    return trial.misfit * DISTINCT_MISFIT_RATIO < best.misfit
