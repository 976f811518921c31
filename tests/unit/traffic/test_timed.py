"""Messages at stated times: posted when the list says, and refused by number."""

from __future__ import annotations

from typing import Any

import pytest

from tailback.errors import ScenarioError
from tailback.scenario.model import parse
from tailback.simulation import simulate
from tailback.traffic.patterns import build

LIST = [[3_000_000, 0, 2, 4096], [1_000_000, 0, 1, 100], [2_000_000, 3, 0, 8192]]


def scenario(messages: list[list[int]]) -> dict[str, Any]:
    return {
        "fabric": {"fat_tree": {"hosts_per_leaf": 2, "leaves": 2, "aggregation": 2}},
        "job": [{"pattern": {"kind": "timed", "ranks": 4, "messages": messages}}],
    }


def test_messages_are_posted_at_their_times() -> None:
    """Whatever order the list has, and however long earlier messages are under way."""
    slow = [[0, 0, 1, 1 << 22], *LIST]
    log = simulate(parse(scenario(slow))).tables["messages"].sort("post_ps", "src_rank")
    overhead = log["post_ps"][0]
    assert log["size_bytes"].to_list() == [1 << 22, 100, 8192, 4096]
    assert log["src_rank"].to_list() == [0, 0, 3, 0]
    for post, (when, *_) in zip(log["post_ps"], sorted(slow), strict=True):
        # The time to post each message is the rank's own; 4 MiB at 100 Gb/s take 335 µs.
        assert when <= post <= when + 4 * max(overhead, 1_000_000)
    assert max(log["arrival_ps"].to_list()) > 300_000_000


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ([0, 1, 1, 8], "message 2 goes from rank 1 to rank 1 of 4"),
        ([0, 1, 4, 8], "message 2 goes from rank 1 to rank 4 of 4"),
        ([0, -1, 1, 8], "message 2 goes from rank -1 to rank 1 of 4"),
        ([-1, 0, 1, 8], "message 2 has time -1 ps and 8 bytes"),
        ([0, 0, 1, 0], "message 2 has time 0 ps and 0 bytes"),
        ([0, 0, 1, 1 << 40], "message 2 has time 0 ps"),
        ([1 << 70, 0, 1, 8], "message 2 has time"),
    ],
)
def test_a_wrong_message_is_named(message: list[int], words: str) -> None:
    with pytest.raises(ScenarioError, match=words) as error:
        build({"kind": "timed", "ranks": 4, "messages": [[0, 0, 1, 8], message]}, None, 1)
    assert "messages" in str(error.value.place) and error.value.remedy


def test_no_messages_are_a_job_that_does_nothing() -> None:
    program = build({"kind": "timed", "ranks": 3, "messages": []}, None, 1)
    assert program.n_ranks == 3
    program.check()
