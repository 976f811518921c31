"""Causes of congestion in a lab: given by the user, or drawn at random and kept secret."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from tailback.errors import nearest
from tailback.io.input_files import text_content
from tailback.io.manifest import require_unchanged
from tailback.lab.plan import Plan
from tailback.lab.spec import LabError
from tailback.placement.rank_hosts import rank_hosts


@dataclass(frozen=True)
class Flow:
    """Traffic of others than the job: as much as TCP carries, continuous or in bursts."""

    source: str
    target: str
    on_s: float = 0.0
    off_s: float = 0.0


@dataclass
class Setting:
    """Differences of a run from the nominal one. Causes are applied to it one by one.

    Attributes:
        hosts: Host of each rank.
        spines: Spines that leaves send to.
        static: Whether leaves send all packets for a host by one spine, instead of by a hash.
        rates_bps: Rates that are not nominal, by number of the link.
        environment: Variables for the program.
        flows: Other traffic.
        causes: The applied causes, as in ``truth.json``.
        remedies: Names of the applied remedies.
    """

    hosts: list[str]
    spines: list[str]
    rates_bps: dict[int, int] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    flows: list[Flow] = field(default_factory=list)
    causes: list[dict[str, Any]] = field(default_factory=list)
    remedies: list[str] = field(default_factory=list)
    static: bool = False

    @classmethod
    def nominal(cls, plan: Plan) -> Setting:
        """The setting to which no cause was applied."""
        job = plan.spec.job
        hosts = [host for host in job.hosts for _ in range(job.ranks_per_host)]
        return cls(hosts, list(plan.spines))


FORMS = {
    "slow-cable": "slow-cable:l2-s1=60%",
    "imbalance": "imbalance:9=3,12=1.5",
    "noise": "noise:5%,60ms",
    "placement": "placement:by-leaf",
    "one-spine": "one-spine:s0",
    "cross-traffic": "cross-traffic:h02-h22*3,h32-h12*3",
    "bursts": "bursts:h02-h22*3,0.4s/0.6s",
}
"""How each cause is written."""

_ONCE = frozenset({"imbalance", "noise", "placement", "one-spine"})
"""Causes that a run has only once. A second one would replace the first."""


def apply(text: str, setting: Setting, plan: Plan) -> None:
    """Add a cause, as the user writes it, to a setting.

    Raises:
        LabError: It cannot be parsed, or names something that the lab does not have.
    """
    kind, _, detail = text.partition(":")
    if kind not in FORMS:
        raise LabError(f"there is no cause {kind!r}", place="--cause", remedy=nearest(kind, FORMS))
    before = len(setting.causes)
    if kind in _ONCE and any(cause["kind"] == kind for cause in setting.causes):
        raise LabError(
            f"{text!r}: there is one {kind} already",
            place="--cause",
            remedy=f"write all of it in one: {FORMS[kind]}",
        )
    try:
        _APPLY[kind](detail, setting, plan)
    except _WrongError as wrong:
        reason = str(wrong) or f"{detail!r} is not what {kind} needs"
        raise LabError(
            f"{text!r}: {reason}", place="--cause", remedy=f"write it like {FORMS[kind]}"
        ) from None
    for cause in setting.causes[before:]:
        cause["written"] = text


def replay(case: Path) -> tuple[tuple[str, ...], int]:
    """Causes and path seed of an earlier case, for a run that differs from it in nothing else.

    Args:
        case: Folder of ``tailback lab run``.

    Returns:
        Causes as :func:`apply` takes them, and the seed of ECMP.

    Raises:
        LabError: The folder is no case, or its truth is damaged.
    """
    file = case / "truth" / "truth.json"
    if not file.is_file():
        raise LabError("is no case of the lab", file=case, remedy="name what lab run --out wrote")
    require_unchanged(case)
    try:
        truth = json.loads(text_content(file, LabError))
        written = tuple(dict.fromkeys(str(cause["written"]) for cause in truth["causes"]))
        seed = int(truth["path_seed"])
        if not 1 <= seed < 2**31:
            raise ValueError("path_seed is out of range")
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise LabError(
            f"cannot be read: {error!r}", file=file, remedy="run the earlier case again"
        ) from None
    return written, seed


def place_ranks(file: Path, setting: Setting, plan: Plan) -> None:
    """Put the ranks where a rank file says, instead of where a cause or the specification does.

    Args:
        file: Any file that says which host a rank is on (``tailback list rank-map``).
        setting: Its hosts are replaced, and a cause ``placement`` is removed.
        plan: The lab.

    Raises:
        LabError: The file is for other ranks or hosts.
        PlacementError: It cannot be read.
    """
    hosts = rank_hosts(file)
    if len(hosts) != len(setting.hosts):
        raise LabError(
            f"places {len(hosts)} ranks, the lab runs {len(setting.hosts)}",
            file=file,
            remedy="use a rank file that was made for this lab",
        )
    for rank, host in enumerate(hosts):
        if host not in plan.hosts:
            raise LabError(
                f"there is no host {host!r} in lab {plan.spec.name!r}",
                file=file,
                place=f"rank {rank}",
                remedy=nearest(host, plan.hosts),
            )
    setting.hosts = hosts
    setting.causes = [cause for cause in setting.causes if cause["kind"] != "placement"]


class _WrongError(Exception):
    """An error in a detail of a cause."""


def _match(pattern: str, text: str) -> re.Match[str]:
    match = re.fullmatch(pattern, text)
    if match is None:
        raise _WrongError
    return match


def _slow_cable(detail: str, setting: Setting, plan: Plan) -> None:
    match = _match(r"(\w+)-(\w+)=(\d{1,2}(?:\.\d+)?)%", detail)
    links = plan.cable(match[1], match[2])
    if links is None:
        raise _WrongError(f"there is no cable between {match[1]} and {match[2]}")
    share = float(match[3]) / 100
    if share < 0.01:
        raise _WrongError("a cable needs at least 1 % of its rate")
    if links[0].number in setting.rates_bps:
        raise _WrongError("that cable is slow already")
    for link in links:
        setting.rates_bps[link.number] = round(link.rate_bps * share)
    setting.causes.append(
        {
            "kind": "slow-cable",
            "cable": f"{links[0].source}-{links[0].target}",
            "rate_mbit": links[0].mbit * share,
            "nominal_mbit": links[0].mbit,
            "both_directions": True,
        }
    )


def _imbalance(detail: str, setting: Setting, plan: Plan) -> None:
    ranks: dict[int, float] = {}
    for part in detail.split(","):
        match = _match(r"(\d{1,4})=(\d{1,3}(?:\.\d+)?)", part)
        if int(match[1]) >= len(setting.hosts):
            raise _WrongError(f"there is no rank {match[1]}; the last is {len(setting.hosts) - 1}")
        ranks[int(match[1])] = float(match[2])
    setting.environment["TAILBACK_LAB_SLOW"] = " ".join(f"{r}:{f}" for r, f in ranks.items())
    setting.causes.append({"kind": "imbalance", "compute_factor": ranks})


def _noise(detail: str, setting: Setting, plan: Plan) -> None:
    match = _match(r"(\d{1,2}(?:\.\d+)?)%,(\d{1,4})ms(?:,(\d{1,9}))?", detail)
    share, length_ms, seed = float(match[1]) / 100, int(match[2]), int(match[3] or 1)
    setting.environment["TAILBACK_LAB_NOISE"] = f"{share} {length_ms} {seed}"
    setting.causes.append(
        {"kind": "noise", "share_of_iterations": share, "length_ms": length_ms, "seed": seed}
    )


def _placement(detail: str, setting: Setting, plan: Plan) -> None:
    kind, _, argument = (detail or "by-leaf").partition(",")
    if kind not in _PLACE or (argument and kind != "random"):
        raise _WrongError(f"{detail!r} is not one of: {', '.join(_PLACE)}")
    better = setting.hosts
    setting.hosts = _PLACE[kind](better, argument)
    if setting.hosts == better:
        raise _WrongError("that is where the ranks are already")
    setting.causes.append({"kind": "placement", "better": better})


def _by_leaf(hosts: list[str], _: str) -> list[str]:
    """Hosts in turn from every leaf, ranks in turn on every host: neighbours share nothing."""
    used = list(dict.fromkeys(hosts))
    leaves = sorted({host[1] for host in used})
    by_leaf = [[host for host in used if host[1] == leaf] for leaf in leaves]
    turns = [host for row in zip_longest(*by_leaf) for host in row if host is not None]
    return [turns[rank % len(turns)] for rank in range(len(hosts))]


def _by_node(hosts: list[str], _: str) -> list[str]:
    """Ranks in turn on every host, as ``mpirun --map-by node``."""
    used = list(dict.fromkeys(hosts))
    return [used[rank % len(used)] for rank in range(len(hosts))]


def _split_pairs(hosts: list[str], _: str) -> list[str]:
    """Even ranks stay; odd ranks move by half of the ranks: pairs share neither host nor leaf."""
    half = len(hosts) // 4 * 2
    return [
        hosts[(rank + half) % len(hosts)] if rank % 2 else host for rank, host in enumerate(hosts)
    ]


def _random(hosts: list[str], seed: str) -> list[str]:
    if not re.fullmatch(r"[0-9]{1,9}", seed):
        raise _WrongError("random needs a seed: placement:random,7")
    return random.Random(int(seed)).sample(hosts, len(hosts))


_PLACE: dict[str, Callable[[list[str], str], list[str]]] = {
    "by-leaf": _by_leaf,
    "by-node": _by_node,
    "split-pairs": _split_pairs,
    "random": _random,
}
"""Bad placements: hosts of the ranks, from those of a good one and the argument."""


def _one_spine(detail: str, setting: Setting, plan: Plan) -> None:
    if detail not in plan.spines or len(plan.spines) < 2:
        raise _WrongError(f"choose one of several spines: {', '.join(plan.spines)}")
    setting.spines = [detail]
    setting.causes.append({"kind": "one-spine", "spine": detail})


def _flows(text: str, on_s: float, off_s: float, setting: Setting, plan: Plan) -> list[Flow]:
    flows = []
    for part in text.split(","):
        match = _match(r"(\w+)-(\w+)(?:\*(\d{1,2}))?", part)
        for host in (match[1], match[2]):
            if host not in plan.hosts:
                raise _WrongError(f"there is no host {host}; {nearest(host, plan.hosts)}")
            if host in setting.hosts:
                raise _WrongError(f"{host} runs ranks of the job; choose other hosts")
        if match[1] == match[2]:
            raise _WrongError(f"{match[1]} cannot send to itself")
        flows += [Flow(match[1], match[2], on_s, off_s)] * int(match[3] or 1)
    return flows


def _record_flows(flows: list[Flow], setting: Setting) -> None:
    setting.flows += flows
    setting.causes.append({"kind": "cross-traffic", "flows": [vars(flow) for flow in flows]})


def _cross_traffic(detail: str, setting: Setting, plan: Plan) -> None:
    _record_flows(_flows(detail, 0.0, 0.0, setting, plan), setting)


def _bursts(detail: str, setting: Setting, plan: Plan) -> None:
    match = _match(r"(.*),(\d{1,3}(?:\.\d+)?)s/(\d{1,3}(?:\.\d+)?)s", detail)
    on_s, off_s = float(match[2]), float(match[3])
    if on_s <= 0 or off_s <= 0:
        raise _WrongError("bursts and pauses need a length above 0")
    _record_flows(_flows(match[1], on_s, off_s, setting, plan), setting)


_APPLY = {
    "slow-cable": _slow_cable,
    "imbalance": _imbalance,
    "noise": _noise,
    "placement": _placement,
    "one-spine": _one_spine,
    "cross-traffic": _cross_traffic,
    "bursts": _bursts,
}


def path_seed(seed: int) -> int:
    """Seed of ECMP that goes with a drawn case: cases differ in the paths of their flows too."""
    return seed % (2**31 - 1) + 1


def draw(seed: int, plan: Plan) -> list[str]:
    """Draw the causes: none, one, or a slow cable together with imbalance.

    Args:
        seed: The same seed draws the same.
        plan: The lab. Only causes that are possible in it are drawn.

    Returns:
        Causes as :func:`apply` takes them.
    """
    dice = random.Random(seed)
    setting = Setting.nominal(plan)
    ranks = len(setting.hosts)
    spare = [host for host in plan.hosts if host not in setting.hosts]
    used = sorted(set(setting.hosts))
    pairs = [(a, b) for a in spare for b in spare if a[1] != b[1]]

    def core_cable() -> str:
        leaves = sorted({f"l{host[1]}" for host in used})
        return (
            f"slow-cable:{dice.choice(leaves)}-{dice.choice(plan.spines)}={dice.randint(20, 45)}%"
        )

    def host_cable() -> str:
        host = dice.choice(used)
        return f"slow-cable:{host}-l{host[1]}={dice.randint(20, 45)}%"

    def slow_ranks() -> str:
        chosen = dice.sample(range(ranks), min(dice.choice([1, 1, 2]), ranks))
        return "imbalance:" + ",".join(f"{r}={dice.randint(30, 60) / 10}" for r in sorted(chosen))

    def others() -> str:
        chosen = dice.sample(pairs, min(2, len(pairs)))
        flows = ",".join(f"{a}-{b}*{dice.randint(2, 4)}" for a, b in chosen)
        if dice.random() < 0.5:
            return f"cross-traffic:{flows}"
        return f"bursts:{flows},{dice.choice(['0.3s/0.3s', '0.4s/0.6s'])}"

    def noise() -> str:
        return f"noise:{dice.randint(4, 8)}%,{dice.randint(40, 90)}ms,{dice.randrange(10**6)}"

    choices: list[Callable[[], list[str]]] = [
        list,
        list,
        lambda: [core_cable()],
        lambda: [host_cable()],
        lambda: [slow_ranks()],
        lambda: [noise()],
    ]
    if pairs:
        choices.append(lambda: [others()])
    if len(plan.spines) > 1 and len({host[1] for host in used}) > 1:
        choices.append(lambda: [f"one-spine:{dice.choice(plan.spines)}"])
        choices.append(lambda: ["placement"])
        choices.append(lambda: [core_cable(), slow_ranks()])
    return dice.choice(choices)()
