"""Assumptions of machine models about sends."""

from __future__ import annotations

import pytest

from tailback.inference.machine_models import with_copied_sends
from tests.factories.hashed_pairs import prepared


def test_sends_over_tcp_are_complete_when_copied() -> None:
    assert with_copied_sends(prepared()).scenario.engine.eager_sends == "copied"


@pytest.mark.parametrize("stated", ["sent", "copied"])
def test_stated_completion_of_sends_stays(stated: str) -> None:
    engine = with_copied_sends(prepared(eager_sends=stated)).scenario.engine
    assert engine.eager_sends == stated
