"""Any damage to any counter file is read or refused with a place: never a traceback."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailback.counters.readers import READERS
from tailback.counters.schema import INTERVALS, READINGS, CounterError
from tailback.errors import TailbackError

TEXTS = {
    "perfquery": (
        "# Port counters: Lid 7 port 3 (CapMask: 0x1300)\nPortXmitData:....12\n"
        "PortXmitWait:......5\n"
        "# Port extended counters: Lid 7 port 4 (CapMask: 0x5300 CapMask2: 0x2)\n"
        "PortXmitPkts:......7\nPortXmitWait:......18446744073709551615\n"
    ),
    "ibqueryerrors": (
        'Errors for "ys \\"1"\n   GUID 0x2c9 port 1: [PortXmitWait == 12] '
        "[PortXmitData == 97 (362.8B)]\n   GUID 0x2ca port 2: [PortXmitPkts == 5]\n"
    ),
    "ldms-csv": (
        "#Time, Time_usec, CompId, X+_traffic (B), X+_credit_stall (ns), nettopo_mesh_coord_X,"
        " nettopo_mesh_coord_Y, nettopo_mesh_coord_Z\n1.5, 500000, 1, 2, 3, 4, 5, 6\n"
        "2.5, 500000, 1, 4, 6, 4, 5, 6\n"
    ),
}
BYTES = st.binary(max_size=6) | st.sampled_from(
    [b"", b"\n", b",", b"#", b"-1", b"nan", b"1e400", b"99999999999999999999", b"\x00", b"]", b"\"",
     b"\xff\xfe", "١".encode(), b"(", b":", b" == "]
)  # fmt: skip


@pytest.mark.parametrize("name", sorted(TEXTS))
@settings(max_examples=150, deadline=None)
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
        reader = READERS[name]
        reader.sniff(path)
        try:
            found = reader.read(path)
        except CounterError as error:
            assert error.place is not None
            assert error.place.startswith("line ")
            assert ", column " in error.place
        else:
            assert found.readings.columns == list(READINGS.polars_schema)
            assert found.all_intervals(tick_ns=22.0).columns == list(INTERVALS.polars_schema)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.binary(max_size=24), min_size=5, max_size=5))
def test_damaged_sysfs(contents: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        port = Path(folder) / "dev" / "ports" / "1"
        (port / "counters").mkdir(parents=True)
        names = ("counters/port_xmit_wait", "counters/port_xmit_data", "counters/odd", "rate",
                 "../../node_guid")  # fmt: skip
        for file, content in zip(names, contents, strict=True):
            (port / file).write_bytes(content)
        try:
            assert READERS["sysfs"].read(Path(folder)).readings.height == 1
        except TailbackError as error:
            assert error.place == "line 1, column 1"
