"""A collection stays on the disk: piece by piece it says what it says as a whole."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tailback.collector.store import Collection
from tailback.port_counters.analysis import port_inventory, verdict
from tailback.port_counters.analysis.port_inventory import PortInventory
from tailback.port_counters.analysis.sources import CounterSource, load
from tailback.port_counters.analysis.survey import AnalysisOptions, analyse
from tailback.port_counters.readers import read_counters
from tailback.port_counters.schema import CounterError
from tests.factories.collect_subnet import FILE
from tests.factories.counter_collection import PORTS, SECOND, collected


@pytest.mark.parametrize("tick_ns", [None, 3.0])
@pytest.mark.parametrize("named", [False, True])
def test_pieces_say_what_the_collection_says(
    tmp_path: Path, tick_ns: float | None, named: bool
) -> None:
    folder = collected(tmp_path / "c", 5)
    (tmp_path / "fabric").write_text(FILE)
    places = port_inventory.from_discovery(tmp_path / "fabric") if named else PortInventory()
    chosen = AnalysisOptions(tick_ns=tick_ns)
    source = load([folder])
    assert source.counters.intervals.is_empty() and source.archive is not None
    assert [p.rows.collect().height for p in source.archive.pieces()] == [6, 9, 9, 9, 9]
    in_memory = CounterSource(["umad"], read_counters(folder), files=[folder])
    judged, expected = analyse(source, places, chosen), analyse(in_memory, places, chosen)
    assert source.kinds == in_memory.kinds and judged.notes == expected.notes
    assert judged.kind == expected.kind
    assert (judged.intervals, judged.start_ns) == (42, expected.start_ns)
    assert verdict.sentence(judged) == verdict.sentence(expected)
    # Floats are added in another order.
    assert_frame_equal(judged.ports, expected.ports, rel_tol=1e-12)
    assert_frame_equal(judged.groups, expected.groups, rel_tol=1e-12)
    names = set(judged.ports["node_name"])
    assert ("h HCA-1" in names) == named and "elsewhere" in names
    assert any("not in the fabric: 1" in note for note in judged.notes) == named
    sized = judged.ports.filter(pl.col("utilization").is_not_null()).height
    assert sized == (3 if named else 2), "the fabric tells the speed that the collector did not"


def test_several_collections_are_one_source(tmp_path: Path) -> None:
    folders = [collected(tmp_path / "a", 2), collected(tmp_path / "b", 3, first=100)]
    source = load(folders)
    assert source.archive is not None and len(source.archive.files) == 5
    judged = analyse(source, PortInventory(), AnalysisOptions())
    assert judged.intervals == 15 + 24 and judged.end_ns > 1000 * SECOND


def test_a_collection_without_any_table_is_undetermined(tmp_path: Path) -> None:
    collection = Collection(tmp_path / "c")
    collection.begin(list(PORTS), {}).close()
    collection.close()
    judged = analyse(load([tmp_path / "c"]), PortInventory(), AnalysisOptions())
    assert judged.kind == "unknown" and judged.intervals == 0
    assert any("1 segment not finished" in note for note in judged.notes)


@pytest.mark.parametrize("where", ["end", "middle", "columns"])
def test_damaged_table_is_named_others_are_read(tmp_path: Path, where: str) -> None:
    folder = collected(tmp_path / "c", 3, sweeps=200)
    file = sorted((folder / "intervals").iterdir())[1]
    data = bytearray(file.read_bytes())
    if where == "end":
        file.write_bytes(data[: len(data) // 2])
    elif where == "middle":
        data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
        file.write_bytes(data)
    else:
        pl.DataFrame({"colour": ["red"]}).write_parquet(file)
    judged = analyse(load([folder]), PortInventory(), AnalysisOptions())
    assert judged.intervals == 3 * (3 * 200 - 1) - 3 * 200
    assert judged.notes[0].startswith(f"left out: {file.name}: ")
    # 200 sweeps, 10 s apart, lie between the last of the first table and the first of the third.
    assert judged.notes[1].startswith("no counters for 2000 s from 1970-01-01 00:33:10 UTC on")


@pytest.mark.parametrize("gone", [("intervals",), ("intervals", "sha256")])
def test_missing_middle_segment_is_a_stated_gap(tmp_path: Path, gone: tuple[str, ...]) -> None:
    folder = collected(tmp_path / "c", 4)
    assert analyse(load([folder]), PortInventory(), AnalysisOptions()).notes == []
    for part in gone:
        (file,) = (folder / part).glob("000002.*")
        file.unlink()
    judged = analyse(load([folder]), PortInventory(), AnalysisOptions())
    assert judged.intervals == 6 + 9 + 9
    assert judged.notes[:2] == [
        "segment 000002 is missing: it was moved or deleted",
        "no counters for 30 s from 1970-01-01 00:00:20 UTC on",
    ]


def test_columns_of_other_versions_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    (folder / "intervals").mkdir(parents=True)
    (folder / "collection.json").write_text("{}")
    rows = pl.DataFrame({"time_ns": [5], "interval_ns": [5], "port": [1], "round": [7]})
    rows.write_parquet(folder / "intervals" / "000000.parquet")
    counters = read_counters(folder)
    assert counters.intervals["port"].to_list() == [1]
    assert "columns of another version, not used: round" in counters.notes


def test_a_segment_without_readings_is_no_gap(tmp_path: Path) -> None:
    folder = collected(tmp_path / "c", 2)
    for part in ("intervals", "readings", "errors", "sha256"):
        (file,) = (folder / part).glob("000002.*")
        file.rename(file.with_name(file.name.replace("000002", "000003")))
    digests = folder / "sha256" / "000003.json"
    digests.write_text(digests.read_text().replace("000002", "000003"))
    assert analyse(load([folder]), PortInventory(), AnalysisOptions()).notes == []


def test_empty_and_damaged_files_are_named(tmp_path: Path) -> None:
    text = "# Port counters: Lid 7 port 1 (CapMask: 0x1300)\nPortXmitWait:....{}\n"
    contents = [text.format(1), "", text.format("x"), "hello", text.format(10**9)]
    files = [tmp_path / f"{n}.txt" for n in range(5)]
    for file, content in zip(files, contents, strict=True):
        file.write_text(content)
    source = load(files, every_ns=15 * SECOND)
    assert [note.partition(": ")[2].partition(":")[0] for note in source.notes[:3]] == [
        "1.txt",
        "2.txt",
        "3.txt",
    ]
    judged = analyse(source, PortInventory(), AnalysisOptions(tick_ns=22.0))
    assert judged.ports["seconds"].to_list() == [60.0]
    assert judged.ports["stall_fraction"].to_list() == [pytest.approx(22 / 60, rel=1e-6)]
    with pytest.raises(CounterError, match="the file is empty"):
        load(files[1:4])
    with pytest.raises(CounterError, match="no such file"):
        load([*files, tmp_path / "typo.txt"])


def test_a_folder_of_tables_is_an_archive(tmp_path: Path) -> None:
    rows = read_counters(collected(tmp_path / "c", 3)).intervals
    folder = tmp_path / "2024"
    folder.mkdir()
    for number in range(3):
        rows.slice(number * 8, 8).write_parquet(folder / f"day{number}.parquet")
    (folder / "_SUCCESS").touch()
    assert analyse(load([folder]), PortInventory(), AnalysisOptions()).intervals == rows.height
    (folder / "notes.txt").write_text("a page")
    with pytest.raises(CounterError, match="cannot be combined"):
        load([folder])


def test_a_damaged_archive_file_is_named(tmp_path: Path) -> None:
    rows = read_counters(collected(tmp_path / "c", 3)).intervals
    for number in range(3):
        rows.slice(number * 8, 8).write_parquet(tmp_path / f"part-{number}.parquet")
    (tmp_path / "part-1.parquet").write_bytes(b"")
    judged = analyse(load([tmp_path]), PortInventory(), AnalysisOptions())
    assert judged.intervals == 16
    assert judged.notes[0].startswith("left out: part-1.parquet: ")
