"""What is refused says what it is and what to do, not only that it is not known."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tailback.cli import COMMANDS
from tailback.cli import run as tailback
from tailback.errors import FabricError, PlacementError, TraceError, command_line
from tailback.fabric.builders import PRESETS, fat_tree
from tailback.fabric.readers import read_fabric
from tailback.fabric.topologies import TOPOLOGIES
from tailback.placement import hosts_from_spec
from tailback.traffic.readers import read_trace
from tests.factories.cli import refused, scenario
from tests.factories.public_data import real
from tests.factories.repository import ROOT

# --- fabrics ----------------------------------------------------------------------------------

DISCOVERY = """\
vendid=0x2c9
Switch\t36 "S-0002c90300800035"\t\t# "leaf" enhanced port 0 lid 8 lmc 0
[1]\t"H-0002c90300100ee8"[1](2c90300100ee9) \t\t# "a HCA-1" lid 9 4xFDR
[2]\t"H-0002c90300100eec"[1](2c90300100eed) \t\t# "b HCA-1" lid 10 4xFDR

Ca\t1 "H-0002c90300100ee8"\t\t# "a HCA-1"
[1](2c90300100ee9) \t"S-0002c90300800035"[1]\t\t# lid 9 lmc 0 "leaf" lid 8 4xFDR
"""


def read(text: str, folder: Path) -> list[str]:
    path = folder / "fabric.txt"
    path.write_bytes(text.encode())
    fabric = read_fabric(path)
    assert fabric.n_links == 4 and set(fabric.link_gbps) == {600 / 11}
    return fabric.node_name


@pytest.mark.parametrize(
    "garble",
    [
        lambda text: text.replace("\t", " "),
        lambda text: text.replace("\t", ""),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\r"),
        lambda text: re.sub("(?m)^", "    ", text),
        lambda text: text.replace("\t", "\N{NO-BREAK SPACE}"),
        lambda text: text.replace("\t", "\N{ZERO WIDTH SPACE}"),
        lambda text: re.sub(r"\[(\d)\]", r"[ \1 ]", text).replace('"[', '" ['),
    ],
)
def test_a_fabric_is_read_whatever_its_white_space(garble: object, tmp_path: Path) -> None:
    assert read(garble(DISCOVERY), tmp_path) == read(DISCOVERY, tmp_path)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("old", "new", "place", "says"),
    [
        ("Switch\t36", "Switch\n36", "line 2", "lines were broken: 'Switch'"),
        ("\n", " ", "line 1", "lines were joined: 'Switch"),
        ("Ca\t1", "Ca\n1", "line 6", "'Ca' starts like a block but is not one"),
        ('"S-0002c90300800035"\t\t# "leaf" enh', "S-0002c90300800035 # enh", "line 2", "Switch"),
    ],
)
def test_a_broken_line_of_a_fabric_is_named(
    old: str, new: str, place: str, says: str, tmp_path: Path
) -> None:
    text = DISCOVERY.replace(old, new)
    if "Ca" not in old and "\n" in new:
        text = text.replace("Ca\t1", "Ca\n1")
    with pytest.raises(FabricError) as caught:
        read(text, tmp_path)
    assert place in str(caught.value) and says in str(caught.value)
    assert 'Switch 36 "S-' in str(caught.value), "what was expected"
    assert "start of the file" not in str(caught.value)


@pytest.mark.parametrize("name", [*TOPOLOGIES.names(), "Dragonfly", "fat_tree", "dragonfy"])
def test_a_shape_given_as_fabric_gets_the_syntax(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trace").mkdir()
    words = ["simulate", tmp_path / "trace", "--fabric", name]
    shape = "[fabric.fat_tree]" if "fat" in name else "[fabric] topology = { kind = "
    page = "docs/reference/topologies.md"
    refused(capsys, words, "neither a file nor a preset", "scenario", shape, page)


def test_an_unknown_fabric_is_told_what_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trace").mkdir()
    words = ["simulate", tmp_path / "trace", "--fabric", "frobnicate"]
    refused(capsys, words, "tapered", "dragonfly", "scenario", "docs/reference/topologies.md")


# --- hosts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("node[001-064]", ["'n0000' to 'n4607'", "--hosts 1-64 or n[0001-0064]"]),
        ("node[1-3,7]", ["--hosts 1-3,7 or n[0001-0003,0007]"]),
        ("login1", ["'n0000' to 'n4607'", "--hosts 1 or n[0001]"]),
        ("frontend", ["'n0000' to 'n4607'"]),
        ("n4608", ["did you mean 'n4607'?"]),
    ],
)
def test_hosts_of_a_preset_are_named(spec: str, expected: list[str]) -> None:
    fabric = fat_tree(PRESETS["tapered"])
    with command_line(), pytest.raises(PlacementError) as caught:
        hosts_from_spec(spec, fabric)
    for text in expected:
        assert text in str(caught.value)
    suggested = re.search(r"--hosts (\S+) or (\S+)$", str(caught.value))
    if suggested:
        assert hosts_from_spec(suggested[1], fabric) == hosts_from_spec(suggested[2], fabric)


# --- commands ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["diagnos", "x"], "did you mean 'diagnose'?"),
        (["simulat"], "did you mean 'simulate'?"),
        (["frobnicate"], "valid choices: advise, calibrate, collect"),
        (["simulate", "x", "--model", "fluyd"], "did you mean 'fluid'?"),
        (["report", "x", "--figures", "sgv"], "did you mean 'svg'?"),
        (["list", "patern"], "did you mean 'pattern'?"),
    ],
)
def test_a_typing_mistake_gets_the_nearest_word(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tailback(words) == 2
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    "shell",
    ["bash", *(pytest.param(shell, marks=pytest.mark.slow) for shell in ("zsh", "fish"))],
)
def test_shells_complete_commands(shell: str) -> None:
    start = [sys.executable, "-c", "from tailback.cli import main; main()"]

    def run(**variables: str) -> str:
        ask = os.environ | {"_TAILBACK_COMPLETE": variables.pop("ask")} | variables
        return subprocess.run(start, env=ask, capture_output=True, text=True, check=True).stdout

    docs = ROOT / "docs" / "reference" / "cli.md"
    assert f"_TAILBACK_COMPLETE={shell}_source" in docs.read_text(encoding="utf-8")
    try:
        script = run(ask=f"{shell}_source")
    except subprocess.CalledProcessError as error:
        if shell == "bash" and "bash" in error.stderr.lower():
            pytest.skip("no bash of version 4.4 or later here")
        raise
    assert "_TAILBACK_COMPLETE" in script and "tailback" in script
    completions = run(
        ask=f"{shell}_complete",
        COMP_WORDS="tailback dia",
        COMP_CWORD="1" if shell != "fish" else "dia",
    )
    assert "diagnose" in completions and "simulate" not in completions
    assert set(COMMANDS) >= {"diagnose"}


# --- traces of other tools --------------------------------------------------------------------

SAMPLES: dict[str, tuple[str, bytes]] = {
    "a Chakra execution trace that is not named": ("x.et", b"\x12\x1d\n\x06schema chakra"),
    "an Nsight Systems report": ("x.nsys-rep", b"\0\1\2"),
    "a report of Nsight Compute": ("x.ncu-rep", b"NVR\0"),
    "Nsight Systems report": ("x.qdrep", b"\0\1\2"),
    "an OTF trace of version 1 (VampirTrace)": ("app.otf", b"1:5\n"),
    "a Paraver trace": ("app.prv", b"#Paraver (25/11/2026 at 10:00):1000:1(4):1:1(4:1)\n"),
    "an intermediate trace of Extrae": ("TRACE.0000001.mpit", b"\0\1"),
    "a TAU trace": ("tautrace.0.0.0.trc", b"\0\1"),
    "a Cube profile (Score-P, Scalasca)": ("profile.cubex", b"anchor.xml\0\0"),
    "a trace of MPE (Jumpshot)": ("app.clog2", b"CLOG-02.44"),
    "a trace of Intel Trace Collector": ("app.stf", b"\0\1"),
    "an IPM banner": ("app.out", b"##IPMv2.0.6####\n# command : ./app\n"),
    "a Caliper profile": ("app.cali", b"__rec=node,id=1,attr=10,data=int,parent=3\n"),
    "an HPCToolkit database": ("trace.db", b"HPCTOOLKITtrce\4\0"),
    "a Charm++ Projections log": ("p.0.log", b"PROJECTIONS-RECORD 5\n6 100\n"),
    "a PyTorch execution trace (of its operators)": (
        "rank0.json",
        b'{"schema": "1.1.1-chakra.0.0.4", "pid": 5, "nodes": [{"id": 2}]}',
    ),
    "a PyTorch execution trace": (
        "rank1.json",
        b'{"schema": "1.0.1", "pid": 5,\n "nodes": [\n{"name": "[pytorch|profiler|execution_graph|'
        b'thread]", "id": 2}]}',
    ),
    "a Chakra execution trace": ("chakra.0.json", b'{\n "workload_graph": [{"Id": 216}]}'),
    "a Chakra execution trace as JSON": (
        "x.0.json",
        b'{"version": "0.0.4"}\n{"id": "1", "name": "all", "type": "COMM_COLL_NODE", "attr": []}',
    ),
    "a trace of NCCL's profiler plugin (JSON)": (
        "trace.json",
        b'[\n{"name": "AllReduce", "cat": "COLL", "ph": "b", "args": {"CommHash": 6, "Rank": 0}},',
    ),
    "the output of nccl-tests": (
        "n1_n2.log",
        b"# nThread 1 nGpus 1\n#       size         count      type   redop    root     time\n",
    ),
    "a binary GOAL schedule that a simulator has used up": ("x.bin", b"\x26\x09" + bytes(30)),
    "a topology or graph of NCCL (XML)": ("topo.xml", b'<system version="1">\n  <cpu numaid="0"/>'),
    "comma-separated values (CSV)": ("m.txt", b"src,dst,bytes\n0,1,100\n1,0,100\n"),
}


REMEDIES = {
    "a Chakra execution trace that is not named": "NAME.0.et",
    "a Caliper profile": "CALI_MPI_MSG_TRACING",
    "a Charm++ Projections log": ".sts",
    "an IPM banner": "IPM_REPORT=full",
    "an Nsight Systems report": "nsys export --type=sqlite",
    "Nsight Systems report": "nsys export --type=sqlite",
    "a report of Nsight Compute": "nsys profile --trace=mpi,cuda",
    "a TAU trace": "TAU_TRACE_FORMAT=otf2",
    "a PyTorch execution trace (of its operators)": "chakra_converter",
    "a PyTorch execution trace": "chakra_converter",
    "a Chakra execution trace": "chakra_jsonizer",
    "a Chakra execution trace as JSON": "chakra_jsonizer",
    "a trace of NCCL's profiler plugin (JSON)": "NCCL_DEBUG_SUBSYS=INIT,GRAPH,COLL,TUNING",
    "the output of nccl-tests": "tailback calibrate",
    "a binary GOAL schedule that a simulator has used up": "txt2bin",
    "a topology or graph of NCCL (XML)": "NCCL_DEBUG_SUBSYS=INIT,GRAPH,COLL,TUNING",
    "a Cube profile (Score-P, Scalasca)": "SCOREP_ENABLE_TRACING=true",
}
"""What to do about those that need not be recorded again; it names this."""


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("within", [False, True])
def test_a_trace_of_another_tool_gets_its_name(name: str, within: bool, tmp_path: Path) -> None:
    file, content = SAMPLES[name]
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / file).write_bytes(content)
    with pytest.raises(TraceError) as caught:
        read_trace(tmp_path / "t" if within else tmp_path / "t" / file)
    assert name in caught.value.message and caught.value.file == tmp_path / "t" / file
    remedy = caught.value.remedy or ""
    assert REMEDIES.get(name, "OTF2") in remedy
    assert name in REMEDIES or "docs/reference/traffic.md" in remedy


@pytest.mark.data
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("nccl-log", "log of NCCL"),
        ("pingpong-hpctoolkit", "HPCToolkit"),
        ("cases/nccl-profiler-json/rank0.json", "NCCL's profiler plugin"),
    ],
)
def test_traces_of_real_tools_get_their_names(path: str, name: str) -> None:
    with pytest.raises(TraceError, match=name):
        read_trace(real(path))


def test_a_file_of_no_known_tool_gets_none(tmp_path: Path) -> None:
    for number, content in enumerate((b"hello, world, again\nthis is a letter\n", b"\0\1,,\n")):
        (tmp_path / f"{number}.dat").write_bytes(content)
        with pytest.raises(TraceError, match="no reader recognises this format"):
            read_trace(tmp_path / f"{number}.dat")
    (tmp_path / "nothing.dat").write_bytes(b"")
    with pytest.raises(TraceError, match="empty"):
        read_trace(tmp_path / "nothing.dat")
    assert scenario(tmp_path).is_file()
