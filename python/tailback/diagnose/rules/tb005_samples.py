"""TB005: too few samples."""

from __future__ import annotations

import polars as pl

from tailback.diagnose.model import Finding
from tailback.diagnose.rules import RULES
from tailback.diagnose.run_analysis import RunAnalysis
from tailback.telemetry.header_counts import HASHED
from tailback.units import percent


@RULES.register("TB005")
def too_few_samples(evidence: RunAnalysis) -> Finding | None:
    """Too few samples: what was received does not settle the verdict.

    ## What it does
    Fires when over a quarter of the congested packets lie on links of which the samples do not say
    whether they are congested, or in trees of which they do not say whether we fill the root, and
    these are enough to make another cause the heaviest; and when no packet carried a sample at all,
    or none that can be decoded, though messages of ours crossed switches.
    It says how many more packets would settle it, of which phase, and which links are most open.
    Counts decoded from hashes vary more than counts of whole links, so the fewer bits a packet
    carries the more packets it asks for. Scheme `worst-hop` names the most congested link of each
    packet and counts nothing else: there it always fires, and names no number.

    ## Why it matters
    A packet tells of one hop of its path, so a link needs some tens of packets before its congested
    fraction means anything: Var[F] = [f (g−1) + f² (l−1)] / N, for N packets over l hops of which g
    are congested (thesis, section 3.3). Below that, chance draws congestion trees of its own.

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
            "No packet of an observed job arrived with a sample, so nothing is known of any link.",
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
    where = f" What is most open: {names}." if names else ""
    text = (
        f"{evidence.received} packets left samples on {evidence.links_seen} links, enough for a "
        f"verdict on {evidence.links_sure}; {percent(share)} of the congested packets are on "
        f"links, or in trees, that stay open. About {more} more packets of this traffic would "
        "settle most."
        f"{where}"
    )
    return evidence.finding(
        "TB005", "undetermined", "Too few samples to be sure", text,
        evidence.roots.filter(pl.col("verdict") == "unsettled"),
        f"Observe about {more} more packets{which}: repeat it, or use smaller packets"
        f"{_bits(evidence)}.",
    )  # fmt: skip


def _undecoded(evidence: RunAnalysis) -> Finding:
    """Headers arrived, and their scheme does not work on these routes."""
    scheme, number = evidence.scheme, evidence.run.tables["packets"].height
    return evidence.finding(
        "TB005", "undetermined", "Too few samples: those that arrived cannot be decoded",
        f"{number} packets arrived with a header of scheme {scheme}, "
        "and what links they tell of is not known on these routes; a note of the run says why. So "
        "nothing is known of any link.",
        evidence.roots.clear(),
        "Do as that note says, or use scheme = 'full', which is decoded on all routes.",
    )  # fmt: skip


def _bits(evidence: RunAnalysis) -> str:
    """Where more bits a packet would do with fewer packets."""
    if evidence.scheme not in HASHED:
        return ""
    bits = evidence.run.scenario.telemetry.hash_bits
    return f"; more than {bits} hash bit{'s' * (bits > 1)} a packet need fewer"


def _bottlenecks(evidence: RunAnalysis) -> Finding:
    """What worst-hop can say."""
    names = [evidence.topology.name[link.link] for link in evidence.top_links(3)]
    seen = f"Most packets name {'; '.join(names)}. " if names else ""
    return evidence.finding(
        "TB005", "undetermined", "Bottlenecks are known, not who fills them",
        f"{seen}Scheme worst-hop carries the most congested link of each packet: a lower bound of "
        "the congested packets of a link, and no count of the packets through it. So congestion "
        "trees and the use of their roots rest on packets spread evenly over the routes, and no "
        "number of samples settles them.",
        evidence.roots.clear(),
        "Use a scheme that counts packets, like coordinated with 5 hash bits (6 bits a packet).",
    )  # fmt: skip
