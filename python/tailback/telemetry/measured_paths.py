"""Paths of flows that were measured, from CSV: for switches whose hash is not public.

``paths.csv`` has a row for each flow: ``source,destination,entropy,path``. The path lists the names
of the switches in order, separated by spaces, as a traceroute with the flow's ports shows them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import polars as pl

from tailback.errors import nearest
from tailback.fabric.model import Fabric
from tailback.io.delimited import Delimited, not_used, parse
from tailback.io.input_files import content
from tailback.telemetry.captured import PATHS, CaptureError, unique_names

_COLUMNS: Final = {
    "source": ("source", "src", "src_host"),
    "destination": ("destination", "dst", "dst_host"),
    "entropy": ("entropy", "source_port", "udp_source_port"),
    "path": ("path", "switches"),
}


def read_paths(folder: Path | None, fabric: Fabric) -> tuple[pl.DataFrame | None, list[str]]:
    """Read the measured paths of a folder of contexts.

    Returns:
        ``src_node, dst_node, entropy, links`` with the links after the injection link, and notes;
        None without the file.

    Raises:
        CaptureError: The file cannot be read, or a path is not one of the fabric.
    """
    file = None if folder is None else folder / PATHS
    if file is None or not file.is_file():
        return None, []
    data = content(file, CaptureError)
    table = parse(data, _COLUMNS, tuple(_COLUMNS), path=file, error_type=CaptureError)
    reader = _PathReader(table, fabric)
    entropy = table.number("entropy", integer=True)
    wrong = entropy.is_null() | (entropy < 0) | (entropy >= 1 << 16)
    if wrong.any():
        row = int(wrong.arg_true()[0])
        raise table.error_at(
            "entropy",
            int(table.rows["line"][row]),
            f"{str(table.rows['entropy'][row])[:40]!r} is not 0 to 65535",
            "write the UDP source port",
        )
    paths = [reader.links(row) for row in table.rows.select("line", *_COLUMNS).iter_rows()]
    frame = pl.DataFrame(
        {
            "src_node": [source for source, _, _ in paths],
            "dst_node": [target for _, target, _ in paths],
            "entropy": entropy.cast(pl.Int64),
            "links": pl.Series([links for _, _, links in paths], dtype=pl.List(pl.UInt32)),
        }
    )
    notes = [f"{PATHS}: {note}" for note in not_used(table.unused)]
    return frame.unique(["src_node", "dst_node", "entropy"], keep="first"), notes


class _PathReader:
    """Resolves names of nodes and switches of one file."""

    def __init__(self, table: Delimited, fabric: Fabric) -> None:
        self._table, self._fabric = table, fabric
        self._nodes = unique_names(fabric)
        self._switches = {name: number for number, name in enumerate(fabric.switch_name)}
        ends = zip(fabric.link_src.tolist(), fabric.link_dst.tolist(), strict=True)
        self._links = dict[tuple[int, int], list[int]]()
        for link, between in enumerate(ends):
            self._links.setdefault(between, []).append(link)

    def links(self, row: tuple[object, ...]) -> tuple[int, int, list[int]]:
        """Source, destination and links of a row ``line, source, destination, entropy, path``."""
        line = int(str(row[0]))
        source, target = (
            self._named(role, line, str(name), self._nodes)
            for role, name in (("source", row[1]), ("destination", row[2]))
        )
        n = self._fabric.n_nodes
        through = [
            n + self._named("path", line, name, self._switches) for name in str(row[4]).split()
        ]
        links = []
        for near, far in zip([source, *through], [*through, target], strict=True):
            cables = self._links.get((near, far), [])
            if len(cables) != 1:
                what = "several links" if cables else "no link"
                raise self._table.error_at(
                    "path",
                    line,
                    f"{what} from {self._name(near)!r} to {self._name(far)!r}",
                    "list each switch of the path once, in order; links in parallel cannot be told "
                    "apart by it",
                )
            links.append(cables[0])
        return source, target, links[1:]

    def _name(self, vertex: int) -> str:
        beyond = vertex - self._fabric.n_nodes
        return self._fabric.node_name[vertex] if beyond < 0 else self._fabric.switch_name[beyond]

    def _named(self, role: str, line: int, name: str, numbers: dict[str, int]) -> int:
        if name not in numbers:
            kind = "switch" if role == "path" else "node"
            raise self._table.error_at(
                role, line, f"the fabric has no {kind} {name[:40]!r}", nearest(name[:40], numbers)
            )
        return numbers[name]
