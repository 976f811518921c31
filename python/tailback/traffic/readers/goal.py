"""GOAL schedules (LogGOPSim, ATLAHS) as text: messages and computation with dependencies.

``num_ranks N``, then for every rank ``rank R {``, lines like ``l1: send 8b to 1 tag 0``, ``l2: recv
8b from 1 tag 0``, ``l3: calc 100`` (nanoseconds) and ``l3 requires l2`` (once it has ended) or ``l3
irequires l2`` (once it has begun), and ``}``. There are no times and no names of calls.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.available import available_memory
from tailback.delimited import head, shown
from tailback.errors import TraceError
from tailback.traffic.program import Label, Op, Program, require_room
from tailback.traffic.readers.capabilities import Capabilities
from tailback.traffic.readers.graph import DependencyCycle, Graph, compile_graph
from tailback.traffic.readers.text_lines import Lines, read_lines
from tailback.units import LONGEST_PS

CAPABILITIES = Capabilities(
    times="no",
    sources="yes",
    completion="by the operations that require it",
    call_site="no",
    compute="yes, in ns",
)

_FIRST_LINE = re.compile(r"\A(?:\s|//[^\n]*\n|/\*.*?\*/)*num_ranks[ \t]+\d+", re.DOTALL)
_COMMENT = re.compile(rb"//[^\n]*|/\*.*?\*/", re.DOTALL)
_OPERATION = (
    r"^(?:(?P<name>[A-Za-z]\w*)\s*:\s*)?(?P<op>send|recv|calc)\s+(?P<amount>\d+)b?"
    r"(?:\s+(?P<way>to|from)\s+(?P<peer>\d+))?(?P<rest>(?:\s+(?:tag|cpu|nic)\s+\d+)*)$"
)
_DEPENDENCY = r"^(?P<after>[A-Za-z]\w*)\s+(?P<how>i?requires)\s+(?P<before>[A-Za-z]\w*)$"
_SIZE = r"^num_ranks\s+(\d+)$"
_BLOCK = r"^rank\s+(\d+)\s*\{$"
_PS_PER_NS = 1000
_MOST_BYTES = 1 << 53
_DAMAGED = "the file is damaged: copy it again or generate it again"
_CALLS = {"send": "MPI_Isend", "recv": "MPI_Irecv"}


def sniff(path: Path) -> bool:
    """A file that begins with the number of ranks, or a folder with one such file."""
    if path.is_dir():
        return len(_schedules(path)) == 1
    return _FIRST_LINE.match(head(path)) is not None


def read(path: Path) -> Program:
    """Compile a schedule to a rank program.

    Args:
        path: The schedule, plain or gzip, or the folder that holds it.

    Returns:
        The program. The operations of a rank stand in the order in which they can begin.

    Raises:
        TraceError: A line that is not of this format, a label that is not defined, a missing rank,
            or operations that wait for each other.
    """
    if path.is_dir():
        schedules = _schedules(path)
        if len(schedules) != 1:
            raise TraceError(f"holds {len(schedules)} GOAL schedules", file=path,
                             remedy="name the schedule")  # fmt: skip
        path = schedules[0]
    lines = read_lines([path], _without_comments)
    table, n_ranks = _table(lines, path)
    try:
        require_room(2 * len(table), available_memory(), what="the schedule", error=TraceError,
                     remedy="generate a smaller one")  # fmt: skip
    except TraceError as error:
        raise error.located(path) from None
    nodes = _operations(lines, table, n_ranks)
    notes = _notes(nodes)
    labels, label = _labels(nodes)
    before, after, begun = _dependencies(lines, table, nodes)
    graph = Graph(
        n_ranks=n_ranks, rank=nodes["rank"].to_numpy(), kind=nodes["kind"].to_numpy(),
        peer=nodes["peer"].to_numpy(), tag=nodes["tag"].to_numpy(),
        amount=nodes["amount"].to_numpy(), label=label, before=before, after=after, begun=begun,
    )  # fmt: skip
    row = nodes["row"].to_numpy()
    try:
        return compile_graph(path.name.split(".")[0], graph, labels, notes)
    except DependencyCycle as cycle:
        at = int(row[cycle.node])
        raise lines.fault(
            at, f"{lines.quoted(at)} waits for itself: a cycle of dependencies and messages",
            "correct what generated the schedule",
        ) from None  # fmt: skip


def _schedules(folder: Path) -> list[Path]:
    files = sorted(entry for entry in folder.iterdir() if ".goal" in entry.name)
    return [file for file in files if file.is_file() and _FIRST_LINE.match(head(file))]


def _without_comments(data: bytes) -> bytes:
    """The text with blanks in place of comments, line by line as before."""
    if b"//" not in data and b"/*" not in data:
        return data
    return _COMMENT.sub(lambda found: b"\n" * found[0].count(b"\n"), data)


def _table(lines: Lines, path: Path) -> tuple[pl.DataFrame, int]:
    """Row, rank and text of the lines within blocks, and the number of ranks."""
    table = pl.DataFrame({"row": np.arange(len(lines.text)), "line": lines.text}).drop_nulls()
    table = table.with_columns(
        pl.col("line").str.extract(_SIZE).alias("size"),
        pl.col("line").str.extract(_BLOCK).cast(pl.Int64, strict=False).alias("rank"),
        (pl.col("line") == "}").alias("ends"),
    )
    if not len(table) or table["size"][0] is None:
        raise TraceError("does not begin with num_ranks", file=path, remedy=_DAMAGED)
    n_ranks = int(table["size"][0])
    body = table[1:]
    begins = body["rank"].is_not_null().to_numpy()
    ends = body["ends"].to_numpy()
    depth = np.cumsum(begins.astype(np.int64) - ends)
    # The line that closes a block is still in it.
    wrong = (depth + ends != 1) | (begins & (depth != 1))
    if wrong.any():
        row = int(body["row"][int(np.flatnonzero(wrong)[0])])
        raise lines.fault(row, f"{lines.quoted(row)} is not expected here", _DAMAGED)
    if len(depth) and depth[-1]:
        row = int(body["row"][-1])
        raise lines.fault(row, "the block of the rank is not closed: the file is cut short",
                          "copy it again or generate it again")  # fmt: skip
    blocks = body.filter(pl.col("rank").is_not_null())
    _require_all_ranks(lines, blocks, n_ranks, path)
    body = body.with_columns(pl.col("rank").forward_fill())
    return body.filter(~pl.Series(begins | ends)).select("row", "rank", "line"), n_ranks


def _require_all_ranks(lines: Lines, blocks: pl.DataFrame, n_ranks: int, path: Path) -> None:
    ranks = blocks["rank"].to_numpy()
    twice = blocks["rank"].is_duplicated().to_numpy()
    odd = twice | (ranks >= n_ranks)
    if odd.any():
        at = int(np.flatnonzero(odd)[-1])
        message = f"rank {ranks[at]} " + ("again" if twice[at] else f"of {n_ranks} ranks")
        raise lines.fault(int(blocks["row"][at]), message, _DAMAGED)
    if len(ranks) < n_ranks:
        gap = np.flatnonzero(np.sort(ranks) != np.arange(len(ranks)))
        missing = int(gap[0]) if len(gap) else len(ranks)
        raise TraceError(
            f"has no block of rank {missing} of {n_ranks}: the file is cut short", file=path,
            remedy="copy it again or generate it again",
        )  # fmt: skip


def _operations(lines: Lines, table: pl.DataFrame, n_ranks: int) -> pl.DataFrame:
    """The operations in the order of ranks, with their kind, peer, tag, amount and core."""
    parts = table.with_columns(
        pl.col("line").str.extract_groups(_OPERATION).alias("parts"),
        pl.col("line").str.contains(_DEPENDENCY).alias("depends"),
    ).unnest("parts")
    odd = parts.filter(pl.col("op").is_null() & ~pl.col("depends"))
    if len(odd):
        row = int(odd["row"][0])
        raise lines.fault(row, f"cannot parse {lines.quoted(row)}", _DAMAGED)
    nodes = parts.filter(pl.col("op").is_not_null()).with_columns(
        pl.col("rest").str.extract(r"tag\s+(\d+)").cast(pl.Int64, strict=False).alias("tag"),
        pl.col("rest").str.extract(r"cpu\s+(\d+)").fill_null("0").alias("core"),
        pl.col("peer").cast(pl.Int64, strict=False),
        pl.col("amount").cast(pl.Int64, strict=False),
        pl.col("op").replace_strict({"send": "to", "recv": "from"}, default=None).alias("right"),
    )
    wrong = (
        pl.col("amount").is_null()
        | (pl.col("amount") > pl.when(pl.col("op") == "calc").then(LONGEST_PS // _PS_PER_NS)
           .otherwise(_MOST_BYTES))
        | ~pl.col("way").eq_missing(pl.col("right"))
        | (pl.col("peer") >= n_ranks)
        | (pl.col("right").is_not_null() & pl.col("peer").is_null())
        | (pl.col("rest").str.contains("tag") & pl.col("tag").is_null())
    )  # fmt: skip
    odd = nodes.filter(wrong)
    if len(odd):
        row = int(odd["row"][0])
        raise lines.fault(
            row, f"{lines.quoted(row)}: a rank of {n_ranks}, a size or a time that cannot be",
            _DAMAGED,
        )  # fmt: skip
    kinds = {"send": int(Op.ISEND), "recv": int(Op.IRECV), "calc": int(Op.COMPUTE)}
    calc = pl.col("op") == "calc"
    return nodes.with_columns(
        pl.col("op").replace_strict(kinds, return_dtype=pl.Int64).alias("kind"),
        pl.col("peer").fill_null(-1),
        pl.col("tag").fill_null(0),
        pl.when(calc).then(pl.col("amount") * _PS_PER_NS).otherwise("amount").alias("amount"),
    ).sort("rank", maintain_order=True)  # fmt: skip


def _notes(nodes: pl.DataFrame) -> list[str]:
    """What a sequence of operations cannot say."""
    busy = nodes.filter(pl.col("op") == "calc")
    cores = busy.group_by("rank").agg(pl.col("core").n_unique())["core"].max()
    if isinstance(cores, int) and cores > 1:
        return [
            f"ranks compute on up to {cores} cores at a time in the schedule; here what a rank "
            "computes runs one after the other"
        ]
    return []


def _labels(nodes: pl.DataFrame) -> tuple[list[Label], NDArray[np.int64]]:
    """Labels of sends and receives by tag, and the number of each operation's."""
    kinds = nodes.select("op", "tag").unique(maintain_order=True)
    labels = [Label(f"tag {tag}", _CALLS.get(op, "none"), tag) for op, tag in kinds.iter_rows()]
    kinds = kinds.with_row_index("label")
    joined = nodes.join(kinds, on=["op", "tag"], how="left", maintain_order="left")
    return labels, joined["label"].cast(pl.Int64).to_numpy().copy()


def _dependencies(
    lines: Lines, table: pl.DataFrame, nodes: pl.DataFrame
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Operation before, operation after, and whether it is enough that the first has begun."""
    named = nodes.select("rank", "name", "row").with_row_index("node").drop_nulls()
    twice = named.filter(pl.struct("rank", "name").is_duplicated())
    if len(twice):
        row = int(twice["row"][-1])
        raise lines.fault(row, f"the label {shown(twice['name'][-1])} again in this rank", _DAMAGED)
    edges = table.with_columns(
        pl.col("line").str.extract_groups(_DEPENDENCY).alias("parts")
    ).unnest("parts").filter(pl.col("after").is_not_null())  # fmt: skip
    ends = []
    for side in ("before", "after"):
        joined = edges.join(named.select("rank", pl.col("name").alias(side), "node"),
                            on=["rank", side], how="left", maintain_order="left")  # fmt: skip
        lost = joined.filter(pl.col("node").is_null())
        if len(lost):
            row = int(lost["row"][0])
            raise lines.fault(row, f"the label {shown(lost[side][0])} is not defined", _DAMAGED)
        ends.append(joined["node"].cast(pl.Int64).to_numpy())
    return ends[0], ends[1], (edges["how"] == "irequires").to_numpy()
