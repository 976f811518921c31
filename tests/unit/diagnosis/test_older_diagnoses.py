"""Diagnoses that older versions wrote are read, and say so."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailback.diagnosis.model import Candidate, Diagnosis, Remedy, Status
from tailback.diagnosis.older import NOTE, read_diagnosis
from tests.factories.report_data import make_diagnosis, make_run


def as_older(found: Diagnosis) -> dict[str, Any]:
    """The diagnosis with the keys of versions before the first release."""
    data: dict[str, Any] = json.loads(found.model_dump_json())
    assert found.remedy is not None
    remedy = data["remedy"]
    remedy["cure"] = remedy.pop("name")
    del remedy["parts"]
    for candidate, now in zip(remedy["candidates"], found.remedy.candidates, strict=True):
        candidate["error"] = now.remark
        for key in ("status", "reason", "parts"):
            del candidate[key]
    return data


@pytest.fixture
def combined() -> Diagnosis:
    found = make_diagnosis(make_run())
    remedy = Remedy(
        action="Do both.",
        name="tile + tree-reduce",
        parts=("tile", "tree-reduce"),
        placement="tile",
        before_ps=100_000_000,
        after_ps=70_000_000,
        gain=0.3,
        files={},
        commands=[],
        candidates=[
            Candidate(
                name="tile + tree-reduce",
                kind="combined",
                parts=("tile", "tree-reduce"),
                elapsed_ps=70_000_000,
                low_ps=70_000_000,
            ),
            Candidate(name="tile", elapsed_ps=80_000_000, low_ps=80_000_000),
            Candidate(name="vc", kind="routing", status=Status.RULED_OUT, reason="too slow"),
            Candidate(name="sfc", status=Status.FAILED, reason="needs a grid"),
            Candidate(name="ring", kind="pattern", status=Status.NOT_APPLICABLE, reason="no ring"),
        ],
    )
    return found.model_copy(update={"remedy": remedy})


def test_old_keys_and_prefixes_become_names_parts_and_statuses(combined: Diagnosis) -> None:
    read = read_diagnosis(json.dumps(as_older(combined)).encode())
    assert read.remedy == combined.remedy
    assert read.warnings == [*combined.warnings, NOTE]


def test_a_diagnosis_of_this_version_is_read_as_it_is(combined: Diagnosis) -> None:
    assert read_diagnosis(combined.model_dump_json().encode()) == combined


def test_a_margin_and_what_was_at_rest_are_left_out(combined: Diagnosis) -> None:
    data = json.loads(combined.model_dump_json())
    data |= {"margin": 0.4, "basis": "re-simulation, at rest"}
    del data["agreement"]
    read = read_diagnosis(json.dumps(data).encode())
    assert read == combined.model_copy(update={"basis": "re-simulation"})


@pytest.mark.parametrize(
    "content",
    [
        b"{}",
        b"[]",
        b'{"remedy": {"cure": 3}}',
        b'{"remedy": {"cure": "a", "candidates": [1]}}',
        b"{",
    ],
)
def test_what_is_no_diagnosis_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        read_diagnosis(content)
