"""The shipped alert rules: they name metrics that exist, and fire when they should."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tailback.collector import Collection, CollectorSettings, MetricsBoard
from tests.factories.collect_subnet import MS, row_of_switches, session
from tests.factories.repository import ROOT

RULES = ROOT / "docs" / "how-to" / "alert-rules.yml"
promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="needs Debian's prometheus")
CHANGES = "tailback_collector_changes_total"
PORT = 'guid="0x1",node="leaf",port="7"'
LINK = (f'tailback_port_info{{{PORT},peer="spine",width="4x"}}', "1x60")


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_rules_use_only_metrics_that_exist(tmp_path: Path) -> None:
    collection, board = Collection(tmp_path / "c"), MetricsBoard()
    session(row_of_switches(1, 1), CollectorSettings(20 * MS, 2), collection, board).run()
    collection.close()
    names = set(re.findall(r"^# TYPE (\S+)", board.metrics(), re.M))
    used = {name for rule in alerts() for name in re.findall(r"tailback_\w+", rule["expr"])}
    assert len(used) >= 15 and used <= names, used - names


def test_every_alert_says_what_and_why() -> None:
    for rule in alerts():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert set(rule["annotations"]) == {"summary", "description"}
    assert len({rule["alert"] for rule in alerts()}) == len(alerts())


def fires(tmp_path: Path, name: str, at: str, *series: tuple[str, str]) -> bool:
    """Whether promtool says that an alert fires at a time, for these series by the minute."""
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": s, "values": v} for s, v in (LINK, *series)],
                "alert_rule_test": [{"eval_time": at, "alertname": name, "exp_alerts": []}],
            }
        ],
    }
    path = tmp_path / "test.yml"
    path.write_text(yaml.safe_dump(test))
    done = subprocess.run(
        ["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert "alertname:" + name in done.stderr.replace(" ", "") or not done.returncode, done.stderr
    return bool(done.returncode)


@promtool
@pytest.mark.tools
def test_promtool_accepts_the_rules() -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", "--lint=all", "--lint-fatal", str(RULES)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and f"{len(alerts())} rules found" in done.stdout, done.stderr


@promtool
@pytest.mark.tools
@pytest.mark.parametrize(
    ("name", "metric", "sick", "healthy"),
    [
        ("LinkDown", f"tailback_port_up{{{PORT}}}", "1 0x20", "1x20"),
        ("LinkFlaps", f"tailback_port_link_downed_total{{{PORT}}}", "0x3 1 2 3 4x20", "0 1x20"),
        ("LinkSlower", f"tailback_port_capacity_gbps{{{PORT}}}", "100x3 25x20", "100x20"),
        (
            "SwitchLost",
            'tailback_collector_changes_total{change="switch lost"}',
            "0x15 1x6",
            "0x20",
        ),
        ("PortStalls", f"tailback_port_stall_ratio{{{PORT}}}", "0.3x30", "0.3x9 0x20"),
        ("CollectorSilent", "tailback_collector_sweeps_total", "7x30", "0+6x30"),
    ],
)
def test_alerts_fire_when_they_should(
    tmp_path: Path, name: str, metric: str, sick: str, healthy: str
) -> None:
    assert fires(tmp_path, name, "20m", (metric, sick))
    assert not fires(tmp_path, name, "20m", (metric, healthy))


@promtool
@pytest.mark.tools
def test_errors_of_all_kinds_add_up(tmp_path: Path) -> None:
    kinds = (
        "symbol_error",
        "link_error_recovery",
        "local_link_integrity_errors",
        "excessive_buffer_overrun_errors",
        "receive_errors",
    )
    series = [(f"tailback_port_{kind}_total{{{PORT}}}", "0x5 4x60") for kind in kinds]
    assert fires(tmp_path, "LinkErrors", "30m", *series)
    few = [(name, "0x60") for name, _ in series[:-1]] + [(series[-1][0], "0x5 4x60")]
    assert not fires(tmp_path, "LinkErrors", "30m", *few)
