"""Any damage to any counter file is read or refused with a place: never a traceback."""

from __future__ import annotations

import tempfile
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailback.errors import TailbackError
from tailback.port_counters.analysis.port_inventory import PortInventory
from tailback.port_counters.analysis.sources import load
from tailback.port_counters.analysis.survey import AnalysisOptions, analyse
from tailback.port_counters.readers import READERS, read_counters
from tailback.port_counters.schema import INTERVALS, READINGS, CounterError, conform
from tailback.run.run import Run
from tailback.run.schema import TABLES
from tailback.scenario.model import parse
from tests.factories.counter_files import TEXTS

BYTES = st.binary(max_size=6) | st.sampled_from(
    [
        b"",
        b"\n",
        b",",
        b"#",
        b"-1",
        b"nan",
        b"1e400",
        b"99999999999999999999",
        b"\x00",
        b"]",
        b'"',
        b"\xff\xfe",
        "١".encode(),
        b"(",
        b":",
        b" == ",
    ]
)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TEXTS))
@settings(max_examples=40)
@given(data=st.data())
def test_damaged_text(name: str, data: st.DataObject) -> None:
    content = TEXTS[name].encode()
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content)))
        end = data.draw(st.integers(at, min(len(content), at + 40)))
        content = content[:at] + data.draw(BYTES) + content[end:]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "counters.txt"
        path.write_bytes(content)
        reader = READERS[name.split(" ")[0]]
        reader.sniff(path)
        try:
            counters = reader.read(path)
        except CounterError as error:
            assert error.place is not None
            if name == "prometheus":
                return  # JSON on one line: the number of the series says more
            assert error.place.startswith("line ")
            assert ", column " in error.place
        else:
            assert counters.readings.columns == list(READINGS.polars_schema)
            assert counters.all_intervals(tick_ns=22.0).columns == list(INTERVALS.polars_schema)


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_the_texts_are_read_while_they_are_whole(name: str, tmp_path: Path) -> None:
    """Damage is told apart from formats that were never understood."""
    path = tmp_path / "counters.txt"
    path.write_text(TEXTS[name])
    assert READERS[name.split(" ")[0]].sniff(path)
    counters = read_counters(path)
    assert counters.readings.height + counters.intervals.height > 1
    assert counters.all_intervals(tick_ns=22.0).columns == list(INTERVALS.polars_schema)


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a collection, by their names in it."""
    folder = tmp_path_factory.mktemp("collection")
    rows = conform(
        INTERVALS,
        pl.DataFrame(
            {
                "time_ns": [1, 2],
                "interval_ns": [1, 1],
                "port": [1, 1],
                "node_name": ["a", "b"],
                "stall_fraction": [0.5, None],
            }
        ),
    )
    rows.write_parquet(folder / "rows.parquet")
    return {
        "collection.json": b'{"format": 1}\n',
        "intervals/000001.parquet": (folder / "rows.parquet").read_bytes(),
    }


@pytest.fixture(scope="module")
def run_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a run directory, by their names in it."""
    path = tmp_path_factory.mktemp("run") / "run"
    job = {"pattern": {"kind": "stencil2d", "dims": [2, 2]}}
    shape = {"hosts_per_leaf": 2, "leaves": 2, "aggregation": 1}
    rows: dict[str, list[dict[str, object]]] = {
        "windows": [{"window": 0, "start_ps": 0, "end_ps": 1_000_000}],
        "nodes": [{"node": 0, "name": "n", "host": 0, "host_name": "n", "switch": 0}],
        "switches": [{"switch": 0, "name": "leaf", "tier": 0, "pod": -1}],
        "links": [
            {
                "link": 0,
                "src": 1,
                "dst": 0,
                "src_name": "leaf",
                "dst_name": "n",
                "src_port": 1,
                "dst_port": 1,
                "src_interface": "",
                "tier": 0,
                "direction": "down",
                "from_node": False,
                "to_node": True,
                "rate_gbps": 100.0,
                "delay_ps": 0,
                "reverse": 0,
            }
        ],
        "truth": [{"window": 0, "link": 0, "bytes": 5, "packets": 1, "stall_ps": 7, "busy_ps": 9}],
    }
    tables = {
        name: pl.DataFrame(
            [
                {column: row.get(column) for column in table.polars_schema}
                for row in rows.get(name, [])
            ],
            schema=table.polars_schema,
        )
        for name, table in TABLES.items()
    }
    scenario = parse({"name": "x", "fabric": {"fat_tree": shape}, "job": [job]})
    Run(scenario, tables, {"elapsed_ps": 1_000_000, "complete": True}).write(path)
    wanted = ("run.json", "scenario.json", "windows.parquet", "links.parquet", "truth.parquet")
    # Without a manifest, as of a version that knew no SHA-256: damage reaches the decoders.
    apart = (*wanted, "manifest.json")
    other_files = {p.name: p.read_bytes() for p in path.iterdir() if p.name not in apart}
    return {name: (path / name).read_bytes() for name in wanted} | other_files


FOLDERS = ("collection", "run_files")


@pytest.mark.parametrize("name", FOLDERS)
def test_the_folders_are_read_while_they_are_whole(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    for file, body in request.getfixturevalue(name).items():
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(body)
    assert read_counters(tmp_path).all_intervals().height in (1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDERS)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_damaged_folders(name: str, data: st.DataObject, request: pytest.FixtureRequest) -> None:
    files: dict[str, bytes] = dict(request.getfixturevalue(name))
    # The first files are those that a reader of counters looks at.
    victim = data.draw(st.sampled_from(sorted(files, key=list(files).index)[:5]))
    content = files[victim]
    kind = data.draw(st.sampled_from(["cut", "bytes", "gone", "other", "empty"]))
    if kind == "gone":
        del files[victim]
    elif kind == "other":
        files[victim] = files[data.draw(st.sampled_from(sorted(files)))]
    elif kind == "empty":
        files[victim] = b""
    elif kind == "cut":
        files[victim] = content[: data.draw(st.integers(0, len(content)))]
    else:
        at = data.draw(st.integers(0, len(content)))
        files[victim] = content[:at] + data.draw(BYTES) + content[at + 1 :]
    with tempfile.TemporaryDirectory() as folder:
        for file, body in files.items():
            path = Path(folder) / file
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(body)
        try:
            counters = read_counters(Path(folder))
        except TailbackError as error:
            assert error.file is not None, "a folder has no lines: the error names the file"
            assert len(str(error)) < 3000
        else:
            assert counters.all_intervals().columns == list(INTERVALS.polars_schema)


@given(data=st.data())
def test_damaged_archives(data: st.DataObject) -> None:
    """Archives in Parquet, cut or with other columns and types."""
    columns = {
        "time_ns": [1, 2],
        "interval_ns": [1, 1],
        "port": [1, 1],
        "node_guid": [1, 1],
        "node_name": ["a", "a"],
        "xmit_wait_ticks": [1, 5],
        "stall_fraction": [0.5, 0.1],
        "utilization": [0.1, 0.1],
        "direction": ["X+", "Y-"],
    }
    for name in data.draw(st.lists(st.sampled_from(sorted(columns)), max_size=3)):
        columns.pop(name, None)
    for name in data.draw(st.lists(st.sampled_from(sorted(columns)), max_size=2)):
        columns[name] = data.draw(st.sampled_from([["x", "1"], [None, None], [-1, 2], [0.5, 9e99]]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "part-0.parquet"
        pl.DataFrame(columns).write_parquet(path)
        if data.draw(st.booleans()):
            content = path.read_bytes()
            path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
        try:
            analyse(load([Path(folder)]), PortInventory(), AnalysisOptions())
        except TailbackError as error:
            assert error.file is not None
            assert len(str(error)) < 3000


@given(st.lists(st.binary(max_size=24), min_size=5, max_size=5))
def test_damaged_sysfs(contents: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        port = Path(folder) / "dev" / "ports" / "1"
        (port / "counters").mkdir(parents=True)
        names = (
            "counters/port_xmit_wait",
            "counters/port_xmit_data",
            "counters/odd",
            "rate",
            "../../node_guid",
        )
        for file, content in zip(names, contents, strict=True):
            (port / file).write_bytes(content)
        try:
            assert READERS["sysfs"].read(Path(folder)).readings.height == 1
        except TailbackError as error:
            assert error.place == "line 1, column 1"
