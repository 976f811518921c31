"""Pairs of hosts whose flows switches hash to four spines."""

from __future__ import annotations

from tailback.scenario.model import parse
from tailback.simulation import PreparedScenario, prepare


def prepared(**engine: object) -> PreparedScenario:
    """Four pairs of hosts on two leaves, with four spines."""
    return prepare(
        parse(
            {
                "name": "pairs",
                "fabric": {"fat_tree": {"hosts_per_leaf": 4, "leaves": 2, "aggregation": 4}},
                "job": [
                    {
                        "name": "a",
                        "pattern": {
                            "kind": "transpose",
                            "dims": [4, 2],
                            "axis": "y",
                            "size": "1 MiB",
                        },
                    }
                ],
                "engine": {"packet": "16 KiB", "buffer": "256 KiB"} | engine,
            }
        )
    )
