"""Base class of computed topologies, and construction of fabrics and routing rules from options."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from tailback.errors import FabricError, InvalidValueError, nearest
from tailback.fabric.builders import built_by_core, check_memory, core
from tailback.fabric.model import Fabric
from tailback.registry import Registry, with_options
from tailback.scenario.quantities import LinkGbps, TimePs

PLACE = "[fabric.topology]"
ROUTES_PLACE = "[fabric] routes"


LARGEST = 2**32 - 1
"""The largest count an option may have: the core numbers everything with 32 bits."""


class Topology(BaseModel, ABC):
    """Options of one topology, its construction and its routing rules.

    A topology is one file: a subclass with its options as fields, registered by name. The first
    line of its docstring is what ``tailback list topology`` prints.
    """

    # Validators are built at first use: a command uses one topology of many.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    kind: str = Field(description="name of the topology")
    host_rate: LinkGbps = Field(default=100.0, description="rate of host cables")
    host_delay: TimePs = Field(default=0, description="delay of host cables")

    def fabric(self) -> Fabric:
        """The fabric, links in port order.

        Raises:
            FabricError: The options contradict each other (the message names one), or memory is too
                small.
        """
        check_memory(*self.counts(), place=PLACE, max_ports=self.max_ports())
        return self._build()

    @abstractmethod
    def _build(self) -> Fabric:
        """The fabric, of a size that fits."""

    @abstractmethod
    def counts(self) -> tuple[int, int, int]:
        """Nodes, switches and cables by formula, without building."""

    def max_ports(self) -> int:
        """Ports of the largest switch by formula, or of an average one if all are similar."""
        nodes, switches, cables = self.counts()
        return -((nodes - 2 * cables) // switches)

    def rules(self) -> dict[str, Callable[[core.Network], core.NetworkRouting]]:
        """Routing rules by name: each makes a ``_core.NetworkRouting`` of a ``_core.Network``."""
        return {"up-down": lambda network: core.NetworkRouting.of_network(network)}

    def routes(self) -> dict[str, Callable[[core.Network], core.NetworkRouting]]:
        """All routing rules that a scenario may name, the topology's own first."""
        rules = self.rules()
        # UGAL chooses between a rule's detours and its shortest paths.
        return {**rules, "ugal": rules["valiant"]} if "valiant" in rules else rules

    def routing(self, network: core.Network, rule: str) -> core.NetworkRouting:
        """The rule called ``rule`` for this topology's network.

        Raises:
            FabricError: There is no such rule here, or it does not fit.
        """
        rules = self.routes()
        if rule not in rules:
            raise FabricError(
                f"topology {self.kind!r} has no routing rule {rule!r}",
                place=ROUTES_PLACE,
                remedy=nearest(rule, rules),
            )
        try:
            return rules[rule](network)
        except ValueError as error:
            raise FabricError(str(error), place=ROUTES_PLACE) from None


TOPOLOGIES: Registry[type[Topology]] = Registry("topology", "networks computed from a few options")


def parse(options: dict[str, Any]) -> Topology:
    """The topology ``options["kind"]`` with its options checked.

    Raises:
        ScenarioError: Unknown topology or option, a wrong unit or value.
    """
    return with_options(TOPOLOGIES, options, section=PLACE, page="docs/reference/topologies.md")


def build(options: dict[str, Any]) -> Fabric:
    """The fabric of the topology ``options["kind"]``.

    Raises:
        ScenarioError: Unknown topology or option, a wrong unit or value.
        FabricError: Options that do not fit together.
    """
    return parse(options).fabric()


def one_or_each(name: str, count: int, n: int, what: str = "dimensions") -> None:
    """Refuse a list option that has neither one value for all nor one for each of ``n``.

    Raises:
        ValueError: As Pydantic validators do; names the option and both counts.
    """
    if count not in (1, n):
        raise InvalidValueError(
            f"{name} has {count} entries for {n} {what}", "give one for all or one for each"
        )


def built(make: Callable[[], core.FabricArrays]) -> core.FabricArrays:
    """Call a builder of the core; its errors become FabricErrors."""
    return built_by_core(make, place=PLACE, page="docs/reference/topologies.md")
