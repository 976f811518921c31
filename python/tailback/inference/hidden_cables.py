"""Slow cables that the scenario does not state, tried in the measured run.

A slow cable is a hypothesis that predicts the evidence: how long each rank is in each of its calls
(:mod:`tailback.evidence.call_profile`), how long ports stall, and how long the run takes. Cables
are tried one at a time, with several rates, then further ones besides. The search only proposes:
which of its trials holds, if any, is decided by :mod:`tailback.inference.hypotheses`, beside all
other hypotheses. The constants below bound the number of simulations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from tailback.arrays import Floats, Ints
from tailback.evaluate import Change
from tailback.fabric.degraded import SlowLink, within_engine
from tailback.fabric.model import Fabric
from tailback.inference.error_model import ErrorModel, Outcome
from tailback.inference.hypotheses import Hypothesis, Prior, log_probability

MAX_RATES = 4
"""Maximum number of rates tried for a cable."""

FIRST_SHARES = (0.25, 0.6)
"""Share of the nominal rate tried first for each cable: from the lower value, if most of the time
is missing, to the higher one, if almost none is. Far too low a rate makes all ranks wait, whichever
cable it is."""

MIN_SHARE, MAX_SHARE = 0.02, 0.95
"""Shares of its nominal rate between which a rate is tried."""

MAX_ONE_WAY = 8
"""Maximum number of suspects per list whose directions are tried separately: where only one
direction was slow, the correct cable was among the first four."""

MAX_REFINED = 6
"""Maximum number of cables whose rate is fitted after all were tried at one rate."""

MAX_CABLES = 3
"""Maximum number of slow cables in a hypothesis."""

MACHINE = ("", "")
"""Machine model of a search on its own."""


@dataclass(frozen=True)
class Trial:
    """Result of simulating a set of slow cables.

    Attributes:
        cables: The links.
        outcome: What the simulation predicts.
        shape: Logarithm of the likelihood of all evidence but the time.
        score: Logarithm of prior and likelihood.
    """

    cables: tuple[SlowLink, ...]
    outcome: Outcome
    shape: float
    score: float

    @property
    def elapsed_ps(self) -> int:
        """Time of the run with them."""
        return self.outcome.elapsed_ps


@dataclass
class CableTrials:
    """Simulates slow cables and keeps what came of it.

    Attributes:
        predict: Simulates a change of the expected run, and compares it with the evidence.
        model: The error model.
        prior: What is charged for assumptions.
        healthy: The expected run without slow cables.
        nominal: Rates of the links, Gb/s, shape (L,).
        most_trials: Simulations after which rates and further cables are no longer looked for.
        bursts: Bursts per window of counted traffic of others beside which they are simulated.
        trials: All that was simulated.
    """

    predict: Callable[[Change], Outcome]
    model: ErrorModel
    prior: Prior
    healthy: Outcome
    nominal: Floats
    most_trials: int = 1000
    bursts: int | None = None
    trials: list[Trial] = field(default_factory=list)

    @property
    def exhausted(self) -> bool:
        """Whether the simulation budget is used up."""
        return len(self.trials) >= self.most_trials

    @property
    def measured_ps(self) -> int:
        """Time measured in and between calls."""
        return self.model.measured_ps

    @property
    def expected_ps(self) -> int:
        """Time of the run without slow cables."""
        return self.healthy.elapsed_ps

    @property
    def missing_ps(self) -> int:
        """Time that the run without slow cables lacks."""
        return max(self.measured_ps - self.expected_ps, 1)

    def attempt(self, cables: tuple[SlowLink, ...]) -> Trial:
        """Simulate slow cables."""
        cables = within_engine(cables)
        outcome = self.predict(Change(slow=cables, computations=True))
        hypothesis = Hypothesis(MACHINE, outcome, cables, alone_ps=self.expected_ps)
        score = log_probability(hypothesis, self.model, self.prior)
        trial = Trial(cables, outcome, self.model.log_shape(outcome), score)
        self.trials.append(trial)
        return trial

    def first(self, before: tuple[SlowLink, ...], link: int, both: bool = True) -> Trial | None:
        """Trial of a cable at the first rate.

        None if it carries too little traffic, or if it is not slow by its counters.
        """
        least, most = FIRST_SHARES
        share = max(most - (most - least) * 1.5 * self.missing_ps / self.measured_ps, least)
        nominal = float(self.nominal[link])
        share = max(share, self.prior.least_rate(link, both=both) / nominal)
        if share >= MAX_SHARE:
            return None
        trial = self.attempt((*before, SlowLink(link, share * nominal, both)))
        if trial.elapsed_ps - self.expected_ps < 0.02 * self.missing_ps:
            return None
        too_slow = trial.elapsed_ps / self.measured_ps
        if too_slow > 1.0 and share * too_slow < MAX_SHARE:
            # All ranks wait longer than they did, which hides which cable it is.
            trial = self.attempt((*before, SlowLink(link, share * too_slow * nominal, both)))
        return trial

    def best_rate(self, first: Trial) -> Trial:
        """The rate of the last cable at which the evidence is most probable.

        The time grows as the rate falls: as its inverse, once the cable is what the run waits for.
        """
        *before, (link, rate, both) = first.cables
        share, trial, best = rate / float(self.nominal[link]), first, first
        least = self.prior.least_rate(link, both=both) / float(self.nominal[link])
        for _ in range(MAX_RATES):
            best = max(best, trial, key=_score)
            if abs(trial.elapsed_ps - self.measured_ps) <= 0.05 * self.missing_ps:
                break
            change = trial.elapsed_ps / self.measured_ps
            factor = float(np.clip(change if change > 1 else change**1.5, 0.4, 2.2))
            tried, share = share, max(share * factor, least)
            if share == tried or not MIN_SHARE < share < MAX_SHARE or self.exhausted:
                break
            rate = share * float(self.nominal[link])
            trial = self.attempt((*before, SlowLink(link, rate, both)))
        return max(best, trial, key=_score)

    def tuned(self, trial: Trial, *, best: bool = False) -> Trial:
        """Refine the rate of the last cable in small steps; the best one whatever the budget."""
        for step in (0.85, 1.18, 0.93, 1.08):
            *others, (link, rate, both) = trial.cables
            least = self.prior.least_rate(link, both=both)
            if not least <= rate * step < float(self.nominal[link]):
                continue
            if self.exhausted and not best:
                continue
            tried = self.attempt((*others, SlowLink(link, rate * step, both)))
            trial = max(trial, tried, key=_score)
        return trial

    def agrees(self, trial: Trial) -> bool:
        """Whether all kinds of evidence agree as well as under the right hypothesis."""
        return self.model.agrees(trial.outcome)

    def is_conclusive(self, trials: Sequence[Trial]) -> bool:
        """Whether the search can stop.

        Call times alone are not sufficient: all ranks wait for one another, so an adjacent cable
        may fit nearly as well as the correct one, which may come later in the list.
        """
        return len(self.model.kinds) > 1 and any(self.agrees(trial) for trial in trials)

    def screen(
        self, suspects: Sequence[int], progress: Callable[[str, float], None] | None
    ) -> list[Trial]:
        """The best trial of each suspect alone.

        Every suspect is tried at one rate before more rates are fitted: any cable that all ranks
        wait for fits well, but the correct one fits far better.
        """
        found = list[Trial]()
        charge = -self.prior.log(Hypothesis(MACHINE, self.healthy, (SlowLink(0, 1.0),)), self.model)
        best = self.model.log_shape(self.healthy) + charge
        for number, link in enumerate(suspects):
            if progress is not None:
                progress("searching for slow cables", number / len(suspects))
            trial = self.first((), link)
            if trial is None:
                continue
            if trial.shape > best:
                # Better than any before: perhaps so good that no further one need be tried.
                trial = self.best_rate(trial)
            best = max(best, trial.shape)
            found.append(trial)
            if self.is_conclusive(found):
                break
        return found

    def one_way(self, likeliest: Sequence[int], ahead: Sequence[int], reverse: Ints) -> list[Trial]:
        """Trials of single directions of the likeliest cables, and of links ahead of stalls."""
        tried = [*ahead, *(way for link in likeliest for way in (link, int(reverse[link])))]
        out = []
        for link in dict.fromkeys(tried):
            if self.exhausted:
                break
            trial = self.first((), link, both=False)
            if trial is not None:
                out.append(trial)
        return out

    def parallel(self, best: Trial, fabric: Fabric) -> None:
        """Trials with the same rate on each link that routing may use instead of the best one.

        These ignore the simulation budget: only they show whether the link is ambiguous.
        """
        ((link, rate, both),) = best.cables
        for other in _parallel_links(link, fabric):
            if rate < self.prior.least_rate(other, both=both):
                continue
            self.attempt((SlowLink(other, rate, both),))

    def several(self, starts: Sequence[Trial], others: Sequence[SlowLink]) -> None:
        """Two or three cables together, beginning with each of several single ones."""
        for start in starts:
            now = start
            ways = list(dict.fromkeys((cable.link, cable.both) for cable in others))
            while len(now.cables) < MAX_CABLES and not self.exhausted:
                used = {cable.link for cable in now.cables}
                firsts = [
                    self.first(now.cables, link, both=both)
                    for link, both in ways
                    if link not in used
                ]
                likely = sorted((t for t in firsts if t is not None), key=_shape)[-2:]
                more = max(map(self.best_rate, likely), key=_score, default=None)
                if more is None or more.score <= now.score:
                    break
                now = self.tuned(more)


@dataclass
class CableSearch:
    """The search for slow cables that explain the evidence, on one expected run.

    Attributes:
        trials: Simulates them.
        suspects: One link of each cable to try, most likely first.
        fabric: The fabric.
        ahead: Links on which others wait by the counters: their direction alone may be slow.
        considered: Number of cables from which the suspects were chosen by simulations; 0: these.
    """

    trials: CableTrials
    suspects: Sequence[int]
    fabric: Fabric
    ahead: Sequence[int] = ()
    considered: int = 0
    _singles: list[Trial] = field(default_factory=list)
    _taken: int = 0

    @property
    def is_conclusive(self) -> bool:
        """Whether a cable explains the evidence so well that no further one need be tried."""
        return self.trials.is_conclusive(self._singles)

    def screen(self, progress: Callable[[str, float], None] | None = None) -> list[Trial]:
        """Try every suspect at one rate, and look for the rate of those that stand out."""
        # The time alone says nothing of a place.
        if self.trials.model.kinds:
            self._singles = self.trials.screen(self.suspects, progress)
        return self._new()

    def likeliest(self, most: int) -> tuple[int, ...]:
        """Cables that fit best when screened, by one link of each; at most so many.

        In turn those that fit all evidence best, and those that fit one kind of it best: with the
        wrong adapters the right cable may agree with a single kind only.
        """
        rankings = [sorted(self._singles, key=_shape, reverse=True)] + [
            sorted(self._singles, key=partial(_misfit, kind)) for kind in self.trials.model.kinds
        ]
        turns = (trial for turn in zip(*rankings, strict=True) for trial in turn)
        links = dict.fromkeys(trial.cables[0].link for trial in turns)
        return tuple(links)[:most]

    def refine(self) -> list[Trial]:
        """Look for the rates of the best, for single directions, and for cables besides them."""
        trials, singles = self.trials, list(self._singles)
        if not singles:
            return []
        reverse = np.asarray(self.fabric.link_reverse, np.int64)
        most = _likeliest(max(self.considered, len(self.suspects)))
        if not self.is_conclusive:
            # Both directions of the right cable may agree with a single kind of evidence only.
            best = self.likeliest(max(most // 2, 1 + len(trials.model.kinds)))
            singles += trials.one_way(best, self.ahead[:most], reverse)
            singles.sort(key=_shape, reverse=True)
            singles = [*map(trials.best_rate, singles[:MAX_REFINED]), *singles[MAX_REFINED:]]
        singles.sort(key=_score, reverse=True)
        # The model's own time is off by some per cent, so the rate that gives the measured time is
        # not the most probable one, and which cable is depends on it.
        order = [trials.tuned(one, best=one is singles[0]) for one in singles[:MAX_REFINED]]
        order = sorted([*order, *singles[MAX_REFINED:]], key=_score, reverse=True)
        trials.parallel(order[0], self.fabric)
        if not trials.agrees(order[0]):
            ahead = [one for one in order if one.cables[0].link in self.ahead[:most]]
            starts = [order[0], *ahead][:2]
            trials.several(starts, [one.cables[0] for one in [*order[1 : most + 1], *ahead]])
        return self._new()

    def _new(self) -> list[Trial]:
        """Trials since the last call."""
        since, self._taken = self._taken, len(self.trials.trials)
        return self.trials.trials[since:]


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


def _shape(trial: Trial) -> float:
    return trial.shape


def _score(trial: Trial) -> float:
    return trial.score


def _misfit(kind: str, trial: Trial) -> float:
    misfit = trial.outcome.misfits.get(kind)
    return math.inf if misfit is None else misfit
