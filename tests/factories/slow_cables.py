"""Runs with slow cables, and what their user knows of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tailback.run.run import Run
from tailback.scenario.model import Scenario, parse
from tailback.simulation import simulate

TREE = {"hosts_per_leaf": 4, "leaves": 6, "aggregation": 4}


def scenario(**more: Any) -> dict[str, Any]:
    pattern = {"kind": "permutation", "ranks": 24, "size": "256 KiB", "messages": 4}
    return {
        "fabric": {"fat_tree": TREE},
        "job": [{"pattern": pattern}],
        "telemetry": {"windows": 12},
        **more,
    }


def with_slow(*cables: tuple[str, str], **more: Any) -> dict[str, Any]:
    data = scenario(**more)
    data["fabric"]["degraded"] = [{"cable": cable, "rate": rate} for cable, rate in cables]
    return data


def seen_by_user(data: dict[str, Any]) -> tuple[Run, Scenario]:
    """The run as it happened, and the scenario without what a user does not know."""
    run = simulate(parse(data))
    data["fabric"].pop("degraded", None)
    data["job"] = [job for job in data["job"] if job.get("observed", True)]
    visible = parse(data)
    tables = dict(run.tables)
    for name in ("jobs", "ranks", "labels"):
        tables[name] = tables[name].filter(tables[name]["job"] == 0)
    labels = tables["labels"]["label"]
    tables["messages"] = tables["messages"].filter(
        tables["messages"]["label"].is_in(labels.implode())
    )
    return replace(run, scenario=visible, tables=tables), visible
