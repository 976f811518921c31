"""Paths of flows that switches hash, from the bytes that links counted.

A hash gives each flow, the messages from one rank to another, one of several paths, and no file
says which. What each link sent during the run does, up to flows of one size between the same
switches, which may change places without a trace: the paths are fitted so that all links carry
what they counted. The engine takes a path as a seed of the flow's own hash that leads to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import polars as pl

from tailback.arrays import Floats, Ints
from tailback.budget import fits
from tailback.diagnosis.topology import link_totals
from tailback.evaluate import Change
from tailback.evidence import MeasuredRun
from tailback.evidence.call_profile import call_profile
from tailback.fabric.degraded import SlowLink
from tailback.inference.comparisons import Comparisons
from tailback.inference.error_model import MISFIT_ERROR
from tailback.inference.evidence import NetworkEvidence
from tailback.inference.hashed_flows import FlowPlacements, has_few_flows
from tailback.inference.hypothesis_space import SEARCH_EVENTS
from tailback.inference.machine_models import with_flow_seeds, with_whole_flows
from tailback.inference.network_clues import (
    FLOWS_OF_PAIR,
    OtherJobs,
    comparisons,
    is_lossy,
    routing_is_stated,
)
from tailback.inference.queue_likelihood import QueueLikelihood
from tailback.run.run import Run
from tailback.simulation import PreparedScenario
from tailback.simulation.evaluate import make_simulation

FlowSeeds = list[tuple[int, int, int]]
"""Source rank, destination rank and seed of each flow."""

SEEDS = 64
"""Seeds that are tried for the paths of a flow: of eight paths, each is among them but for one flow
in six hundred."""

MOST_FLOWS = 4096
"""Flows above which their paths are not fitted: so many use parallel links evenly."""

STEPS_OF_FLOW, MOST_STEPS, HOT, COLD = 600, 60_000, 1.0, 1e-3
"""Steps of simulated annealing (Kirkpatrick, Gelatt and Vecchi 1983) for each flow, and at most;
first and last temperature, over the square of the largest flow."""

HASHES, HASHED_FLOWS = 2048, 400_000
"""Hashes that are drawn to see how uneven paths are by chance, and flows of all of them at most."""

FITS, SUSPECTS = 6, 2
"""Choices of paths that are fitted, and suspect cables; those that fit alike are simulated to see
which agree with the times of calls."""

ALIKE = 0.001
"""Difference of misfits up to which choices of paths fit alike."""

OTHERS, OTHERS_EVEN = 0.02, 0.05
"""Share of the counted bytes from which they are of traffic that no host port counted, too, and
then the weight of its having the same share on all links: it follows a hash of its own."""

LINK_ERROR = 0.02
"""Error of the bytes of links beside flows of others, over the mean of the links: these are known
by host and window, and headers differ. Paths fit no better than that."""

AS_COUNTED = 2.0 * MISFIT_ERROR["bytes"]
"""Misfit of the bytes of links up to which the fitted paths are taken for the true ones."""


def on_likely_paths(
    prepared: PreparedScenario,
    run: Run,
    measured: MeasuredRun,
    evidence: NetworkEvidence,
    threads: int | None,
    *,
    hashed: bool,
) -> Callable[[PreparedScenario], PreparedScenario] | None:
    """How flows of a run take their paths, as a change of its scenario, where switches hash them.

    On those that counters show, else spread evenly, each on one path. None for so many that they
    use all paths alike.

    Ethernet switches usually hash flows. Where they may spread packets instead, counters decide.

    Args:
        prepared: The scenario.
        run: A run of it, with its messages.
        measured: The measured run.
        evidence: Counters of links.
        threads: Threads of the engine.
        hashed: Whether the scenario states that switches hash flows.
    """
    lossy = is_lossy(evidence, prepared.fabric)
    ethernet = lossy or prepared.fabric.link_interface is not None
    if not hashed and (routing_is_stated(prepared) or not ethernet):
        return None
    choices = list[FlowSeeds]()
    if evidence.counters is not None:
        others = OtherJobs.of(prepared, evidence, run).traffic
        flows = None if others is None else others.flows
        choices = counted_seeds(prepared, run, evidence.counters.sent_bytes, flows)
    simulations = len(choices) * (1 + SUSPECTS)
    events = int(run.summary["events"]) * simulations
    if len(choices) > 1 and events <= SEARCH_EVENTS and fits(simulations):
        agrees = _CallAgreement.of(prepared, run, measured, evidence, threads)
        choices.sort(key=agrees.misfit)
    if choices:
        return partial(with_flow_seeds, seeds=choices[0])
    keep_to_one_path = (hashed or lossy) and has_few_flows(prepared, run)
    return with_whole_flows if keep_to_one_path else None


def counted_seeds(
    prepared: PreparedScenario,
    run: Run,
    sent_bytes: Floats,
    other_flows: pl.DataFrame | None = None,
) -> list[FlowSeeds]:
    """Seeds of the hash of all flows with which links carry what they counted.

    Args:
        prepared: The scenario.
        run: A run of it, with its messages.
        sent_bytes: Counted bytes of each link, NaN if not counted, shape (L,).
        other_flows: Flows of other jobs by the counters of host ports: ``src_node, dst_node,
            size_bytes``. Their ranks follow those of the scenario, as
            :meth:`~tailback.inference.network_clues.OtherJobs.add_to` numbers them.

    Returns:
        Choices of paths that fit as well, at most :data:`FITS`; none if flows have no choice, are
        too many, or fit the counted bytes on no paths.
    """
    header_factor = _header_factor(prepared, run, sent_bytes)
    others = None if other_flows is None else _flows_of_others(prepared, other_flows, header_factor)
    placements = FlowPlacements.of(
        prepared, run, range(SEEDS), least_bytes=0, most_flows=MOST_FLOWS, others=others
    )
    if placements is None:
        return []
    error = 0.0 if others is None else LINK_ERROR
    fit = _Fit.of(placements, sent_bytes, header_factor, error)
    if fit is None:
        return []
    rng = np.random.default_rng(0)
    tried = {tuple(chosen.tolist()): chosen for chosen in (fit.anneal(rng) for _ in range(FITS))}
    loss = {key: fit.loss(chosen) for key, chosen in tried.items()}
    least = min(loss, key=lambda key: loss[key])
    if fit.misfit(tried[least]) > AS_COUNTED:
        return []
    within = loss[least] + ALIKE * float((fit.counted**2).sum())
    alike = [key for key in sorted(loss, key=lambda key: loss[key]) if loss[key] <= within]
    ranks = placements.src_rank.tolist(), placements.dst_rank.tolist()
    return [list(zip(*ranks, fit.seed[tried[key]].tolist(), strict=True)) for key in alike[:FITS]]


def _flows_of_others(
    prepared: PreparedScenario, flows: pl.DataFrame, header_factor: float
) -> pl.DataFrame:
    """Flows of other jobs between switches, in equal parts, with ranks after all of the scenario.

    Columns as :meth:`FlowPlacements.of` takes them; bytes are less by the header factor.
    """
    nodes = np.unique(flows.select("src_node", "dst_node").to_numpy().astype(np.int64))
    pairs = flows.group_by("src_node", "dst_node").agg(pl.col("size_bytes").sum())
    pairs = pairs.sort("src_node", "dst_node")
    src, dst = (pairs[name].to_numpy().astype(np.int64) for name in ("src_node", "dst_node"))
    first_rank = prepared.program.n_ranks + np.arange(FLOWS_OF_PAIR)[:, None] * len(nodes)
    parts = pairs["size_bytes"].to_numpy() / (FLOWS_OF_PAIR * header_factor)
    between = prepared.fabric.node_switch[src] != prepared.fabric.node_switch[dst]
    return pl.DataFrame(
        {
            "src": (first_rank + np.searchsorted(nodes, src))[:, between].ravel(),
            "dst": (first_rank + np.searchsorted(nodes, dst))[:, between].ravel(),
            "src_node": np.tile(src[between], FLOWS_OF_PAIR),
            "dst_node": np.tile(dst[between], FLOWS_OF_PAIR),
            "bytes": np.tile(parts[between], FLOWS_OF_PAIR),
        }
    )


def chance_of_paths(prepared: PreparedScenario, run: Run) -> float | None:
    """Share of the hashes that use links between switches as unevenly as the known paths.

    Uneven is the sum over the links of the squared time that their bytes take. None if flows have
    no choice or are too many.

    Args:
        prepared: The scenario.
        run: A run of it, with its messages.
    """
    flow_seeds = prepared.scenario.engine.flow_seeds
    hashes = max(min(HASHES, HASHED_FLOWS // max(len(flow_seeds), 1)), SEEDS)
    placements = FlowPlacements.of(
        prepared, run, range(hashes), least_bytes=0, most_flows=MOST_FLOWS
    )
    if placements is None:
        return None
    seed_of = {(src, dst): seed for src, dst, seed in flow_seeds}
    ranks = zip(placements.src_rank.tolist(), placements.dst_rank.tolist(), strict=True)
    seeds = np.array([seed_of.get(pair, 0) for pair in ranks])
    flow = placements.row % placements.n_flows
    chosen = placements.row // placements.n_flows == seeds[flow]
    n_links = len(placements.link_gbps)
    now = np.bincount(placements.link[chosen], placements.bytes[flow[chosen]], n_links)
    drawn = placements.link_bytes()
    uneven = ((np.vstack([now, drawn]) / placements.link_gbps) ** 2).sum(axis=1)
    return float((uneven[1:] >= uneven[0] * (1.0 - 1e-9)).mean())


@dataclass(frozen=True)
class _CallAgreement:
    """How well the times of calls agree with paths of flows.

    Attributes:
        prepared: The scenario.
        others: Traffic of other jobs.
        compare: Compares a run with the times of calls and sends.
        suspects: Cables that had queues longer than they send at their rates.
        threads: Threads of the engine.
    """

    prepared: PreparedScenario
    others: OtherJobs
    compare: Comparisons
    suspects: Sequence[SlowLink]
    threads: int | None

    @classmethod
    def of(
        cls,
        prepared: PreparedScenario,
        run: Run,
        measured: MeasuredRun,
        evidence: NetworkEvidence,
        threads: int | None,
    ) -> _CallAgreement:
        """Arguments as in :func:`on_likely_paths`."""
        profile = call_profile(measured.tables, prepared.observed.program)
        compare = comparisons(prepared, measured, evidence, run, profile)
        reverse = np.asarray(prepared.fabric.link_reverse, np.uint32)
        cables = np.unique(np.minimum(np.arange(len(reverse)), reverse)).tolist()
        queues = QueueLikelihood.of(evidence.counters, prepared.fabric)
        suspects = [] if queues is None else queues.suspects(cables, reverse)[:SUSPECTS]
        others = OtherJobs.of(prepared, evidence, run)
        return cls(prepared, others, compare, suspects, threads)

    def misfit(self, seeds: FlowSeeds) -> float:
        """Misfit of the times with these paths, with or without the suspect that agrees best."""
        scenario = self.others.add_to(with_flow_seeds(self.prepared, seeds), None)
        evaluate = make_simulation(scenario, threads=self.threads)
        return min(
            self._misfit(evaluate(Change(slow=slow, computations=True)))
            for slow in ((), *((suspect,) for suspect in self.suspects))
        )

    def _misfit(self, run: Run) -> float:
        misfits = self.compare(run).misfits
        return sum(
            math.log(MISFIT_ERROR[kind] + misfit)
            for kind, misfit in misfits.items()
            if misfit is not None
        )


def _header_factor(prepared: PreparedScenario, run: Run, sent_bytes: Floats) -> float:
    """Counted bytes over those of messages: the median over the job's hosts, weighted by bytes.

    Other jobs may send from some of its hosts, too, and hosts that send little send mostly
    acknowledgements. 1 where nothing was counted.
    """
    fabric = prepared.fabric
    hosts = np.unique(prepared.observed.node)
    of_hosts = np.flatnonzero(np.isin(fabric.link_src, hosts) & ~np.isnan(sent_bytes))
    simulated = link_totals(run, "bytes")[of_hosts].astype(np.float64)
    used = simulated > 0
    if not used.any():
        return 1.0
    factors = sent_bytes[of_hosts][used] / simulated[used]
    order = np.argsort(factors)
    below = np.cumsum(simulated[used][order])
    return float(factors[order][np.searchsorted(below, below[-1] / 2.0)])


@dataclass(frozen=True)
class _Fit:
    """Choice of one path for each flow, with these options.

    Attributes:
        first: First option of each flow, and their number, shape (F + 1,).
        seed: Seed that leads to each option, shape (O,).
        links: Counted links of each option, padded with L, shape (O, H).
        bytes: Bytes that an option adds to each of its links, as counters count, shape (O,).
        counted: Counted bytes of links, 0 where not counted, and 0 for the padding, shape (L + 1,).
        others: Share of the counted bytes that are not of these flows.
        error: Error of the counted bytes, over their mean.
    """

    first: Ints
    seed: Ints
    links: Ints
    bytes: Floats
    counted: Floats
    others: float
    error: float

    @classmethod
    def of(
        cls, placements: FlowPlacements, sent_bytes: Floats, header_factor: float, error: float
    ) -> _Fit | None:
        """The options of all flows; None if nothing was counted on their links.

        Args:
            placements: The flows, and their paths for many seeds.
            sent_bytes: Counted bytes of each link, shape (L,).
            header_factor: Counted bytes over those of messages.
            error: Error of the counted bytes, over their mean.
        """
        n_flows, n_links = placements.n_flows, len(sent_bytes)
        paths: list[dict[tuple[int, ...], int]] = [{} for _ in range(n_flows)]
        order = np.lexsort((placements.link, placements.row))
        rows, starts = np.unique(placements.row[order], return_index=True)
        for row, path in zip(
            rows.tolist(), np.split(placements.link[order], starts[1:]), strict=True
        ):
            seed, flow = divmod(row, n_flows)
            paths[flow].setdefault(tuple(path.tolist()), int(placements.seeds[seed]))
        if not all(paths):
            return None
        options = [(path, seed) for flow in paths for path, seed in flow.items()]
        links = np.full((len(options), max(len(crossed) for crossed, _ in options)), n_links)
        for number, (crossed, _) in enumerate(options):
            links[number, : len(crossed)] = crossed
        counted = np.nan_to_num(np.append(sent_bytes, np.nan))
        links[np.isnan(np.append(sent_bytes, np.nan))[links]] = n_links
        used = np.unique(links[links < n_links])
        number_of = np.array([len(flow) for flow in paths])
        sent = np.repeat(placements.bytes, number_of) * header_factor
        crossed_links = (links < n_links).sum(axis=1)
        ours = float((sent * crossed_links / np.repeat(number_of, number_of)).sum())
        total = float(counted[used].sum())
        if min(ours, total) <= 0.0:
            return None
        counted[np.setdiff1d(np.arange(n_links + 1), used)] = 0.0
        return cls(
            np.cumsum([0, *number_of]),
            np.array([seed for _, seed in options], np.int64),
            links,
            sent,
            counted,
            max(1.0 - ours / total, 0.0),
            error,
        )

    def anneal(self, rng: np.random.Generator) -> Ints:
        """Options found by simulated annealing from random ones, shape (F,)."""
        n_flows = len(self.first) - 1
        chosen = rng.integers(self.first[:-1], self.first[1:])
        open_flows = np.flatnonzero(np.diff(self.first) > 1)
        if not len(open_flows):
            return np.asarray(chosen, np.int64)
        options, lacking = chosen.tolist(), self._lacking(chosen).tolist()
        sent, pad = self.bytes.tolist(), len(lacking) - 1
        paths = [tuple(link for link in row if link != pad) for row in self.links.tolist()]
        weight = OTHERS_EVEN if self.others >= OTHERS else 1.0
        usual: list[float] = (self.others * self.counted).tolist()
        # Small flows matter little, and descend to their best paths in the end.
        large = self.bytes[chosen[open_flows]]
        steps = min(STEPS_OF_FLOW * n_flows, MOST_STEPS)
        flows = rng.choice(open_flows, steps, p=large / large.sum())
        others = rng.integers(self.first[flows], self.first[flows + 1]).tolist()
        hot = HOT * float(large.max()) ** 2
        error = self.error * float(self.counted[self.counted > 0].mean())
        cold = max(hot * COLD / HOT, min(2.0 * error**2, hot))
        bars = -np.log(rng.random(steps)) * np.geomspace(hot, cold, steps)

        def loss(link: int, lacks: float) -> float:
            apart = lacks - usual[link]
            return (lacks * lacks if lacks < 0.0 else 0.0) + weight * (apart * apart)

        @cache
        def differing(now: int, other: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
            """Links on the path of only one of two options."""
            before, after = paths[now], paths[other]
            return (
                tuple(link for link in before if link not in after),
                tuple(link for link in after if link not in before),
            )

        losses = [loss(link, lacks) for link, lacks in enumerate(lacking)]
        for flow, option, bar in zip(flows.tolist(), others, bars.tolist(), strict=True):
            if option == options[flow]:
                continue
            size, (left, entered) = sent[option], differing(options[flow], option)
            changed = [(link, lacking[link] + size) for link in left]
            changed += [(link, lacking[link] - size) for link in entered]
            if sum([loss(link, lacks) - losses[link] for link, lacks in changed]) < bar:
                options[flow] = option
                for link, lacks in changed:
                    lacking[link], losses[link] = lacks, loss(link, lacks)
        return self.descend(np.array(options, np.int64), rng)

    def descend(self, start: Ints, rng: np.random.Generator) -> Ints:
        """Options from these on, each changed until no other fits better, shape (F,)."""
        chosen = start.copy()
        lacking = self._lacking(chosen)
        changed = True
        while changed:
            changed = False
            for flow in rng.permutation(len(chosen)).tolist():
                now = int(chosen[flow])
                lacking[self.links[now]] += self.bytes[now]
                first, end = int(self.first[flow]), int(self.first[flow + 1])
                on_links = lacking[self.links[first:end]]
                counted = self.counted[self.links[first:end]]
                better = self._loss(on_links, counted) - self._loss(
                    on_links - self.bytes[now], counted
                )
                gain = np.where(self.links[first:end] < len(lacking) - 1, better, 0.0).sum(axis=1)
                best = first + int(gain.argmax())
                if gain[best - first] - gain[now - first] > 1e-9 * self.bytes[now] ** 2:
                    now, changed = best, True
                chosen[flow] = now
                lacking[self.links[now]] -= self.bytes[now]
        return chosen

    def misfit(self, chosen: Ints) -> float:
        """Squared difference of the counted bytes and those of the options, over the former.

        Beside other traffic, of what the options add to links beyond what these counted.
        """
        lacking = self._lacking(chosen)
        if self.others >= OTHERS:
            lacking = np.minimum(lacking, 0.0)
        return float((lacking**2).sum() / (self.counted**2).sum())

    def loss(self, chosen: Ints) -> float:
        """What the fit makes least."""
        return float(self._loss(self._lacking(chosen), self.counted).sum())

    def _loss(self, lacking: Floats, counted: Floats) -> Floats:
        """Squares of what links lack of the counted bytes: of others, they have any share of them.

        They tend to have the same share of all links; no link carries more of ours than it counted.
        """
        weight = OTHERS_EVEN if self.others >= OTHERS else 1.0
        apart = lacking - self.others * counted
        return np.asarray(np.minimum(lacking, 0.0) ** 2 + weight * apart**2, np.float64)

    def _lacking(self, chosen: Ints) -> Floats:
        """What the bytes of the options lack of the counted ones, shape (L + 1,)."""
        sent = np.zeros(len(self.counted))
        np.add.at(sent, self.links[chosen], self.bytes[chosen][:, None])
        sent[-1] = 0.0
        return self.counted - sent
