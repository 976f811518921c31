"""Location of each benchmark, from options and from its output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tailback.calibration.fitted_series import Placed
from tailback.calibration.model import BenchmarkData, CalibrationError, Series
from tailback.calibration.routes import LOCAL, Machine, Route
from tailback.errors import PlacementError, nearest
from tailback.fabric.model import Fabric
from tailback.names.hosts import expand_hosts
from tailback.placement.hosts import slots_from_spec


def split_hosts(text: str | Path) -> tuple[Path, str | None]:
    """A file and the hosts given with it as ``FILE@HOSTS``.

    An existing file with ``@`` in its name is taken literally.
    """
    path = Path(text)
    if path.exists() or "@" not in str(text):
        return path, None
    name, _, hosts = str(text).rpartition("@")
    return Path(name), hosts


def host_names(spec: str, fabric: Fabric | None) -> list[str]:
    """Host of each rank that a specification names, in its order.

    Args:
        spec: As ``--hosts``: numbers and ranges (with a fabric), or names ``node[001-004]``; with a
            fabric also several ranks on each, ``node[001-004]:16``.
        fabric: The fabric, where it is known.

    Raises:
        PlacementError: A host does not exist, or the text cannot be read.
    """
    if fabric is None:
        names = expand_hosts(spec)
        if not names:
            raise PlacementError(
                f"{spec[:80]!r} names no host", remedy="write hosts like node001,node002"
            )
        return names
    hosts, ranks = slots_from_spec(spec, fabric, 1)
    return [fabric.host_name[host] for host, n in zip(hosts, ranks, strict=True) for _ in range(n)]


def placed(
    data: BenchmarkData, hosts: Sequence[str], machine: Machine | None, path: Path
) -> list[Placed]:
    """The series of a file with the paths on which they were measured.

    Args:
        data: What the file holds.
        hosts: Hosts of its ranks in rank order, each once or several times; empty where unknown.
        machine: Paths of the fabric; None without a fabric.
        path: The file, for errors.

    Raises:
        CalibrationError: There are too many hosts for the test.
        PlacementError: A host is not in the fabric.
        FabricError: There is no path between two hosts.
    """
    names = list(dict.fromkeys(hosts or data.hosts))
    out = []
    for series in data.series:
        if series.pairs == 1 and len(names) > 2:
            raise CalibrationError(
                f"{series.source} runs between two hosts, and {len(names)} are named",
                file=path,
                remedy=f"name the two it ran on: {path.name}@{names[0]},{names[1]}",
            )
        route = _route(series, names, machine, path)
        out.append(Placed(_per_adapter(series, names), route, tuple(names)))
    return out


def _per_adapter(series: Series, names: Sequence[str]) -> Series:
    """The share of one host in a rate that several reached together."""
    senders = len(names) // 2
    if series.quantity != "stream" or series.layer != "mpi" or senders < 2:
        return series
    return replace(
        series, time_ps=series.time_ps * senders, resolution_ps=series.resolution_ps * senders
    )


def _route(
    series: Series, names: Sequence[str], machine: Machine | None, path: Path
) -> Route | None:
    if len(names) == 1:
        return LOCAL
    if machine is None or not names:
        return None
    number = {name: i for i, name in reversed(list(enumerate(machine.fabric.host_name)))}
    for name in names:
        if name not in number:
            raise PlacementError(
                f"host {name[:80]!r} of {path.name} is not in the fabric",
                remedy=nearest(name, number),
            )
    hosts = [number[name] for name in names]
    if series.pairs == 0:
        return _mean_route(machine, hosts)
    # The first half of the ranks sends to the second.
    return machine.route(hosts[0], hosts[len(hosts) // 2])


def _mean_route(machine: Machine, hosts: Sequence[int]) -> Route:
    """The mean path between hosts in random order."""
    first, second = (grid.reshape(-1) for grid in np.meshgrid(hosts, hosts))
    apart = first != second
    switches = machine.switches(first[apart], second[apart])
    distances, at, count = np.unique(switches, return_index=True, return_counts=True)
    some = [machine.route(int(first[apart][i]), int(second[apart][i])) for i in at.tolist()]
    share = count / count.sum()
    return Route(
        float(share @ distances),
        float(share @ [route.cable_ps for route in some]),
        min(route.line_gbps for route in some),
    )
