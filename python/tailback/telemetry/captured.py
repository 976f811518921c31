"""Packets of captures: their nodes, their usability, and their calling contexts.

A capture identifies the ends of a packet by address: a local id (InfiniBand) or an IP address
(RoCEv2). This module maps addresses to nodes of a fabric, counts unusable packets, and labels
packets with the calling context that sent them, as listed in a folder of contexts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.errors import TailbackError, nearest
from tailback.fabric.model import Fabric
from tailback.io.delimited import Delimited, not_used, parse
from tailback.io.input_files import content, head_bytes, is_input_file
from tailback.io.manifest import require_unchanged

SUFFIXES: Final = (".pcap", ".pcapng", ".erf", ".cap", ".ntar")
_MAGICS: Final = frozenset(
    bytes.fromhex(text)
    for text in ("0a0d0d0a", "d4c3b2a1", "a1b2c3d4", "4d3cb2a1", "a1b23c4d", "34cdb2a1", "a1b2cd34")
)
SKIPPED: Final = (
    "neither InfiniBand nor RoCEv2",
    "InfiniBand without a transport header",
    "fragments of IP packets",
    "kept too short by the capture (raise its snapshot length to 128 bytes or more)",
    "with headers that contradict each other",
    "of an interface with another link type",
    "without a time (simple packet blocks)",
)
"""Reasons for which the reader skips frames, in the order of its counts."""

ADDRESSES: Final = "addresses.csv"
"""File in a folder of contexts that maps addresses to nodes."""
PATHS: Final = "paths.csv"
"""File in a folder of contexts with measured paths (:mod:`tailback.telemetry.measured_paths`)."""
_ADDRESS_COLUMNS: Final = {
    "address": ("address", "lid", "ip"),
    "node": ("node", "host", "name", "hostname"),
}
_CONTEXT_COLUMNS: Final = {
    "source": ("source", "src", "src_host"),
    "destination": ("destination", "dst", "dst_host"),
    "queue_pair": ("queue_pair", "qp", "qpn"),
    "first_psn": ("first_psn", "psn"),
    "packets": ("packets", "count"),
    "first_ns": ("first_ns", "start_ns"),
    "last_ns": ("last_ns", "end_ns"),
    "source_port": ("source_port",),
    "destination_port": ("destination_port",),
    "first_byte": ("first_byte",),
    "bytes": ("bytes",),
    "call": ("call",),
    "phase": ("phase", "region"),
    "path": ("path", "call_path"),
}
_PSNS: Final = 1 << 24
_MOST: Final = {
    "queue_pair": _PSNS - 1,
    "first_psn": _PSNS - 1,
    "packets": _PSNS,
    "first_ns": (1 << 63) - 1,
    "last_ns": (1 << 63) - 1,
    "source_port": (1 << 16) - 1,
    "destination_port": (1 << 16) - 1,
    "first_byte": (1 << 63) - 1,
    "bytes": (1 << 63) - 1,
}
"""Numbers of a row of contexts, and the largest value of each."""
_STRETCHES: Final = {
    "first_psn": ("packets", "sequence"),
    "first_ns": ("last_ns", "time_ns"),
    "first_byte": ("bytes", "stream_byte"),
}
"""Columns that begin a stretch of packets: the column of its length or end, and that of packets."""
UNKNOWN_PHASE: Final = "unknown context"


class CaptureError(TailbackError):
    """A capture, or a file of its folder of contexts, cannot be read."""


@dataclass(frozen=True)
class CapturedFile:
    """Frames of a file, used and skipped.

    Attributes:
        path: The file.
        frames: Frames in it.
        packets: Packets with a transport header.
        skipped: Number of frames left out and offset of the first, in the order of
            :data:`SKIPPED`.
        cut_at: Offset of the record in which the file ends; None if the file is complete.
        times_ns: Times of its first and last packet; None without packets.
    """

    path: Path
    frames: int
    packets: int
    skipped: list[tuple[int, int]]
    cut_at: int | None
    times_ns: tuple[int, int] | None

    def losses(self) -> Iterator[str]:
        """A sentence for each kind of skipped frame."""
        name = self.path.name
        for (frames, first), why in zip(self.skipped, SKIPPED, strict=True):
            if frames:
                yield f"{name}: {frames:,} frames left out, {why}; the first at byte {first}"
        if self.cut_at is not None:
            yield (
                f"{name} ends within the record at byte {self.cut_at}: packets before it are used; "
                "copy the file again, or stop the capture before copying it"
            )


@dataclass(frozen=True)
class Captured:
    """Packets of one or several captures.

    Attributes:
        files: The files.
        packets: ``time_ns, source, destination, psn, queue_pair, id, size_bytes, sample, entropy,
            port, protocol, stream_byte, ecn, csig, direction, file``; ends are indices of
            ``addresses``, ``port`` is that of the destination, ``stream_byte`` the number of the
            first byte in its TCP connection, -1 unknown, ``ecn`` is 0 to 3 as in IP (FECN of
            InfiniBand is 3, without it 1), ``csig`` is the tag with bit 16 set, 0 without one,
            ``direction`` is 1 received, 2 sent, 0 unknown.
        addresses: Local ids and IP addresses.
        one_in: One in this many packets was kept.
    """

    files: list[CapturedFile]
    packets: pl.DataFrame
    addresses: list[str]
    one_in: int


@dataclass(frozen=True)
class Contexts:
    """Content of a folder of contexts.

    Attributes:
        nodes: Node by address, as text.
        rows: ``source, destination``, :data:`_MOST`'s and ``label``, null if a row applies to all;
            in the order of the files.
        labels: ``phase, call, path`` by label.
        notes: What is not used.
    """

    nodes: dict[str, int]
    rows: pl.DataFrame
    labels: list[tuple[str, str, str]]
    notes: list[str] = field(default_factory=list)


def is_capture(path: Path) -> bool:
    """Whether a file is a capture, by its first bytes or its name."""
    if not is_input_file(path):
        return False
    return head_bytes(path, 4) in _MAGICS or path.suffix.lower() in SUFFIXES


# --- addresses and nodes
# ------------------------------------------------------------------------------

_ADAPTER: Final = re.compile(r'"H-[0-9a-fA-F]+"\[\d+\][^#\n]*#\s*"([^"\n]*)"\s+lid\s+(\d{1,5})\b')
_ADAPTER_PORT: Final = re.compile(
    r"^CA\s+(\d{1,5})\s+\d+\s+0x[0-9a-fA-F]+\s[^\n(]*\(\s*'([^'\n]*)' - '", re.MULTILINE
)


def discovered_lids(path: Path | None, fabric: Fabric) -> dict[str, int]:
    """Node by local id, from an output of ``ibnetdiscover``; empty for other files.

    Ports with ambiguous names are skipped; ``addresses.csv`` can name them.
    """
    if path is None:
        return {}
    try:
        text = content(path).decode("utf-8", errors="replace")
    except TailbackError:
        return {}
    lids = [(lid, name) for name, lid in _ADAPTER.findall(text)] + _ADAPTER_PORT.findall(text)
    node = unique_names(fabric)
    return {str(int(lid)): node[name] for lid, name in lids if name in node}


def unique_names(fabric: Fabric) -> dict[str, int]:
    """Node by its name if that is unique, and by its host's name if that host has one node."""
    hosts = np.bincount(fabric.node_host, minlength=fabric.n_hosts)
    out = {
        fabric.host_name[host]: node
        for node, host in enumerate(fabric.node_host.tolist())
        if hosts[host] == 1
    }
    count = dict[str, int]()
    for name in fabric.node_name:
        count[name] = count.get(name, 0) + 1
    return out | {name: node for node, name in enumerate(fabric.node_name) if count[name] == 1}


def nodes_of_addresses(
    addresses: list[str], fabric: Fabric, node_of: dict[str, int]
) -> NDArray[np.int64]:
    """Node of each address, -1 if unknown.

    Args:
        addresses: Local ids and IP addresses.
        fabric: The fabric.
        node_of: Node by address. If it has any local id, it must have all; otherwise the local id
            of a node is its number + 1, as written by ``tailback export pcap``. An IP address may
            also be the name of a node.
    """
    names = unique_names(fabric)
    lids = any(address.isdecimal() for address in node_of)
    out = np.full(len(addresses), -1, np.int64)
    for number, address in enumerate(addresses):
        if address in node_of:
            out[number] = node_of[address]
        elif address.isdecimal():
            if not lids and 1 <= int(address) <= fabric.n_nodes:
                out[number] = int(address) - 1
        else:
            out[number] = names.get(address, -1)
    return out


# --- contexts --------------------------------------------------------------------------------


def read_contexts(folder: Path | None, fabric: Fabric) -> Contexts:
    """Read a folder of contexts: ``addresses.csv`` and any other CSV files.

    Raises:
        CaptureError: The folder or a file cannot be read, or a row names a node that the fabric
            does not have.
    """
    rows, labels = _ContextRows(fabric), [(UNKNOWN_PHASE, "", "")]
    if folder is None:
        return Contexts({}, rows.frame(), labels)
    if not folder.is_dir():
        raise CaptureError(
            "is not a folder", file=folder, remedy=f"name a folder of CSV files; {_HOW}"
        )
    require_unchanged(folder)
    files = sorted(folder.glob("*.csv"))
    if not files:
        raise CaptureError("holds no CSV file", file=folder, remedy=_HOW)
    nodes, notes = dict[str, int](), list[str]()
    for file in files:
        if file.name == PATHS:
            continue
        if file.name == ADDRESSES:
            table = _table(file, _ADDRESS_COLUMNS, ("address", "node"))
            nodes = _addresses(table, fabric)
        else:
            table = _table(file, _CONTEXT_COLUMNS, ("call",))
            rows.add(table, labels)
        notes += [f"{file.name}: {note}" for note in not_used(table.unused)]
    return Contexts(nodes, rows.frame(), labels, notes)


_HOW: Final = "docs/how-to/captures.md shows its files"


def _addresses(table: Delimited, fabric: Fabric) -> dict[str, int]:
    names, out = unique_names(fabric), dict[str, int]()
    for line, address, name in zip(
        table.rows["line"], table.need("address"), table.need("node"), strict=True
    ):
        if name not in names:
            raise table.error_at(
                "node", line, f"the fabric has no node {str(name)[:40]!r}", nearest(name, names)
            )
        text = _normal(address)
        if out.setdefault(text, names[name]) != names[name]:
            message = f"{text[:40]!r} has two nodes"
            raise table.error_at("address", line, message, "keep one of them")
    return out


def _normal(address: str) -> str:
    """An address in the notation of the reader of captures: local ids in decimal."""
    try:
        return str(int(address, 0))
    except ValueError:
        return address.lower()


def _table(file: Path, columns: dict[str, tuple[str, ...]], needed: tuple[str, ...]) -> Delimited:
    return parse(content(file, CaptureError), columns, needed, path=file, error_type=CaptureError)


class _ContextRows:
    """Collects the rows of files of contexts."""

    def __init__(self, fabric: Fabric) -> None:
        self._names = unique_names(fabric)
        self._frames: list[pl.DataFrame] = []

    def add(self, table: Delimited, labels: list[tuple[str, str, str]]) -> None:
        """Add the rows of a file; new labels are appended to ``labels``."""
        height = table.rows.height
        number = {label: index for index, label in enumerate(labels)}
        texts = [
            table.rows[role].fill_null("").to_list()
            if role in table.rows.columns
            else [""] * height
            for role in ("phase", "call", "path")
        ]
        label = []
        for phase, call, path in zip(*texts, strict=True):
            key = (phase or call or UNKNOWN_PHASE, call, path)
            if key not in number:
                number[key] = len(labels)
                labels.append(key)
            label.append(number[key])
        columns = [pl.Series("label", label, pl.UInt32)]
        for role in ("source", "destination"):
            columns.append(self._nodes(table, role).alias(role))
        for role, most in _MOST.items():
            columns.append(_number(table, role, most).alias(role))
        frame = pl.DataFrame(columns)
        for first, (other, _) in _STRETCHES.items():
            odd = frame[first].is_null() != frame[other].is_null()
            if odd.any():
                raise table.error_at(
                    "call",
                    table.rows["line"][int(odd.arg_true()[0])],
                    f"has one of {first} and {other}",
                    "give both, or neither for all",
                )
        both = frame.select(pl.sum_horizontal(pl.col(*_STRETCHES).is_not_null()) > 1).to_series()
        if both.any():
            raise table.error_at(
                "call",
                table.rows["line"][int(both.arg_true()[0])],
                f"has more than one of {', '.join(_STRETCHES)}",
                "leave all but one of them, and what ends the others, empty",
            )
        self._frames.append(frame)

    def _nodes(self, table: Delimited, role: str) -> pl.Series:
        if role not in table.rows.columns:
            return pl.Series([None] * table.rows.height, dtype=pl.Int64)
        texts = table.rows[role]
        nodes = texts.replace_strict(self._names, default=None, return_dtype=pl.Int64)
        wrong = nodes.is_null() & texts.is_not_null()
        if wrong.any():
            row = int(wrong.arg_true()[0])
            raise table.error_at(
                role,
                table.rows["line"][row],
                f"the fabric has no node {str(texts[row])[:40]!r}",
                nearest(str(texts[row])[:40], self._names),
            )
        return nodes

    def frame(self) -> pl.DataFrame:
        """All rows."""
        schema = {"label": pl.UInt32} | dict.fromkeys(("source", "destination", *_MOST), pl.Int64)
        return pl.concat([pl.DataFrame(schema=schema), *self._frames])


def _number(table: Delimited, role: str, most: int) -> pl.Series:
    if role not in table.rows.columns:
        return pl.Series([None] * table.rows.height, dtype=pl.Int64)
    values = table.number(role, integer=True).cast(pl.Int64, strict=False)
    wrong = (values < 0) | (values > most) | (values.is_null() & table.rows[role].is_not_null())
    if wrong.any():
        row = int(wrong.arg_true()[0])
        raise table.error_at(
            role,
            table.rows["line"][row],
            f"{str(table.rows[role][row])[:40]!r} is not 0 to {most}",
            "times are nanoseconds since 1970"
            if role.endswith("_ns")
            else "queue pairs and packet sequence numbers have 24 bits",
        )
    return values


def labelled(packets: pl.DataFrame, contexts: Contexts) -> NDArray[np.uint32]:
    """Label of each packet, from the first matching row; 0 if none matches.

    Args:
        packets: ``src_node, dst_node, queue_pair, sequence, time_ns``, P rows; ``entropy, port,
            stream_byte`` if rows state ports or bytes.
        contexts: Content of the folder.

    Returns:
        Labels, shape (P,).
    """
    label = np.zeros(packets.height, np.uint32)
    best = np.full(packets.height, contexts.rows.height, np.int64)
    keys = {
        "source": "src_node",
        "destination": "dst_node",
        "queue_pair": "queue_pair",
        "source_port": "entropy",
        "destination_port": "port",
    }
    rows = contexts.rows.with_row_index("row")
    # Rows with the same stated keys are joined at once; ranges of PSNs and bytes are joined by
    # their start, times by their end.
    for stated, group in rows.group_by(
        *(pl.col(name).is_not_null().alias(f"has_{name}") for name in (*keys, *_STRETCHES))
    ):
        on = [name for name, there in zip(keys, stated, strict=False) if there]
        _label_packets(
            packets,
            group.sort("row"),
            {name: keys[name] for name in on},
            next(
                (
                    name
                    for name, there in zip(_STRETCHES, stated[len(keys) :], strict=True)
                    if there
                ),
                "",
            ),
            (label, best),
        )
    return label


def _label_packets(
    packets: pl.DataFrame,
    rows: pl.DataFrame,
    on: dict[str, str],
    stretches: str,
    assigned: tuple[NDArray[np.uint32], NDArray[np.int64]],
) -> None:
    """Label packets by rows of one kind; across kinds, the earliest row takes precedence."""
    label, best = assigned
    end, position = _STRETCHES.get(stretches, ("", "time_ns"))
    left = packets.select(
        *(pl.col(column).cast(pl.Int64).alias(name) for name, column in on.items()),
        position=pl.col(position).cast(pl.Int64),
        at=pl.int_range(pl.len()),
    )
    if stretches == "first_ns":
        # The first range that ends at this time or later: messages arrive in order.
        left = left.sort("position").join_asof(
            rows.select("label", "row", "first_ns", *on, end=end).sort("end"),
            left_on="position",
            right_on="end",
            by=list(on) or None,
            strategy="forward",
            check_sortedness=False,
        )
        left = left.filter(pl.col("position") >= pl.col("first_ns"))
    elif stretches:
        # The latest range that starts at or before the number, also across the wrap-around of PSNs.
        right = rows.select("label", "row", *on, start=stretches, size=end).sort("start")
        if stretches == "first_psn":
            wrapped = right.with_columns(pl.col("start") - _PSNS)
            right = pl.concat([wrapped, right]).sort("start")
        left = left.sort("position").join_asof(
            right,
            left_on="position",
            right_on="start",
            by=list(on) or None,
            check_sortedness=False,
        )
        left = left.filter(pl.col("position") - pl.col("start") < pl.col("size"))
    elif on:
        first = rows.unique(subset=list(on), keep="first", maintain_order=True)
        left = left.join(first.select("label", "row", *on), on=list(on), how="inner")
    else:
        left = left.with_columns(label=pl.lit(rows["label"][0]), row=pl.lit(rows["row"][0]))
    at, row = left["at"].to_numpy(), left["row"].to_numpy().astype(np.int64)
    earlier = row < best[at]
    best[at[earlier]], label[at[earlier]] = row[earlier], left["label"].to_numpy()[earlier]
