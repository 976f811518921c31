"""Recording in a thread: until the block ends, and errors are raised there."""

from __future__ import annotations

import pytest

from tailback.lab.datapath.background import BackgroundRecorder, Wait


def test_it_records_until_the_block_ends() -> None:
    ended = []

    def record(wait: Wait) -> None:
        ended.append(wait(60.0))

    with BackgroundRecorder("test", record):
        assert not ended
    assert ended == [True]


def test_an_error_surfaces_unless_the_block_failed() -> None:
    def record(wait: Wait) -> None:
        raise OSError("disk full")

    reached = []
    with pytest.raises(OSError, match="disk full"), BackgroundRecorder("test", record):
        reached.append(True)
    assert reached
    with pytest.raises(KeyError, match="block"), BackgroundRecorder("test", record):
        raise KeyError("block")
