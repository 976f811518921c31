"""Where a slow cable is: whether the evidence tells, and among which cables if it does not."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tailback.evidence import MeasuredRun
from tailback.fabric.degraded import SlowLink
from tailback.fabric.model import Fabric
from tailback.inference.evidence import NetworkEvidence
from tailback.inference.hypotheses import CREDIBLE, Posterior
from tailback.inference.hypothesis_space import HypothesisSpace
from tailback.inference.measured_cables import equally_busy, parallel_links
from tailback.inference.network_clues import between_switches, routing_is_stated
from tailback.simulation import PreparedScenario


def hides_places(
    prepared: PreparedScenario, measured: MeasuredRun, evidence: NetworkEvidence
) -> bool:
    """Whether the times of accelerators alone cannot show which link is slow.

    All ranks of a ring or tree end a collective together, whichever of its links is slow, and as
    late if all links are. Steps between hosts, or counters, show it.
    """
    by_collectives = prepared.observed.program.recompile is not None
    return by_collectives and evidence.counters is None and not measured.tables["steps"].height


def place_is_open(space: HypothesisSpace, posterior: Posterior, prepared: PreparedScenario) -> bool:
    """Whether a link is slow, but its place depends on paths that are unknown.

    If no cable agrees with all evidence as well as usual and the paths are assumed, the assumption
    may be wrong, and the right cable may be none of those that fit best with it: unless the same
    one fits best with every routing that was tried. On a lossy network retransmissions make the
    right cable agree worse than usual, too. Errors show the place, whatever the paths.
    """
    best, fabric = posterior.best, prepared.fabric
    if not best.slow or best.slow == space.machines[best.machine].slow or posterior.model.lossy:
        return False
    if all(space.prior().is_suspect(slow.link) for slow in best.slow):
        return False
    paths_known = routing_is_stated(prepared) or not bool(between_switches(fabric).any())
    if paths_known or posterior.slow_cable_agrees:
        return False
    likeliest: dict[str, Hashable] = {}
    for hypothesis in (weighed.hypothesis for weighed in posterior.weighed):
        if hypothesis.slow != space.machines[hypothesis.machine].slow:
            likeliest.setdefault(hypothesis.machine[1], hypothesis.places(posterior.reverse))
    return len(likeliest) < 2 or len(set(likeliest.values())) > 1


def slow_candidates(posterior: Posterior, fabric: Fabric, *, place_open: bool) -> list[SlowLink]:
    """Cables of which one may be slow, if the evidence cannot determine which, or whether any."""
    slow = [weighed for weighed in posterior.weighed if weighed.hypothesis.slow]
    least = 1.0 - CREDIBLE
    if not posterior.best.slow:
        # A fault that was not tried may be in any place, so it counts against none.
        least *= sum(
            weighed.probability
            for weighed in posterior.weighed
            if not weighed.hypothesis.unsimulated
        )
    if posterior.in_any_place:
        least *= max(weighed.probability for weighed in slow)
    likely = [weighed for weighed in slow if weighed.probability >= least]
    cables: dict[int, SlowLink] = {}
    for weighed in likely:
        for link in weighed.hypothesis.slow if posterior.is_named(weighed.hypothesis) else ():
            cables.setdefault(min(link.link, int(fabric.link_reverse[link.link])), link)
    all_may_be = posterior.in_any_place and posterior.slower_machine[0] >= 1.0 - CREDIBLE
    is_evident = len(cables) <= len(posterior.best.slow) and not (place_open or all_may_be)
    if posterior.best.slow and is_evident:
        return []
    return [] if posterior.best.job is not None else list(cables.values())


def as_busy(
    space: HypothesisSpace, posterior: Posterior, candidates: Sequence[SlowLink]
) -> list[SlowLink]:
    """The candidates, or the slow cables, and those that are as busy in the expected run."""
    best = posterior.best
    machine = space.machines[best.machine]
    slow = candidates or [link for link in best.slow if link not in machine.slow]
    fabric = machine.prepared.fabric
    first_of = equally_busy(space.alone(machine.name, None, with_others=False), fabric)
    out = {min(link.link, int(fabric.link_reverse[link.link])): link for link in slow}
    for cable, link in list(out.items()):
        share = link.gbps / float(fabric.link_gbps[link.link])
        for other, first in first_of.items():
            if first == first_of.get(cable, -1):
                out.setdefault(other, SlowLink(other, share * float(fabric.link_gbps[other])))
    return list(out.values())


def with_parallel_links(cables: Sequence[SlowLink], fabric: Fabric) -> list[SlowLink]:
    """Slow cables with those parallel to them, which may be slow in their place.

    Messages take one of them by a hash that is unknown.
    """
    out: dict[int, SlowLink] = {}
    for slow in cables:
        for link in (slow.link, *parallel_links(fabric, slow.link)):
            cable = min(link, int(fabric.link_reverse[link]))
            out.setdefault(cable, slow._replace(link=link))
    return list(out.values())


def host_of_cable(cables: Sequence[SlowLink], fabric: Fabric) -> int:
    """The node to which a single slow cable leads; -1 if there are several, or it leads to none."""
    ends = {_host_end(cable, fabric) for cable in cables}
    return ends.pop() if len(cables) == 1 else -1


def _host_end(cable: SlowLink, fabric: Fabric) -> int:
    """The node at an end of a cable; -1 between switches."""
    node = min(int(fabric.link_src[cable.link]), int(fabric.link_dst[cable.link]))
    return node if node < fabric.n_nodes else -1
