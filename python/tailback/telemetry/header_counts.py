"""Counts of every link, decoded from packet headers by the receiver.

Table ``packets`` of a run holds the header of each packet in the layout of its scheme. This module
implements the receiver of every scheme of the engine: the fields of a header, the sampled hop if it
is known, and the weight of the sample. Hashes are converted to counts by
:mod:`tailback.telemetry.hashed`, whole links by adding. Only the headers, the ends of each packet
and the routing are used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.arrays import Floats
from tailback.errors import RunError
from tailback.run.run import Run
from tailback.telemetry.bottlenecks import Bottlenecks, find_bottlenecks
from tailback.telemetry.candidates import PairCandidates
from tailback.telemetry.entropy_ecn import ENTROPY_ECN, infer, path_samples
from tailback.telemetry.estimate import smoothed_excess
from tailback.telemetry.hashed import (
    CandidateLinks,
    Decoder,
    HashedCounts,
    HashedSamples,
    count_links,
)
from tailback.telemetry.header_fields import (
    HeaderSamples,
    counted_hops,
    decisions_taken,
    field,
    slot_samples,
)
from tailback.telemetry.packet_ids import (
    ID_BITS,
    decision_words,
    hop_hash,
    ids_of,
    takes_sample,
)
from tailback.units import percent

FIELD_BITS = ID_BITS
"""n of the GF(2^n) hash that the engine's switches evaluate, and bits of a link number."""

Stages = list[tuple[NDArray[np.intp], CandidateLinks]]


HASHED = ("single-bit", "compact", "coordinated", "xor-digest")
"""Schemes that carry a hash instead of a link."""

NOISY_AT_ZERO = (*HASHED, ENTROPY_ECN)
"""Schemes whose counts vary on links without packets, or without congested ones, too."""

ONE_RESERVOIR = ("compact", "coordinated", "xor-digest")
"""Schemes of one sample a packet, with a bit that says whether its link was congested."""

COUNTING = ("single-bit", "compact")
"""Schemes of a hash and a count of hops, which may saturate."""

ANY_PATH_LENGTH = ("full", "single-bit", "compact", "edge-marking")
"""Schemes whose headers contain the weight, so the path length need not be known."""


@dataclass(frozen=True)
class LinkCounts:
    """Counts of every link, decoded from the headers of a run.

    Attributes:
        packets: Packets of observed jobs; None if the scheme does not count them.
        congested: Those that met congestion; None if the scheme does not count them.
        counted: Links that are sampled, shape (L,): without injection links, unless they count as
            hops. Counts of other links are 0 and meaningless.
        bottlenecks: What scheme ``csig`` finds instead of counts; None for other schemes.
    """

    packets: HashedCounts | None
    congested: HashedCounts | None
    counted: NDArray[np.bool_]
    bottlenecks: Bottlenecks | None = None

    def table(self) -> pl.DataFrame:
        """One row per link: both counts with variance and 95 % interval, null if unknown.

        For scheme ``csig`` also the packets with their bottleneck at the link, with interval. Its
        congested packets have bounds only.
        """
        columns: dict[str, Floats | None] = {}
        for name, counts in (("packets", self.packets), ("congested", self.congested)):
            low, high = counts.interval() if counts is not None else (None, None)
            columns[name] = None if counts is None else counts.packets
            columns[f"{name}_variance"] = None if counts is None else counts.variance
            columns[f"{name}_low"], columns[f"{name}_high"] = low, high
        if self.bottlenecks is not None:
            columns["congested_low"], columns["congested_high"] = self.bottlenecks.congested()
            estimates = self.bottlenecks.counts()
            columns |= dict(
                zip(("bottleneck", "bottleneck_low", "bottleneck_high"), estimates, strict=True)
            )
        columns = {
            name: None if values is None else np.where(self.counted, values, np.nan)
            for name, values in columns.items()
        }
        links = np.arange(len(self.counted), dtype=np.uint32)
        present = {name: values for name, values in columns.items() if values is not None}
        unknown = [pl.lit(None, pl.Float64).alias(name) for name in columns if name not in present]
        # NaN: not known.
        return pl.DataFrame({"link": links, **present}).fill_nan(None).with_columns(unknown)


def packets_a_sample(run: Run) -> float:
    """Number of packets per sample that arrives, including packets that lost their sample.

    A receiver also sees packets without a sample, so it knows this ratio.
    """
    return float(run.summary.get("one_in", 1)) / (1.0 - run.scenario.telemetry.header_loss)


def _partially_sampled_hop(
    ids: NDArray[np.uint32], pairs: PairCandidates, table: pl.DataFrame
) -> tuple[NDArray[np.int64], Floats]:
    """Sampled hop of each packet if only some switches stamp; -1 for none.

    Returns:
        The hops, and the inverse of the probability of each: 1/(h + 1) that hop h replaces the
        sample, and j/(j + 1) for each later stamping hop j that it does not.

    Raises:
        RunError: Depending on the path, a packet meets a switch that stamps or one that does not.
    """
    assert pairs.acts is not None
    dst = table["dst_node"].to_numpy()
    pair, ejects = pairs.of(table["src_node"].to_numpy(), dst), pairs.ejects()[dst]
    length = pairs.length[pair].astype(np.int64)
    sampled, chance = np.full(len(ids), -1, np.int64), np.zeros(len(ids))
    words = decision_words(ids)
    for hop in range(int(length.max(initial=0))):
        at_end = length == hop + 1
        inner = pairs.acts[hop][pair] if hop < len(pairs.acts) else np.zeros(len(ids), np.uint8)
        if (inner[length > hop + 1] == 2).any():
            raise RunError(
                f"some packets meet a switch that stamps or one that does not at hop {hop + 1}, "
                "and scheme 'coordinated' cannot tell which",
                remedy="use compact, which counts the hops that acted, or stamp whole tiers",
            )
        acts = np.where(at_end, ejects, (inner == 1) & (length > hop + 1))
        replaces = acts & takes_sample(ids, words, hop)
        sampled[replaces] = hop
        chance = np.where(acts, chance * (hop / (hop + 1.0)), chance)
        chance[replaces] = 1.0 / (hop + 1.0)
    return sampled, np.divide(1.0, chance, out=np.ones(len(ids)), where=chance > 0)


def sampled_hop(ids: NDArray[np.uint32], hops: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sampled hop of each packet of scheme ``coordinated`` on paths of ``hops``; -1 for none."""
    sampled, words = np.full(len(ids), -1, np.int64), decision_words(ids)
    for hop in range(int(hops.max(initial=0))):
        sampled[takes_sample(ids, words, hop) & (hop < hops)] = hop
    return sampled


def header_samples(
    run: Run, pairs: PairCandidates, saturated: bool = False, *, any_counts: bool = False
) -> tuple[HeaderSamples, HeaderSamples]:
    """Decode the headers of a run of any scheme but ``csig``.

    Args:
        run: A run with table ``packets``.
        pairs: Candidates of the pairs of switches packets went between.
        saturated: Scheme ``compact`` or ``single-bit`` with counts that may have saturated: every
            hop of a packet is a sample of its own, with the inverse of its chance to be the one
            that arrived.
        any_counts: Accept counts of hops that paths cannot have; the weights are then wrong.

    Returns:
        What they say about packets and about congested packets.

    Raises:
        RunError: No packets were kept, lengths of paths are needed and not known, counts of hops
            have too few bits for them, or the table is damaged.
    """
    packets, congested = _split_headers(run, pairs, saturated, any_counts)
    if run.scenario.telemetry.scheme not in HASHED:
        _check_links(run, packets)
        _check_links(run, congested)
    return packets, congested


def _saturates(run: Run) -> bool:
    """Whether some packets passed more hops, all known, than their reservoir counts."""
    telemetry, hops = run.scenario.telemetry, run.tables["packets"]["hops"]
    if telemetry.scheme not in COUNTING or telemetry.stamping != "all" or hops.null_count():
        return False
    if telemetry.slots > 1 or telemetry.randomness == "sender":
        return False
    return int(hops.to_numpy().max(initial=0)) >= 1 << telemetry.count_bits


def survival_chances(hops: int, count_bits: int) -> Floats:
    """Survival probability of each hop with saturating counts (Taffet 2019, §5.6), (hops,)."""
    largest, chance = (1 << count_bits) - 1, np.zeros(hops)
    for hop in range(hops):
        replaces = 1.0 / (min(hop, largest) + 1)
        chance *= 1.0 - replaces
        chance[hop] = replaces
    return chance


def _samples_by_hop(
    seen: NDArray[np.uint32], hops: NDArray[np.int64], count_bits: int
) -> HeaderSamples:
    """A sample for each hop of each packet, compared with the links of that hop.

    The hash is that of the hop's link with the hop's probability. The weight is the inverse of this
    probability. Hashes of other hops match as often as those of any other link, and cancel.
    """
    rows, weight, hop = [], [], []
    for length in np.unique(hops[hops > 0]).tolist():
        packets = np.flatnonzero(hops == length)
        for number, chance in enumerate(survival_chances(length, count_bits).tolist()):
            rows.append(packets)
            weight.append(np.full(len(packets), 1.0 / chance))
            hop.append(np.full(len(packets), number, np.int64))
    all_rows = np.concatenate(rows)
    return HeaderSamples(all_rows, seen[all_rows], np.concatenate(weight), np.concatenate(hop))


def _split_headers(
    run: Run, pairs: PairCandidates, saturated: bool, any_counts: bool
) -> tuple[HeaderSamples, HeaderSamples]:
    telemetry, table = run.scenario.telemetry, run.tables["packets"]
    scheme, b, c = telemetry.scheme, telemetry.hash_bits, telemetry.count_bits
    if table.height == 0:
        raise RunError(
            "the run has kept no packets",
            file=None,
            remedy="set [telemetry] packets, or a scheme other than full and off",
        )
    header = table["header"].to_numpy()

    def part(start: int, bits: int) -> NDArray[np.uint32]:
        return field(header, start, bits)

    if saturated:
        return _saturated_samples(run, pairs)
    if scheme in COUNTING:
        # If only some switches stamp, the count is below the length of the path.
        lengths = (
            table["hops"] if telemetry.stamping == "all" else pl.Series([None], dtype=pl.UInt8)
        )
        counted = counted_hops(telemetry, table)
        if not any_counts:
            _check_counts(lengths, counted, c, sender=telemetry.randomness == "sender")
    if telemetry.slots > 1:
        if scheme == "coordinated":
            _require_lengths(table, scheme)
            _check_lengths(table, pairs)
        return slot_samples(telemetry, table)
    flag = part(0, 1).astype(bool)
    if scheme == "full":
        return _links(part(0, 24), part(24, 8)), _links(part(32, 24), part(56, 8))
    if scheme == "single-bit":
        met = part(2 * b + c, c)
        met = decisions_taken(met) if telemetry.randomness == "sender" else met
        return _counted(part(0, b), counted), _counted(part(b + c, b), met)
    if scheme == "compact":
        both = _counted(part(1, b), counted)
        return both, _keep(both, flag)
    _require_lengths(table, scheme)
    hops = table["hops"].to_numpy().astype(np.int64)
    if scheme not in ANY_PATH_LENGTH:
        _check_lengths(table, pairs)
    if scheme in ("coordinated", "xor-digest"):
        ids = ids_of(table)
        if scheme == "xor-digest":
            hop, weight = _lone_actors(ids, hops, telemetry.probability)
        elif pairs.stamped is not None:
            hop, weight = _partially_sampled_hop(ids, pairs, table)
        else:
            hop, weight = sampled_hop(ids, hops), hops.astype(np.float64)
        rows = np.flatnonzero(hop >= 0)
        both = HeaderSamples(rows, part(1, b)[rows], weight[rows], hop[rows])
        return both, _keep(both, flag)
    both = _marked(run, pairs, part(1, FIELD_BITS), part(1 + FIELD_BITS, 5), hops)
    return both, _keep(both, flag)


def _saturated_samples(run: Run, pairs: PairCandidates) -> tuple[HeaderSamples, HeaderSamples]:
    """Samples of packets that may have passed more hops than their reservoir counts."""
    telemetry, table = run.scenario.telemetry, run.tables["packets"]
    b, c, header = telemetry.hash_bits, telemetry.count_bits, table["header"].to_numpy()
    _check_lengths(table, pairs)
    hops = table["hops"].to_numpy().astype(np.int64)
    if telemetry.scheme == "single-bit":
        met = field(header, 2 * b + c, c)
        _check_congested_counts(met, hops, c)
        return _samples_by_hop(field(header, 0, b), hops, c), _counted(field(header, b + c, b), met)
    both = _samples_by_hop(field(header, 1, b), hops, c)
    return both, _keep(both, field(header, 0, 1).astype(bool))


def count_from_headers(run: Run, pairs: PairCandidates, decoder: Decoder) -> LinkCounts:
    """Count packets and congested packets of every link from the headers of a run.

    If one in k packets carries a sample, the counts are scaled to all packets, and their variances
    include that of this selection.

    Args:
        run: A run with table ``packets``.
        pairs: Candidates of the pairs of switches packets went between.
        decoder: The compiled core.

    Raises:
        RunError: As :func:`header_samples`, or the injection link counts as a hop of a hashed
        scheme.
    """
    telemetry = run.scenario.telemetry
    hashed = telemetry.scheme in HASHED
    if telemetry.count_injection and telemetry.scheme != "full":
        raise RunError(
            f"scheme {telemetry.scheme!r} is not decoded where the injection link is a hop",
            remedy="set [telemetry] count_injection = false",
        )
    n_links, k = run.tables["links"].height, packets_a_sample(run)
    injects = run.tables["links"].sort("link")["from_node"].to_numpy()
    counted = np.ones(n_links, np.bool_) if telemetry.count_injection else ~injects
    if pairs.stamped is not None:
        counted &= pairs.stamped
    if telemetry.scheme == "csig":
        bottlenecks = find_bottlenecks(run.tables["packets"], pairs, n_links, k)
        return LinkCounts(None, None, counted, bottlenecks)
    if telemetry.scheme == ENTROPY_ECN:
        return _of_paths(run, pairs, counted, k)
    packets, congested = (
        _scale_counts(
            _decoded(run, about, pairs, decoder, n_links)
            if hashed
            else _sum_weights(about, n_links),
            k,
        )
        for about in header_samples(run, pairs, _saturates(run))
    )
    # The paths of packets without a sample are unknown.
    possible = _possible(run, pairs, n_links) if k == 1 else np.ones(n_links, np.bool_)
    # Where the hop is not known, slopes are those of all packets already.
    if telemetry.scheme not in COUNTING or _saturates(run):
        seen = np.maximum(packets.packets, 0.0)
        usual = float((seen * packets.slope).sum() / max(seen.sum(), 1.0))
        packets = _smooth_slopes(packets, usual, possible)
    congested = _smooth_slopes(congested, packets.slope, possible)
    return LinkCounts(packets, congested, counted)


def _of_paths(run: Run, pairs: PairCandidates, counted: NDArray[np.bool_], k: float) -> LinkCounts:
    """Counts of packets whose paths are known, and of the congested ones that marks imply."""
    inferred = infer(path_samples(run, pairs))
    sums, zero = inferred.sums, np.zeros(len(counted))
    packets = HashedCounts(inferred.packets, zero, zero, zero)
    congested = HashedCounts(sums.congested, sums.variance, *sums.score_terms)
    return LinkCounts(_scale_counts(packets, k), _scale_counts(congested, k), counted)


def _possible(run: Run, pairs: PairCandidates, n_links: int) -> NDArray[np.bool_]:
    """Links that a packet of the run may have crossed, (L,)."""
    possible = np.zeros(n_links, np.bool_)
    if run.scenario.telemetry.count_injection:
        possible = run.tables["links"].sort("link")["from_node"].to_numpy().copy()
    ends = pairs.ejection[run.tables["packets"]["dst_node"].to_numpy()]
    possible[ends if pairs.stamped is None else ends[pairs.stamped[ends]]] = True
    for _, links in pairs.hops:
        possible[links] = True
    return possible


def _smooth_slopes(
    counts: HashedCounts, usual: Floats | float, possible: NDArray[np.bool_]
) -> HashedCounts:
    """Counts whose slope is smoothed (:func:`tailback.telemetry.estimate.smoothed_excess`)."""
    slope = smoothed_excess(np.maximum(counts.packets, 0.0), counts.slope, usual)
    return replace(counts, slope=np.where(possible, slope, counts.slope))


def _require_lengths(table: pl.DataFrame, scheme: str) -> None:
    """Refuse packets whose path length is unknown.

    Raises:
        RunError: There are such packets.
    """
    if table["hops"].null_count():
        raise RunError(
            f"scheme {scheme!r} needs the length of paths, which detours leave unknown",
            remedy="use compact or full, which count hops, or routes without detours",
        )


def _check_counts(hops: pl.Series, counted: NDArray[np.uint32], bits: int, *, sender: bool) -> None:
    """Reject saturated hop counts (section 5.6).

    Weights are then too small, by a factor that depends on the hop, so it cannot be corrected
    without knowing the hop. If path lengths are unknown, a maximum count may be saturated. A field
    of sender's bits has a decision less than bits.

    Raises:
        RunError: Counts are saturated, or may be.
    """
    largest = bits - 1 if sender else (1 << bits) - 1
    has_lengths = hops.null_count() == 0
    longest = int((hops.to_numpy() if has_lengths else counted).max())
    if not has_lengths and longest == largest:
        longest += 1
    if longest > largest:
        needed = longest + 1 if sender else longest.bit_length()
        raise RunError(
            f"count_bits = {bits} counts no more than {largest} hops, and packets "
            f"{'passed' if has_lengths else 'may have passed'} {longest}",
            remedy=f"set [telemetry] count_bits = {needed}",
        )


def _check_congested_counts(met: NDArray[np.uint32], hops: NDArray[np.int64], bits: int) -> None:
    """Reject counts of congested hops that may be saturated, whatever the length of the path.

    A count below the largest is exact, and so is its weight. At the largest, any number of hops up
    to the length of the path may have been congested.

    Raises:
        RunError: There are such counts.
    """
    largest = (1 << bits) - 1
    unknown = (met == largest) & (hops > largest)
    if unknown.any():
        raise RunError(
            f"count_bits = {bits} counts no more than {largest} congested hops, which "
            f"{percent(float(unknown.mean()))} of the packets met on longer paths",
            remedy=f"set [telemetry] count_bits = {int(hops.max()).bit_length()}",
        )


def _check_lengths(table: pl.DataFrame, pairs: PairCandidates) -> None:
    """Reject packets whose number of hops differs from that of their routes.

    Raises:
        RunError: There are such packets; the sampled hop is then unknown.
    """
    ends = (table[name].to_numpy() for name in ("src_node", "dst_node"))
    length = pairs.length[pairs.of(*ends)]
    wrong = np.flatnonzero(length != table["hops"].to_numpy())
    if len(wrong):
        packet, hops = table["packet"][int(wrong[0])], table["hops"][int(wrong[0])]
        raise RunError(
            f"packets.parquet hops: packet {packet} passed {hops} switches, and its routes have "
            f"{length[wrong[0]]}",
            remedy="run the scenario again: the table is damaged, or the fabric another one",
        )


def _check_links(run: Run, about: HeaderSamples) -> None:
    """Reject headers with links that the run does not have.

    Raises:
        RunError: There are such headers.
    """
    n_links = run.tables["links"].height
    if int(about.seen.max(initial=0)) >= n_links:
        row = int(about.rows[int(about.seen.argmax())])
        raise RunError(
            f"packets.parquet header: packet {run.tables['packets']['packet'][row]} names link "
            f"{about.seen.max()}, and there are {n_links} links",
            remedy="run the scenario again: the table is damaged",
        )


def _keep(both: HeaderSamples, flag: NDArray[np.bool_]) -> HeaderSamples:
    """The part about packets whose congested bit is set."""
    return both.take(flag[both.rows])


def _counted(seen: NDArray[np.uint32], count: NDArray[np.uint32]) -> HeaderSamples:
    rows = np.flatnonzero(count > 0)
    return HeaderSamples(rows, seen[rows], count[rows].astype(np.float64), None)


def _links(numbered: NDArray[np.uint32], count: NDArray[np.uint32]) -> HeaderSamples:
    """Whole links, numbered from 1."""
    rows = np.flatnonzero((numbered > 0) & (count > 0))
    seen = numbered[rows] - np.uint32(1)
    return HeaderSamples(rows, seen, count[rows].astype(np.float64), None)


def _marked(
    run: Run,
    pairs: PairCandidates,
    link: NDArray[np.uint32],
    distance: NDArray[np.uint32],
    hops: NDArray[np.int64],
) -> HeaderSamples:
    """Whole links that marked with a fixed chance; node marking takes the hop from the routing."""
    telemetry, table = run.scenario.telemetry, run.tables["packets"]
    rows = np.flatnonzero(link > 0)
    seen, since = link[rows] - np.uint32(1), distance[rows].astype(np.int64)
    if telemetry.scheme == "node-marking":
        src, dst = table["src_node"].to_numpy()[rows], table["dst_node"].to_numpy()[rows]
        since = hops[rows] - 1 - _hop_of(pairs, pairs.of(src, dst), seen, hops[rows])
    p = telemetry.probability
    weight = np.asarray(1.0 / (p * (1.0 - p) ** since), np.float64)
    return HeaderSamples(rows, seen, weight, None)


def _lone_actors(
    ids: NDArray[np.uint32], hops: NDArray[np.int64], p: float
) -> tuple[NDArray[np.int64], Floats]:
    """Hop of packets at which exactly one switch acted (else -1), and the inverse probability."""
    acted, hop = np.zeros(len(ids), np.int64), np.full(len(ids), -1, np.int64)
    for index in range(int(hops.max(initial=0))):
        acts = (hop_hash(ids, index) < p * 2.0**ID_BITS) & (index < hops)
        acted += acts
        hop[acts] = index
    hop[acted != 1] = -1
    return hop, 1.0 / (p * (1.0 - p) ** np.maximum(hops - 1, 0))


def _hop_of(
    pairs: PairCandidates,
    pair: NDArray[np.int64],
    link: NDArray[np.uint32],
    hops: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Hop at which packets of a pair pass a link; the first if there are several."""
    first = hops - 1  # the ejection link
    n = np.int64(1) << FIELD_BITS
    for hop in reversed(range(len(pairs.hops))):
        start, links = pairs.hops[hop]
        owner = _owners(start)
        passed = owner * n + links.astype(np.int64)
        first = np.where(np.isin(pair * n + link.astype(np.int64), passed), hop, first)
    return first


def _sum_weights(about: HeaderSamples, n_links: int) -> HashedCounts:
    """Sums of weights; Var Σ w = Σ N (w − 1), estimated by Σ w (w − 1)."""
    w, seen = about.weight, about.seen.astype(np.int64)
    packets = np.asarray(np.bincount(seen, w, n_links), np.float64)
    variance = np.asarray(np.bincount(seen, w * (w - 1.0), n_links), np.float64)
    slope = np.divide(variance, packets, out=np.zeros(n_links), where=packets > 0)
    return HashedCounts(packets, variance, np.zeros(n_links), slope)


def _decoded(
    run: Run, about: HeaderSamples, pairs: PairCandidates, decoder: Decoder, n_links: int
) -> HashedCounts:
    """Counts from hashes; weights that are not small integers are decoded one weight at a time."""
    telemetry, table = run.scenario.telemetry, run.tables["packets"][about.rows]
    src, dst = table["src_node"].to_numpy(), table["dst_node"].to_numpy()
    ids = ids_of(table)
    values = np.arange(1, n_links + 1, dtype=np.uint32)
    total: HashedCounts | None = None
    for rows, unit in _by_weight(about.weight):
        charged = np.rint(about.weight[rows] / unit).astype(np.uint8)
        hop = None if about.hop is None else about.hop[rows]
        samples = HashedSamples(
            ids[rows], about.seen[rows].astype(np.uint8), charged, telemetry.hash_bits, FIELD_BITS
        )
        plan = _plan(pairs, src[rows], dst[rows], hop)
        part = count_links(decoder, samples, plan, values, hop is not None)
        # A packet is sampled with probability 1/unit, which adds variance (unit − 1) N.
        packets, null = part.packets * unit, part.null_variance * unit**2
        slope = (part.slope + 1.0) * unit - 1.0
        part = HashedCounts(packets, np.maximum(null + slope * packets, 0.0), null, slope)
        total = part if total is None else _sum(total, part)
    if total is None:
        return HashedCounts(*(np.zeros(n_links) for _ in range(4)))
    return total


def _by_weight(weight: Floats) -> Iterator[tuple[NDArray[np.intp], float]]:
    """Rows and the unit of their weights: all at once where weights are integers below 256."""
    if len(weight) and bool((weight == np.rint(weight)).all()) and weight.max() < 256:
        yield np.arange(len(weight)), 1.0
        return
    for unit in np.unique(weight).tolist():
        yield np.flatnonzero(weight == unit), float(unit)


def _plan(
    pairs: PairCandidates,
    src: NDArray[np.uint32],
    dst: NDArray[np.uint32],
    hop: NDArray[np.int64] | None,
) -> Stages:
    """Candidates of every packet: hop by hop where the hop is known, all hops at once else."""
    if hop is None:
        pair = pairs.of(src, dst)
        within = np.flatnonzero(pairs.length[pair] > 1)
        start, links = pairs.any_hop()
        inner = CandidateLinks(pair[within].astype(np.uint32), start, links)
        return [(within, inner), (np.arange(len(src)), pairs.last(dst))]
    stages: Stages = []
    length = pairs.length[pairs.of(src, dst)].astype(np.int64)
    for number in range(len(pairs.hops)):
        chosen = np.flatnonzero((hop == number) & (length > number + 1))
        _, candidates = pairs.stage(number, src[chosen], dst[chosen])
        stages.append((chosen, candidates))
    last = np.flatnonzero(hop == length - 1)
    stages.append((last, pairs.last(dst[last])))
    return stages


def _owners(start: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The pair that each entry of a list of candidates belongs to."""
    ends = start.astype(np.int64)
    return np.repeat(np.arange(len(start) - 1, dtype=np.int64), ends[1:] - ends[:-1])


def _sum(a: HashedCounts, b: HashedCounts) -> HashedCounts:
    """Counts of two sets of packets; the slope that gives the sum of the variances."""
    packets, variance = a.packets + b.packets, a.variance + b.variance
    null = a.null_variance + b.null_variance
    share = np.divide(variance - null, packets, out=np.maximum(a.slope, b.slope), where=packets > 0)
    return HashedCounts(packets, variance, null, share)


def _scale_counts(counts: HashedCounts, k: float) -> HashedCounts:
    """Counts of all packets from those of one in ``k``, modelled as random thinning."""
    packets, null = counts.packets * k, counts.null_variance * k**2
    slope = k * counts.slope + (k - 1)
    return HashedCounts(packets, np.maximum(null + slope * packets, 0.0), null, slope)
