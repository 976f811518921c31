"""The search for slow cables that no scenario states.

A slow cable is a hypothesis that can be simulated. Cables that messages may have crossed are tried
one at a time, with several rates, then further ones besides. The search knows nothing of the
evidence: a subclass of :class:`CableTrials` simulates cables and scores what that predicts.
The constants below bound the number of simulations.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import polars as pl
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from tailback.arrays import Bools, Floats, Ints
from tailback.diagnosis.topology import LinkTopology
from tailback.fabric.degraded import SlowLink, within_engine

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

MAX_CABLES = 4
"""Maximum number of slow cables in a hypothesis."""


@dataclass(frozen=True)
class Outcome:
    """Prediction of a simulation, compared with the measurement.

    Attributes:
        elapsed_ps: Simulated time of the run, ps.
        misfits: Misfit to each kind of evidence; None if they cannot be compared.
        sensitivity: Misfit that unknown engine settings cause with these adapters and this routing,
            by kind of evidence; none if not measured.
        change: Misfit that its hidden causes bring about, by kind of evidence: that of the run
            without them to this one.
    """

    elapsed_ps: int
    misfits: Mapping[str, float | None]
    sensitivity: Mapping[str, float] = field(default_factory=dict)
    change: Mapping[str, float] = field(default_factory=dict)


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


@dataclass(kw_only=True)
class CableTrials(ABC):
    """Simulates slow cables and keeps what came of it.

    Attributes:
        measured_ps: Measured time of the run.
        expected_ps: Time of the run without slow cables.
        nominal: Rates of the links, Gb/s, shape (L,).
        most_trials: Simulations after which rates and further cables are no longer looked for.
        bursts: Bursts per window of counted traffic of others beside which cables are simulated.
        avoided: Cables that adaptive routing seems to avoid, by one link of each: they delay the
            run only at rates below those that are tried first.
        busy_ps: Time that the busier direction of each link's cable sends at its nominal rate, ps,
            shape (L,); None: unknown.
        trials: All that was simulated.
    """

    measured_ps: int
    expected_ps: int
    nominal: Floats
    most_trials: int = 1000
    bursts: int | None = None
    avoided: Collection[int] = ()
    busy_ps: Floats | None = None
    trials: list[Trial] = field(default_factory=list)

    @abstractmethod
    def simulate(self, cables: tuple[SlowLink, ...]) -> Trial:
        """Simulate slow cables and score what that predicts."""

    @property
    @abstractmethod
    def kinds(self) -> tuple[str, ...]:
        """Kinds of evidence that are compared, besides the time of the run."""

    @property
    @abstractmethod
    def worth_fitting(self) -> float:
        """Value of :attr:`Trial.shape` above which a cable is better than none."""

    @abstractmethod
    def agrees(self, trial: Trial) -> bool:
        """Whether all kinds of evidence agree as well as under the right hypothesis."""

    @abstractmethod
    def is_conclusive(self, trials: Sequence[Trial]) -> bool:
        """Whether the search can stop."""

    def least_rate(self, link: int, *, both: bool) -> float:
        """Lowest rate that a cable can have, Gb/s; infinite if it is not slow."""
        return 0.0

    def suspects_besides(self, trial: Trial) -> list[int]:
        """Cables that explain best what a trial does not, by one link of each."""
        return []

    @property
    def exhausted(self) -> bool:
        """Whether the simulation budget is used up."""
        return len(self.trials) >= self.most_trials

    @property
    def missing_ps(self) -> int:
        """Time that the run without slow cables lacks."""
        return max(self.measured_ps - self.expected_ps, 1)

    def attempt(self, cables: tuple[SlowLink, ...]) -> Trial:
        """Simulate slow cables and keep the trial."""
        trial = self.simulate(within_engine(cables))
        self.trials.append(trial)
        return trial

    def highest_share(self, link: int) -> float:
        """Share of its rate above which a slow cable alone cannot cost the time that is missing.

        It delays the run by no more than it sends longer than at its nominal rate.
        """
        if self.busy_ps is None:
            return 1.0
        return float(self.busy_ps[link] / (self.busy_ps[link] + self.missing_ps))

    def first(self, before: tuple[SlowLink, ...], link: int, both: bool = True) -> Trial | None:
        """Trial of a cable at the first rate.

        None if it changes neither the time nor the evidence, or if it is not slow by its counters.
        """
        least, most = FIRST_SHARES
        share = max(most - (most - least) * 1.5 * self.missing_ps / self.measured_ps, least)
        nominal = float(self.nominal[link])
        share = max(min(share, self.highest_share(link)), MIN_SHARE)
        share = max(share, self.least_rate(link, both=both) / nominal)
        if share >= MAX_SHARE:
            return None
        trial = self.attempt((*before, SlowLink(link, share * nominal, both)))
        idle = trial.elapsed_ps - self.expected_ps < 0.02 * self.missing_ps
        if idle and trial.shape <= self.worth_fitting and link not in self.avoided:
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
        least = self.least_rate(link, both=both) / float(self.nominal[link])
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
            least = self.least_rate(link, both=both)
            if not least <= rate * step < float(self.nominal[link]):
                continue
            if self.exhausted and not best:
                continue
            tried = self.attempt((*others, SlowLink(link, rate * step, both)))
            trial = max(trial, tried, key=_score)
        return trial

    def screen(
        self, suspects: Sequence[int], progress: Callable[[str, float], None] | None
    ) -> Iterator[Trial]:
        """The best trial of each suspect alone.

        Every suspect is tried at one rate before more rates are fitted: any cable that all ranks
        wait for fits well, but the correct one fits far better.
        """
        trials = list[Trial]()
        best = self.worth_fitting
        for number, link in enumerate(suspects):
            if progress is not None:
                progress("searching for slow cables", number / len(suspects))
            trial = self.first((), link)
            if trial is None:
                continue
            if trial.shape > best or link in self.avoided:
                # Better than any before: perhaps so good that no further one need be tried.
                trial = self.best_rate(trial)
            best = max(best, trial.shape)
            trials.append(trial)
            yield trial
            if self.is_conclusive(trials):
                break

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

    def other_directions(self, best: Trial, reverse: Ints) -> list[Trial]:
        """Trials of the best cable with both, or the other one, of its directions slow."""
        ((link, rate, both),) = best.cables
        directions = ((link, True), (link, False), (int(reverse[link]), False))
        out = []
        for end, either in directions:
            if self.exhausted:
                break
            if (end, either) == (link, both) or rate < self.least_rate(end, both=either):
                continue
            trial = self.attempt((SlowLink(end, rate, either),))
            out.append(self.tuned(trial) if trial.score >= best.score else trial)
        return out

    def same_rate(self, best: Trial, links: Sequence[int]) -> None:
        """Trials with the rate of the best cable on each link that routing may use instead.

        These ignore the simulation budget: only they show whether the link is ambiguous.
        """
        ((_, rate, both),) = best.cables
        for other in links:
            if rate < self.least_rate(other, both=both):
                continue
            self.attempt((SlowLink(other, rate, both),))

    def several(self, starts: Sequence[Trial], others: Sequence[SlowLink]) -> None:
        """Two or three cables together, beginning with each of several single ones."""
        for start in starts:
            best = start
            while len(best.cables) < MAX_CABLES and not (self.agrees(best) or self.exhausted):
                used = {cable.link for cable in best.cables}
                besides = [(link, True) for link in self.suspects_besides(best)]
                pairs = dict.fromkeys([*besides, *((cable.link, cable.both) for cable in others)])
                firsts = [
                    self.first(best.cables, link, both=both)
                    for link, both in pairs
                    if link not in used
                ]
                likely = sorted((t for t in firsts if t is not None), key=_shape)[-2:]
                more = max(map(self.best_rate, likely), key=_score, default=None)
                if more is None or more.score <= best.score:
                    break
                best = self.tuned(more)


def no_alternatives(_: int) -> tuple[int, ...]:
    """No other link."""
    return ()


@dataclass
class CableSearch:
    """The search for slow cables that explain the evidence, on one expected run.

    Attributes:
        trials: Simulates them.
        suspects: One link of each cable to try, most likely first.
        reverse: The opposite link of the same cable, shape (L,).
        alternatives: Links that messages over a link may take instead.
        ahead: Links on which others wait by the counters: their direction alone may be slow.
        considered: Number of cables from which the suspects were chosen by simulations; 0: these.
    """

    trials: CableTrials
    suspects: Sequence[int]
    reverse: Ints
    alternatives: Callable[[int], Sequence[int]] = no_alternatives
    ahead: Sequence[int] = ()
    considered: int = 0
    _singles: list[Trial] = field(default_factory=list)
    _taken: int = 0

    @property
    def is_conclusive(self) -> bool:
        """Whether a cable explains the evidence so well that no further one need be tried."""
        return self.trials.is_conclusive(self._singles)

    def screen(self, progress: Callable[[str, float], None] | None = None) -> None:
        """Try every suspect at one rate, and look for the rate of those that stand out."""
        # The time alone says nothing of a place.
        if self.trials.kinds:
            for trial in self.trials.screen(self.suspects, progress):
                self._singles.append(trial)

    def likeliest(self, most: int) -> tuple[int, ...]:
        """Cables that fit best when screened, by one link of each; at most so many.

        In turn those that fit all evidence best, and those that fit one kind of it best: with the
        wrong adapters the right cable may agree with a single kind only.
        """
        rankings = [sorted(self._singles, key=_shape, reverse=True)] + [
            sorted(self._singles, key=partial(_misfit, kind)) for kind in self.trials.kinds
        ]
        turns = (trial for turn in zip(*rankings, strict=True) for trial in turn)
        links = dict.fromkeys(trial.cables[0].link for trial in turns)
        return tuple(links)[:most]

    def refine(self) -> None:
        """Look for the rates of the best, for single directions, and for cables besides them."""
        trials, singles = self.trials, list(self._singles)
        if not singles:
            return
        most = _likeliest(max(self.considered, len(self.suspects)))
        if not self.is_conclusive:
            # Both directions of the right cable may agree with a single kind of evidence only.
            best = self.likeliest(max(most // 2, 1 + len(trials.kinds)))
            singles += trials.one_way(best, self.ahead[:most], self.reverse)
            singles.sort(key=_shape, reverse=True)
            # At the first rate a single kind of evidence may show the right one.
            best_of_kinds = [min(singles, key=partial(_misfit, kind)) for kind in trials.kinds]
            fitted = [*singles[:MAX_REFINED], *best_of_kinds]
            fitted = [trial for number, trial in enumerate(fitted) if trial not in fitted[:number]]
            others = [trial for trial in singles if trial not in fitted]
            singles = [*map(trials.best_rate, fitted), *others]
        singles.sort(key=_score, reverse=True)
        # The model's own time is off by some per cent, so the rate that gives the measured time is
        # not the most probable one, and which cable is depends on it.
        order = [trials.tuned(trial, best=trial is singles[0]) for trial in singles[:MAX_REFINED]]
        order += singles[MAX_REFINED:]
        if not self.is_conclusive:
            order += trials.other_directions(max(order, key=_score), self.reverse)
        order.sort(key=_score, reverse=True)
        trials.same_rate(order[0], self.alternatives(order[0].cables[0].link))
        if not trials.agrees(order[0]):
            ahead = [trial for trial in order if trial.cables[0].link in self.ahead[:most]]
            starts = [order[0], *ahead][:2]
            trials.several(starts, [trial.cables[0] for trial in [*order[1 : most + 1], *ahead]])

    def latest(self) -> list[Trial]:
        """Trials since the last call."""
        since, self._taken = self._taken, len(self.trials.trials)
        return self.trials.trials[since:]


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


MAX_PAIRS = 2000
"""Maximum number of node pairs whose paths are examined: half of them those with the largest
delays, half a regular selection of the others."""


class CandidatePaths:
    """Cables that messages may have crossed, and how well each one explains their delays.

    A message may take any shortest path; each of several links at the same distance carries an
    equal share (:func:`lateness_explained`).

    Args:
        topology: The links.
        reverses: The opposite link of the same cable, shape (L,).
        used: Links that carry our traffic, shape (L,).
        messages: Messages with the nodes ``src`` and ``dst``, the time each ``took`` and the time
            that was ``expected``.
    """

    def __init__(
        self, topology: LinkTopology, reverses: Ints, used: Bools, messages: pl.DataFrame
    ) -> None:
        self._topology, self._reverses, self._used = topology, reverses, used
        late = pl.col("took") - pl.col("expected")
        pairs = (
            messages.group_by("src", "dst")
            .agg(late=late.mean(), number=pl.len())
            .sort("late", "src", "dst", descending=[True, False, False])
        )
        if pairs.height > MAX_PAIRS:
            less_late = pairs.slice(MAX_PAIRS // 2)
            every = -(-less_late.height // (MAX_PAIRS // 2))
            pairs = pl.concat([pairs.head(MAX_PAIRS // 2), less_late.gather_every(every)])
        self._pairs = pairs

    def suspects(self, most: int) -> list[int]:
        """Most likely cables first, by one link of each."""
        order = np.argsort(-self._scores, kind="stable")[:most]
        return [int(link) for link in order if self._scores[link] > 0]

    @cached_property
    def explained(self) -> Floats:
        """Share of the squared lateness of node pairs explained by each link's cable, 0–1.

        This assumes that the cable is the only slow one; shape (L,).
        """
        late, number = (self._pairs[c].cast(pl.Float64).to_numpy() for c in ("late", "number"))
        total = float((number * late**2).sum())
        score = self._scores / total if total > 0 else np.zeros(self._topology.n_links)
        cable = np.minimum(np.arange(self._topology.n_links), self._reverses)
        return np.asarray(score[cable], np.float64)

    @cached_property
    def _scores(self) -> Floats:
        """Squared lateness that every cable explains, by its first link; shape (L,)."""
        t, pairs = self._topology, self._pairs
        cable = np.minimum(np.arange(t.n_links), self._reverses)
        row, link, part = links_on_shortest_paths(t, self._used, pairs.select("src", "dst").rows())
        late, number = pairs["late"].to_numpy(), pairs["number"].to_numpy().astype(np.float64)
        # Per cable: a slow cable is slow in both directions.
        return lateness_explained(cable[link], part, late[row], number[row], t.n_links)


def lateness_explained(
    cable: Ints, share: Floats, late: Floats, number: Floats, links: int
) -> Floats:
    """Squared lateness that each cable explains if it is the only slow one, shape (L,).

    If one cable caused the delay x, messages of which a share p crosses it would be late by
    e = p x. The cable with the largest (Σ n p e)² / Σ n p² leaves the smallest sum of squared
    residuals over n repetitions each. Messages that are *not* late count against the cables on
    their paths.

    Args:
        cable: First link of the cable of each entry, shape (M,).
        share: Share of the messages that crosses it, shape (M,).
        late: Their mean lateness, shape (M,).
        number: Their number, shape (M,).
        links: Number of links L.
    """
    product = np.bincount(cable, number * share * late, links)
    square = np.bincount(cable, number * share**2, links)
    score = np.zeros(links)
    np.divide(np.maximum(product, 0.0) ** 2, square, out=score, where=square > 0)
    return score


def links_on_shortest_paths(
    topology: LinkTopology, used: Bools, ends: Sequence[tuple[int, int]]
) -> tuple[Ints, Ints, Floats]:
    """Links that messages between pairs of nodes may cross, and what share of them.

    Args:
        topology: The links.
        used: Links that carry our traffic, shape (L,).
        ends: Source and destination of each pair.

    Returns:
        Index of the pair, link, and share of the pair's traffic, shape (M,) each.
    """
    t = topology
    vertices = len(t.out_start) - 1
    graph = csr_array((np.ones(t.n_links), (t.src, t.dst)), shape=(vertices, vertices))
    # Single-homed nodes are one hop from their switch: shortest paths start at few switches.
    single = bool((np.bincount(t.src[t.from_node]) <= 1).all())
    of = t.node_switch if single else np.arange(t.n_nodes)
    starts = sorted({int(of[v]) for pair in ends for v in pair})
    distance = dijkstra(graph, indices=starts, unweighted=True)
    at = {v: i for i, v in enumerate(starts)}

    def away(node: int) -> Floats:
        if not single:
            return np.asarray(distance[at[node]], np.float64)
        out = distance[at[int(of[node])]] + 1.0
        out[node] = 0.0
        return np.asarray(out, np.float64)

    none = np.zeros(0, np.int64)
    rows, links, parts = [none], [none], [np.zeros(0)]
    for number, (a, b) in enumerate(ends):
        # Cables are bidirectional, so distances to b equal those from b.
        out, back = away(int(a)), away(int(b))
        # Adapters of different planes are not connected: their messages stay within a host.
        length = out[int(b)] if np.isfinite(out[int(b)]) else -1.0
        way = np.flatnonzero(used & (out[t.src] + 1 + back[t.dst] == length))
        level = out[t.src[way]].astype(np.int64)
        rows.append(np.full(len(way), number))
        links.append(way)
        parts.append(1.0 / np.bincount(level)[level] if len(way) else np.zeros(0))
    return np.concatenate(rows), np.concatenate(links), np.concatenate(parts)
