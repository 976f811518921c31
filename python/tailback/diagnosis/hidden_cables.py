"""Slow cables that the scenario does not state, found in the measured run.

A slow cable is a hypothesis that predicts the evidence: how long each rank is in each of its calls
(:mod:`tailback.evidence.call_profile`), how long ports stall, and how long the run takes. Cables
are tried one at a time, with several rates, then further ones besides. One is blamed only if the
simulation with it agrees far better with all the evidence, makes the run take longer as it did,
and does so better than every other cable: else the time stays unexplained, and the cables that
would explain it equally well are named as such.
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
"""Rates of one cable that are tried at most."""

FIRST_SHARES = (0.25, 0.6)
"""Share of the nominal rate that is tried first of each cable: the first where all of the time is
missing, the second where next to nothing is. A rate that is far too low makes all ranks wait, for
whichever cable."""

MAX_SHARE = 0.95
"""Share of its nominal rate from which a cable is not slow."""

MIN_MISFIT_REDUCTION = 0.6
"""Share of the misfit to the evidence that a cable must take away. Every cable takes some of it
away by making ranks wait: in the healthy run of the real-packet lab the best takes 0.48, in the run
with a slow cable the right one takes 0.80."""

MAX_NAMED_MISFIT = 0.8
"""Misfit up to which a cable is named as one that may be slow: of two blind runs whose evidence
says little, wrong cables left 0.89 to 1, and the right one of the second 0.76."""

MIN_TIME_EXPLAINED = 0.4
"""Share of the missing time that it must explain."""

MAX_TIME_RATIO = 1.03
"""Simulated over measured time from which a hypothesis is wrong: it costs more than there is."""

REFINE_MISFIT, STOP_MISFIT = 0.4, 0.03
"""Misfit at the first rate from which the rate of a cable is looked for at once, and misfit at that
rate from which no further cable is tried: none could be as good and not be a neighbour."""

MIN_MISFIT = 0.0005
"""Misfit of the run without slow cables under which there is nothing to explain: times of calls
that agree to 2 % but for one factor. In a halo exchange every rank soon waits as long as every
other; only how far each ran ahead until then says where the slow cable is."""

AGREEING_MISFIT = 0.02
"""Misfit of one kind of evidence without slow cables from which it counts by half: healthy runs of
simulated machines differ by 0.001 to 0.015 from the model."""

DISTINCT_MISFIT_RATIO = 0.5
"""Misfit of the best cable over that of another one up to which only the best can be meant: which
paths messages took is not known where routing was adaptive or hashed."""

MAX_LINK_MISFIT = 0.57
"""Misfit to evidence of single links, over that without slow cables, from which a cable is not the
right one: any slow cable makes all ranks wait, but only the ports ahead of it stall. The right
cables of three simulated machines left 0 to 0.33, that of a fourth with traffic of others 0.53, the
best wrong one of a fifth 0.61."""

MAX_ONE_WAY = 8
"""Cables of each list of suspects of which each direction is tried alone: the right one was among
the first four where one direction was slow."""

ONE_WAY_MISFIT_RATIO = 0.8
"""Misfit of one slow direction of a cable over that of both up to which only that direction is
taken to be slow: cables mostly fail both ways. Where one direction was slow it was 0.06."""

SEVERAL_MISFIT = 0.1
"""Misfit of the best single cable from which two or three together are tried: the right one alone
left 0.006 and 0.012 on two simulated machines with counters."""

MAX_REFINED = 6
"""Cables whose rate is looked for, after all were tried at one rate."""

MAX_CABLES = 3
"""Cables looked for at once."""


MODEL_ERROR = 0.05
"""Standard error of the simulated time of a run, as a share of it."""

MISFIT_WEIGHT = 4.0
"""Misfit to calls and stalls, over that without hidden causes, that weighs as much as a time that
is off by two standard errors."""


class Misfit(Protocol):
    """How far a simulation is from one kind of evidence, 0 for no difference."""

    def __call__(self, run: Run) -> float | None:
        """The misfit of a run; None where it cannot be compared."""


@dataclass(frozen=True)
class Trial:
    """Slow cables that were simulated.

    Attributes:
        cables: The links.
        misfit: Distance from the evidence, as a share of that of the run without them.
        elapsed_ps: Time the run takes with them.
        link_misfit: The same of evidence of single links alone; None without.
    """

    cables: tuple[SlowLink, ...]
    misfit: float
    elapsed_ps: int
    link_misfit: float | None = None

    @property
    def contradicted(self) -> bool:
        """Whether the evidence of single links points to other cables."""
        return self.link_misfit is not None and self.link_misfit > MAX_LINK_MISFIT


@dataclass(frozen=True)
class CableSearch:
    """What came of the search.

    Attributes:
        found: The slow cables, None where nothing is blamed.
        rivals: Other single cables that explain the evidence as well as the best one.
        best: The best trial, None where nothing was tried.
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
        """Whether no further simulation may be made."""
        return self.tried >= self.most_trials

    @property
    def expected_ps(self) -> int:
        """Time of the run without slow cables."""
        return self.healthy.elapsed_ps

    def start(self) -> bool:
        """Compare the run without hidden causes; False where nothing can be compared."""
        misfits = [compare(self.healthy) for compare in self.comparisons]
        self.comparisons = [
            one for one, misfit in zip(self.comparisons, misfits, strict=True) if misfit is not None
        ]
        known = [misfit for misfit in misfits if misfit is not None]
        # A kind of evidence that agrees already has little to say.
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
        # The likelihood of normal errors whose size is not known, of each kind of evidence.
        found = [compare(run) for compare in self.comparisons]
        logs = [
            0.0 if now is None else weight * math.log((now + MIN_MISFIT) / (base + MIN_MISFIT))
            for now, base, weight in zip(found, self.base, self.weights, strict=True)
        ]
        each = zip(self.comparisons, found, self.base, strict=True)
        of_links = [
            now / base for compare, now, base in each
            if getattr(compare, "per_link", False) and now is not None and base >= AGREEING_MISFIT
        ]  # fmt: skip
        misfit = math.exp(sum(logs) / sum(self.weights))
        return Trial(cables, misfit, run.elapsed_ps, max(of_links, default=None))

    def fits_time(self, trial: Trial) -> bool:
        """Whether the run takes longer by enough, and not by too much."""
        missing = max(self.measured_ps - self.expected_ps, 1)
        return (
            trial.elapsed_ps <= MAX_TIME_RATIO * self.measured_ps
            and trial.elapsed_ps - self.expected_ps >= MIN_TIME_EXPLAINED * missing
        )

    def distance(self, trial: Trial) -> float:
        """Distance from the evidence and from the measured time: what the rate of a cable sets."""
        off = (trial.elapsed_ps - self.measured_ps) / (MODEL_ERROR * self.measured_ps)
        return trial.misfit + off**2 / MISFIT_WEIGHT

    def is_conclusive(self, singles: Sequence[Trial]) -> bool:
        """Whether no further cable need be tried.

        Times of calls alone do not tell: all ranks wait for one another, so a cable nearby may
        fit nearly as well, and the right one may come later.
        """
        several = len(self.comparisons) > 1
        return several and any(single.misfit < STOP_MISFIT for single in singles)

    def first(self, before: tuple[SlowLink, ...], link: int, both: bool = True) -> Trial | None:
        """A cable at the rate that is tried first; None if it carries too little to matter."""
        missing = max(self.measured_ps - self.expected_ps, 1)
        least, most = FIRST_SHARES
        share = max(most - (most - least) * 1.5 * missing / self.measured_ps, least)
        nominal = float(self.nominal[link])
        trial = self.attempt((*before, SlowLink(link, share * nominal, both)))
        if trial.elapsed_ps - self.expected_ps < 0.02 * missing:
            return None
        too_slow = trial.elapsed_ps / self.measured_ps
        if too_slow > MAX_TIME_RATIO and share * too_slow < MAX_SHARE:
            # All ranks wait longer than they did, which hides which cable it is.
            trial = self.attempt((*before, SlowLink(link, share * too_slow * nominal, both)))
        return trial

    def best_rate(self, first: Trial) -> Trial | None:
        """The rate of the last cable at which the run takes about as long as it did.

        The time grows as the rate falls: as its inverse, once the cable is what the run waits for.
        None where the run takes too long at every rate that was tried.
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
        """Trials of each suspect alone: at the rate that fits, and at the first rate only.

        Every suspect is tried at one rate before the rates of several are looked for: cables that
        all ranks wait for fit well, but the right one fits far better.
        """
        screened, singles = list[Trial](), list[Trial]()
        best = REFINE_MISFIT / DISTINCT_MISFIT_RATIO
        for number, link in enumerate(suspects):
            if progress is not None:
                progress("looking for slow cables", number / len(suspects))
            trial = self.first((), link)
            if trial is None:
                continue
            # Far better than any before: perhaps so good that no further one need be tried.
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
        """Trials of single directions of the cables that fit best, and of links ahead of stalls.

        Only those that agree clearly better than the whole cable.
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
        """Trials of one slow cable: at the rate that fits, and at the first rate only.

        Both by their misfit. The second explain too little to go on with.
        """
        singles, screened = self.screen(suspects, progress)
        if not self.is_conclusive(singles):
            both_ways = sorted([*singles, *screened], key=_misfit)
            most = _likeliest(len(suspects))
            screened += self.one_way(both_ways, ahead, reverse, most)
            screened.sort(key=_misfit)
            refined_too = map(self.best_rate, sorted(screened, key=_rank)[:MAX_REFINED])
            singles += [trial for trial in refined_too if trial is not None]
        singles.sort(key=_rank)
        return singles, screened

    def parallel(self, best: Trial, fabric: Fabric) -> list[Trial]:
        """The same rate on each link that routing may use in place of the best trial's.

        However many simulations were made: only these show that the link is one of several.
        """
        ((link, rate, both),) = best.cables
        trials = [
            self.attempt((SlowLink(other, rate, both),)) for other in _parallel_links(link, fabric)
        ]
        return [trial for trial in trials if self.fits_time(trial)]

    def tuned(self, trial: Trial) -> Trial:
        """The rates that fit best, near those tried."""
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
        suspects: One link of each cable to try, the likeliest first.
        fabric: The fabric.
        measured_ps: Time measured in and between calls.
        healthy: The expected run without slow cables, with what the comparisons look at.
        measure: Whether a comparison looks at what links did.
        ahead: Links on which others wait by the counters: their direction alone may be slow.
        most_trials: Simulations after which rates and further cables are no longer looked for.
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
    """Two or three cables together, where they explain far better what one explains in part.

    Beginning with the best single cable, and with the best one ahead of stalls.
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
    """A trial with further cables, each of which halves the misfit."""
    now = start
    ways = list(dict.fromkeys((cable.link, cable.both) for cable in others))
    while len(now.cables) < MAX_CABLES and not search.exhausted:
        used = {cable.link for cable in now.cables}
        firsts = [
            search.first(now.cables, link, both=both) for link, both in ways if link not in used
        ]
        likely = sorted((trial for trial in firsts if trial is not None), key=_misfit)[:2]
        tried = [trial for trial in map(search.best_rate, likely) if trial is not None]
        more = min(tried, key=_misfit, default=None)
        if more is None or more.misfit > 0.5 * now.misfit:
            break
        now = search.tuned(more)
    return now


def _parallel_links(link: int, fabric: Fabric) -> list[int]:
    """Links between switches of the same direction that leave, or enter, the same lower switch.

    Without tables, messages may take any of them, so that the evidence may fit each.
    """
    up = np.sign(fabric.link_up)
    end = fabric.link_src if up[link] > 0 else fabric.link_dst
    between = (fabric.link_src >= fabric.n_nodes) & (fabric.link_dst >= fabric.n_nodes)
    alike = between & (end == end[link]) & (up == up[link]) & (up != 0)
    return [int(other) for other in np.flatnonzero(alike) if other != link]


def _likeliest(suspects: int) -> int:
    """How many of the suspects to look at more closely: fewer where a simulation takes long."""
    return min(MAX_ONE_WAY, max(suspects // 4, 2))


def _misfit(trial: Trial) -> float:
    return trial.misfit


def _rank(trial: Trial) -> tuple[bool, float]:
    """By misfit, those last that other evidence contradicts."""
    return trial.contradicted, trial.misfit


def _one_of_each_cable(
    trials: Sequence[Trial], reverse: Ints, fits_time: Callable[[Trial], bool]
) -> list[Trial]:
    """Of trials of single cables, in one direction or both, the best of each cable, best first.

    One that fits the measured time comes before those that do not.
    """
    chosen: dict[int, Trial] = {}
    for trial in sorted(trials, key=lambda trial: (not fits_time(trial), *_rank(trial))):
        link = trial.cables[0].link
        chosen.setdefault(min(link, int(reverse[link])), trial)
    return sorted(chosen.values(), key=_rank)


def _as_good(trial: Trial, best: Trial) -> bool:
    """Whether a trial agrees about as well with the evidence as the best one."""
    return trial.misfit * DISTINCT_MISFIT_RATIO < best.misfit
