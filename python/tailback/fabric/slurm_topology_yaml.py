"""Slurm's ``topology.yaml`` (25.05 and newer): several topologies, of which one is read.

Each is a tree of switches or a list of blocks, with hosts as host lists::

    - topology: main
      cluster_default: true
      tree:
        switches:
          - switch: leaf1
            nodes: cn[001-018]
          - switch: spine
            children: leaf1

The tree or blocks with ``cluster_default: true`` are read, else the first. Format:
topology.yaml(5). As in topology.conf there are neither rates nor numbers of cables.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any

from tailback.errors import FabricError, nearest
from tailback.fabric.ibnetdiscover import Discovery, clip, tally
from tailback.fabric.slurm_topology import Group, GroupTree, build_discovery
from tailback.io.delimited import not_used

_BEGINNING = re.compile(
    r"\A(?:\s|#[^\n]*(?:\n|\Z)|---[^\n]*\n|%[^\n]*\n)*(?:-\s+|\[\s*\{\s*)[\"']?topology[\"']?\s*:"
)
_KINDS = ("tree", "block", "flat", "ring", "torus3d")
_KEYS = {
    "topology": ("topology", "cluster_default", *_KINDS),
    "tree": ("switches",),
    "block": ("block_sizes", "blocks"),
    "switches": ("switch", "children", "nodes"),
    "blocks": ("block", "nodes"),
}
_FORM = "see topology.yaml(5), or print it again: scontrol show topoconf"
_OTHERWISE = {
    "flat": "a flat topology of Slurm has no switches",
    "ring": "a ring of Slurm is an order of hosts, not a network",
    "torus3d": "the torus of Slurm is a placement of hosts without rates",
}
_DESCRIBE = {
    "flat": "give the network itself: ibnetdiscover > fabric.txt",
    "ring": 'describe the network: [fabric] topology = { kind = "torus", … }',
    "torus3d": 'describe the network: [fabric] topology = { kind = "torus", … }',
}


class SlurmTopologyYaml:
    """Slurm's topology.yaml: switches and hosts of the default topology, no rates or cables."""

    def recognises(self, text: str) -> bool:
        """Whether the text begins as a list of topologies."""
        return _BEGINNING.match(text[: 1 << 16]) is not None

    def parse(self, text: str) -> Discovery:
        """Parse the text; raises FabricError with the number of a line that cannot be read."""
        topologies = _entries(_parse_yaml(text), "the file")
        parsed = [_mapping(node, "topology") for node in topologies]
        usable = [topology for topology in parsed if "tree" in topology or "block" in topology]
        stated = [
            topology
            for topology in parsed
            if _text(topology.get("cluster_default")).lower() == "true"
        ]
        default = [topology for topology in usable if topology in stated]
        chosen = (default or usable or parsed or [{}])[0]
        kind = next((kind for kind in _KINDS if kind in chosen), None)
        if kind is None or kind in _OTHERWISE:
            line = _line(topologies[parsed.index(chosen)]) if parsed else 1
            what = _OTHERWISE.get(kind or "", "the file has no tree or blocks")
            raise FabricError(what, place=f"line {line}", remedy=_DESCRIBE.get(kind or "", _FORM))
        tree = _tree(chosen[kind]) if kind == "tree" else _blocks(chosen[kind])
        tree.notes += not_used(
            [name for name in chosen if name not in _KEYS["topology"]], "settings"
        )
        others = [
            clip(_text(topology.get("topology")), 40)
            for topology in parsed
            if topology is not chosen
        ]
        if others:
            tree.notes.append(
                f"topology {clip(_text(chosen.get('topology')), 40)} is read; "
                + tally("others left out", others)
            )
        return build_discovery(tree)


def _parse_yaml(text: str) -> Any:
    """The nodes of the YAML; raises FabricError."""
    # Deferred: only needed for this format.
    import yaml

    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise FabricError(
            f"this is not YAML: {clip(error.problem or error.context or '', 80)}",
            place=f"line {mark.line + 1 if mark else 1}",
            remedy=_FORM,
        ) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise FabricError(
            f"this is not YAML: the character {clip(chr(error.character), 4)} is not allowed",
            place=f"line {line}",
            remedy=_FORM,
        ) from None
    except RecursionError:
        raise FabricError("this YAML is nested too deeply", place="line 1", remedy=_FORM) from None
    if node is None:
        raise FabricError("this YAML is empty", place="line 1", remedy=_FORM)
    return node


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1


def _entries(node: Any, what: str) -> list[Any]:
    """The elements of a sequence; raises FabricError if it is something else."""
    if node.id != "sequence":
        raise FabricError(
            f"{what} is not a list, whose lines begin with a dash",
            place=f"line {_line(node)}",
            remedy=_FORM,
        )
    return list(node.value)


def _mapping(node: Any, what: str) -> dict[str, Any]:
    """The values of a mapping by key; raises FabricError for a misspelled or repeated key."""
    if node.id != "mapping":
        raise FabricError(
            f"an element of {what} has no keys", place=f"line {_line(node)}", remedy=_FORM
        )
    out: dict[str, Any] = {}
    for key, value in node.value:
        name = _text(key)
        # Newer versions may have more settings of a topology; a switch has none but its hosts.
        lists_hosts = what in ("switches", "blocks")
        if name not in _KEYS[what] and (lists_hosts or get_close_matches(name, _KEYS[what])):
            raise FabricError(
                f"{clip(name, 40)} is no key of {what}",
                place=f"line {_line(key)}",
                remedy=nearest(name, _KEYS[what]),
            )
        if name in out:
            raise FabricError(
                f"{name} is given twice", place=f"line {_line(key)}", remedy="leave out one"
            )
        out[name] = value
    return out


def _text(node: Any) -> str:
    """The text of a scalar; empty without one. Raises FabricError for a list or mapping."""
    if node is None:
        return ""
    if node.id != "scalar":
        raise FabricError(
            "there is a list where a name or host list is expected",
            place=f"line {_line(node)}",
            remedy="write it in one line, like nodes: cn[001-018,020]",
        )
    return "" if node.tag.endswith(":null") else str(node.value)


def _tree(node: Any) -> GroupTree:
    tree = _mapping(node, "tree")
    if "switches" not in tree:
        raise FabricError("tree has no switches", place=f"line {_line(node)}", remedy=_FORM)
    groups = []
    for entry in _entries(tree["switches"], "switches"):
        about = _mapping(entry, "switches")
        groups.append(
            Group(
                _named(about, "switch", entry),
                _line(entry),
                _text(about.get("nodes")),
                _text(about.get("children")),
            )
        )
    return GroupTree(groups)


def _blocks(node: Any) -> GroupTree:
    block = _mapping(node, "block")
    if "blocks" not in block:
        raise FabricError("block has no blocks", place=f"line {_line(node)}", remedy=_FORM)
    groups = []
    for entry in _entries(block["blocks"], "blocks"):
        about = _mapping(entry, "blocks")
        groups.append(Group(_named(about, "block", entry), _line(entry), _text(about.get("nodes"))))
    return GroupTree(groups, blocks=True)


def _named(about: dict[str, Any], key: str, node: Any) -> str:
    name = _text(about.get(key))
    if not name:
        raise FabricError(f"a {key} without a name", place=f"line {_line(node)}", remedy=_FORM)
    return name
