"""Slurm's ``topology.conf``, and what ``scontrol show topology`` prints: switches and their hosts.

A line is a switch with the hosts or the switches below it, as host lists::

    SwitchName=leaf1 Nodes=cn[001-018]
    SwitchName=leaf2 Nodes=cn[019-036]
    SwitchName=spine Switches=leaf[1-2]

or, for the plugin topology/block, a block of hosts: ``BlockName=b1 Nodes=cn[001-018]``. The format
has neither rates nor numbers of cables: see :mod:`tailback.fabric.uncounted_cables`. Format:
topology.conf(5) of Slurm 24.11 and 25.05.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tailback.errors import FabricError, PlacementError, nearest
from tailback.fabric.ibnetdiscover import Discovery, Kind, clip, tally
from tailback.names.hosts import MAX_HOSTS, expand_hosts

BETWEEN_BLOCKS = "between blocks"
"""Name of the switch that joins blocks, which Slurm does not name."""

_LINE = re.compile(
    r"^[^\S\n]*(?:SwitchName|BlockName|AggregatedBlock|RingName|BlockSizes)[^\S\n]*=",
    re.IGNORECASE | re.MULTILINE,
)
_SETTING = re.compile(r"([A-Za-z]\w*)\s*=\s*(\"[^\"]*\"|\S*)(?=\s|\Z)\s*", re.ASCII)
_KEYS = {
    "switchname": ("switches", "nodes", "linkspeed", "level"),
    "blockname": ("nodes", "blockindex", "blocksize"),
}
"""Keys of a line by its first key; ``scontrol show topology`` adds level and block numbers."""

_FORM = "a line reads like: SwitchName=leaf1 Nodes=cn[1-18], or SwitchName=top Switches=leaf[1-2]"


@dataclass(slots=True)
class Group:
    """A switch or block of Slurm with its hosts and children.

    Attributes:
        name: Its name.
        line: Line in the file, from 1.
        hosts: Host list of the hosts at it; empty without any.
        children: Host list of the switches below it; empty without any.
    """

    name: str
    line: int
    hosts: str = ""
    children: str = ""


@dataclass
class GroupTree:
    """The switches, or the blocks, of one topology of Slurm.

    Attributes:
        groups: Its switches or blocks in the order of the file.
        blocks: Whether they are blocks.
        notes: Notes for the user.
    """

    groups: list[Group]
    blocks: bool = False
    notes: list[str] = field(default_factory=list)


class SlurmTopology:
    """Slurm's topology.conf or `scontrol show topology`: switches and hosts, no rates or cables."""

    def recognises(self, text: str) -> bool:
        """Whether a line starts as those of topology.conf do."""
        return _LINE.search(text) is not None

    def parse(self, text: str) -> Discovery:
        """Parse the text; raises FabricError with the number of a line that cannot be read."""
        groups: list[Group] = []
        kinds: dict[str, int] = {}
        speeds: list[str] = []
        for number, line in _join_lines(text):
            settings = _settings(line, number)
            first = next(iter(settings))
            if first in ("blocksizes", "aggregatedblock"):
                continue
            if first == "ringname":
                raise FabricError(
                    "a ring of Slurm is an order of hosts, not a network",
                    place=f"line {number}",
                    remedy='describe the ring: [fabric] topology = { kind = "torus", … }',
                )
            kinds.setdefault(first, number)
            groups.append(_group(settings, first, number))
            if settings.get("linkspeed", "1") not in ("0", "1"):
                speeds.append(f"{groups[-1].name}: {settings['linkspeed'][:20]}")
        if len(kinds) > 1:
            raise FabricError(
                "switches and blocks in one file",
                place=f"line {max(kinds.values())}",
                remedy="leave out those of the plugin that Slurm does not use",
            )
        discovery = build_discovery(GroupTree(groups, blocks="blockname" in kinds))
        if speeds:
            discovery.notes.append(
                tally("LinkSpeed, which has no unit in Slurm, is not used", speeds)
            )
        return discovery


def _join_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, each with the number of its first; a backslash continues a line."""
    begun, start = "", 0
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.split("#", 1)[0].rstrip()
        # A list may go on in the next line, after its indentation.
        begun += line.lstrip() if begun.endswith(",") else line
        start = start or number
        if line.endswith("\\"):
            begun = begun[:-1]
            continue
        if begun.strip():
            yield start, begun.strip()
        begun, start = "", 0
    if begun.strip():
        yield start, begun.strip()


def _settings(line: str, number: int) -> dict[str, str]:
    """The settings of a line by key in lower case, the name first."""
    if re.match(r"include\b", line, re.IGNORECASE):
        raise FabricError(
            f"{clip(line, 60)} refers to another file",
            place=f"line {number}",
            remedy="put the lines of that file in its place",
        )
    out: dict[str, str] = {}
    at = 0
    while at < len(line):
        match = _SETTING.match(line, at)
        if match is None:
            raise FabricError(
                f"{clip(line[at:], 60)} is not a setting", place=f"line {number}", remedy=_FORM
            )
        key, at = match[1].lower(), match.end()
        if key in out:
            raise FabricError(f"{match[1]} is given twice", place=f"line {number}", remedy=_FORM)
        out[key] = match[2].strip('"').strip()
        if _SETTING.match(out[key]):
            raise FabricError(f"{match[1]} has no value", place=f"line {number}", remedy=_FORM)
        first = next(iter(out))
        if first not in (*_KEYS, "ringname", "blocksizes", "aggregatedblock"):
            raise FabricError(
                f"a line cannot begin with {clip(match[1], 40)}",
                place=f"line {number}",
                remedy=_FORM,
            )
        if key != first and first in _KEYS and key not in _KEYS[first]:
            raise FabricError(
                f"a switch or block has no {clip(match[1], 40)}",
                place=f"line {number}",
                remedy=nearest(key, _KEYS[first]),
            )
    return out


def _group(settings: dict[str, str], first: str, number: int) -> Group:
    if not settings[first]:
        raise FabricError("a switch or block without a name", place=f"line {number}", remedy=_FORM)
    # Slurm prints all hosts below a switch; only those of level 0 are cabled to it.
    above = settings.get("level", "0") != "0"
    return Group(
        settings[first],
        number,
        "" if above else settings.get("nodes", ""),
        settings.get("switches", ""),
    )


def build_discovery(tree: GroupTree) -> Discovery:
    """Devices and joined devices of a topology of Slurm.

    Raises:
        FabricError: A switch is given twice or missing, is below itself, or a list of hosts cannot
            be read; the error names the line.
    """
    discovery = Discovery(
        notes=tree.notes,
        remedy_without_rates="Slurm's topology has no rates: for true cables and rates use "
        "ibnetdiscover",
    )
    line_of: dict[str, int] = {}
    for group in tree.groups:
        if group.name in line_of:
            raise FabricError(
                f"{clip(group.name, 40)} is given already in line {line_of[group.name]}",
                place=f"line {group.line}",
                remedy="give every switch or block one name",
            )
        line_of[group.name] = group.line
        discovery.device(_switch(group.name), Kind.SWITCH, group.name, group.name)
    for group in tree.groups:
        _add_hosts(group, discovery)
        for name in _names(group.children, group):
            if name not in line_of:
                raise FabricError(
                    f"there is no switch {clip(name, 40)}, which is said to be below "
                    f"{clip(group.name, 40)}",
                    place=f"line {group.line}",
                    remedy=nearest(name, line_of),
                )
            discovery.uncounted.append((_switch(name), _switch(group.name), group.line))
    if not any(device.kind is Kind.ADAPTER for device in discovery.devices.values()):
        raise FabricError(
            "no switch has hosts",
            place=f"line {tree.groups[0].line if tree.groups else 1}",
            remedy=_FORM,
        )
    if tree.blocks and len(tree.groups) > 1:
        _join_blocks(tree, discovery)
    return discovery


def _add_hosts(group: Group, discovery: Discovery) -> None:
    """Add the hosts at a switch; FabricError if there are too many at all switches together."""
    names = _names(group.hosts, group)
    if len(discovery.uncounted) + len(names) > MAX_HOSTS:
        raise FabricError(
            f"more than {MAX_HOSTS:,} hosts",
            place=f"line {group.line}",
            remedy="check the lists of hosts",
        )
    for name in names:
        discovery.device(f"host {name}", Kind.ADAPTER, name, name)
        discovery.uncounted.append((f"host {name}", _switch(group.name), group.line))


def _join_blocks(tree: GroupTree, discovery: Discovery) -> None:
    """Add a switch above the blocks: Slurm does not describe how they are joined."""
    top = _switch(BETWEEN_BLOCKS + " ")
    discovery.device(top, Kind.SWITCH, BETWEEN_BLOCKS, BETWEEN_BLOCKS)
    discovery.uncounted += [(_switch(group.name), top, group.line) for group in tree.groups]
    discovery.notes.append(
        f"blocks say which hosts are close, not how they are cabled: each of the "
        f"{len(tree.groups)} is taken for a leaf switch, and one switch joins them"
    )


def _switch(name: str) -> str:
    return f"switch {name}"


def _names(listed: str, group: Group) -> list[str]:
    """The names of a host list, each once; FabricError names the line of the group."""
    try:
        names = expand_hosts(listed)
    except PlacementError as error:
        raise FabricError(error.message, place=f"line {group.line}", remedy=error.remedy) from None
    if any(name.upper() == "ALL" for name in names):
        raise FabricError(
            f"{clip(group.name, 40)} has ALL hosts, without their names",
            place=f"line {group.line}",
            remedy="list them, as sinfo -hN -o %N prints them",
        )
    return list(dict.fromkeys(names))
