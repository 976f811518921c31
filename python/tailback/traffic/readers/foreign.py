"""Recognises unsupported formats of other tools and says how to get one that Tailback reads."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from tailback.errors import TraceError
from tailback.io.input_files import content, head_bytes

JSON: Final = "JSON"
"""Name of any JSON that is not of a known tool."""

_HEAD_BYTES: Final = 1 << 16
_MAX_FILES: Final = 200
"""Maximum number of files of a folder to inspect."""

_RECORD: Final = (
    "record the program as OTF2 (Score-P, EZTrace), or, without recompiling, with Open MPI's "
    "monitoring: mpirun --mca pml_monitoring_enable 2 --mca pml_monitoring_enable_output 3 --mca "
    "pml_monitoring_filename prof …; docs/reference/traffic.md"
)
_PATTERN: Final = (
    "state its traffic as a pattern in a scenario (tailback list pattern), or " + _RECORD
)
_CHAKRA: Final = "name the traces of all ranks NAME.0.et, NAME.1.et …, in one folder"
_EXECUTION: Final = (
    "give the Kineto traces of all ranks (export_chrome_trace of torch.profiler), or convert the "
    "execution traces to NAME.RANK.et with chakra_trace_link and chakra_converter"
)
_CHAKRA_TEXT: Final = (
    "give the file NAME.RANK.et that chakra_jsonizer made it of; or convert the execution traces "
    "of PyTorch with chakra_trace_link and chakra_converter"
)
_NCCL_LOG: Final = (
    "set NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,COLL,TUNING and give the logs of all "
    "processes, with Kineto traces of PyTorch beside them for times"
)
_WITH_STS: Final = "give the .sts file of the run, with the logs of all processors beside it"
_CALIPER: Final = (
    "if it was recorded with CALI_MPI_MSG_TRACING=true, export the pairs of ranks: cali-query -q "
    "'SELECT mpi.rank, mpi.msg.dst, mpi.msg.size, mpi.comm.is_world, count() WHERE mpi.msg.dst "
    "GROUP BY mpi.rank, mpi.msg.dst, mpi.msg.size, mpi.comm.is_world FORMAT json' *.cali > "
    "pairs.json; otherwise it has no partners: docs/reference/traffic.md"
)
_TAU: Final = "record again with TAU_TRACE=1 TAU_TRACE_FORMAT=otf2, which writes OTF2"
_SCOREP_TRACE: Final = (
    "it is a profile, without messages: run again with SCOREP_ENABLE_TRACING=true (OTF2)"
)
_ONE_NODE: Final = "it holds no messages between ranks with their sizes: " + _RECORD


@dataclass(frozen=True)
class _Format:
    """An unsupported format: how to recognise it, and what to do instead.

    Attributes:
        name: Name of the format, with its article.
        content: Pattern of the first bytes, uncompressed.
        suffixes: Suffixes of file names that suffice.
        remedy: What to do.
    """

    name: str
    content: bytes | None
    suffixes: tuple[str, ...] = ()
    remedy: str = _RECORD


_FORMATS: Final = (
    _Format(
        "a packet capture",
        rb"\A(?:\n\r\r\n|\xd4\xc3\xb2\xa1|\xa1\xb2\xc3\xd4|\x4d\x3c\xb2\xa1|\xa1\xb2\x3c\x4d)",
        (),
        "tailback diagnose CAPTURE --fabric FABRIC reads it: docs/how-to/captures.md",
    ),
    _Format(
        "an HPCToolkit database",
        rb"\AHPCTOOLKIT",
        (),
        "it samples where a program spends its time and " + _ONE_NODE,
    ),
    _Format(
        "an Nsight Systems report",
        None,
        (".nsys-rep", ".qdrep"),
        "export it: nsys export --type=sqlite REPORT; Tailback reads the MPI calls of the export",
    ),
    _Format("an SQLite database", rb"\ASQLite format 3\0"),
    _Format("a Charm++ Projections log", rb"\APROJECTIONS[_-]", (".projrc",), _WITH_STS),
    _Format(
        "an IPM banner",
        rb"\A#+IPM",
        (),
        "give the XML file that IPM_REPORT=full writes beside it, which states pairs of ranks",
    ),
    _Format("a Caliper profile", rb"\A__rec=(?:node|ctx|globals)", (".cali",), _CALIPER),
    _Format("a Paraver trace", rb"\A#Paraver"),
    _Format("an OTF trace of version 1 (VampirTrace)", None, (".otf",)),
    _Format("an intermediate trace of Extrae", None, (".mpit",)),
    _Format("a TAU trace", None, (".trc", ".edf"), _TAU),
    _Format("a Cube profile (Score-P, Scalasca)", None, (".cubex",), _SCOREP_TRACE),
    _Format("a trace of MPE (Jumpshot)", rb"\ACLOG-?[0-9. ]+", (".clog2", ".slog2")),
    _Format("a trace of Intel Trace Collector", None, (".stf",)),
    _Format(
        "a report of Nsight Compute",
        None,
        (".ncu-rep",),
        "it describes single kernels: "
        "record with nsys profile --trace=mpi,cuda, and export with nsys export --type=sqlite",
    ),
    _Format(
        "a PyTorch execution trace (of its operators)",
        rb"\A\s*\{[^{}\[\]]{0,400}\"schema\"\s*:\s*\"(?:[^\"]{0,40}chakra|[0-9.]{1,20}\"[^{}]{0,400}"
        rb"\{[^{}]{0,200}\[pytorch\|profiler\|)",
        (),
        _EXECUTION,
    ),
    _Format(
        "a Chakra execution trace that is not named NAME.RANK.et",
        rb"\A[^\n]{0,400}chakra",
        (".et",),
        _CHAKRA,
    ),
    _Format(
        "a topology or graph of NCCL (XML)",
        rb"\A\s*<(?:system|graphs) version=",
        (),
        "it describes one host: set NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,COLL,TUNING "
        "and give the log, which names algorithms and rings",
    ),
    _Format(
        "a Chakra execution trace as JSON",
        rb"\A\s*\{\s*\"workload_graph\"|\A\s*[{\[].*\"type\"\s*:\s*\"(?:COMP|COMM_COLL|"
        rb"COMM_SEND|COMM_RECV|MEM_LOAD|MEM_STORE|METADATA)_NODE\"",
        (),
        _CHAKRA_TEXT,
    ),
    _Format(
        "the output of nccl-tests",
        rb"^#\s+size\s+count\s+type\b",
        (),
        "tailback calibrate FILE@HOSTS … reads it, and names hosts and cables that "
        "differ from others: docs/how-to/calibrate.md",
    ),
    _Format(
        "a trace of NCCL's profiler plugin (JSON)",
        rb"\A\s*\[\s*\{.*\"CommHash\"\s*:",
        (),
        "it lacks the hosts of the ranks, the roots of calls, and a clock that ranks share (its "
        f"times count from the first communicator of each process): {_NCCL_LOG}",
    ),
    _Format(
        "a binary GOAL schedule that a simulator has used up",
        rb"\A\x26\x09\0\0\0\0\0\0",
        (),
        "LogGOPSim marks a schedule as invalid once it has read it: make it again with "
        "txt2bin, or give the text",
    ),
    _Format(JSON, rb"\A\s*[{\[]"),
)


def recognise(path: Path) -> tuple[Path, str, str] | None:
    """Recognise the format of a file, or of one in a folder.

    Args:
        path: A file or folder that no reader recognises.

    Returns:
        The file, its format and what to do; None if it is unknown.
    """
    if path.is_dir():
        files = sorted(islice((entry for entry in path.iterdir() if entry.is_file()), _MAX_FILES))
    else:
        files = [path]
    heads = [(file, head_bytes(file, _HEAD_BYTES)) for file in files]
    for form in _FORMATS:
        for file, head in heads:
            name = file.name.removesuffix(".gz")
            if name.endswith(form.suffixes) or (
                form.content is not None and re.search(form.content, head, re.DOTALL | re.MULTILINE)
            ):
                return file, form.name, form.remedy
    for file, head in heads:
        if file.suffix == ".csv" or _is_table(head):
            return file, "a table of comma-separated values (CSV)", _PATTERN
    return None


def json_damage(path: Path) -> str:
    """Where and how a JSON text is damaged; empty if it is valid, or has a document in each line.

    Args:
        path: A file that begins like JSON.
    """
    text = content(path, TraceError).decode("utf-8-sig", errors="replace")
    damage = ""
    for part in (text, text.strip().partition("\n")[0]):
        try:
            json.loads(part)
        except RecursionError:
            return ""
        except json.JSONDecodeError as error:
            damage = damage or f"line {error.lineno}, column {error.colno}: {error.msg}"
        else:
            return ""
    return damage


def _is_table(head: bytes) -> bool:
    """Whether text is a table: two lines or more with the same number (2+) of separators."""
    lines = head[: head.rfind(b"\n") + 1].splitlines()[:20]
    counts = {tuple(line.count(mark) for mark in (b",", b";", b"\t")) for line in lines}
    return b"\0" not in head and len(lines) > 1 and len(counts) == 1 and max(counts.pop()) > 1
