"""TB005: too few samples."""

from __future__ import annotations

import polars as pl

from tailback.diagnosis.model import Finding
from tailback.diagnosis.rules import RULES
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.telemetry.header_counts import HASHED
from tailback.units import percent


@RULES.register("TB005")
def too_few_samples(evidence: RunAnalysis) -> Finding | None:
    """Too few samples for a verdict.

    ## What it does
    Fires when more than a quarter of the congested packets are on links that may or may not be
    congested according to the samples, or in trees whose root your job may or may not fill, and
    these packets could make another cause the heaviest. Also fires when your messages crossed
    switches but no packet carried a sample, or none that can be decoded.
    The finding states how many more packets of which phase are needed, and which links are least
    certain. Counts decoded from hashes vary more than counts of whole links, so fewer header bits
    need more packets. Scheme `worst-hop` names the most congested link of each packet and counts
    nothing else: there the rule always fires, without a number.

    ## Why it matters
    A packet samples one hop of its path, so a link needs some tens of packets before its congested
    fraction means anything: Var[F] = [f (g−1) + f² (l−1)] / N, for N packets over l hops of which g
    are congested (Taffet, 2019, section 3.3). With fewer, chance alone produces congestion trees.

    ## Example
    A short run of a small exchange: 12 samples on 40 links.

    ## What to do
    Observe longer: repeat the phase (`repeat` in the scenario's job), or use smaller packets, and
    diagnose again.
    """
    if not evidence.crosses:
        return None  # There is nothing to sample: TB004.
    if evidence.undecoded:
        return _undecoded(evidence)
    if not evidence.received:
        return evidence.finding(
            "TB005", "undetermined", "Too few samples: no packet carried one",
            "No packet of an observed job carried a sample, so nothing is known about any link.",
            evidence.roots.clear(),
            "Switch telemetry on (scheme = 'full') for a job with observed = true.",
        )  # fmt: skip
    if evidence.bottlenecks_only:
        return _bottlenecks(evidence)
    if not evidence.open_matters:
        return None
    share = evidence.unsure_share
    more = evidence.packets_wanting()
    phase, links = evidence.most_wanted()
    names = "; ".join(evidence.topology.name[link] for link in links)
    which = f" of phase {phase!r}" if phase else ""
    where = f" Least certain: {names}." if names else ""
    text = (
        f"{evidence.received} packets sampled {evidence.links_seen} links, enough to judge "
        f"{evidence.links_sure} of them; {percent(share)} of the congested packets are on links or "
        f"in trees that remain uncertain. About {more} more packets of this traffic would settle "
        "most of them."
        f"{where}"
    )
    return evidence.finding(
        "TB005", "undetermined", "Too few samples to be sure", text,
        evidence.roots.filter(pl.col("verdict") == "unsettled"),
        f"Sample about {more} more packets{which}: repeat it, or use smaller packets"
        f"{_bits(evidence)}.",
    )  # fmt: skip


def _undecoded(evidence: RunAnalysis) -> Finding:
    """Headers arrived, but their scheme cannot be decoded on these routes."""
    scheme, number = evidence.scheme, evidence.run.tables["packets"].height
    return evidence.finding(
        "TB005", "undetermined", "Too few samples: those that arrived cannot be decoded",
        f"{number} packets arrived with a header of scheme {scheme}, but on these routes it does "
        "not identify links (a note of the run says why), so nothing is known about any link.",
        evidence.roots.clear(),
        "Follow that note, or use scheme = 'full', which works on all routes.",
    )  # fmt: skip


def _bits(evidence: RunAnalysis) -> str:
    """Advice where more header bits would need fewer packets."""
    if evidence.scheme not in HASHED:
        return ""
    bits = evidence.run.scenario.telemetry.hash_bits
    return f"; with more than {bits} hash bit{'s' * (bits > 1)} per packet fewer are needed"


def _bottlenecks(evidence: RunAnalysis) -> Finding:
    """What worst-hop can say."""
    names = [evidence.topology.name[link.link] for link in evidence.top_links(3)]
    seen = f"Most packets name {'; '.join(names)}. " if names else ""
    return evidence.finding(
        "TB005", "undetermined", "The bottlenecks are known, but not who fills them",
        f"{seen}Scheme worst-hop names only the most congested link of each packet: a lower bound "
        "of a link's congested packets, and no count of all its packets. Congestion trees and the "
        "utilization of their roots therefore assume packets spread evenly over the routes, and "
        "more samples cannot settle them.",
        evidence.roots.clear(),
        "Use a scheme that counts packets, like coordinated with 5 hash bits (6 bits a packet).",
    )  # fmt: skip
