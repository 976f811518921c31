"""Whatever is done to a discovery file, reading it gives a sound fabric or a FabricError."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tailback.errors import FabricError
from tailback.fabric.model import Fabric
from tailback.fabric.readers import connected_components, largest_component, read_fabric
from tests.factories.repository import ROOT

DATA = ROOT.parent / "shared" / "data"

BLOCKS = """\
vendid=0x2c9
sysimgguid=0xa1
Switch\t36 "S-00000000000000a1"\t\t# "rack/L01" enhanced port 0 lid 1 lmc 0
[1]\t"H-00000000000000b1"[1](b2) \t\t# "luna-10 mlx5_0" lid 4 4xEDR
[2]\t"H-00000000000000c1"[1](c2) \t\t# "localhost HCA-1" lid 5 4xFDR
[4]\t"S-00000000000000a2"[7]\t\t# "rack/S01" lid 2 12xQDR
[5]\t"H-00000000000000e1"[1](e2) \t\t# "Mellanox Technologies Aggregation Node" lid 8 4xHDR

sysimgguid=0xa1
Switch\t36 "S-00000000000000a2"\t\t# "rack/S01" base port 0 lid 2 lmc 0
[7]\t"S-00000000000000a1"[4]\t\t# "rack/L01" lid 1 12xQDR
[8]\t"R-00000000000000d1"[1](d2) \t\t# "router" lid 9 4xSDR

Ca\t1 "H-00000000000000b1"\t\t# "luna-10 mlx5_0"
[1](b2) \t"S-00000000000000a1"[1]\t\t# lid 4 lmc 0 "rack/L01" lid 1 4xEDR
"""
PORTS = """\
DR path slid 0; dlid 0; 0,1 -> new Switch {00066a00ec002dea} portnum 0 lid 0-0 ""
CA   134  1 0x00000000000000b2 4x EDR - SW  1719 10 0x00000000000000a1 ( 'o0010 HCA-1' - 'leaf' )
CA   133  1 0x00000000000000c2 4x EDR - SW  1719 11 0x00000000000000a1 ( 'o0002 HCA-1' - 'leaf' )
CA   133  2 0x00000000000000c3 4x ???                                    'o0002 HCA-1'
SW  1719 10 0x00000000000000a1 4x EDR - CA   134  1 0x00000000000000b2 ( 'leaf' - 'o0010 HCA-1' )
SW  1719  1 0x00000000000000a1 4x HDR - SW  1516  3 0x00000000000000a2 ( 'leaf' - 'top' )
SW  1719  2 0x00000000000000a1 4x SDR                                    'leaf'
"""
PIECES = [
    '"',
    "'",
    "[",
    "]",
    "(",
    ")",
    "#",
    "0x",
    "S-",
    "H-",
    "\n",
    "\r",
    "\t",
    "-",
    "4x???",
    "é",
    "Switch",
    "Ca",
    "CA ",
    "SW ",
    "Rt",
    "99999999999",
    "[1]",
    " - ",
    "\x85",
    "\u2028",
    "\0",
    "\ufeff",
    "' - '",
    "Aggregation Node",
    "/L1",
    "/S1",
]

cuts = st.tuples(st.just("cut"), st.integers(0, 2000), st.integers(0, 40), st.just(""))
puts = st.tuples(
    st.just("put"),
    st.integers(0, 2000),
    st.just(0),
    st.one_of(st.sampled_from(PIECES), st.text(max_size=8)),
)
swaps = st.tuples(st.just("swap"), st.integers(0, 60), st.integers(0, 60), st.just(""))
doubles = st.tuples(st.just("double"), st.integers(0, 60), st.integers(0, 60), st.just(""))
drops = st.tuples(st.just("drop"), st.integers(0, 60), st.just(0), st.just(""))
Change = tuple[str, int, int, str]
changes = st.lists(st.one_of(cuts, puts, swaps, doubles, drops), max_size=8)


def changed(text: str, steps: list[Change]) -> str:
    for what, a, b, piece in steps:
        if what in ("cut", "put"):
            a %= len(text) + 1
            text = text[:a] + piece + text[a + b :]
            continue
        lines = text.split("\n")
        a, b = a % len(lines), b % len(lines)
        if what == "swap":
            lines[a], lines[b] = lines[b], lines[a]
        elif what == "double":
            lines.insert(b, lines[a])
        else:
            del lines[a]
        text = "\n".join(lines)
    return text


def read_bytes(data: bytes) -> Fabric | None:
    """The fabric, checked, or None where a FabricError tells file and remedy."""
    with tempfile.TemporaryDirectory() as where:
        file = Path(where) / "fabric.txt"
        file.write_bytes(data)
        try:
            fabric = read_fabric(file)
        except FabricError as error:
            assert error.file == file
            assert error.remedy
            assert len(str(error)) < 1000
            return None
    fabric.check()
    assert len(fabric.node_host) == fabric.n_nodes
    assert not fabric.n_nodes or int(fabric.node_host.max()) == fabric.n_hosts - 1
    assert len(fabric.switch_tier) == len(fabric.switch_pod) == fabric.n_switches
    assert not fabric.n_switches or fabric.switch_tier.min() >= 0
    assert len(set(fabric.host_name)) == fabric.n_hosts
    assert sum(len(p) for p in connected_components(fabric)) == fabric.n_nodes + fabric.n_switches
    largest_component(fabric).check()
    return fabric


@settings(derandomize=True)
@given(st.sampled_from([BLOCKS, PORTS]), changes)
def test_mutations_of_small_files(text: str, steps: list[Change]) -> None:
    read_bytes(changed(text, steps).encode("utf-8", "surrogatepass"))


@settings(derandomize=True)
@given(st.binary(max_size=400))
@example(b"\xff")
@example(b"[1]")
@example(b"CA 1 1 0x0 4x EDR - CA 1 1 0x0 ( '' - '' )")
def test_any_bytes(data: bytes) -> None:
    read_bytes(data)


@settings(derandomize=True)
@given(st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]), max_size=70))
@example("</script><script>alert(1)</script>")
@example("../../etc/passwd\r")
@example("9" * 300 + " mlx5_0")
@example(" " * 3000 + "x" + " " * 3000 + "y")
def test_hostile_names_survive_as_text(name: str) -> None:
    fabric = read_bytes(BLOCKS.replace("luna-10 mlx5_0", name).encode())
    assert fabric is not None
    shown = name.strip()
    labels = (shown, f"{shown or 'adapter'} 0x00000000000000b1")
    assert shown.endswith("Aggregation Node") or any(n in labels for n in fabric.node_name)


def real_small_files() -> list[Path]:
    exporter = "exporter-fixtures/ibnetdiscover"
    where = [f"{exporter}/test.out", f"{exporter}/test2.out", "ibsim-samples/small.net"]
    return [DATA / path for path in where if (DATA / path).exists()]


@pytest.mark.data
@settings(derandomize=True)
@given(st.integers(0, 2), changes)
def test_mutations_of_real_files(which: int, steps: list[Change]) -> None:
    files = real_small_files()
    if not files:
        pytest.skip("the public data sets exporter-fixtures and ibsim-samples are not here")
    text = files[which % len(files)].read_text()
    read_bytes(changed(text, steps).encode("utf-8", "surrogatepass"))
