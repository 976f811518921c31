"""The default hosts of a job: the compute nodes, as far as a fabric identifies them.

A discovered fabric contains every connected adapter: storage servers, login and management nodes,
unnamed adapters. They differ from compute nodes in the number or rate of their adapters, or by
their names. Ranks are placed on them only if a user names them.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np

from tailback.errors import option
from tailback.fabric.model import Fabric
from tailback.identity_cache import PerObject

SERVICES = frozenset(
    {
        "admin",
        "archive",
        "backup",
        "cache",
        "dtn",
        "gateway",
        "gpfs",
        "gw",
        "lnet",
        "login",
        "lustre",
        "management",
        "mds",
        "mdt",
        "mgmt",
        "mgs",
        "mgt",
        "nas",
        "nfs",
        "nsd",
        "oss",
        "ost",
        "router",
        "slurm",
        "storage",
        "swift",
        "ufm",
        "visu",
    }
)
"""Words in the names of service hosts, in lower case."""

_UNNAMED = re.compile(r"\s|\A(?:0x)?[0-9a-f]{16}\Z", re.IGNORECASE)
"""Default names of adapters: the vendor's description, the GUID."""

_WORDS = re.compile(r"[^\W\d_]+")

_NAMED = 3
"""Kinds of hosts left out that :attr:`ComputeHosts.left_out` describes; it counts the others."""


@dataclass(frozen=True)
class _Kind:
    """Common properties of hosts of one kind.

    Attributes:
        service: The word of their names that shows their service, empty for none.
        unnamed: Whether they have default names.
        adapters: Adapters with a cable.
        gbps: Distinct rates of those, in gigabits per second.
    """

    service: str
    unnamed: bool
    adapters: int
    gbps: tuple[float, ...]

    def __str__(self) -> str:
        if not self.adapters:
            return "no cable"
        if self.service:
            return f"{self.service!r} in the name"
        rates = "/".join(f"{rate:g}" for rate in self.gbps)
        return "no name" if self.unnamed else f"{self.adapters} × {rates} Gb/s"


@dataclass(frozen=True)
class ComputeHosts:
    """The hosts a job gets by default.

    Attributes:
        hosts: Their numbers, in the order of the fabric.
        left_out: Which hosts were left out, and why; empty if none.
        remedy: How to include them.
    """

    hosts: tuple[int, ...]
    left_out: str = ""
    remedy: str = ""

    @property
    def note(self) -> str:
        """Which hosts were left out, why, and how to use them; empty if none."""
        return f"{self.left_out}. To use them too: {self.remedy}" if self.left_out else ""


def compute_hosts(fabric: Fabric) -> ComputeHosts:
    """The most numerous kind of hosts in a fabric that are not service hosts.

    A kind is the number and nominal rates of a host's connected adapters, whether it has a default
    name, and whether its name contains one of :data:`SERVICES`. Of kinds with equally many hosts,
    the one with more bandwidth is chosen. They are found once for a fabric.
    """
    return _found(fabric)


def _find(fabric: Fabric) -> ComputeHosts:
    """See :func:`compute_hosts`."""
    kinds = _kinds(fabric)
    count = Counter(kinds)
    if len(count) <= 1:
        return ComputeHosts(tuple(range(fabric.n_hosts)))
    usual = max(
        count,
        key=lambda kind: (
            kind.adapters > 0,
            not kind.service,
            count[kind],
            not kind.unnamed,
            kind.adapters * sum(kind.gbps),
            str(kind),
        ),
    )
    hosts = tuple(host for host, kind in enumerate(kinds) if kind == usual)
    return ComputeHosts(
        hosts, _left_out_note(fabric, kinds, usual), option("hosts", f"0-{fabric.n_hosts - 1}")
    )


_found = PerObject(_find)


def _kinds(fabric: Fabric) -> list[_Kind]:
    nominal = fabric.link_gbps if fabric.nominal_gbps is None else fabric.nominal_gbps
    rates: list[list[float]] = [[] for _ in range(fabric.n_nodes)]
    for link in np.flatnonzero(fabric.link_src < fabric.n_nodes).tolist():
        rates[int(fabric.link_src[link])].append(float(nominal[link]))
    out = []
    for name, nodes in zip(fabric.host_name, fabric.host_nodes(), strict=True):
        cabled = [rates[node] for node in nodes if rates[node]]
        words = {word.lower() for word in _WORDS.findall(name)}
        unnamed = not name or _UNNAMED.search(name) is not None
        out.append(
            _Kind(
                service="" if unnamed else min(words & SERVICES, default=""),
                unnamed=unnamed,
                adapters=len(cabled),
                gbps=tuple(sorted({rate for each in cabled for rate in each})),
            )
        )
    return out


def _left_out_note(fabric: Fabric, kinds: list[_Kind], usual: _Kind) -> str:
    out = Counter(kind for kind in kinds if kind != usual)
    parts = []
    for kind, number in out.most_common(_NAMED):
        example = fabric.host_name[kinds.index(kind)]
        example = example if len(example) <= 20 else f"{example[:19]}…"
        parts.append(f"{number} ({kind}, like {example})" if number > 1 else f"{example} ({kind})")
    unnamed = sum(out.values()) - sum(number for _, number in out.most_common(_NAMED))
    if unnamed:
        parts.append(f"{unnamed} more")
    return (
        f"hosts left out, as they are not compute hosts like the other {kinds.count(usual)} "
        f"({usual}): {', '.join(parts)}"
    )
