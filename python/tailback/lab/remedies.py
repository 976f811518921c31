"""Remedies in a lab: what a diagnosis recommends, applied to the setting of a run."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailback.io.input_files import text_content
from tailback.lab.causes import Setting, place_ranks
from tailback.lab.plan import Plan
from tailback.lab.spec import LabError

STATIC_ROUTES = ("static-routing", "d-mod-k-tables")
"""Changes of the routing that give every destination one path."""

EVEN_ROUTES = "even-routes"
"""The change of the routing that uses all spines alike: by a hash, as a lab without causes does."""


@dataclass(frozen=True)
class RecommendedChange:
    """What a diagnosis recommends.

    Attributes:
        folder: The diagnosis, for errors.
        kinds: Kind of each change that it combines, by name.
        rank_file: File with the host of each rank; None without a placement.
        rates_file: File with the rate of each pair of ranks; None without explicit rates.
        cables: Names of the cables to repair.
    """

    folder: Path
    kinds: Mapping[str, str]
    rank_file: Path | None = None
    rates_file: Path | None = None
    cables: Sequence[str] = ()


def apply_change(change: RecommendedChange, setting: Setting, plan: Plan) -> None:
    """Apply every part of a recommended change.

    Raises:
        LabError: The lab cannot make such a change, or it is for another lab.
        PlacementError: The rank file cannot be read.
    """
    for name, kind in change.kinds.items():
        if kind not in _APPLY:
            raise LabError(
                f"recommends {name!r}, a change of {kind}, which the lab cannot make",
                file=change.folder,
                remedy=f"make that change yourself{_meanwhile(change)}",
            )
    # Rates are those of pairs of ranks, so ranks are placed first.
    for name, kind in sorted(change.kinds.items(), key=lambda part: list(_APPLY).index(part[1])):
        _APPLY[kind](name, change, setting, plan)
        setting.remedies.append(name)


def _meanwhile(change: RecommendedChange) -> str:
    """What to give instead of a change that the lab cannot make."""
    if change.rank_file is None:
        return ""
    return f", or give --rankfile {change.rank_file}, the placement to use meanwhile"


def _place(name: str, change: RecommendedChange, setting: Setting, plan: Plan) -> None:
    if change.rank_file is None:
        raise LabError(
            f"has no rank file of placement {name!r}", file=change.folder, remedy="diagnose again"
        )
    place_ranks(change.rank_file, setting, plan)


def _repair(_name: str, change: RecommendedChange, setting: Setting, plan: Plan) -> None:
    """Give the cables that the diagnosis names, and no others, their nominal rate."""
    for cable in change.cables:
        ends = [node for node in dict.fromkeys(re.findall(r"\w+", cable)) if node in plan.nodes]
        links = plan.cable(*ends) if len(ends) == 2 else None
        if links is None:
            raise LabError(
                f"names the cable {cable!r}, which lab {plan.spec.name!r} does not have",
                file=change.folder,
                remedy="give a diagnosis of a run in this lab",
            )
        for link in links:
            setting.rates_bps.pop(link.number, None)
        ends_of = f"{links[0].source}-{links[0].target}"
        setting.causes = [cause for cause in setting.causes if cause.get("cable") != ends_of]


def _route(name: str, change: RecommendedChange, setting: Setting, plan: Plan) -> None:
    if name not in (*STATIC_ROUTES, EVEN_ROUTES):
        raise LabError(
            f"recommends {name!r}: switches of the lab choose paths by a hash or by the "
            "destination, not by load",
            file=change.folder,
            remedy=f"diagnose with other remedies (--remedy){_meanwhile(change)}",
        )
    setting.spines, setting.static = list(plan.spines), name in STATIC_ROUTES
    setting.causes = [cause for cause in setting.causes if cause["kind"] != "one-spine"]


def _limit_rates(name: str, change: RecommendedChange, setting: Setting, plan: Plan) -> None:
    """Limit what each host sends to the rates of all its messages together."""
    file = change.rates_file
    if file is None:
        raise LabError(f"has no rates of {name!r}", file=change.folder, remedy="diagnose again")
    # Messages of ranks on the same two hosts are one flow with one rate.
    flows: dict[str, dict[str, float]] = defaultdict(dict)
    for source, target, mbps in _read_rates(file, setting.hosts):
        flow = flows[source]
        flow[target] = max(flow.get(target, 0.0), mbps)
    for host, rates in flows.items():
        links = plan.cable(host, f"l{host[1]}")
        assert links is not None
        out = next(link for link in links if link.source == host)
        nominal = setting.rates_bps.get(out.number, out.rate_bps)
        setting.rates_bps[out.number] = min(round(1e6 * sum(rates.values())), nominal)


def _read_rates(file: Path, hosts: Sequence[str]) -> list[tuple[str, str, float]]:
    """Sending and receiving host and rate, Mb/s, of each pair of ranks on different hosts."""
    rows = list(csv.reader(text_content(file, LabError).splitlines()))[1:]
    try:
        pairs = [(hosts[int(src)], hosts[int(dst)], 1e3 * float(gbps)) for src, dst, gbps in rows]
    except (ValueError, IndexError) as error:
        raise LabError(
            f"is no table of rates of the {len(hosts)} ranks of this lab: {error}",
            file=file,
            remedy="diagnose a run in this lab",
        ) from None
    return [(source, target, mbps) for source, target, mbps in pairs if source != target]


_APPLY: dict[str, Callable[[str, RecommendedChange, Setting, Plan], None]] = {
    "placement": _place,
    "repair": _repair,
    "routing": _route,
    "rate-control": _limit_rates,
}
"""How each kind of change is made, in this order."""
