"""The texts of the waterfall: the meaning of each bar.

``waterfall`` chooses and simulates the steps; this module only words them.
"""

from __future__ import annotations

from typing import Final

_IDEAL: Final = (
    "every message at the line rate of its own adapters, nothing shared, on the shortest of the "
    "paths tried"
)
IN_HOST: Final = "messages within hosts at the rates of their hosts (at least the previous step)"
PATHS: Final = "the same with the current placement and routes, whose paths may be longer"
INJECTION: Final = "the busiest adapter's bytes at its line rate (at least the previous step)"
PATTERN: Final = (
    "one ideal switch: only the nodes' own links are shared (at least the previous step)"
)
SAME_PLACEMENT: Final = "the same with the current placement"
SLOW_LINKS: Final = "the links at their real rates, your job alone"
OTHER_TRAFFIC: Final = "everything as it was, including the jobs that are not observed"
OBSERVED: Final = "the given run; the difference is chance, or unknown effects"
GIVEN: Final = "the given run"
REMAINDER: Final = (
    "the difference between the given run and everything simulated: chance, or unknown effects"
)

ADAPTIVE_ALREADY: Final = "routing is adaptive already"
NO_SLOW_LINK: Final = "no slow link is known"
NO_OTHER_JOB: Final = "no other job is known"
"""Why a step is not simulated."""


def ideal(within_hosts: bool) -> str:
    """The ideal network; ``within_hosts``: transfers within hosts are a step of their own."""
    free = ", and no time for transfers within hosts" if within_hosts else ""
    return f"{_IDEAL}{free}"


def spreading(rule: str | None) -> str:
    """The routing that spreads traffic best."""
    return "adaptive routing" + (f" by rule {rule}" if rule is not None else "")


def routes_in_use(routing: str, rule: str | None, *, tables: bool) -> str:
    """The network's own routing: forwarding tables, or a kind of routing and its rule."""
    own = "forwarding tables" if tables else f"{routing} routing"
    return own + (f" by rule {rule}" if rule is not None else "")


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
