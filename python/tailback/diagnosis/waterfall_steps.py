"""The steps of the waterfall: what each of them simulates, and what it means, in words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailback.diagnosis.activity import messages_within_hosts
from tailback.evaluate import Change
from tailback.run.run import Run

_IDEAL: Final = (
    "every message at the line rate of its own adapters, nothing shared, on the shortest of the "
    "paths tried"
)


IN_HOST: Final = "messages within hosts at the rates of their hosts (at least the previous step)"


PATHS: Final = "the same with the current placement and routes, whose paths may be longer"


INJECTION: Final = "the busiest adapter's bytes at its line rate (at least the previous step)"


RECEIVING: Final = (
    "the bytes that the busiest adapter sends or receives at its line rate, which no change of the "
    "program that was simulated avoids (at least the previous step)"
)


PATTERN: Final = (
    "one ideal switch: only the nodes' own links are shared (at least the previous step)"
)


SAME_PLACEMENT: Final = "the same with the current placement"


SLOW_LINKS: Final = "the links at their real rates, your job alone"


OTHER_TRAFFIC: Final = "everything as it was, including the jobs that are not observed"


BEST_ALREADY: Final = "no other routing tried spreads the traffic better"


NO_SLOW_LINK: Final = "no slow link is known"


NO_OTHER_JOB: Final = "no other job is known"
"""Why a step is not simulated."""


NON_MINIMAL_RULES = ("valiant", "ugal")
"""Routing rules that use non-minimal paths."""


class Spreading(NamedTuple):
    """How packets are spread over paths: a kind of routing, and a rule of the topology."""

    routing: Literal["adaptive", "deterministic"] = "adaptive"
    rule: str | None = None

    @property
    def change(self) -> Change:
        """Our job alone on the healthy network, with this routing."""
        return Change(network="healthy", routing=self.routing, rule=self.rule, background=False)

    def __str__(self) -> str:
        name = "static" if self.routing == "deterministic" else self.routing
        return f"{name} routing" + (f" by rule {self.rule}" if self.rule is not None else "")


ADAPTIVE: Final = Spreading()


@dataclass(frozen=True)
class WaterfallStep:
    """One step: its name, the simulated change, and the reason if it is skipped."""

    name: str
    change: Change
    meaning: str
    skip: str = ""


def waterfall_steps(
    run: Run,
    best: tuple[str, NDArray[np.uint32]] | None = None,
    best_routing: Spreading = ADAPTIVE,
) -> list[WaterfallStep]:
    """The steps for a run; a step that does not apply is skipped, with its reason.

    Args:
        run: The run.
        best: Name and nodes of the best placement found; None if none was tried.
        best_routing: The routing that spreads our traffic best.
    """
    scenario = run.scenario
    tables = scenario.fabric.forwarding is not None
    now = scenario.engine.routing
    spread = best_routing == (now, None) and (now == "deterministic" or not tables)
    alone = all(job.observed for job in scenario.job)
    ours, how = best_routing.change, str(best_routing)
    routes = routes_in_use(scenario.engine.routing, scenario.fabric.routes, tables=tables)
    ideal = Change(network="no-contention", background=False)
    within = has_in_host_tier(run)
    out = [
        WaterfallStep(
            "ideal", replace(ideal, in_host="free" if within else "as-is"), ideal_network(within)
        ),
        WaterfallStep("pattern", Change(network="star", background=False), PATTERN),
    ]
    if within:
        out.insert(1, WaterfallStep("in-host", ideal, IN_HOST))
    if best is not None:
        name, nodes = best
        out.append(
            WaterfallStep(
                "network",
                replace(ours, placement=nodes, placement_name=name),
                best_placement(how, name),
            )
        )
    out += [
        WaterfallStep(
            "placement",
            ours,
            SAME_PLACEMENT if best is not None else network_with(how),
        ),
        WaterfallStep(
            "routing",
            Change(network="healthy", background=False),
            with_own_routing(routes),
            BEST_ALREADY if spread else "",
        ),
        WaterfallStep(
            "slow links",
            Change(background=False),
            SLOW_LINKS,
            "" if scenario.fabric.degraded else NO_SLOW_LINK,
        ),
        WaterfallStep("other traffic", Change(), OTHER_TRAFFIC, NO_OTHER_JOB if alone else ""),
    ]
    return out


def has_in_host_tier(run: Run) -> bool:
    """Whether the scenario describes transfers within hosts, and the job has any.

    Rates that are assumed need not be those of the machine, and take no part in the verdict.
    """
    scenario = run.scenario
    described = not scenario.engine.assumes_memory_rate or bool(scenario.fabric.in_host)
    return described and not messages_within_hosts(run.tables).is_empty()


def ideal_network(within_hosts: bool) -> str:
    """The ideal network; ``within_hosts``: transfers within hosts are a step of their own."""
    free = ", and no time for transfers within hosts" if within_hosts else ""
    return f"{_IDEAL}{free}"


def routes_in_use(routing: str, rule: str | None, *, tables: bool) -> str:
    """The network's own routing: forwarding tables, or a kind of routing and its rule."""
    routes = "forwarding tables" if tables else f"{routing} routing"
    return routes + (f" by rule {rule}" if rule is not None else "")


def best_placement(spread: str, name: str) -> str:
    """The network under the best placement tried; ``spread`` from :func:`spreading`."""
    return (
        f"the network with {spread}, your job alone, placed by {name}, the best of those tried "
        "(at most the time of the current placement)"
    )


def network_with(routes: str) -> str:
    """The network with some routing, our job alone."""
    return f"the network as it is with {routes}, your job alone"


def with_own_routing(routes: str) -> str:
    """The network with its own routing, our job alone."""
    return f"the network as it is with its {routes}, your job alone"
