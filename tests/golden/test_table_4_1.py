"""Table 4.1 of the thesis: every row within the difference allowed for it."""

from __future__ import annotations

from typing import Any

import pytest

from studies.taffet2019 import table_4_1
from tailback.scenario.model import load
from tailback.simulation import prepare


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, Any]]:
    """Every row by its name in the thesis."""
    table = table_4_1.rows(prepare(load(table_4_1.SCENARIO)))
    return {row["mapping"]: row for row in table}


@pytest.mark.slow
@pytest.mark.parametrize("mapping", [row[0] for row in table_4_1.ROWS if row[1] is not None])
def test_time_is_within_what_is_allowed(rows: dict[str, dict[str, Any]], mapping: str) -> None:
    assert rows[mapping]["within"], rows[mapping]


@pytest.mark.slow
def test_determined_path_lengths_agree_to_three_decimals(
    rows: dict[str, dict[str, Any]],
) -> None:
    for mapping in ("Row major", "One level tiling"):
        assert round(rows[mapping]["our_path"], 3) == rows[mapping]["their_path"]


@pytest.mark.slow
def test_no_congestion_is_left_with_metis_or_tiling(rows: dict[str, dict[str, Any]]) -> None:
    assert rows["Ordinary graph partitioning"]["congested_hops"] == 0
    assert rows["One level tiling"]["congested_hops"] == 0
    assert rows["Row major"]["congested_hops"] > 0.05


def test_the_table_writes_per_cent_as_everything_does() -> None:
    row = {
        "mapping": "Random",
        "placement": "random",
        "their_ns": 100,
        "our_ns": 114,
        "difference": 0.142,
        "tolerance": 0.15,
        "their_path": 4.657,
        "our_path": 4.642,
        "congested_hops": 0.1984,
    }
    assert "| +14.2 % | 15 % |" in table_4_1.table([row])
