"""Mistakes in a scenario that one makes who writes it from the page: each told with its remedy."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tailback.errors import ScenarioError, TailbackError
from tailback.scenario.model import parse
from tailback.simulation import prepare
from tests.factories.cli import refused
from tests.factories.repository import DEMO

SOUND: dict[str, Any] = {
    "fabric": {"fat_tree": {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 2}},
    "job": [
        {"pattern": {"kind": "ring", "ranks": 4, "size": "1 KiB"}, "hosts": hosts}
        for hosts in ("0-3", "4-7", "8-11")
    ],
}
"""A scenario of three jobs, as TOML gives it."""


def sound(**changes: Any) -> dict[str, Any]:
    """That scenario with other sections."""
    return {**deepcopy(SOUND), **changes}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        # A required key that is misspelt counts as misspelt, not as missing.
        (
            sound(fabric={"fat_tree": {"hosts_per_leaf": 4, "leafs": 4, "aggregation": 2}}),
            ("[fabric.fat_tree] leafs: unknown key 'leafs'", "did you mean 'leaves'?"),
        ),
        (
            sound(fabric={"fat_tree": {"hosts_per_leaf": 4, "leaves": 4}}),
            (
                "[fabric.fat_tree] aggregation: key is missing",
                "add it: aggregation switches per pod",
            ),
        ),
        ({"job": SOUND["job"]}, ("fabric: key is missing", "add it: write [fabric]", "preset =")),
        ({"fabric": {"preset": "full"}, "jobs": []}, ("unknown key 'jobs'", "did you mean 'job'?")),
        (sound(job=SOUND["job"][0]), ("job: {", "not a list of tables", "write [[job]] in two")),
        (sound(fabric="tapered"), ("fabric: 'tapered' is not a table", 'preset = "tapered"')),
        (sound(engine=[]), ("engine: [] is not a table", "write [engine]")),
        (
            sound(engine={"services": 2, "lane_weights": ["4 KiB", "0 B"]}),
            ("[engine] lane_weights: a weight of 0 bytes is not allowed", "at least one packet"),
        ),
        (sound(job=[{"pattern": "ring"}]), ("[job] pattern: 'ring' is not a table", "{ kind =")),
    ],
)
def test_a_wrong_form_gets_the_right_one(data: dict[str, Any], expected: tuple[str, ...]) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse(data)
    for text in expected:
        assert text in str(caught.value)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"repeat": "x"}, "job 2 of 3: [job] repeat: 'x'"),
        ({"hosts": "x"}, "job 2 of 3 ('app'): hosts = 'x'"),
        ({"hosts": "4-6"}, "job 2 of 3 ('app'): job has 4 ranks"),
        ({"pattern": {"kind": "rng"}}, "job 2 of 3 ('app'): [job.pattern] kind"),
        ({"hosts": "3-6"}, "jobs 1 ('app') and 2 ('app') both use host"),
    ],
)
def test_the_faulty_job_of_several_is_named(change: dict[str, Any], expected: str) -> None:
    data = sound()
    data["job"][1].update(change)
    with pytest.raises(TailbackError) as caught:
        prepare(parse(data))
    assert expected in str(caught.value)


def test_a_jobs_mistake_is_no_trace_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    text = (DEMO / "demo.toml").read_text()
    text = re.sub(r'"(trace|fabric\.ibnetdiscover)"', lambda at: f'"{DEMO / at[1]}"', text)
    for line, expected in (
        ('hosts = "0-15"', "job has 128 ranks"),
        ('placement = "block"\nplacement_options = { refine = false }', "no option 'refine'"),
    ):
        path.write_text(re.sub(r"(?m)^placement = .*$", line, text))
        refused(capsys, ["simulate", path], f"error: {path}: ", expected)
