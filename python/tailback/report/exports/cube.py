"""A profile in the CUBE 4 format, for Cube, TAU's ParaProf and hatchet.

The file is a tar archive of ``anchor.xml``, which names metrics, call tree and ranks, and of two
files for each metric: ``N.index`` lists the nodes of the call tree that have values, ``N.data`` has
a value for each of them and each rank.
"""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import IO
from xml.etree import ElementTree

import numpy as np
import polars as pl

from tailback.arrays import Floats
from tailback.evidence.split import PART_NAMES
from tailback.names.display import printable
from tailback.report.exports.model import EXPORTS, OURS, Exported, Result

Path = tuple[str, ...]
"""Names of the call tree from its root to a node."""

_ROOT = "program"


@dataclass
class _Metric:
    """A quantity by node of the call tree and rank.

    Attributes:
        name: Unique name.
        title: Displayed name.
        unit: Its unit.
        values: Value of each rank at a node, shape (R,), without that of the nodes below.
        parts: Metrics that are parts of it.
    """

    name: str
    title: str
    unit: str
    values: dict[Path, Floats] = field(default_factory=dict)
    parts: list[_Metric] = field(default_factory=list)


@EXPORTS.register("cube")
def cube(result: Result) -> Exported:
    """Time and waits of measured ranks by call path, of a simulated run its messages (CUBE 4)."""
    tables = result.run.tables
    jobs = tables["jobs"].filter(OURS).select("job")
    ranks = tables["ranks"].join(jobs, on="job", how="semi").sort("rank")
    hosts = ranks.join(tables["nodes"], on="node", maintain_order="left")["host_name"].to_list()
    if result.measured is not None:
        metrics = [_measured_time(result.measured, len(hosts))]
        what = "calls and waits, measured"
    else:
        metrics = _messages(tables, ranks["rank"].to_list())
        what = "messages, simulated"
    paths = {path for metric in _all(metrics) for path in metric.values}
    return Exported(
        f"{what}, by {len(paths):,} call paths and {len(hosts):,} ranks",
        "open it in Cube, or by hatchet.GraphFrame.from_cubex",
        write=lambda file: _write(file, metrics, paths, hosts),
    )


def _measured_time(tables: Mapping[str, pl.DataFrame], n_ranks: int) -> _Metric:
    """Time of the ranks in calls and between them, with its waits by kind as parts."""
    calls = tables["calls"].with_columns(ps=pl.col("leave_ps") - pl.col("enter_ps"))
    time = _Metric("time", "Time", "sec", _by_path(calls, "ps", "rank", n_ranks, 1e-12))
    spans = calls.group_by("rank").agg(
        ps=pl.col("leave_ps").max() - pl.col("enter_ps").min() - pl.col("ps").sum()
    )
    between = np.zeros(n_ranks)
    between[spans["rank"].to_numpy()] = np.maximum(spans["ps"].to_numpy(), 0) * 1e-12
    time.values[(_ROOT,)] = between
    waits = (
        tables["waits"]
        .filter(pl.col("value_ps") > 0)
        .select("call", "kind", "value_ps")
        .join(calls.select("call", "rank", "path", "name", "ps"), on="call")
        .with_columns(ps=pl.min_horizontal("value_ps", "ps"))
    )
    for kind in waits["kind"].unique().sort():
        values = _by_path(waits.filter(pl.col("kind") == kind), "ps", "rank", n_ranks, 1e-12)
        time.parts.append(_Metric(kind, PART_NAMES[kind], "sec", values))
    return time


def _messages(tables: Mapping[str, pl.DataFrame], ranks: list[int]) -> list[_Metric]:
    """Number, bytes and time of the messages that each rank sent."""
    place = pl.DataFrame(
        {"src_rank": ranks, "sender": range(len(ranks))},
        schema={"src_rank": pl.UInt32, "sender": pl.Int64},
    )
    labels = tables["labels"].select(
        "label",
        name=pl.col("call").fill_null("message"),
        path=pl.when(pl.col("path").fill_null("") != "").then("path").otherwise("phase"),
    )
    sent = (
        tables["messages"]
        .filter(pl.col("arrival_ps").is_not_null())
        .join(place, on="src_rank")
        .join(labels, on="label", how="left")
        .with_columns(
            pl.col("name").fill_null("message"),
            under_way=pl.col("arrival_ps") - pl.col("post_ps"),
            one=pl.lit(1),
        )
    )
    return [
        _Metric(name, title, unit, _by_path(sent, column, "sender", len(ranks), scale))
        for name, title, unit, column, scale in (
            ("messages", "Messages sent", "occ", "one", 1.0),
            ("bytes", "Bytes sent", "bytes", "size_bytes", 1.0),
            ("under_way", "Time from post to arrival", "sec", "under_way", 1e-12),
        )
    ]


def _by_path(
    rows: pl.DataFrame, column: str, rank: str, n_ranks: int, scale: float
) -> dict[Path, Floats]:
    """Sums of a column by call path, for each rank, shape (R,)."""
    out = dict[Path, Floats]()
    sums = rows.group_by("path", "name", rank).agg(pl.col(column).sum()).sort("path", "name", rank)
    for path, name, number, value in sums.iter_rows():
        above = [part for part in (path or "").split(" > ") if part and part != name]
        place = (_ROOT, *above, name)
        out.setdefault(place, np.zeros(n_ranks))[number] += value * scale
    return out


def _all(metrics: Iterable[_Metric]) -> list[_Metric]:
    """Metrics and their parts, in the order of their numbers."""
    return [each for metric in metrics for each in (metric, *_all(metric.parts))]


def _write(file: IO[bytes], metrics: list[_Metric], paths: set[Path], hosts: list[str]) -> None:
    """Write the archive."""
    # In this order every node follows its parent, before the parent's next sibling.
    nodes = sorted({path[:depth] for path in paths for depth in range(1, len(path) + 1)})
    # Ranks of one host are neighbours.
    order = sorted(range(len(hosts)), key=lambda rank: (hosts.index(hosts[rank]), rank))
    with tarfile.TarFile(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        _add(archive, "anchor.xml", _anchor(metrics, nodes, hosts, order))
        head = b"CUBEX.INDEX" + struct.pack("<ihbi", 1, 0, 0, len(nodes))
        index = head + np.arange(len(nodes), dtype="<i4").tobytes()
        for number, metric in enumerate(_all(metrics)):
            nothing = np.zeros(len(hosts))
            rows = [metric.values.get(path, nothing)[order] for path in nodes]
            _add(archive, f"{number}.index", index)
            _add(archive, f"{number}.data", b"CUBEX.DATA" + np.stack(rows).astype("<f8").tobytes())


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def _anchor(metrics: list[_Metric], nodes: list[Path], hosts: list[str], order: list[int]) -> bytes:
    """``anchor.xml``."""
    cube = ElementTree.Element("cube", version="4.4")
    numbers = {id(metric): number for number, metric in enumerate(_all(metrics))}
    tree = _below(cube, "metrics", title="Metric tree")
    for metric in metrics:
        _describe_metric(tree, metric, numbers)
    _describe_calls(_below(cube, "program", title="Call tree"), nodes)
    _describe_system(_below(cube, "system", title="System tree"), hosts, order)
    text: bytes = ElementTree.tostring(cube, encoding="utf-8", xml_declaration=True)
    return text


def _describe_metric(
    parent: ElementTree.Element, metric: _Metric, numbers: Mapping[int, int]
) -> None:
    node = _below(parent, "metric", id=str(numbers[id(metric)]), type="EXCLUSIVE")
    for tag, text in (
        *(("disp_name", metric.title), ("uniq_name", metric.name), ("dtype", "DOUBLE")),
        *(("uom", metric.unit), ("val", ""), ("url", ""), ("descr", metric.title)),
    ):
        _below(node, tag).text = text
    for part in metric.parts:
        _describe_metric(node, part, numbers)


def _describe_calls(program: ElementTree.Element, nodes: list[Path]) -> None:
    regions = {name: number for number, name in enumerate(sorted({path[-1] for path in nodes}))}
    for name, number in regions.items():
        region = _below(program, "region", id=str(number), mod="", begin="-1", end="-1")
        paradigm = "mpi" if name.startswith("MPI_") else "user"
        for tag, text in (
            *(("name", printable(name)), ("mangled_name", printable(name))),
            *(("paradigm", paradigm), ("role", "function"), ("url", ""), ("descr", "")),
        ):
            _below(region, tag).text = text
    made: dict[Path, ElementTree.Element] = {(): program}
    for number, path in enumerate(nodes):
        callee = str(regions[path[-1]])
        made[path] = _below(made[path[:-1]], "cnode", id=str(number), calleeId=callee)


def _describe_system(system: ElementTree.Element, hosts: list[str], order: list[int]) -> None:
    machine = _named(system, "systemtreenode", 0, "machine", {"class": "machine"})
    nodes = dict[str, ElementTree.Element]()
    for number, rank in enumerate(order):
        host = hosts[rank]
        if host not in nodes:
            name = printable(host)
            nodes[host] = _named(machine, "systemtreenode", len(nodes) + 1, name, {"class": "node"})
        group = _named(nodes[host], "locationgroup", number, f"MPI Rank {rank}", {})
        thread = _named(group, "location", number, "Master thread", {})
        for node, kind, place in ((group, "process", rank), (thread, "thread", 0)):
            _below(node, "rank").text = str(place)
            _below(node, "type").text = kind


def _named(
    parent: ElementTree.Element, tag: str, number: int, name: str, attributes: dict[str, str]
) -> ElementTree.Element:
    node = _below(parent, tag, Id=str(number))
    _below(node, "name").text = name
    for key, text in attributes.items():
        _below(node, key).text = text
    return node


def _below(parent: ElementTree.Element, tag: str, **attributes: str) -> ElementTree.Element:
    return ElementTree.SubElement(parent, tag, attributes)
