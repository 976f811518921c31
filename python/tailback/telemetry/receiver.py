"""Builds table ``samples`` for every scheme from the headers of individual packets.

The engine aggregates samples of scheme ``full`` itself. Every other scheme produces table
``packets``, whose headers are converted here to the same rows: packets and congested packets of
each link, window and label. :mod:`tailback.telemetry.assign` assigns hashes to links. Variances are
those of the unbiased counts of :mod:`tailback.telemetry.header_counts`, in proportion to the
packets of each row: they include the ambiguity of hashes and the selection of one packet in k.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.arrays import Floats, Ints
from tailback.errors import RunError
from tailback.run.run import Run
from tailback.run.schema import conform
from tailback.telemetry.assign import AmbiguousPackets, draw_links
from tailback.telemetry.bottlenecks import draw_bottlenecks
from tailback.telemetry.candidates import PairCandidates
from tailback.telemetry.entropy_ecn import ENTROPY_ECN, draw_marks, infer, path_samples
from tailback.telemetry.hashed import Decoder, HashedCounts
from tailback.telemetry.header_counts import (
    FIELD_BITS,
    HASHED,
    count_from_headers,
    header_samples,
    packets_a_sample,
)
from tailback.telemetry.header_fields import HeaderSamples
from tailback.telemetry.likelihood import Matcher
from tailback.telemetry.packet_ids import ids_of
from tailback.telemetry.packet_paths import trace_paths
from tailback.telemetry.path_hash import splitmix

_DRAW = 255
"""Stream number of the receiver's random draws of links; further draws count down from here."""


class HashCore(Decoder, Matcher, Protocol):
    """Functions of the compiled core that receivers need."""


CHANCE_OF_FOREIGN_BITS = 1e-6
"""Probability with which bits that are no samples may pass for samples. Four packets with one
possible link each and five hash bits are enough to tell: 32⁻⁴ is below it."""
_COMPARED = 1 << 22
"""Pairs of packet and link to compare at most: a second of work."""


@dataclass(frozen=True)
class HashAgreement:
    """How often the hashes of packets are those of links that the packets may have crossed.

    A hash follows from the packet's id and the link. Other bits in its place do not depend on the
    id, so each pair of packet and link agrees with probability 2⁻ᵇ, independently of the others.

    Attributes:
        samples: Samples that were compared, each of another packet.
        pairs: Pairs of sample and possible link.
        agreeing: Those whose hashes agree.
        bits: Bits of a hash, b.
    """

    samples: int
    pairs: int
    agreeing: int
    bits: int

    @property
    def are_samples(self) -> bool:
        """Whether more pairs agree than other bits would make agree."""
        return self._excess(self.agreeing) < CHANCE_OF_FOREIGN_BITS

    @property
    def enough(self) -> bool:
        """Whether there are packets enough to tell samples from other bits."""
        return self._excess(round(self._expected)) < CHANCE_OF_FOREIGN_BITS

    @property
    def share(self) -> float:
        """Estimated share of the samples that carry the hash of a possible link."""
        by_chance = self.pairs / 2.0**self.bits
        return float((self.agreeing - by_chance) / max(self._expected - by_chance, 1e-9))

    @property
    def some_are_foreign(self) -> bool:
        """Whether fewer pairs agree than samples of all packets would make agree."""
        from scipy.stats import binom  # takes a second to import

        others = self.pairs - self.samples
        chance = binom.cdf(self.agreeing - self.samples, others, 2.0**-self.bits)
        return bool(chance < CHANCE_OF_FOREIGN_BITS)

    @property
    def _expected(self) -> float:
        """Agreeing pairs if all are samples: the link of each, and others by chance."""
        return self.samples + (self.pairs - self.samples) / 2.0**self.bits

    def _excess(self, agreeing: int) -> float:
        """Probability of so many agreeing pairs, or more, if the bits are no samples."""
        from scipy.stats import binom  # takes a second to import

        return float(binom.sf(agreeing - 1, self.pairs, 2.0**-self.bits))


def hash_agreement(run: Run, pairs: PairCandidates, core: HashCore) -> HashAgreement:
    """Compare the hashes of packets with those of the links that they may have crossed.

    Args:
        run: A run of a scheme with hashes that kept packets.
        pairs: Candidates of the pairs of switches packets went between.
        core: The compiled core.

    Raises:
        RunError: As :func:`tailback.telemetry.header_counts.header_samples`.
    """
    about, _ = header_samples(run, pairs, any_counts=True)
    bits, table = run.scenario.telemetry.hash_bits, run.tables["packets"]
    # Packets that were sent again have the same id: they are one.
    identity = table.select("src_node", "dst_node", id=pl.Series(ids_of(table)))
    first = identity.select(pl.struct(pl.all()).is_first_distinct()).to_series().to_numpy()
    keep = np.flatnonzero(first[about.rows])
    owner, at, links = _candidates(pairs, list(range(len(pairs.hops))))
    start = np.searchsorted(owner, np.arange(len(pairs.length) + 1))
    most = int(np.diff(start).max(initial=0)) + 1
    about = about.take(_evenly_spaced(keep, max(_COMPARED // most, 1), len(about.rows)))
    rows = table[about.rows]
    ids, dst = ids_of(rows), rows["dst_node"].to_numpy()
    pair = pairs.of(rows["src_node"].to_numpy(), dst)
    # Candidates between switches, and the link to the node.
    size = np.diff(start)[pair]
    row = np.repeat(np.arange(len(ids)), size)
    entry = np.arange(len(row)) + np.repeat(start[pair] - (np.cumsum(size) - size), size)
    last = np.flatnonzero(pairs.ejects()[dst])
    row = np.concatenate([row, last])
    link = np.concatenate([links[entry], pairs.ejection[dst[last]]])
    if about.hop is not None:
        hop = np.concatenate([at[entry], pairs.length[pair][last].astype(np.int64) - 1])
        row, link = row[hop == about.hop[row]], link[hop == about.hop[row]]
    row, link = _distinct(row, link)
    seen = core.link_hash("gf", ids[row], (link + 1).astype(np.uint32), bits, FIELD_BITS)
    agrees = seen == about.seen[row]
    return HashAgreement(len(np.unique(row)), len(row), int(agrees.sum()), bits)


def _evenly_spaced(rows: NDArray[np.intp], most: int, height: int) -> NDArray[np.bool_]:
    """At most ``most`` of some rows, (height,)."""
    kept = np.zeros(height, np.bool_)
    kept[rows[:: -(-len(rows) // most) or 1]] = True
    return kept


def _distinct(row: Ints, link: Ints) -> tuple[Ints, Ints]:
    """Each pair once: a link can be a candidate at several hops."""
    order = np.lexsort((link, row))
    row, link = row[order], link[order]
    again = np.zeros(len(row), np.bool_)
    again[1:] = (row[1:] == row[:-1]) & (link[1:] == link[:-1])
    return row[~again], link[~again]


@dataclass(frozen=True)
class _Charged:
    """Packets and the link that each is assigned to.

    Attributes:
        rows: Rows of table ``packets``.
        link: Link of each.
        weight: Weight of each.
    """

    rows: NDArray[np.intp]
    link: Ints
    weight: Floats


def build_samples(run: Run, pairs: PairCandidates, core: HashCore) -> pl.DataFrame:
    """Make table ``samples`` from table ``packets``.

    Args:
        run: A run that kept packets.
        pairs: Candidates of the pairs of switches packets went between.
        core: The compiled core.

    Returns:
        Rows of table ``samples``. ``csig`` counts no packets: its packets of a link are those that
        would cross it if every hop were drawn evenly from the candidates, and its congested packets
        those whose bottleneck it was, a lower bound.

    Raises:
        RunError: As :func:`tailback.telemetry.header_counts.count_from_headers`, or no packet was
        kept.
    """
    k = packets_a_sample(run)
    if run.scenario.telemetry.scheme == "csig":
        return _of_bottlenecks(run, pairs, k)
    if run.scenario.telemetry.scheme == ENTROPY_ECN:
        return _of_marks(run, pairs, k)
    packets, congested = header_samples(run, pairs)
    carried = count_from_headers(run, pairs, core)
    assert carried.packets is not None and carried.congested is not None
    if run.scenario.telemetry.scheme not in HASHED:
        hop, met = _whole(packets), _whole(congested)
    elif run.scenario.telemetry.scheme == "single-bit":
        hop = _assign_hashed(run, packets, pairs, core, carried.packets.packets)
        met = _assign_hashed(run, congested, pairs, core, carried.congested.packets, _DRAW - 1)
    else:
        # One reservoir: congested samples are a subset of all samples, and remain one.
        hot = packets.also_in(congested)
        less = carried.packets.packets - carried.congested.packets
        met = _assign_hashed(run, congested, pairs, core, carried.congested.packets)
        cold = _assign_hashed(run, packets.take(~hot), pairs, core, less)
        hop = _Charged(
            *(
                np.concatenate([getattr(met, name), getattr(cold, name)])
                for name in ("rows", "link", "weight")
            )
        )
    return _table(
        run,
        (hop, _of_counts(hop, carried.packets, k)),
        (met, _of_counts(met, carried.congested, k)),
        k,
    )


def _of_bottlenecks(run: Run, pairs: PairCandidates, k: float) -> pl.DataFrame:
    """Rows of table ``samples`` from tags that name one link a packet."""
    table = run.tables["packets"]
    drawn = draw_bottlenecks(table, pairs, _links(run), _uniform(table, _DRAW))
    hop, spread = _evenly(run, pairs)
    met = _Charged(drawn.rows, drawn.link, np.ones(len(drawn.rows)))
    return _table(run, (hop, _excess(hop, spread, k)), (met, k * drawn.excess + k - 1.0), k)


def _of_marks(run: Run, pairs: PairCandidates, k: float) -> pl.DataFrame:
    """Rows of table ``samples`` from packets with known paths, and marks on them."""
    samples = path_samples(run, pairs)
    inferred = infer(samples)
    packet, at = samples.elements(np.arange(len(samples.path)))
    hop = _Charged(packet, samples.link[at], np.ones(len(packet)))
    marked, link = draw_marks(samples, inferred, _uniform(run.tables["packets"], _DRAW))
    met = _Charged(marked, link, np.ones(len(marked)))
    variance, drawn = inferred.sums.variance, np.bincount(link, minlength=_links(run))
    excess = np.divide(variance, drawn, out=np.zeros(len(variance)), where=drawn > 0)
    certain = np.zeros(len(variance))
    return _table(run, (hop, certain + k - 1.0), (met, k * excess + k - 1.0), k)


def _links(run: Run) -> int:
    return run.tables["links"].height


def _whole(about: HeaderSamples) -> _Charged:
    return _Charged(about.rows, about.seen.astype(np.int64), about.weight)


def _assign_hashed(
    run: Run,
    about: HeaderSamples,
    pairs: PairCandidates,
    core: HashCore,
    usual: Floats,
    number: int = _DRAW,
) -> _Charged:
    """Assign each packet to one of the links that its hash and routing allow."""
    table = run.tables["packets"][about.rows]
    src, dst = table["src_node"].to_numpy(), table["dst_node"].to_numpy()
    ids = ids_of(table)
    # Slots count down in steps of two, as single-bit takes two numbers for each.
    uniform = _uniform(table, number if about.slot is None else number - 2 * about.slot)
    pair = pairs.of(src, dst)
    length = pairs.length[pair].astype(np.int64)
    last = pairs.ejection[dst].astype(np.int64)
    link = np.full(len(ids), -1, np.int64)

    ejects = pairs.ejects()[dst]

    def charge(rows: NDArray[np.intp], hops: list[int], ejected: bool = False) -> None:
        owner, at, links = _candidates(pairs, hops)
        packets = AmbiguousPackets(
            ids[rows],
            about.seen[rows],
            pair[rows],
            np.searchsorted(owner, np.arange(len(pairs.length) + 1)),
            links,
            at,
            last[rows],
            ejected,
            run.scenario.telemetry.hash_bits,
            FIELD_BITS,
        )
        link[rows] = draw_links(core, packets, usual, uniform[rows])

    if about.hop is None:
        link[length == 1] = last[length == 1]
        # Where only some switches stamp, the weight shows how many switches of a path did. It
        # limits the possible links, so uses are estimated for each weight.
        alike = about.weight if pairs.stamped is not None else np.zeros(len(ids))
        for ejected, weight in itertools.product(np.unique(ejects), np.unique(alike)):
            rows = np.flatnonzero((length > 1) & (ejects == ejected) & (alike == weight))
            charge(rows, list(range(len(pairs.hops))), bool(ejected))
    else:
        at_end = about.hop == length - 1
        link[at_end] = last[at_end]
        for hop in range(len(pairs.hops)):
            charge(np.flatnonzero((about.hop == hop) & ~at_end), [hop])
    assigned = link >= 0
    return _Charged(about.rows[assigned], link[assigned], about.weight[assigned])


def _candidates(pairs: PairCandidates, hops: list[int]) -> tuple[Ints, Ints, Ints]:
    """Pair, hop and link of every candidate at some hops, by pair and hop."""
    owners, at, links = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for hop in hops:
        start, candidates = pairs.hops[hop]
        sizes = np.asarray(np.diff(start.astype(np.int64)), np.int64)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        owners.append(owner)
        at.append(np.full(len(owner), hop))
        links.append(candidates.astype(np.int64))
    owner, number, link = (np.concatenate(parts) for parts in (owners, at, links))
    order = np.lexsort((number, owner))
    return owner[order], number[order], link[order]


def _uniform(packets: pl.DataFrame, number: int | Ints) -> Floats:
    """Pseudo-random number in [0, 1) for each packet, from fields that every receiver knows."""
    sequence = packets["sequence"].to_numpy().astype(np.uint64)
    pair = packets["queue_pair"].fill_null(0).to_numpy().astype(np.uint64)
    src, dst = (packets[name].to_numpy().astype(np.uint64) for name in ("src_node", "dst_node"))
    stream = np.asarray(number, np.uint64)
    value = splitmix(sequence << np.uint64(8) | pair << np.uint64(32) | stream)
    value = splitmix(value ^ (src << np.uint64(32) | dst))
    return np.asarray((value >> np.uint64(32)).astype(np.float64) / 2.0**32, np.float64)


def _evenly(run: Run, pairs: PairCandidates) -> tuple[_Charged, Floats]:
    """A random candidate for every hop of every packet, and the probability of error, (C,).

    Raises:
        RunError: The length of paths is not known.
    """
    table = run.tables["packets"]
    if table["hops"].null_count():
        raise RunError(
            "scheme 'csig' counts no packets, and detours leave their paths unknown",
            remedy="use compact or full, which count hops, or routes without detours",
        )
    links = run.tables["links"].sort("link")
    ends = links["src"].to_numpy().astype(np.int64), links["dst"].to_numpy().astype(np.int64)

    def evenly(hop: int, rows: Ints, size: Ints) -> Ints:
        return (_uniform(table, _DRAW - 1 - hop)[rows] * size).astype(np.int64)

    paths = trace_paths(
        pairs, ends, table["src_node"].to_numpy(), table["dst_node"].to_numpy(), evenly
    )
    charged = _Charged(paths.row, paths.link, np.ones(len(paths.row)))
    return charged, 1.0 - 1.0 / paths.alternatives


def _excess(hop: _Charged, each: Floats, k: float) -> Floats:
    """Mean variance that a packet of each link adds, from that of each row of ``hop``, (L,)."""
    sums = np.bincount(hop.link, each)
    count = np.bincount(hop.link)
    mean = np.divide(sums, count, out=np.zeros(len(count)), where=count > 0)
    return np.asarray(k * (mean + 1.0) - 1.0, np.float64)


def _of_counts(charged: _Charged, counts: HashedCounts, k: float) -> Floats:
    """Variance that a packet of each link adds: the unbiased counts' at the packets charged, (L,).

    That of a link's ejection is not less than 0, whatever the slope.
    """
    amount = np.bincount(charged.link, charged.weight, len(counts.packets)) * float(k)
    null = np.divide(counts.null_variance, amount, out=np.zeros_like(amount), where=amount > 0)
    return np.asarray(np.maximum(null + counts.slope, 0.0), np.float64)


def _table(
    run: Run, hop: tuple[_Charged, Floats], met: tuple[_Charged, Floats], k: float
) -> pl.DataFrame:
    """Rows of table ``samples``, from assigned links and the variance per packet of each link.

    Rows of receivers are kept apart if the scenario asks for it.
    """
    table = run.tables["packets"]
    unknown = pl.lit(None, pl.UInt32)
    receiver = pl.col("dst_node") if run.scenario.telemetry.receivers else unknown
    receive = pl.col("receive_label") if "receive_label" in table.columns else unknown
    key = ["window", "label", "receive_label", "receiver", "link"]
    windows = run.tables["windows"].sort("window")
    end = windows["end_ps"].to_numpy()
    job = dict(run.tables["labels"].select("label", "job").iter_rows())
    window = np.searchsorted(end, table["time_ps"].to_numpy(), side="right")
    window = windows["window"].to_numpy()[np.minimum(window, len(end) - 1)]
    frames = []
    for (charged, excess), name in ((hop, "hop"), (met, "congested")):
        rows = table.select("label", "size_bytes", receive_label=receive, receiver=receiver)[
            charged.rows
        ]
        frame = pl.DataFrame(
            {
                "window": window[charged.rows],
                **{column: rows[column] for column in ("label", "receive_label", "receiver")},
                "link": charged.link.astype(np.uint32),
                "weight": charged.weight * k,
                "bytes": charged.weight * k * rows["size_bytes"].to_numpy(),
                "variance": charged.weight * k * excess[charged.link],
            }
        )
        sums = frame.group_by(key).agg(
            pl.len().alias(f"{name}_samples"),
            pl.col("weight", "variance", "bytes").sum().name.prefix(f"{name}_"),
        )
        integers = [whole_numbers(f"{name}_{column}") for column in ("weight", "variance", "bytes")]
        frames.append(sums.sort("link", *key[:-1]).with_columns(integers))
    both = frames[0].join(frames[1], on=key, how="full", coalesce=True, nulls_equal=True)
    both = both.with_columns(pl.exclude(key).fill_null(0))
    both = both.with_columns(job=pl.col("label").replace_strict(job, return_dtype=pl.UInt32))
    return conform("samples", both).sort(key)


def whole_numbers(column: str) -> pl.Expr:
    """Round sums to integers, carrying the remainder of a row to the next row of the same link.

    Otherwise rows of one packet each would all be rounded in the same direction.
    """
    so_far = pl.col(column).cum_sum().round()
    return (so_far - so_far.shift(1, fill_value=0.0)).over("link").cast(pl.UInt64)
