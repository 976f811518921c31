"""Reads real fabrics: detects the format, parses it and assembles a :class:`Fabric`.

A format is one module with a parser from text to a :class:`Discovery`, and one line below that
registers it. Assembly (cables, hosts, tiers) is common to all formats.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components as _label

from tailback.errors import FabricError, nearest
from tailback.fabric.edge_list import EdgeList
from tailback.fabric.iblinkinfo import LinkInfo
from tailback.fabric.ibnetdiscover import (
    BlockFormat,
    Cable,
    Device,
    Discovery,
    Kind,
    clip,
    join_cables,
    tally,
)
from tailback.fabric.ibnetdiscover_ports import PortFormat
from tailback.fabric.lldp import LldpNeighbours
from tailback.fabric.model import Fabric, chosen
from tailback.fabric.slower_cables import with_nominal_rates
from tailback.fabric.slurm_topology import SlurmTopology
from tailback.fabric.slurm_topology_yaml import SlurmTopologyYaml
from tailback.fabric.tiers import find_tiers
from tailback.fabric.ufm import UfmResources
from tailback.fabric.uncounted_cables import assume_cables
from tailback.io.input_files import content
from tailback.io.manifest import require_unchanged
from tailback.registry import Registry

DEFAULT_CABLE_DELAY_PS = 10_000
"""Delay of a cable in picoseconds: about 2 m at 5 ns/m. Discoveries do not contain lengths."""


class FabricFormat(Protocol):
    """A file format of fabrics. The first line of its docstring is its summary."""

    def recognises(self, text: str) -> bool:
        """Whether the text is in this format."""
        ...

    def parse(self, text: str) -> Discovery:
        """Parse the text; raises FabricError with the number of a line that cannot be read."""
        ...


READERS: Registry[FabricFormat] = Registry("fabric-format", "files a fabric is read from")
READERS.register("edge-list")(EdgeList())
READERS.register("iblinkinfo")(LinkInfo())
READERS.register("ibnetdiscover")(BlockFormat())
READERS.register("ibnetdiscover-ports")(PortFormat())
READERS.register("lldp")(LldpNeighbours())
READERS.register("slurm-topology")(SlurmTopology())
READERS.register("slurm-topology-yaml")(SlurmTopologyYaml())
READERS.register("ufm")(UfmResources())


def read_fabric(
    path: Path,
    format: str | None = None,
    cable_delay_ps: int | None = None,
    *,
    cable_gbps: float | None = None,
    taper: float | None = None,
    keep_aggregation: bool = False,
) -> Fabric:
    """Read a fabric from a file.

    Args:
        path: The file.
        format: Name of the format (``READERS.names()``); found from the content if None.
        cable_delay_ps: Delay of every cable in picoseconds; 10,000 (about 2 m) if None.
        cable_gbps: Rate of the cables for which the file states none, gigabits per second; that
            of most of its other cables if None.
        taper: Of files without numbers of cables: cables below a switch for each cable upwards,
            at least 1; 1 if None.
        keep_aggregation: Keep the SHARP aggregation nodes inside switches as hosts.

    Returns:
        The fabric with all its parts, and a note for every irregularity that was tolerated.

    Raises:
        FabricError: The file cannot be read, has another format, or has a damaged line; or a rate
            or taper is given for a file that states its own.
    """
    path = Path(path)
    delay = DEFAULT_CABLE_DELAY_PS if cable_delay_ps is None else cable_delay_ps
    if delay < 0:
        raise FabricError(f"cable delay {delay} ps is negative", remedy="give 0 ps or more")
    discovery, notes = read_discovery(path, format)
    try:
        if taper is not None and not discovery.uncounted:
            raise FabricError(
                f"taper {taper:g} is given, but the file lists its cables",
                remedy="leave out the taper",
            )
        assume_cables(discovery, taper)
        fabric = assemble(discovery, path.name, delay, keep_aggregation, cable_gbps)
    except FabricError as error:
        error.located(path)
        raise
    fabric.notes[:0] = notes
    return fabric


def read_discovery(path: Path, format: str | None = None) -> tuple[Discovery, list[str]]:
    """Read the devices and cables of a file, without assembling them to a fabric.

    Args:
        path: The file.
        format: As for :func:`read_fabric`.

    Returns:
        What the file says, and notes on how it was read.

    Raises:
        FabricError: The file cannot be read, has another format, or has a damaged line.
    """
    if format is not None and format not in READERS:
        raise FabricError(
            f"unknown fabric-format {format!r}", file=path, remedy=nearest(format, READERS.names())
        )
    require_unchanged(path)
    text, notes = _text(path)
    try:
        reader = READERS[format] if format is not None else _recognise_format(text)
        discovery = reader.parse(text)
        if not discovery.devices:
            raise _format_error(text)
    except FabricError as error:
        error.located(path)
        raise
    return discovery, notes


# --- what kind of file it is ------------------------------------------------------------------

_MAKE = (
    "make one with: ibnetdiscover > fabric.txt, as root on a node of the fabric; write a CSV "
    "with the columns src, dst, interface and rate_gbit; or forecast on a preset: "
    "tailback list fabric"
)


def _text(path: Path) -> tuple[str, list[str]]:
    """The file as text, with a note if it is not UTF-8."""
    data = content(path, FabricError)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise FabricError(
            "this is UTF-16 text", file=path, remedy="convert it: iconv -f UTF-16 -t UTF-8"
        )
    if b"\0" in data:
        line = data[: data.index(b"\0")].count(b"\n") + 1
        raise FabricError(
            "this is a binary file: it holds a zero byte",
            file=path,
            place=f"line {line}",
            remedy=_MAKE,
        )
    if not data.strip():
        raise FabricError("the file is empty", file=path, remedy=_MAKE)
    try:
        return _lines(data.decode("utf-8-sig")), []
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        note = f"not UTF-8 (first in line {line}); read as Latin-1"
        return _lines(data.decode("latin-1")), [note]


_INVISIBLE = dict.fromkeys((0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF), " ")
"""Zero-width characters that editors and web pages insert between words."""


def _lines(text: str) -> str:
    """The text with Unix line ends and plain spaces."""
    text = text.replace("\r\n", "\n")
    # In a file with line feeds a carriage return is not a line end: it is part of a hostile name.
    return (text if "\n" in text else text.replace("\r", "\n")).translate(_INVISIBLE)


def _recognise_format(text: str) -> FabricFormat:
    for entry in READERS:
        if entry.part.recognises(text):
            return entry.part
    raise _format_error(text)


_BROKEN = "output of ibnetdiscover whose lines were broken"
_JOINED = "output of ibnetdiscover whose lines were joined"
_GARBLED = (_BROKEN, _JOINED)
_HEADER_FORM = (
    'every block starts on a new line, like: Switch 36 "S-0008f10500200b50"  # "name"; ' + _MAKE
)

_UFM = "save UFM's ports instead: curl -k -u USER https://UFM/ufmRest/resources/ports > ports.json"

_FOREIGN = (
    (r"^\s*<(?:!doctype\s+html|html|head|body)", "an HTML page", _MAKE),
    (r"^\s*<\?xml", "an XML file", _MAKE),
    (
        r"(?m)^(?:Multicast mlids|Unicast lids)",
        "a forwarding table",
        "give the discovery itself: ibnetdiscover > fabric.txt",
    ),
    (r"(?m)^\s*((?:Switch|Ca|Hca|Rt)\s*$)", _BROKEN, _HEADER_FORM),
    (r"[^\n]((?:Switch|Ca|Hca|Rt)\s*\d+\s*\"[SHR]-[0-9a-f]+\")", _JOINED, _HEADER_FORM),
    (
        r"(?m)^\s*LocalPort\s+RemoteDevice\s+RemotePortID",
        "SONiC's LLDP table, without rates",
        'print JSON instead: echo "# $HOSTNAME"; docker exec lldp lldpctl -f json, of all switches',
    ),
    (
        r"\A\s*[{\[][^\0]{0,4000}?\"(?:system_guid|sys_guid)\"\s*:",
        "UFM's list of systems, without cables",
        _UFM,
    ),
    (
        r"(?i)\A(?=[^\n]*,)(?=[^\n]*(?:system|guid))"
        r"(?=[^\n]*(?:peer|destination)[ _](?:system|node|guid|port))[^\n]+",
        "a CSV table as UFM exports them, whose columns are not documented",
        _UFM,
    ),
    (
        r"\A(?:0x[0-9a-f]{16},[0-9]{1,3},){2}",
        "the static topology of OpenSM (topoconfig.conf), without names and rates",
        _UFM,
    ),
    (r"(?m)^DR path", "the steps of a discovery without its list", _MAKE),
    (r"\A\s*[{\[]\s*[\"{\[\]}]", "JSON", _MAKE),
)


def _format_error(text: str) -> FabricError:
    """The error for a file of another format; quotes its first line of content."""
    what, remedy = "not a known fabric discovery", _MAKE
    lines = text.split("\n")
    number, line = next(
        ((n, s) for n, s in enumerate(lines, 1) if s.strip() and not s.lstrip().startswith("#")),
        (1, text[:80]),
    )
    for pattern, name, advice in _FOREIGN:
        match = re.search(pattern, text[:1_000_000], re.IGNORECASE if "html" in pattern else 0)
        if match:
            what, remedy = name, advice
            if name in _GARBLED:
                number = text[: match.start(1)].count("\n") + 1
                line = text[match.start(1) :].split("\n", 1)[0]
            break
    return FabricError(
        f"this is {what}: {clip(line, 60)}",
        place=f"line {number}",
        remedy=f"{remedy}; formats read: {', '.join(READERS.names())}",
    )


# --- from a discovery to a fabric -------------------------------------------------------------

_AGGREGATION = re.compile(r"Aggregation Node$")
# "luna-0195 mlx5_0", "node179 HCA-1", "n1 ibp65s0": the last word names the adapter in the host.
_ADAPTER = re.compile(
    r"(?:HCA|hca|HFI|hfi|TCA)[-_]?[0-9]+"
    r"|(?:mlx[45]|mthca|qib|ipath|hfi1|ibp|ibs|ib|roce|rocep|bnxt_re|irdma|efa)[0-9_][0-9a-zA-Z_]*"
)
_GENERIC = re.compile(
    r"\b(?:ConnectX|Mellanox Technologies|Infini[Hh]ost|QLogic|TrueScale|Voltaire|Intel|OmniPath)\b"
    r"|^localhost\b|^MT[0-9]{4,5}\b"
)
_DIGITS = re.compile(r"([0-9]{1,18})")


def natural(name: str) -> tuple[int | str, ...]:
    """Sort key under which ``luna-2`` comes before ``luna-10``."""
    parts: list[int | str] = list(_DIGITS.split(name))
    parts[1::2] = [int(part) for part in parts[1::2]]
    return tuple(parts)


@dataclass(slots=True)
class _Node:
    """An adapter port that becomes a node: its host, its name, and its sort key."""

    device: Device
    port: int
    host: str
    name: str
    order: tuple[tuple[int | str, ...], tuple[int | str, ...], str, int]


def assemble(
    discovery: Discovery,
    name: str,
    cable_delay_ps: int,
    keep_aggregation: bool = False,
    cable_gbps: float | None = None,
) -> Fabric:
    """Assemble a fabric from a discovery.

    Args:
        discovery: Content of the discovery file.
        name: Name of the fabric.
        cable_delay_ps: Delay of every cable in picoseconds.
        keep_aggregation: Keep the SHARP aggregation nodes inside switches as hosts.
        cable_gbps: Rate of cables for which the discovery states none, gigabits per second.

    Returns:
        The fabric; nodes in natural order of host and adapter, switches by tier, name and GUID.

    Raises:
        FabricError: No line has the speed of a link.
    """
    notes: list[str] = []
    excluded = set() if keep_aggregation else _aggregation(discovery, notes)
    cables = [
        c
        for c in join_cables(discovery, notes, cable_gbps)
        if c.a[0] not in excluded and c.b[0] not in excluded
    ]
    nodes = _nodes(discovery, cables, excluded, notes)
    switches, tiers, pods, tier_notes = _switches(discovery, cables)
    at_switch = {d.key: i for i, (d, _) in enumerate(switches)}
    links = _links(cables, nodes, at_switch)
    devices = [node.device.key for node in nodes] + [d.key for d, _ in switches]
    ends = [(devices[source], port) for source, _, port, _, _ in links]
    hosts: dict[str, int] = {}
    node_host = [hosts.setdefault(node.host, len(hosts)) for node in nodes]
    notes.extend(tally(what, where) for what, where in discovery.odd.items())
    fabric = Fabric(
        name=name,
        node_name=[node.name for node in nodes],
        node_host=np.array(node_host, np.uint32),
        host_name=list(hosts),
        switch_name=[label for _, label in switches],
        switch_tier=tiers,
        switch_pod=pods,
        link_src=np.array([row[0] for row in links], np.uint32),
        link_dst=np.array([row[1] for row in links], np.uint32),
        link_src_port=np.array([row[2] for row in links], np.uint32),
        link_dst_port=np.array([row[3] for row in links], np.uint32),
        link_gbps=np.array([row[4] for row in links], np.float64),
        link_delay_ps=np.full(len(links), cable_delay_ps, np.uint64),
        link_reverse=np.arange(len(links), dtype=np.uint32) ^ np.uint32(1),
        notes=notes + discovery.notes + tier_notes,
        link_interface=_own_names(discovery.interface, ends),
        link_id=_own_names(discovery.link_id, ends),
        link_speed=[discovery.speed.get(end) for end in ends] if discovery.speed else None,
        host_gbps=_within_hosts(discovery.in_host_gbps, list(hosts)),
    )
    _note_islands(fabric)
    fabric.check()
    if discovery.uncounted:
        return fabric
    assumed = {end for cable in cables if not cable.stated for end in (cable.a, cable.b)}
    stated = np.array([end not in assumed for end in ends], bool)
    rated = np.array([discovery.nominal_gbps.get(end, 0.0) for end in ends], np.float64)
    return with_nominal_rates(fabric, stated, [_kind(node.device) for node in nodes], rated)


def _kind(device: Device) -> tuple[int | None, str]:
    """Model and name of an adapter without its numbers: ``node#`` of ``node001``."""
    return device.device_id, _DIGITS.sub("#", device.name)


def _within_hosts(stated: Mapping[str, float], hosts: list[str]) -> NDArray[np.float64] | None:
    """Rates within hosts, NaN where none is stated, shape (H,); None without any.

    Raises:
        FabricError: There is no such host.
    """
    unknown = [name for name in stated if name not in hosts]
    if unknown:
        raise FabricError(
            f"{clip(unknown[0], 40)} has a rate within itself, and is no host",
            remedy="state such rates for hosts only: both ends are the name of the host",
        )
    if not stated:
        return None
    return np.array([stated.get(name, np.nan) for name in hosts], np.float64)


def _aggregation(discovery: Discovery, notes: list[str]) -> set[str]:
    """Keys of the SHARP aggregation nodes, adapters inside switches that no job runs on."""
    excluded = {
        d.key
        for d in discovery.devices.values()
        if d.kind is Kind.ADAPTER and _AGGREGATION.search(d.name)
    }
    if excluded:
        notes.append(f"aggregation nodes (SHARP) inside switches left out: {len(excluded)}")
    return excluded


def _nodes(
    discovery: Discovery, cables: list[Cable], excluded: set[str], notes: list[str]
) -> list[_Node]:
    """The connected ports of adapters and routers, named, in natural order."""
    ends = [
        (discovery.devices[key], port)
        for cable in cables
        for key, port in (cable.a, cable.b)
        if discovery.devices[key].kind is not Kind.SWITCH
    ]
    by_name: dict[str, list[tuple[Device, int]]] = {}
    for device, port in ends:
        by_name.setdefault(device.name, []).append((device, port))
    nodes, shared = [], []
    for name, members in by_name.items():
        words = name.rsplit(None, 1)
        host = words[0] if len(words) == 2 and _ADAPTER.fullmatch(words[1]) else name
        # Two adapters with the same name and port number are not two ports of one adapter: the name
        # is ambiguous, like "localhost HCA-1" on every machine.
        repeated = len({port for _, port in members}) < len(members)
        vague = not name or repeated or _GENERIC.search(host) is not None
        if repeated and not _GENERIC.search(host):
            shared.append(clip(name, 60))
        per_label = Counter(device.guid if vague else "" for device, _ in members)
        for device, port in members:
            label = f"{name or 'adapter'} {device.guid}" if vague else name
            several = per_label[device.guid if vague else ""] > 1
            shown = f"{label}/P{port}" if several else label
            order = (natural(host), natural(name), device.guid, port)
            nodes.append(_Node(device, port, label if vague else host, shown, order))
    if shared:
        notes.append(tally("names of several adapters, distinguished by GUID", shared))
    wired = {device.key for device, _ in ends}
    idle = [
        clip(d.name or d.key, 60)
        for d in discovery.devices.values()
        if d.kind is not Kind.SWITCH and d.key not in wired and d.key not in excluded
    ]
    if idle:
        notes.append(tally("adapters without a link left out", idle))
    routers = [clip(d.name, 60) for d in discovery.devices.values() if d.kind is Kind.ROUTER]
    if routers:
        notes.append(tally("routers kept as hosts", routers))
    nodes.sort(key=lambda node: node.order)
    return nodes


def _switches(
    discovery: Discovery, cables: list[Cable]
) -> tuple[list[tuple[Device, str]], NDArray[np.int32], NDArray[np.int32], list[str]]:
    """The switches with their labels in final order, their tiers and pods, and notes."""
    devices = [d for d in discovery.devices.values() if d.kind is Kind.SWITCH]
    same_name = Counter(d.name for d in devices)
    labelled = [
        (d, d.name if d.name and same_name[d.name] == 1 else f"{d.name or 'switch'} {d.guid}")
        for d in devices
    ]
    labelled.sort(key=lambda pair: (natural(pair[0].name), pair[0].guid, pair[0].key))
    place = {d.key: i for i, (d, _) in enumerate(labelled)}
    hosts, between = [0] * len(labelled), []
    for cable in cables:
        (a, _), (b, _) = cable.a, cable.b
        if a in place and b in place:
            between.append((place[a], place[b]))
        for here, there in ((a, b), (b, a)):
            device = discovery.devices[there]
            if here in place and device.kind is Kind.ADAPTER:
                # Every switch has an aggregation node, which does not make it a leaf.
                hosts[place[here]] += not _AGGREGATION.search(device.name)
    tiers = find_tiers(
        between,
        hosts,
        [d.name for d, _ in labelled],
        [d.chassis for d, _ in labelled],
        [discovery.level[d.key] for d, _ in labelled] if discovery.level else None,
    )
    order = np.argsort(tiers.tier, kind="stable")
    number: dict[int, int] = {-1: -1}
    pods = [number.setdefault(int(p), len(number) - 1) for p in tiers.pod[order]]
    return (
        [labelled[old] for old in order],
        tiers.tier[order],
        np.array(pods, np.int32),
        tiers.notes,
    )


def _links(
    cables: list[Cable], nodes: list[_Node], switches: dict[str, int]
) -> list[tuple[int, int, int, int, float]]:
    """Both directions of each cable, side by side, by their lower vertex and its port.

    A row is (source, destination, source port, destination port, gigabits per second).
    """
    vertex = {(node.device.key, node.port): i for i, node in enumerate(nodes)}

    def at(end: tuple[str, int]) -> tuple[int, int]:
        key, port = end
        return (vertex[end] if end in vertex else len(nodes) + switches[key]), port

    rows = []
    for cable in cables:
        (a, p, there), (b, q, back) = sorted(
            ((*at(cable.a), cable.gbps), (*at(cable.b), cable.back_gbps))
        )
        rows.append((a, p, b, q, there, back))
    return [
        link
        for a, p, b, q, there, back in sorted(rows)
        for link in ((a, b, p, q, there), (b, a, q, p, back))
    ]


def _own_names(names: dict[tuple[str, int], str], ends: list[tuple[str, int]]) -> list[str] | None:
    """Names in the file for the ends that links leave; None if it has none."""
    return [names.get(end, "") for end in ends] if names else None


# --- connected components ---------------------------------------------------------------------


def connected_components(fabric: Fabric) -> list[NDArray[np.int64]]:
    """The connected components of a fabric.

    Returns:
        The vertices of each component, ascending; most nodes first, then most vertices.
    """
    count = fabric.n_nodes + fabric.n_switches
    if not count:
        return []
    edges = coo_array(
        (np.ones(fabric.n_links, np.int8), (fabric.link_src, fabric.link_dst)), (count, count)
    )
    _, label = _label(edges, directed=False)
    parts = np.split(np.argsort(label, kind="stable"), np.cumsum(np.bincount(label))[:-1])
    parts.sort(key=lambda part: (-int((part < fabric.n_nodes).sum()), -len(part), int(part[0])))
    return [part.astype(np.int64) for part in parts]


def _describe_part(fabric: Fabric, part: NDArray[np.int64]) -> str:
    nodes = int((part < fabric.n_nodes).sum())
    return f"{nodes} nodes and {len(part) - nodes} switches ({fabric.vertex_name(int(part[0]))!r})"


def largest_component(fabric: Fabric) -> Fabric:
    """Return the component with the most nodes as a fabric, with a note on the others.

    Tiers and pods are kept, and so is the order of nodes, switches and links.
    """
    parts = connected_components(fabric)
    if len(parts) <= 1:
        return fabric
    keep = parts[0]
    nodes, switches = keep[keep < fabric.n_nodes], keep[keep >= fabric.n_nodes] - fabric.n_nodes
    vertex = np.full(fabric.n_nodes + fabric.n_switches, -1, np.int64)
    vertex[keep] = np.arange(len(keep))
    links = np.flatnonzero(vertex[fabric.link_src] >= 0)
    renumber = np.zeros(fabric.n_links, np.int64)
    renumber[links] = np.arange(len(links))
    hosts, node_host = np.unique(fabric.node_host[nodes], return_inverse=True)
    dropped = len(vertex) - len(keep)
    return Fabric(
        name=fabric.name,
        node_name=[fabric.node_name[n] for n in nodes],
        node_host=node_host.astype(np.uint32),
        host_name=[fabric.host_name[h] for h in hosts],
        switch_name=[fabric.switch_name[s] for s in switches],
        switch_tier=fabric.switch_tier[switches],
        switch_pod=fabric.switch_pod[switches],
        link_src=vertex[fabric.link_src[links]].astype(np.uint32),
        link_dst=vertex[fabric.link_dst[links]].astype(np.uint32),
        link_src_port=fabric.link_src_port[links],
        link_dst_port=fabric.link_dst_port[links],
        link_gbps=fabric.link_gbps[links],
        nominal_gbps=None if fabric.nominal_gbps is None else fabric.nominal_gbps[links],
        link_delay_ps=fabric.link_delay_ps[links],
        link_reverse=renumber[fabric.link_reverse[links]].astype(np.uint32),
        notes=[
            *fabric.notes,
            f"only the largest part is kept; {dropped} nodes and switches left out",
        ],
        link_interface=chosen(fabric.link_interface, links),
        link_id=chosen(fabric.link_id, links),
        link_speed=chosen(fabric.link_speed, links),
        host_gbps=None if fabric.host_gbps is None else fabric.host_gbps[hosts],
    )


def _note_islands(fabric: Fabric) -> None:
    parts = connected_components(fabric)
    if len(parts) > 1:
        islands = [_describe_part(fabric, part) for part in parts[1:]]
        fabric.notes.append(tally("parts without a connection to the rest", islands))
