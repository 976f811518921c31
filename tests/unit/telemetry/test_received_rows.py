"""Rows of table ``samples``, from packets charged to links: windows, weights and variances by hand.

Two windows of 100 ps; of four packets one carries a sample (k = 4).
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import polars as pl

from tailback.telemetry.receiver import _Charged, _excess, _table

RUN = SimpleNamespace(
    scenario=SimpleNamespace(telemetry=SimpleNamespace(receivers=False)),
    tables={
        "packets": pl.DataFrame(
            {"time_ps": [99, 100, 200], "label": [0, 0, 0], "size_bytes": [10, 20, 30]},
            schema_overrides={"label": pl.UInt32},
        ),
        "windows": pl.DataFrame({"window": [0, 1], "start_ps": [0, 100], "end_ps": [100, 200]}),
        "labels": pl.DataFrame({"label": [0], "job": [7]}),
    },
)


def charged(*rows: int) -> _Charged:
    """Packets of link 2, each for two."""
    return _Charged(np.array(rows), np.full(len(rows), 2), np.full(len(rows), 2.0))


def test_a_packet_at_the_end_belongs_next() -> None:
    """The one after the last window, which ended the run, is of the last."""
    excess = np.array([0.0, 0.0, 3.0])
    rows = _table(RUN, (charged(0, 1, 2), excess), (charged(1), excess), 4)  # type: ignore[arg-type]
    assert rows["window"].to_list() == [0, 1]
    assert (rows["link"].to_list(), rows["job"].to_list()) == ([2, 2], [7, 7])
    assert rows["hop_samples"].to_list() == [1, 2]
    # 2 for each, and 4 for each that carries a sample.
    assert rows["hop_weight"].to_list() == [8, 16]
    assert rows["hop_bytes"].to_list() == [80, 400]
    assert rows["hop_variance"].to_list() == [24, 48]
    assert rows["congested_samples"].to_list() == [0, 1]
    assert rows["congested_weight"].to_list() == [0, 8]


def test_one_in_k_varies_by_choice_and_link() -> None:
    """A packet charged with k has k² with chance 1/k: of a doubt of 1/2 is k (1 + 1/2) − 1 = 5."""
    hop = _Charged(np.arange(3), np.array([0, 0, 2]), np.ones(3))
    assert _excess(hop, np.array([0.25, 0.75, 0.0]), 4).tolist() == [5.0, 3.0, 3.0]
