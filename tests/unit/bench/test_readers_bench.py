"""The traces that the benchmark of readers writes hold what it counts."""

from __future__ import annotations

from pathlib import Path

import pytest
import readers

from tailback.traffic.readers import read_trace
from tests.factories.blocking import run_blocking


@pytest.mark.parametrize("name", readers.FORMATS)
def test_every_message_of_the_ring_is_read(name: str, tmp_path: Path) -> None:
    events = readers.FORMATS[name](tmp_path, 4, 3)
    program = read_trace(tmp_path, format=name)
    # The halo of OTF2 has a neighbour on either side.
    assert int(program.sends.sum()) == 4 * 3 * (2 if name == "otf2" else 1)
    assert events >= 2 * 4 * 3
    assert run_blocking(program)
