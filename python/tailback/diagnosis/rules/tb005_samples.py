"""TB005: too few samples."""

from __future__ import annotations

import polars as pl

from tailback.diagnosis import rule_wording as wording
from tailback.diagnosis.model import Finding
from tailback.diagnosis.rules import RULES
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.telemetry.header_counts import HASHED


@RULES.register("TB005")
def too_few_samples(evidence: RunAnalysis) -> Finding | None:
    """Too few samples for a verdict.

    ## What it does
    Fires when more than a quarter of the congested packets are on links that may or may not be
    congested, or in trees whose root your job may or may not fill, and these packets could make
    another cause the heaviest. Also fires when no packet carried a sample that can be decoded. The
    finding states how many more packets of which phase are needed, and which links are least
    certain. Fewer header bits need more packets. With scheme `csig`, links whose locators agree
    cannot be told apart by any number of packets.

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
    if why := evidence.run.summary.get("without_samples"):
        return evidence.finding(
            "TB005",
            "undetermined",
            wording.NO_SAMPLE,
            wording.WITHOUT_SAMPLES.format(why),
            evidence.roots.clear(),
            wording.STATE_TELEMETRY,
        )
    if not evidence.received:
        return evidence.finding(
            "TB005",
            "undetermined",
            wording.NO_SAMPLE,
            wording.NOTHING_SAMPLED,
            evidence.roots.clear(),
            wording.SWITCH_ON,
        )
    if not evidence.uncertainty_matters:
        return None
    phase, links = evidence.most_uncertain()
    if evidence.scheme == "csig":
        more, advice = None, wording.COUNT_PACKETS
    else:
        more = evidence.packets_needed()
        bits = evidence.run.scenario.telemetry.hash_bits if evidence.scheme in HASHED else None
        advice = wording.sample_more(more, phase, bits)
    text = wording.too_few_samples(
        evidence.received,
        evidence.links_seen,
        evidence.links_sure,
        evidence.unsure_share,
        more,
        [evidence.topology.name[link] for link in links],
    )
    return evidence.finding(
        "TB005",
        "undetermined",
        wording.TOO_FEW_SAMPLES,
        text,
        evidence.roots.filter(pl.col("verdict") == "unsettled"),
        advice,
    )


def _undecoded(evidence: RunAnalysis) -> Finding:
    """Headers arrived, but their scheme cannot be decoded on these routes."""
    return evidence.finding(
        "TB005",
        "undetermined",
        wording.NOT_DECODED,
        wording.not_decoded(evidence.run.tables["packets"].height, evidence.scheme),
        evidence.roots.clear(),
        wording.FOLLOW_NOTE,
    )
