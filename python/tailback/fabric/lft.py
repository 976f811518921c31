"""Forwarding tables of real switches, from ``ibroute`` and ``dump_lfts``.

A table is a header and a line for each destination::

    Unicast lids [0x0-0x91] of switch Lid 2 guid 0x000b8cffff004939 (MT47396 Infiniscale-III):
    0x0001 015 : (Channel Adapter portguid 0x0002c9030002da23: 'bonobo020 HCA-1')

``dump_lfts`` prints those of all switches, ``ibroute`` that of one. The tables show the actual
paths of packets, which a routing rule can only approximate.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tailback.errors import FabricError
from tailback.fabric.ibnetdiscover import clip, tally
from tailback.fabric.model import Fabric
from tailback.io.input_files import content, is_input_file
from tailback.io.manifest import require_unchanged
from tailback.names.ports import port_name

NO_ENTRY = 2**32 - 1
"""Value in :attr:`FabricForwarding.link` where a table has no entry."""

_HEADER = re.compile(r"^Unicast lids? .*\bof switch\b.*?\bguid 0x([0-9a-fA-F]{1,16}) \((.*)\):?$")
_ENTRY = re.compile(r"^0x([0-9a-fA-F]{1,4})\s+(\S+)\s*(?::\s*\((.*)\))?\s*$")
_OWNER = re.compile(r"^(.*?)\s*portguid 0x([0-9a-fA-F]{1,16})(?::\s*(.*))?$")
_ERROR = re.compile(r"\b(?:iberror|ibwarn|ibpanic)\b")
_BOILERPLATE = re.compile(
    r"^(?:Lid\s+Out\s+Destination|Port\s+Info|\d+ (?:valid )?lids? dumped)\s*$"
)
_REMEDY = "make the file again with: dump_lfts > lfts.txt, as root on a node of the fabric"
_MAX_BYTES = 256 << 20


@dataclass
class SwitchTable:
    """The forwarding table of one switch.

    Attributes:
        name: Its node description.
        guid: Its GUID as ``0x`` and 16 hexadecimal digits.
        port: Output port by destination LID; 0 is the switch itself.
    """

    name: str
    guid: str
    port: dict[int, int] = field(default_factory=dict)


@dataclass
class ForwardingTables:
    """Content of forwarding table files.

    Attributes:
        switches: One table per switch, in the order of the files.
        owner: Name and port GUID by LID, of adapters and routers; switches are left out.
        notes: What was odd and tolerated.
    """

    switches: list[SwitchTable] = field(default_factory=list)
    owner: dict[int, tuple[str, int]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass
class FabricForwarding:
    """Forwarding tables by the link and node numbers of a fabric.

    Attributes:
        link: Link by which each switch sends for each node, ``NO_ENTRY`` for none, shape (S, N).
        node_lid: LID of each node, 0 where no table names one, shape (N,).
        notes: What was odd and tolerated.
    """

    link: NDArray[np.uint32]
    node_lid: NDArray[np.uint32]
    notes: list[str]


def read_lfts(path: Path) -> ForwardingTables:
    """Read forwarding tables from a file, or from all files of a folder.

    Raises:
        FabricError: A file cannot be read, holds a broken line, or none holds a table.
    """
    path = Path(path)
    require_unchanged(path)
    try:
        files = sorted(p for p in path.iterdir() if is_input_file(p)) if path.is_dir() else [path]
        tables, odd = ForwardingTables(), dict[str, list[str]]()
        for file in files:
            data = content(file, FabricError)
            if data[:2] in (BOM_UTF16_LE, BOM_UTF16_BE):
                raise FabricError(
                    "this is UTF-16 text",
                    file=file,
                    remedy="convert it: iconv -f UTF-16 -t UTF-8",
                )
            text = data.decode("utf-8-sig", errors="replace")
            try:
                _parse(text, tables, odd)
            except FabricError as error:
                error.located(file)
                raise
    except OSError as error:
        raise FabricError(
            f"cannot be read: {error.strerror or error}", file=path, remedy="check the path"
        ) from None
    except ValueError as error:
        raise FabricError(f"{str(path)!r} is not a file name: {error}") from None
    if not tables.switches:
        raise FabricError("no forwarding table in it", file=path, remedy=_REMEDY)
    tables.notes.extend(tally(what, where) for what, where in odd.items())
    return tables


def _parse(text: str, tables: ForwardingTables, odd: dict[str, list[str]]) -> None:
    """Add the tables of one file."""
    guids = {table.guid for table in tables.switches}
    table: SwitchTable | None = None
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.strip()
        header = _HEADER.match(line)
        if header:
            guid = f"0x{int(header.group(1), 16):016x}"
            table = SwitchTable(header.group(2).strip(), guid)
            if guid in guids:
                odd.setdefault("tables given more than once, the first kept", []).append(clip(guid))
            else:
                guids.add(guid)
                tables.switches.append(table)
        elif line.startswith("0x"):
            if table is None:
                raise FabricError(
                    f"an entry before any switch: {clip(line)}",
                    place=f"line {number}",
                    remedy=_REMEDY,
                )
            _entry(line, number, table, tables, odd)
        elif _ERROR.search(line):
            odd.setdefault("errors of the tool that made the tables", []).append(clip(line, 60))
        elif line.startswith("Unicast lid"):
            raise FabricError(
                f"{clip(line)} starts like a table but is not one",
                place=f"line {number}",
                remedy=_REMEDY,
            )
        elif (
            line and not _BOILERPLATE.match(line) and not line.startswith(("#", "***", "Multicast"))
        ):
            odd.setdefault("lines that are not in the format", []).append(clip(line, 60))


def _entry(
    line: str, number: int, table: SwitchTable, tables: ForwardingTables, odd: dict[str, list[str]]
) -> None:
    match = _ENTRY.match(line)
    if match is None:
        raise FabricError(
            f"{clip(line)} is not a table entry",
            place=f"line {number}",
            remedy=f"an entry reads like: 0x0001 015 : (Channel Adapter …); {_REMEDY}",
        )
    lid, port = int(match.group(1), 16), match.group(2)
    if not re.fullmatch(r"[0-9]{1,3}", port):
        odd.setdefault("destinations without a port", []).append(clip(line, 60))
        return
    if int(port) > 254:
        # 255 stands for "no route" in a forwarding table (IBA, LinearForwardingTable).
        odd.setdefault("destinations without a port", []).append(clip(line, 60))
        return
    table.port[lid] = int(port)
    owner = _OWNER.match(match.group(3) or "")
    if owner and not owner.group(1).startswith("Switch"):
        tables.owner.setdefault(
            lid,
            (
                (owner.group(3) or "").strip().removeprefix("'").removesuffix("'").strip(),
                int(owner.group(2), 16),
            ),
        )


def forwarding(fabric: Fabric, tables: ForwardingTables) -> FabricForwarding:
    """Convert forwarding tables to the link and node numbers of a fabric.

    A LID belongs to the node to which the tables forward it; if they disagree, to the node of its
    name. If a node has several LIDs (LMC above 0), the lowest is used.

    Args:
        fabric: The fabric the tables belong to.
        tables: What :func:`read_lfts` read.

    Raises:
        FabricError: None of the tables belongs to a switch of this fabric.
    """
    notes = list(tables.notes)
    switch_of = _match_switches(fabric, tables, notes)
    link_at = {
        (int(src), int(port)): link
        for link, (src, port) in enumerate(zip(fabric.link_src, fabric.link_src_port, strict=True))
    }
    node_lid = _lids(fabric, tables, switch_of, link_at, notes)
    link = np.full((fabric.n_switches, fabric.n_nodes), NO_ENTRY, np.uint32)
    unknown: list[str] = []
    nodes = [(node, int(lid)) for node, lid in enumerate(node_lid) if lid]
    for table, switch in zip(tables.switches, switch_of, strict=True):
        if switch is None:
            continue
        vertex = fabric.n_nodes + switch
        for node, lid in nodes:
            port = table.port.get(lid)
            if port is None or port == 0:
                continue
            out = link_at.get((vertex, port))
            if out is None:
                unknown.append(port_name(fabric.switch_name[switch], port))
            else:
                link[switch, node] = out
    if unknown:
        notes.append(tally("entries for ports without a cable left out", unknown))
    without_table = np.setdiff1d(
        np.arange(fabric.n_switches), [s for s in switch_of if s is not None]
    )
    if len(without_table):
        names = [clip(fabric.switch_name[s], 60) for s in without_table]
        notes.append(tally("switches without a forwarding table", names))
    return FabricForwarding(link, node_lid, notes)


def _match_switches(fabric: Fabric, tables: ForwardingTables, notes: list[str]) -> list[int | None]:
    """The switch of each table: by name, or by name and GUID where several have the same name."""
    by_name = {name: switch for switch, name in enumerate(fabric.switch_name)}
    switches: list[int | None] = []
    for table in tables.switches:
        labelled = f"{table.name or 'switch'} {table.guid}"
        switches.append(by_name.get(labelled, by_name.get(table.name)))
    foreign = [
        clip(t.name or t.guid, 60)
        for t, s in zip(tables.switches, switches, strict=True)
        if s is None
    ]
    if len(foreign) == len(switches):
        raise FabricError(
            f"none of the {len(switches)} tables belongs to a switch of {fabric.name!r}: "
            f"{foreign[0]}, …",
            remedy="give the discovery and the tables of one and the same fabric",
        )
    if foreign:
        notes.append(tally("tables of switches that are not in the fabric", foreign))
    return switches


def _lids(
    fabric: Fabric,
    tables: ForwardingTables,
    switch_of: list[int | None],
    link_at: dict[tuple[int, int], int],
    notes: list[str],
) -> NDArray[np.uint32]:
    """The LID of each node, 0 where none is known."""
    ends: dict[int, set[int]] = {}
    for table, switch in zip(tables.switches, switch_of, strict=True):
        if switch is None:
            continue
        for lid, port in table.port.items():
            link = link_at.get((fabric.n_nodes + switch, port))
            if link is not None and fabric.link_dst[link] < fabric.n_nodes:
                ends.setdefault(lid, set()).add(int(fabric.link_dst[link]))
    by_name = {name: node for node, name in enumerate(fabric.node_name)}
    node_lid = np.zeros(fabric.n_nodes, np.uint32)
    several, lost = [], []
    for lid in sorted(ends.keys() | tables.owner.keys()):
        name, guid = tables.owner.get(lid, ("", 0))
        led_to = ends.get(lid, set())
        # The GUID in a label is the port's or the adapter's, which is one or two lower.
        labels = [name, *(f"{name or 'adapter'} 0x{guid - back:016x}" for back in range(3))]
        node = next(iter(led_to)) if len(led_to) == 1 else None
        if node is None:
            node = next((by_name[label] for label in labels if label in by_name), None)
        if node is None:
            if lid in tables.owner:
                lost.append(clip(name or f"0x{guid:016x}", 60))
        elif node_lid[node]:
            several.append(clip(fabric.node_name[node], 60))
        else:
            node_lid[node] = lid
    if several:
        notes.append(tally("further LIDs of a node left out (LMC)", several))
    if lost:
        notes.append(tally("destinations that are not nodes of the fabric", lost))
    unreached = [clip(fabric.node_name[n], 60) for n in np.flatnonzero(node_lid == 0)]
    if unreached:
        notes.append(tally("nodes that no forwarding table reaches", unreached))
    return node_lid
