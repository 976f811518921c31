"""What the simulated network of an expected run contains, as the evidence shows it.

The rules infer the state of links from samples alone. In the expected run of a measured one, slow
links and other jobs were put in because the evidence shows them, so there is nothing to infer: the
rules explain that run and must not contradict it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from tailback.diagnosis.topology import LinkTopology
from tailback.fabric.model import Fabric
from tailback.run.run import Run


@dataclass(frozen=True)
class SimulatedNetwork:
    """Slow links and other jobs of a simulated run.

    Attributes:
        slow_gbps: Rate of each link that serves less than its nominal rate, by link number.
        other_jobs: Whether jobs besides the observed ones send traffic.
    """

    slow_gbps: Mapping[int, float]
    other_jobs: bool

    @staticmethod
    def of(fabric: Fabric, run: Run) -> SimulatedNetwork:
        """The network of a run on ``fabric``."""
        slow = dict[int, float]()
        if fabric.nominal_gbps is not None:
            links = np.flatnonzero(fabric.link_gbps < fabric.nominal_gbps)
            slow = {int(link): float(fabric.link_gbps[link]) for link in links}
        return SimulatedNetwork(slow, not run.tables["jobs"]["observed"].all())

    def with_served_rates(self, topology: LinkTopology) -> LinkTopology:
        """The links with the rates at which they serve, in place of their nominal ones."""
        if not self.slow_gbps:
            return topology
        rate = topology.rate_gbps.copy()
        rate[list(self.slow_gbps)] = list(self.slow_gbps.values())
        return replace(topology, rate_gbps=rate)

    def corrected(self, roots: pl.DataFrame) -> pl.DataFrame:
        """Roots of congestion trees whose verdicts agree with this network.

        A slow link that our traffic fills is ``slow``; no other link is. Without other jobs, what
        our traffic does not fill on average was congested by our own bursts (``transient``).

        Args:
            roots: Columns ``link`` and ``verdict`` (:class:`.run_analysis.PhaseAnalysis`), with
                utilizations as shares of the rates at which the links serve.
        """
        verdict = pl.col("verdict")
        known = pl.col("link").is_in(pl.Series(list(self.slow_gbps), dtype=pl.UInt32).implode())
        rest = pl.lit("others" if self.other_jobs else "transient")
        return roots.with_columns(
            verdict=pl.when(known & verdict.is_in(["ours", "routing", "slow"]))
            .then(pl.lit("slow"))
            .when(verdict.is_in(["slow", "others"]))
            .then(rest)
            .otherwise(verdict)
        )
