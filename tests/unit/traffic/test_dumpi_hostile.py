"""Files of SST DUMPI that are damaged, and what an independent decoder finds in real ones."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tailback.errors import TraceError
from tailback.traffic.readers import read_trace
from tests.factories.dumpi_traces import (
    INT,
    WORLD,
    Script,
    binary,
    everything,
    text,
    write,
)
from tests.factories.public_data import real

_CHILD = """
import random, resource, sys
from pathlib import Path
from tailback import _core

def mutated(draw, whole):
    out = bytearray(whole)
    for _ in range(draw.randrange(1, 5)):
        at = draw.randrange(len(out))
        match draw.randrange(5):
            case 0: out[at] = draw.randrange(256)
            case 1: out[at:at + 4] = draw.choice((b"\\x7f\\xff\\xff\\xff", b"\\x80\\0\\0\\0",
                                                  b"\\xff\\xff\\xff\\xff", b"\\0\\0\\0\\1"))
            case 2: del out[at:at + draw.randrange(1, 9)]
            case 3: out[at:at] = draw.choice((b"9" * 17, b"-", b"[", b"{source=1, tag=2", b"\\n"))
            case 4: out[at:at + 2] = bytes((draw.choice((0, 1)), draw.randrange(256)))
        if len(out) < 2:
            break
    return bytes(out[:draw.randrange(len(out))] if draw.random() < 0.1 else out)

samples = [Path(name).read_bytes() for name in sys.argv[2:]]
tries = int(sys.argv[1])
draw = random.Random(23)
used = int(Path("/proc/self/status").read_text().split("VmData:")[1].split()[0]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + (192 << 20), resource.RLIM_INFINITY))
refused = 0
for number in range(tries):
    whole = samples[number % len(samples)]
    reader = _core.DumpiReader(2, 2**62, number % 4 < 2)
    try:
        reader.file(mutated(draw, whole))
        reader.file(whole)
        reader.finish()
    except ValueError as error:
        rank, kind, place, said = error.args
        assert rank in (0, 1) and kind and said
        refused += 1
print(refused)
"""


def _rich(rank: int) -> Script:
    """Calls with every kind of argument."""
    other = 1 - rank
    message = {"count": 3, "datatype": INT, "dest": other, "source": other, "tag": 4, "comm": WORLD}
    grid = {"oldcomm": WORLD, "ndim": 2, "dims": [2, 1], "periods": [0, 0], "reorder": 0}
    pair = {"commsize": 2, "sendcounts": [1, 2], "recvcounts": [1, 2]}
    calls = [
        ("MPI_Comm_size", {"comm": WORLD, "size": 2}),
        ("MPI_Comm_set_name", {"comm": WORLD, "name": "all"}),
        ("MPI_Comm_group", {"comm": WORLD, "group": 3}),
        ("MPI_Group_incl", {"group": 3, "count": 2, "ranks": [1, 0], "newgroup": 4}),
        ("MPI_Comm_create", {"oldcomm": WORLD, "group": 4, "newcomm": 7}),
        ("MPI_Cart_create", {**grid, "newcomm": 8}),
        ("MPI_Cart_sub", {"ndim": 2, "oldcomm": 8, "remain_dims": [1, 0], "newcomm": 9}),
        ("MPI_Isend", {**message, "request": 1}),
        ("MPI_Irecv", {**message, "request": 2}),
        ("MPI_Waitall", {"count": 2, "requests": [1, 2], "statuses": [(0, 0), (other, 4)]}),
        (
            "MPI_Alltoallw",
            {
                **pair,
                "sdis": [0, 0],
                "sendtypes": [INT, INT],
                "rdis": [0, 0],
                "recvtypes": [INT, INT],
                "comm": WORLD,
            },
        ),
        ("MPI_Allreduce", {"count": 1, "datatype": INT, "op": 1, "comm": 9}),
    ]
    return [(20 * at + 20, 20 * at + 30, *call) for at, call in enumerate(calls)]


def test_thousands_of_damaged_files_end_cleanly(tmp_path: Path) -> None:
    """No panic, and never more than 192 MB for files of a kilobyte."""
    (tmp_path / "one").write_bytes(binary(_rich(0)))
    (tmp_path / "two").write_text(text(_rich(1)))
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, "6000", str(tmp_path / "one"), str(tmp_path / "two")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "panicked" not in done.stderr
    assert 2000 < int(done.stdout) < 6000


def test_an_undamaged_file_is_read(tmp_path: Path) -> None:
    """What is damaged above is right as it stands."""
    program = read_trace(write(tmp_path, _rich(0), _rich(1)))
    assert [note for note in program.notes if "left out" in note] == []


@pytest.mark.parametrize("length", [0, 1, 7, 8, 70, 71, 72, 200])
def test_a_binary_file_cut_anywhere_is_refused(tmp_path: Path, length: int) -> None:
    file = tmp_path / "run-0.bin"
    file.write_bytes(binary([])[:-1][:length])
    with pytest.raises(TraceError) as caught:
        read_trace(file, format="dumpi")
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ([(20, 21, "MPI_Start", {"request": 9})], "request 9 is started before it is created"),
        (
            [(20, 21, "MPI_Waitany", {"count": 1, "requests": [4], "index": 5, "status": []})],
            "no valid argument 'requests'",
        ),
        (
            [
                (
                    20,
                    21,
                    "MPI_Cart_sub",
                    {"ndim": 1, "oldcomm": WORLD, "remain_dims": [1], "newcomm": 5},
                )
            ],
            "has no recorded Cartesian grid",
        ),
    ],
)
def test_impossible_calls_are_refused_with_place(
    tmp_path: Path, script: Script, message: str
) -> None:
    path = write(tmp_path, script)
    with pytest.raises(TraceError, match=message) as caught:
        read_trace(path)
    assert caught.value.file == path / "run-0000.bin"
    # The call stands behind the mark, two times and MPI_Init.
    assert caught.value.place == f"byte {8 + 8 + 5 + 24 + 13}"
    assert caught.value.remedy


def test_endless_communicators_are_refused(tmp_path: Path) -> None:
    script: Script = [
        (20, 21, "MPI_Comm_dup", {"oldcomm": at + 2 + 2 * (at > 0), "newcomm": at + 5})
        for at in range(600)
    ]
    with pytest.raises(TraceError, match="nested more than 512 deep"):
        read_trace(write(tmp_path, script))


def test_performance_counters_are_skipped(tmp_path: Path) -> None:
    """A mask with bit 128 is followed by their number and two values of 64 bits each."""
    plain = binary([(20, 31, "MPI_Barrier", {"comm": WORLD})])
    at = plain.index(struct.pack(">HB", 52, 79))
    counted = bytearray(plain)
    counted[at + 2] |= 128
    counted[at + 5 + 24 : at + 5 + 24] = b"\x02" + bytes(32)
    end = len(counted) - 56
    parts = [
        offset + 33 if offset > at else offset for offset in struct.unpack_from(">7Q", counted, end)
    ]
    counted[end:] = struct.pack(">7Q", *parts)
    (tmp_path / "run-0.bin").write_bytes(bytes(counted))
    (tmp_path / "plain-0.bin").write_bytes(plain)
    tables = (everything([tmp_path / name]) for name in ("run-0.bin", "plain-0.bin"))
    with_counters, without_counters = (dict(each["inside_ns"]) for each in tables)
    assert with_counters == without_counters
    assert with_counters["MPI_Barrier"] == 11


@pytest.mark.data
def test_the_real_trace_matches_an_independent_decoder() -> None:
    """Decodes what the test trace consists of: calls without arguments of changing length."""
    arguments = {81: 6, 82: 6, 52: 2, 8: 20, 1: 16, 13: 4, 65: 9, 122: 0, 123: 0, 125: 0}
    files = [real(f"dumpi-testtrace/tests/traces/testtrace-{rank:04d}.bin") for rank in range(4)]
    gaps, rings = [], []
    for rank, file in enumerate(files):
        data = file.read_bytes()
        at = struct.unpack_from(">Q", data, len(data) - 24)[0] + 8
        left, call = None, 0
        while (number := struct.unpack_from(">H", data, at)[0]) != 293:
            mask = data[at + 2]
            assert mask & 0b11001100 == 0b01001100
            enter_s, enter, leave_s, leave = struct.unpack_from(">HIHI", data, at + 17)
            enter, leave = enter + enter_s * 10**9, leave + leave_s * 10**9
            if left is not None and enter > left:
                gaps.append((rank, 2 * call, 1000 * (enter - left)))
            left, call, at = leave, call + 1, at + 29
            if number in (124, 171):
                for _ in range(struct.unpack_from(">i", data, (at := at + 4) - 4)[0]):
                    at += 4 + struct.unpack_from(">i", data, at)[0]
                at += 2 * (number == 171)
                continue
            if number in (8, 1):
                count, kind, peer, tag = struct.unpack_from(">ihii", data, at)
                assert kind == INT
                rings.append((rank, 2 * (call - 1), number == 8, peer, 4 * count, tag))
            at += arguments[number]
            if number in (1, 13) and mask & 3:
                at += 4 + 14 * struct.unpack_from(">i", data, at)[0]
    tables = everything(files)
    computes, posts = tables["computes"], tables["posts"]
    names = ("rank", "position", "ps")
    assert list(zip(*(computes[name].tolist() for name in names), strict=True)) == gaps
    tags = [tables["labels"][label][2] for label in posts["label"].tolist()]
    names = ("rank", "position", "is_send", "peer", "size")
    assert list(zip(*(posts[name].tolist() for name in names), tags, strict=True)) == rings
    assert len(rings) >= 8
