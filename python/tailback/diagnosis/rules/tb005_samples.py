"""TB005: too few samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from tailback.diagnosis.model import Finding
from tailback.diagnosis.rules import RULES
from tailback.diagnosis.run_analysis import RunAnalysis
from tailback.diagnosis.wording import WITHOUT_SAMPLES
from tailback.scenario.model import OWN_FIELDS
from tailback.telemetry.entropy_ecn import ENTROPY_ECN
from tailback.telemetry.header_counts import HASHED
from tailback.units import percent

TOO_FEW_SAMPLES: Final = "Too few samples to be sure"


MARKS_OF_TREES: Final = "Marks do not tell links apart"


NO_SAMPLE: Final = "Too few samples: no packet carried one"


NOT_DECODED: Final = "Too few samples: those that arrived cannot be decoded"


SWITCH_ON: Final = "Switch telemetry on (scheme = 'full') for a job with observed = true."


STATE_TELEMETRY: Final = (
    "Let the switches write samples, and state which in [telemetry] of the scenario given as the "
    "fabric; without them, port counters show congestion."
)


FOLLOW_NOTE: Final = "Follow that note, or use scheme = 'full', which works on all routes."


COUNT_PACKETS: Final = (
    "Use a scheme that counts packets, like coordinated with 5 hash bits (6 bits a packet): links "
    "that share a locator remain indistinguishable in any number of packets."
)


TELL_HOPS: Final = (
    "Let switches say which hop was congested, as coordinated with 5 hash bits does (6 bits a "
    "packet), or read port counters: where congestion fills all paths, marks of more packets do "
    "not tell its links apart."
)


ACCUSED: Final = 3
"""Links that marks accuse most, in the finding."""


NOTHING_SAMPLED: Final = (
    "No packet of an observed job carried a sample, so the state of the links is unknown."
)


@RULES.register("TB005")
def too_few_samples(evidence: RunAnalysis) -> Finding | None:
    """Too few samples for a verdict.

    ## What it does
    Fires when more than a quarter of the congested packets are on links that may or may not be
    congested, or in trees whose root your job may or may not fill, and these packets could make
    another cause the heaviest. Also fires when no packet carried a sample that can be decoded. The
    finding states how many more packets of which phase are needed, and which links are least
    certain. Fewer header bits need more packets. No number of packets tells links apart whose
    locators agree (`csig`) or that are congested together (`entropy-ecn`: the finding names those
    with most marks).

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
            NO_SAMPLE,
            WITHOUT_SAMPLES.format(why),
            evidence.roots.clear(),
            STATE_TELEMETRY,
        )
    if not evidence.received:
        return evidence.finding(
            "TB005",
            "undetermined",
            NO_SAMPLE,
            NOTHING_SAMPLED,
            evidence.roots.clear(),
            SWITCH_ON,
        )
    if not evidence.uncertainty_matters:
        return None
    phase, links = evidence.most_uncertain()
    if evidence.scheme in OWN_FIELDS:
        more, advice = None, COUNT_PACKETS if evidence.scheme == "csig" else TELL_HOPS
    else:
        more = evidence.packets_needed()
        bits = evidence.run.scenario.telemetry.hash_bits if evidence.scheme in HASHED else None
        advice = sample_more(more, phase, bits)
    text = too_few_samples_sentence(
        evidence.received,
        evidence.links_seen,
        evidence.links_sure,
        evidence.unsure_share,
        more,
        [evidence.topology.name[link] for link in links],
    )
    title = TOO_FEW_SAMPLES
    if evidence.scheme == ENTROPY_ECN:
        title, text = MARKS_OF_TREES, f"{text} {_accused(evidence)}"
    return evidence.finding(
        "TB005",
        "undetermined",
        title,
        text,
        evidence.roots.filter(pl.col("verdict") == "unsettled"),
        advice,
    )


def _accused(evidence: RunAnalysis) -> str:
    """The links that marks accuse most, with what each may have marked."""
    links = sorted(evidence.top_links(20), key=lambda link: -link.congested_fraction.low)
    named = (
        f"{link.name} ({percent(link.congested_fraction.low, 0)} to "
        f"{percent(link.congested_fraction.high, 0)} of its packets)"
        for link in links[:ACCUSED]
    )
    return f"Marks accuse most: {'; '.join(named)}."


def _undecoded(evidence: RunAnalysis) -> Finding:
    """Headers arrived, but their scheme cannot be decoded on these routes."""
    return evidence.finding(
        "TB005",
        "undetermined",
        NOT_DECODED,
        not_decoded(evidence.run.tables["packets"].height, evidence.scheme),
        evidence.roots.clear(),
        FOLLOW_NOTE,
    )


def too_few_samples_sentence(
    packets: int,
    seen: int,
    sure: int,
    share: float,
    more: int | None,
    least_certain: Sequence[str],
) -> str:
    """TB005: how many links the samples can settle.

    Args:
        packets: Packets with a sample.
        seen: Links that they sampled.
        sure: Number of these links with enough samples.
        share: Share of the congested packets that remain uncertain.
        more: Further packets that would settle most of them; None if no number would.
        least_certain: Names of the links.
    """
    where = f" Least certain: {'; '.join(least_certain)}." if least_certain else ""
    settled = (
        f" About {more:,} more packets of this traffic would settle most of them."
        if more is not None
        else ""
    )
    return (
        f"{packets:,} packets sampled {seen:,} links, enough to judge {sure:,} of them; "
        f"{percent(share)} of the congested packets are on links or in trees that remain "
        f"uncertain.{settled}{where}"
    )


def sample_more(more: int, phase: str, hash_bits: int | None) -> str:
    """TB005: advice; ``hash_bits`` for hashed schemes, None for others."""
    which = f" of phase {phase!r}" if phase else ""
    bits = (
        f"; with more than {hash_bits} hash bit{'s' * (hash_bits > 1)} per packet fewer are needed"
        if hash_bits is not None
        else ""
    )
    return f"Sample about {more:,} more packets{which}: repeat it, or use smaller packets{bits}."


def not_decoded(packets: int, scheme: str) -> str:
    """TB005: headers do not identify links on these routes."""
    return (
        f"{packets} packets arrived with a header of scheme {scheme}, but on these routes it does "
        "not identify links (a note of the run says why), so the state of the links is unknown."
    )
