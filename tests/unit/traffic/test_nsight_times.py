"""Times of Nsight Systems exports: a run recorded as OTF2 and so is the same measured run."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tailback.errors import TailbackError
from tailback.evidence import measure
from tailback.traffic.readers import timed_reader
from tests.factories.dumpi_of_otf2 import with_init_and_finalize
from tests.factories.evidence_traces import Script, collective, receive, send
from tests.factories.exchange_events import COMMS, Exchange, comparable
from tests.factories.nsight_exports import describing, sample, write_export
from tests.factories.nsight_of_otf2 import nsight_calls
from tests.factories.otf2_traces import writing

US = 10**6


@pytest.mark.parametrize("together", [False, True], ids=["one per rank", "one per host"])
@pytest.mark.parametrize("seed", range(3))
def test_otf2_and_exports_give_the_same_run(tmp_path: Path, seed: int, together: bool) -> None:
    scripts = Exchange(seed, in_world=True).scripts
    # The times of this run contradict one clock for two ranks, so each rank gets its own.
    hosts = ["h0", "h0", "h1", "h1"]
    trace = writing(tmp_path)(
        [with_init_and_finalize(script) for script in scripts], COMMS, hosts=hosts
    )
    (tmp_path / "exports").mkdir()
    ranks = [[0, 1], [2, 3]] if together else [[0], [1], [2], [3]]
    for some in ranks:
        write_export(
            tmp_path / "exports" / f"rank{some[0]}.sqlite",
            {rank: nsight_calls(scripts[rank]) for rank in some},
            describing(hosts[some[0]], 1_700_000_000 * 10**9),
        )
    of_trace, of_exports = (measure(path, environment={}) for path in (trace, tmp_path / "exports"))
    expected, export_tables = comparable(of_trace), comparable(of_exports)
    for name in ("calls", "transfers", "collectives", "waits", "split", "hosts"):
        assert export_tables[name] == expected[name], name
    assert len(of_exports.tables["transfers"]) == 6 * (4 + 8)
    assert set(of_exports.tables["transfers"]["source"]) == {"measured"}
    left = of_trace.measured.model_copy(update={"notes": []})
    assert of_exports.measured.model_copy(update={"notes": []}) == left
    # When MPI_Init is left, moved by what is found of the clocks.
    assert of_exports.origin_unix_ns == pytest.approx(1_700_000_000 * 10**9 + 10, abs=10**6, rel=0)


def two_ranks() -> list[Script]:
    """Two barriers, 1 ms apart, and a message between them."""
    barriers = [collective(20, 1_000), collective(1_001_000, 1_002_000)]
    return [
        [*barriers[0], *send(901_000, 902_000, to=1), *barriers[1]],
        [*barriers[0], *receive(1_000, 903_000, source=0), *barriers[1]],
    ]


def exported(folder: Path, second: list[str], *, any_source: bool = False) -> Path:
    """An export of each rank; the second says of itself what it is told to."""
    for rank, script in enumerate(two_ranks()):
        statements = second if rank else describing("a", 1_700_000_000 * 10**9)
        calls = {rank: nsight_calls(script, any_source=any_source)}
        write_export(folder / f"rank{rank}.sqlite", calls, statements)
    return folder


def test_sessions_begun_apart_are_joined(tmp_path: Path) -> None:
    """The second host's clock is 10 s ahead: its session seems to begin later."""
    run = measure(exported(tmp_path, describing("b", 1_700_000_010 * 10**9)), environment={})
    assert run.tables["hosts"]["host"].to_list() == ["a", "b"]
    # The barriers bound the difference of the clocks to 1 us.
    assert run.measured.elapsed_ps == pytest.approx(1_002_000_000 - 10_000, abs=US)
    assert run.measured.clocks.unit == "rank"


def test_an_export_without_start_has_its_clock(tmp_path: Path) -> None:
    path = exported(tmp_path, [])
    run = measure(path, environment={})
    assert run.origin_unix_ns is None
    assert run.tables["hosts"]["host"].to_list() == ["a", None]
    assert run.measured.elapsed_ps == pytest.approx(1_002_000_000 - 10_000, abs=US)
    reader = timed_reader(path)
    assert reader is not None and reader.system_tree(path) == [[("a", "node")], []]


def test_guessed_sources_are_marked(tmp_path: Path) -> None:
    path = exported(tmp_path, describing("b", 1_700_000_000 * 10**9), any_source=True)
    run = measure(path, environment={})
    assert run.tables["transfers"]["source"].to_list() == ["inferred"]
    assert any("the source of 1 receives" in note for note in run.measured.notes)


def test_one_call_waits_for_several_requests(tmp_path: Path) -> None:
    run = measure(sample(tmp_path), environment={})
    calls = run.tables["calls"].filter(pl.col("rank") == 0)
    assert calls["name"].to_list() == ["MPI_Irecv", "MPI_Isend", "MPI_Waitall", "MPI_Bcast"]
    assert calls["received_bytes"].to_list()[2] == 40


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = 'soon'",
        "UPDATE TARGET_INFO_SYSTEM_ENV SET value = x'00ff'",
        "UPDATE TARGET_INFO_SYSTEM_ENV SET value = '../../etc'",
        "ALTER TABLE TARGET_INFO_SYSTEM_ENV RENAME COLUMN value TO valueId",
        "UPDATE MPI_P2P_EVENTS SET size = 9223372036854775807",
    ],
)
def test_a_hostile_export_is_refused_or_hostless(tmp_path: Path, statement: str) -> None:
    path = exported(tmp_path, [*describing("b", 1_700_000_000 * 10**9), statement])
    try:
        run = measure(path, environment={})
    except TailbackError as error:
        assert error.remedy
        return
    assert run.origin_unix_ns is None or run.tables["hosts"]["host"].to_list() == ["a", None]


def test_ranks_of_an_export_have_one_clock(tmp_path: Path) -> None:
    """Also if the export lists a process without calls."""
    scripts = two_ranks()
    statements = [*describing("a", 1_700_000_000 * 10**9), "INSERT INTO MPI_RANKS VALUES (5, 7)"]
    write_export(tmp_path / "all.sqlite", {r: nsight_calls(scripts[r]) for r in (0, 1)}, statements)
    report = measure(tmp_path, environment={}).measured.clocks
    assert (report.clocks, report.error_ps, report.violated) == (1, 0, 0)
