"""Times of recorded messages as calling contexts of captured packets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest

from tailback.errors import RunError, TailbackError
from tailback.evidence.measure import MeasuredRun
from tailback.fabric.model import Fabric
from tailback.scenario.model import parse
from tailback.simulation import prepare
from tailback.telemetry.call_times import call_times
from tailback.telemetry.captured import labelled, read_contexts

BEGAN_NS = 1_700_000_000_000_000_000


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    job = {"pattern": {"kind": "ring", "ranks": 4, "size": "1 KiB"}}
    tree = {"hosts_per_leaf": 2, "leaves": 2, "aggregation": 1}
    return prepare(parse({"fabric": {"fat_tree": tree}, "job": [job]})).fabric


def recording(hosts: list[str | None]) -> MeasuredRun:
    """Ranks 0 and 1 share a host; 0 sends two messages to 2, which overlap, and one to 1."""
    calls = ["MPI_Isend", "MPI_Send", "MPI_Recv", "MPI_Waitall"]
    tables = {
        "hosts": pl.DataFrame({"rank": [0, 1, 2], "host": hosts}, schema_overrides=HOST),
        "calls": pl.DataFrame(
            {"call": range(4), "name": calls, "path": ["halo", "", "", "halo > wait"]}
        ),
        "transfers": pl.DataFrame(
            {
                "src_rank": [0, 0, 0, 0],
                "dst_rank": [2, 2, 1, 2],
                "send_call": [0, 1, 1, 1],
                "send_enter_ps": [0, 2_000_000, 0, 0],
                "recv_done_call": [3, 2, 2, None],
                "recv_done_ps": [5_000_000, 9_000_000, 1_000_000, None],
                "source": "measured",
            }
        ),
    }
    return MeasuredRun(cast(Any, None), tables, BEGAN_NS)


HOST = {"rank": pl.UInt32, "host": pl.String}


@pytest.mark.parametrize(
    ("side", "labels"),
    [
        ("sender", ["MPI_Isend", "MPI_Isend", "MPI_Isend", "MPI_Send", ""]),
        ("receiver", ["MPI_Waitall", "MPI_Waitall", "MPI_Waitall", "MPI_Recv", ""]),
    ],
)
def test_packets_belong_to_the_message_that_ends_first(
    fabric: Fabric, tmp_path: Path, side: Any, labels: list[str]
) -> None:
    names = fabric.node_name
    table = call_times(recording([names[0], names[0], names[2]]), side)
    assert table.height == 2
    table.write_csv(tmp_path / "calls.csv")
    contexts = read_contexts(tmp_path, fabric)
    times = [BEGAN_NS, BEGAN_NS + 3_000, BEGAN_NS + 5_000, BEGAN_NS + 5_001, BEGAN_NS + 9_001]
    packets = pl.DataFrame(
        {"src_node": 0, "dst_node": 2, "queue_pair": 1, "sequence": range(5), "time_ns": times}
    )
    assert [contexts.labels[label][1] for label in labelled(packets, contexts)] == labels
    other = packets.with_columns(dst_node=3)
    assert not labelled(other, contexts).any()


def test_recordings_without_date_or_hosts_are_refused(fabric: Fabric) -> None:
    names = fabric.node_name
    run = recording([names[0], names[0], names[2]])
    with pytest.raises(RunError, match="has no date"):
        call_times(replace(run, origin_unix_ns=None), "sender")
    with pytest.raises(RunError, match="host of each rank"):
        call_times(recording([names[0], None, names[2]]), "sender")
    with pytest.raises(RunError, match="no message between two hosts"):
        call_times(recording([names[0]] * 3), "sender")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("5,,,", "has one of first_ns and last_ns"),
        ("5,9,1,2", "has more than one of first_psn, first_ns"),
        (f"5,{1 << 63},,", "times are nanoseconds since 1970"),
    ],
)
def test_contradictory_times_are_refused(
    fabric: Fabric, tmp_path: Path, row: str, message: str
) -> None:
    text = f"call,first_ns,last_ns,first_psn,packets\nMPI_Send,{row}\n"
    (tmp_path / "calls.csv").write_text(text)
    with pytest.raises(TailbackError, match=message):
        read_contexts(tmp_path, fabric)
