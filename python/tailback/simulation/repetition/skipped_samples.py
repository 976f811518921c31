"""Samples of packets that are not simulated, drawn from how many packets pass where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailback.simulation.outcome import Columns


@dataclass(frozen=True, eq=False)
class LabelPasses:
    """Packets of observed jobs that pass switches which could sample them, by label and link.

    Attributes:
        label: Label of each row, ascending, shape (M,).
        link: Link that the packets leave the switch by, ascending for each label, shape (M,).
        passed: Estimated number of packets, shape (M,).
        met: Estimated number of those that meet congestion there, shape (M,).
    """

    label: NDArray[np.int64]
    link: NDArray[np.int64]
    passed: NDArray[np.float64]
    met: NDArray[np.float64]


def draw_samples(
    samples: Columns, passes: Sequence[LabelPasses], one_in: float, generator: np.random.Generator
) -> list[dict[str, NDArray[Any]]]:
    """Samples of skipped packets, drawn for each label and link.

    A packet with l switches on its path is sampled at each with probability 1 / l. The number of
    samples of a label on a link is therefore drawn from a binomial distribution, and each sample
    counts for l packets: their sum has the number of passing packets as its expectation, and its
    variance is estimated by the sum of l (l - 1). The same holds for samples of congested hops. l
    is the mean over the simulated samples of the label and link, or of the label if there are none.

    Args:
        samples: Samples of simulated packets, as table ``samples``.
        passes: What passes in each skip.
        one_in: Number of packets per sample that arrives.
        generator: Draws them.

    Returns:
        Rows of table ``samples`` for each skip, without their window.
    """
    means = _Means.of(samples)
    return [_drawn(one, means, one_in, generator) for one in passes]


@dataclass(frozen=True, eq=False)
class _Means:
    """Simulated samples summed over windows.

    Attributes:
        width: More than the number of any link.
        key: Label times ``width`` plus link, ascending, shape (K,).
        sums: Sums of each column by key, shape (K,).
        of_label: Sums of each column by label.
    """

    width: int
    key: NDArray[np.int64]
    sums: dict[str, NDArray[np.float64]]
    of_label: dict[str, NDArray[np.float64]]

    @staticmethod
    def of(samples: Columns) -> _Means:
        label, link = (np.asarray(samples[name]).astype(np.int64) for name in ("label", "link"))
        width = int(link.max(initial=0)) + 1
        key, row = np.unique(label * width + link, return_inverse=True)
        names = [name for name in samples if name not in ("window", "label", "link")]
        sums = {name: _summed(row, samples[name], len(key)) for name in names}
        of_label = {name: _summed(key // width, value) for name, value in sums.items()}
        return _Means(width, key, sums, of_label)

    def per_sample(self, passes: LabelPasses, about: str, name: str) -> NDArray[np.float64]:
        """Mean of a column per sample, of each label and link or else of the label."""
        wanted = passes.label * self.width + passes.link
        if not len(self.key):
            return np.zeros(len(wanted))
        at = np.minimum(np.searchsorted(self.key, wanted), len(self.key) - 1)
        found = (self.key[at] == wanted) & (passes.link < self.width)
        samples = f"{about}_samples"
        own = np.where(found, self.sums[samples][at], 0.0)
        label = np.minimum(passes.label, len(self.of_label[samples]) - 1)
        known = passes.label == label
        others, of_label = (
            np.where(known, self.of_label[column][label], 0.0) for column in (samples, name)
        )
        sums = np.where(own > 0, self.sums[name][at], of_label)
        return np.asarray(sums / np.maximum(np.where(own > 0, own, others), 1))


def _summed(row: NDArray[np.int64], value: Any, length: int = 0) -> NDArray[np.float64]:
    """Sums of values by row number."""
    return np.asarray(np.bincount(row, value, length), np.float64)


def _drawn(
    passes: LabelPasses, means: _Means, one_in: float, generator: np.random.Generator
) -> dict[str, NDArray[Any]]:
    """Rows of samples of one skip."""
    out: dict[str, NDArray[Any]] = {"label": passes.label, "link": passes.link}
    for about, passed in (("hop", passes.passed), ("congested", passes.met)):
        weight = np.maximum(means.per_sample(passes, about, f"{about}_weight"), 1.0)
        packets = np.rint(passed).astype(np.int64)
        drawn = generator.binomial(packets, 1 / (weight * one_in))
        whole = np.floor(weight)
        # Weights are whole numbers: randomized rounding preserves their mean.
        more = generator.binomial(drawn, weight - whole)
        out[f"{about}_samples"] = drawn
        out[f"{about}_weight"] = drawn * whole + more
        out[f"{about}_variance"] = np.rint(
            drawn * means.per_sample(passes, about, f"{about}_variance")
        )
        if about == "hop":
            out["hop_bytes"] = np.rint(drawn * means.per_sample(passes, "hop", "hop_bytes"))
    there = out["hop_samples"] + out["congested_samples"] > 0
    return {name: column[there] for name, column in out.items()}
