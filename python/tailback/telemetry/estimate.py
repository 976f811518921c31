"""Estimates packets, bytes, congested fraction and utilization of every link from samples.

Each received packet carries one hop of its path, drawn uniformly, and one congested hop (Taffet,
*Understanding Congestion …*, sections 3.2 and 3.3). Weighting the sampled hop by the path length
makes the sums unbiased. Table ``samples`` holds the sums with their variances, so estimates follow
from adding rows and simple arithmetic on columns.

Only the sampling is random: the packets of the run and which of them met congestion are fixed. The
intervals are score intervals, like Wilson's for a proportion: they contain the values whose
prediction lies within 1.96 standard deviations of the data, where the standard deviation is that
under the *hypothetical* value. They keep their coverage where ``estimate ± 1.96 standard errors``
fails: with few samples or without any congested sample.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tailback.arrays import Floats
from tailback.errors import RunError

Z95 = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""


SUMS = (
    "hop_samples",
    "hop_weight",
    "hop_variance",
    "hop_bytes",
    "congested_samples",
    "congested_weight",
    "congested_variance",
)

_FEW_GROUPS = 1 << 16
"""Groups are numbers up to this one more than there are rows: their sums then fit in arrays."""


@dataclass(frozen=True)
class Selection:
    """Which rows of ``samples`` to use; None selects all.

    Attributes:
        windows: Numbers of time windows.
        labels: Numbers of labels.
        phases: Names of phases (looked up in table ``labels``).
        jobs: Numbers of jobs.
    """

    windows: Collection[int] | None = None
    labels: Collection[int] | None = None
    phases: Collection[str] | None = None
    jobs: Collection[int] | None = None


def select(tables: Mapping[str, pl.DataFrame], selection: Selection) -> pl.DataFrame:
    """Return the selected rows of ``samples``, with a column ``phase``.

    Args:
        tables: Tables of a run; ``samples`` and ``labels`` are read.
        selection: Which rows to keep.

    Returns:
        Table ``samples`` with ``phase`` (String, empty for a label without a phase).

    Raises:
        RunError: The run does not have a selected phase.
    """
    labels = tables["labels"].select("label", "phase")
    if selection.phases is not None:
        phases = set(labels["phase"].to_list())
        for phase in selection.phases:
            if phase not in phases:
                raise RunError(
                    f"no phase {phase!r} in this run",
                    remedy="phases: " + ", ".join(sorted(map(repr, phases))),
                )
    frame = tables["samples"].join(labels, on="label", how="left", maintain_order="left")
    frame = frame.with_columns(pl.col("phase").fill_null(""))
    for column, keep in (
        ("window", selection.windows),
        ("label", selection.labels),
        ("phase", selection.phases),
        ("job", selection.jobs),
    ):
        if keep is not None:
            values = pl.Series(list(keep), dtype=frame.schema[column])
            frame = frame.filter(pl.col(column).is_in(values.implode()))
    return frame


def link_estimates(
    samples: pl.DataFrame,
    by: Sequence[str] = ("link",),
    hashed: bool = False,
    *,
    shared: bool = False,
) -> pl.DataFrame:
    """Estimate traffic and congestion of each link (or of each group of rows).

    Args:
        samples: Rows of table ``samples``, as :func:`select` returns them.
        by: Columns to group by, e.g. ``("phase", "link")``.
        hashed: Whether the samples were hashes: lower bounds of packets are then at most those of
            :func:`count_lower_bound`, lower bounds of fractions at most those of
            :func:`fraction_lower_bound`.
        shared: Whether one reservoir made both counts: see :func:`contrast_excess`.

    Returns:
        One row per group, sorted by group, with the group's columns and

        ======================  ==============================================================
        ``samples``             packets that arrived with the link in the hop reservoir
        ``packets``             estimated packets through the link, with ``packets_se``,
                                ``packets_low`` and ``packets_high`` (95 %)
        ``bytes``, ``bytes_se`` estimated bytes, assuming similar sizes of a group's packets
        ``congested_samples``   packets with the link in the congested reservoir
        ``congested``           estimated congested packets, and its ``congested_se``
        ``fraction``            congested / packets (0 without packets, at most 1)
        ``fraction_se``         its standard error, by section 3.3 or of one reservoir
        ``fraction_low/_high``  95 % score interval, within 0–1
        ``packets_variance``    estimated variance of ``packets``
        ``path_excess``         l−1 of the paths on which the sampled hop is random
        ``hop_excess``          mean of l−1 over the packets (l hops): variance per packet
        ``congested_excess``    mean of g−1 over congested packets (g congested hops), smoothed
        ======================  ==============================================================
    """
    sums = _sums(samples, by)
    w, var = _column(sums, "hop_weight"), _column(sums, "hop_variance")
    m, var_m = _column(sums, "congested_weight"), _column(sums, "congested_variance")
    b = hop_excess(w, var)
    a = congested_excess(m, var_m, b)
    raw = np.divide(m, w, out=np.zeros_like(m), where=w > 0)
    met = (1.0 - 2.0 * raw) * var_m if shared else var_m
    spread = np.maximum(met + raw**2 * var, 0.0)
    fraction_se = np.sqrt(np.divide(spread, w**2, out=np.zeros_like(w), where=w > 0))
    n = _column(sums, "hop_samples")
    further = path_excess(n, w, var)
    packets_low, packets_high = count_interval(w, var, further, usual_excess(n, w, var))
    low, high = fraction_interval(m, w, a, contrast_excess(b, a, shared=shared))
    if hashed:
        packets_low = np.minimum(packets_low, count_lower_bound(w, var))
        low = np.minimum(low, fraction_lower_bound(m, w, var_m, var, shared=shared))
    size = np.divide(_column(sums, "hop_bytes"), w, out=np.zeros_like(w), where=w > 0)
    return sums.select(
        *by,
        samples=pl.col("hop_samples").cast(pl.UInt64),
        packets=pl.Series(w),
        packets_se=pl.Series(np.sqrt(var)),
        packets_low=pl.Series(packets_low),
        packets_high=pl.Series(packets_high),
        bytes=pl.col("hop_bytes"),
        bytes_se=pl.Series(size * np.sqrt(var)),
        congested_samples=pl.col("congested_samples").cast(pl.UInt64),
        congested=pl.Series(m),
        congested_se=pl.Series(np.sqrt(var_m)),
        fraction=pl.Series(np.minimum(raw, 1.0)),
        fraction_se=pl.Series(fraction_se),
        fraction_low=pl.Series(low),
        fraction_high=pl.Series(high),
        packets_variance=pl.Series(var),
        path_excess=pl.Series(further),
        hop_excess=pl.Series(b),
        congested_excess=pl.Series(a),
    )


def _sums(samples: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Sums of the rows of each group, sorted by group."""
    key = samples[by[0]]
    numbered = len(by) == 1 and key.dtype.is_integer() and key.len() > 0
    # Sums of whole numbers below 2^53 are exact in any order.
    if numbered and all(samples.schema[name].is_integer() for name in SUMS):
        least, most = key.to_numpy().min(), key.to_numpy().max()
        if least >= 0 and most <= key.len() + _FEW_GROUPS:
            # Three times as fast as hashing.
            groups = key.to_numpy()
            present = np.flatnonzero(np.bincount(groups))
            columns = {
                name: np.bincount(groups, samples[name].to_numpy())[present] for name in SUMS
            }
            return pl.DataFrame({by[0]: pl.Series(present).cast(key.dtype), **columns})
    return samples.group_by(list(by)).agg(pl.col(SUMS).cast(pl.Float64).sum()).sort(list(by))


def hop_excess(weight: Floats, variance: Floats) -> Floats:
    """Mean of l−1 over the packets of each row: ``variance / weight``.

    A row without hop samples (congested ones only) gets the mean over the others.
    """
    total = float(weight.sum())
    fallback = float(variance.sum()) / total if total > 0 else 1.0
    return np.divide(variance, weight, out=np.full_like(weight, fallback), where=weight > 0)


def congested_excess(weight: Floats, variance: Floats, excess: Floats) -> Floats:
    """Mean of g−1 over the congested packets of each row, smoothed.

    A pseudo-sample of a packet that was congested at every hop, the worst case, is added to each
    row: it determines rows without samples and becomes negligible as samples accumulate.
    """
    length = excess + 1.0
    return np.asarray((variance + length * excess) / (weight + length), np.float64)


def contrast_excess(hop_excess: Floats, congested_excess: Floats, *, shared: bool) -> Floats:
    """Factor of f² in the variance per packet of ``Ŵ − f W``: l−1 of independent reservoirs.

    Where one reservoir makes both counts (Taffet, section 5.7), the congested samples are among all
    samples, so Cov(W, Ŵ) = Var Ŵ and the variance of ``Ŵ − f W`` is ``N [f a + f² (b − 2a)]`` with
    a of congested packets and b of packets. With whole links that is N (l−1) f (1−f).

    Args:
        hop_excess: b of each row.
        congested_excess: a of each row.
        shared: Whether one reservoir makes both counts.

    Returns:
        ``b``, or ``b − 2a``; not below −a, as the variance is not negative for any f up to 1.
    """
    if not shared:
        return hop_excess
    return np.maximum(hop_excess - 2.0 * congested_excess, -congested_excess)


def path_excess(samples: Floats, weight: Floats, variance: Floats) -> Floats:
    """l−1 of the paths on which the sampled hop is random: ``variance / (weight − samples) − 1``.

    For paths of equal length this is l−1. Packets of one hop are always sampled there: they add to
    the weight but not to its variance, and cancel here. Without other packets the result is 0.
    """
    beyond = weight - samples
    ratio = np.divide(variance, beyond, out=np.ones_like(weight), where=beyond > 0)
    return np.asarray(ratio - 1.0, np.float64)


def usual_excess(samples: Floats, weight: Floats, variance: Floats) -> float:
    """:func:`path_excess` of all rows together."""
    sums = [np.array([values.sum()]) for values in (samples, weight, variance)]
    return float(path_excess(*sums)[0])


def smoothed_excess(weight: Floats, excess: Floats, usual: Floats | float) -> Floats:
    """l−1 of further packets, from l−1 of the sampled packets.

    A pseudo-sample of ``usual`` paths is added to each row, as the samples of a link may all be of
    paths of one hop, while longer paths were sampled elsewhere. It never lowers ``excess``, and
    becomes negligible as samples accumulate.
    """
    length = np.maximum(usual, 0.0) + 1.0
    blend = (weight * excess + length * usual) / (weight + length)
    return np.asarray(np.maximum(excess, blend), np.float64)


def count_interval(
    weight: Floats, variance: Floats, excess: Floats, usual: float, z: float = Z95
) -> tuple[Floats, Floats]:
    """Interval of the number of packets N from its estimate W.

    Solves ``(N − W)² = z² [V + (N − W) (l − 1)]``, with the variance of the hypothetical N. For
    N < W the difference is assumed to have the paths of :func:`path_excess`, for N > W those of
    :func:`smoothed_excess`. With paths of equal length the right side is ``z² N (l − 1)``.

    Args:
        weight: Estimates W.
        variance: Their estimated variances V.
        excess: l−1 of the sampled packets (:func:`path_excess`).
        usual: l−1 of all rows together (:func:`usual_excess`).
        z: Normal quantile.

    Returns:
        ``(low, high)``, shape of ``weight``; low = high if every path of all rows has one hop.
    """
    fewer = z * z * excess / 2.0
    more = z * z * smoothed_excess(weight, excess, usual) / 2.0
    low = weight + fewer - np.sqrt(fewer * fewer + z * z * variance)
    return np.maximum(low, 0.0), weight + more + np.sqrt(more * more + z * z * variance)


def count_lower_bound(weight: Floats, variance: Floats, z: float = Z95) -> Floats:
    """Lower bound of the number of packets from hashed samples: ``W − z √V``, not below 0.

    With hashes the count varies even on a link without packets, so the variance does not vanish
    with the number of packets as :func:`count_interval` assumes. Here it is constant.

    Args:
        weight: Estimates W.
        variance: Their estimated variances V.
        z: Normal quantile.
    """
    return np.asarray(np.maximum(weight - z * np.sqrt(variance), 0.0), np.float64)


def fraction_interval(
    congested: Floats,
    packets: Floats,
    congested_excess: Floats,
    hop_excess: Floats,
    z: float = Z95,
) -> tuple[Floats, Floats]:
    """Interval of the congested fraction f = M/N from the two estimates Ŵ and W.

    Under a hypothetical f the contrast ``Ŵ − f W`` has mean 0 and, with independent reservoirs,
    variance ``N [f (g−1) + f² (l−1)]``. The interval is every f for which the contrast
    is within z standard deviations, with W for N: the two roots of a quadratic.

    Args:
        congested: Estimates Ŵ.
        packets: Estimates W.
        congested_excess: Mean g−1 of each.
        hop_excess: Mean l−1 of each, or what :func:`contrast_excess` makes of it.
        z: Normal quantile.

    Returns:
        ``(low, high)`` within 0–1; ``(0, 1)`` where there is no packet.
    """
    seen = packets > 0
    w = np.where(seen, packets, 1.0)
    ratio, c = congested / w, z * z / w
    linear = 2.0 * ratio + c * congested_excess
    square = 1.0 - c * hop_excess
    root = np.sqrt(np.maximum(linear**2 - 4.0 * ratio**2 * square, 0.0))
    # The smaller root without cancellation. If the leading coefficient is not positive, there are
    # too few packets for an upper bound of f.
    low = np.divide(2.0 * ratio**2, linear + root, out=np.zeros_like(w), where=linear + root > 0)
    high = np.divide(linear + root, 2.0 * square, out=np.ones_like(w), where=square > 0)
    low, high = np.clip(low, 0.0, 1.0), np.clip(high, 0.0, 1.0)
    return np.where(seen, low, 0.0), np.where(seen, np.maximum(high, low), 1.0)


def fraction_lower_bound(
    congested: Floats,
    packets: Floats,
    congested_variance: Floats,
    packets_variance: Floats,
    z: float = Z95,
    *,
    shared: bool = False,
) -> Floats:
    """Lower bound of the congested fraction f from hashed samples.

    With hashes Ŵ varies even on a link without congested packets (section 5.3), so its variance
    does not vanish with f as :func:`fraction_interval` assumes. Here both variances V̂ and V are
    constant: the bound is the smaller f with ``(Ŵ − f W)² = z² (V̂ − 2f C + f² V)`` (Fieller, 1954),
    where the covariance C is V̂ if one reservoir makes both counts, and otherwise 0.

    Args:
        congested: Estimates Ŵ.
        packets: Estimates W.
        congested_variance: V̂ of each.
        packets_variance: V of each.
        z: Normal quantile.
        shared: Whether one reservoir makes both counts.

    Returns:
        Within 0–1; 0 if there may be no packets.
    """
    square = packets**2 - z * z * packets_variance
    linear = congested * packets - (z * z * congested_variance if shared else 0.0)
    constant = congested**2 - z * z * congested_variance
    root = np.sqrt(np.maximum(linear**2 - square * constant, 0.0))
    low = np.divide(linear - root, square, out=np.zeros_like(packets), where=square > 0)
    return np.asarray(np.clip(low, 0.0, 1.0), np.float64)


def packets_to_settle(
    fraction: Floats,
    threshold: float,
    congested_excess: Floats,
    hop_excess: Floats,
    z: float = Z95,
    *,
    hashed: bool = False,
    shared: bool = False,
) -> Floats:
    """Number of packets on a link needed to distinguish its congested fraction from ``threshold``.

    From Var[F] = [f (g−1) + f² (l−1)] / N at f = threshold. Distances below a quarter of the
    threshold are raised to it, since no number of packets distinguishes equal values. For
    ``hashed`` samples the lower bound of :func:`fraction_lower_bound` applies too: the variance of
    congested packets is taken at ``fraction``, and the number of packets itself must be
    significantly above zero. ``shared``: as for :func:`contrast_excess`.
    """
    distance = np.maximum(np.abs(fraction - threshold), threshold / 4.0)
    supposed = np.maximum(fraction, threshold) if hashed else threshold
    variance = supposed * congested_excess + threshold**2 * hop_excess
    if shared:
        variance = variance - 2.0 * threshold * supposed * congested_excess
    need = np.ceil(z * z * variance / distance**2)
    if hashed:
        some = np.floor(z * z * hop_excess) + 1.0
        need = np.where(fraction > threshold, np.maximum(need, some), need)
    return np.asarray(need, np.float64)


def utilization(
    payload_bytes: Floats,
    packets: Floats,
    variance: Floats,
    excess: Floats,
    usual: float,
    capacity_bytes: Floats,
    header_bytes: int = 0,
    *,
    hashed: bool = False,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Share of the line rate that the estimated bytes take.

    Args:
        payload_bytes: Estimated bytes of each row.
        packets: Estimated packets of each row.
        variance: Estimated variance of ``packets``.
        excess: l−1 of the sampled packets (:func:`path_excess`).
        usual: l−1 of all rows together (:func:`usual_excess`).
        capacity_bytes: Bytes that the link, or all links of the row, could carry in the time.
        header_bytes: Overhead of a packet on the wire, in bytes.
        hashed: Whether the samples were hashes: the lower bound of :func:`count_lower_bound` then
            applies too.

    Returns:
        ``(value, standard_error, low, high)``; estimates may slightly exceed 1.
    """
    wire = payload_bytes + header_bytes * packets
    value = np.divide(wire, capacity_bytes, out=np.zeros_like(wire), where=capacity_bytes > 0)
    each = np.divide(value, packets, out=np.zeros_like(value), where=packets > 0)
    low, high = count_interval(packets, variance, excess, usual)
    if hashed:
        low = np.minimum(low, count_lower_bound(packets, variance))
    return value, each * np.sqrt(variance), each * low, each * high


def capacity_bytes(rate_gbps: Floats, time_ps: Floats) -> Floats:
    """Bytes that a link of ``rate_gbps`` carries in ``time_ps``."""
    return np.asarray(rate_gbps * time_ps / 8000.0, np.float64)


def _column(frame: pl.DataFrame, name: str) -> Floats:
    return np.asarray(frame[name].cast(pl.Float64).to_numpy(), np.float64)
