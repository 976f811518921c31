"""pF3D's "average of 2.0 Gbps per link" in the SC'19 talk: in which sense, and does it matter?

    python -m studies.taffet2019.pf3d_load --write

The talk does not say which links are averaged, nor how long pF3D computes between transforms. The
load is computed over three sets of links; then the computation is lengthened until the load is the
published one, and the slow-down by the other traffic is measured again.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from studies.taffet2019.case_model import example
from studies.taffet2019.reproduction import Row, run, table
from tailback import Run, simulate
from tailback.units import format_time, percent

PUBLISHED_GBPS: Final = 2.0
PUBLISHED_SLOWDOWN: Final = 30.4 / 24.6 - 1
VARIANTS: Final = ((100, 1), (400, 1), (1000, 1), (1000, 8))
"""Computation before each all-to-all, µs, and MiB of a background message: the example's first."""


def result(compute_us: int, mebibytes: int, *, alone: bool) -> Run:
    """pF3D with so much computation, alone or among traffic that lasts as long."""
    scenario = example("pf3d/pf3d.toml")
    scenario.telemetry.scheme = "full"
    scenario.telemetry.one_in = 64
    scenario.telemetry.messages = False
    ours, other = (job.pattern for job in scenario.job)
    assert ours is not None
    assert other is not None
    ours["compute"] = f"{compute_us} us"
    # 14 messages a node last for the example's 3.2 ms, of which 0.8 are computation.
    other["size"] = f"{mebibytes} MiB"
    other["messages"] = round(14 * (2.4 + 0.008 * compute_us) / 3.2 / mebibytes)
    if alone:
        scenario = scenario.model_copy(update={"job": scenario.job[:1]})
    return simulate(scenario)


def loads(simulated: Run) -> dict[str, float]:
    """Mean rate of our packets over three sets of links, Gb/s."""
    truth = simulated.tables["truth"].group_by("link").agg(pl.col("observed_packets").sum())
    links = (
        simulated.tables["links"]
        .join(truth, on="link", how="left")
        .with_columns(pl.col("observed_packets").fill_null(0))
    )
    between = links.filter(~pl.col("from_node") & ~pl.col("to_node"))
    used = between.filter(pl.col("observed_packets") > 0)
    # Leaves with our nodes: the six in the talk's plot.
    ends = links.filter((pl.col("from_node")) & (pl.col("observed_packets") > 0))["dst"].implode()
    ours = between.filter(pl.col("src").is_in(ends) | pl.col("dst").is_in(ends))
    everywhere = links.filter(pl.col("observed_packets") > 0)
    bits = simulated.scenario.engine.packet * 8000 / simulated.elapsed_ps
    sets = {
        "links between switches that we use": used,
        "all links of our six leaves upwards": ours,
        "all links that we use, to nodes too": everywhere,
    }
    return {name: float(part["observed_packets"].mean()) * bits for name, part in sets.items()}  # type: ignore[arg-type]


def rows() -> list[Row]:
    """Load in each sense and slow-down for each length of computation."""
    out = []
    for compute, mebibytes in VARIANTS:
        alone, among = (result(compute, mebibytes, alone=only) for only in (True, False))
        slow = among.elapsed_ps / alone.elapsed_ps - 1
        length = f"{format_time(compute * 1e6)}, others' messages of {mebibytes} MiB"
        for name, gbps in loads(among).items():
            out.append(
                Row(
                    f"computation of {length}: load on {name}",
                    f"{PUBLISHED_GBPS:g} Gb/s",
                    f"{gbps:.1f} Gb/s",
                    f"{gbps / PUBLISHED_GBPS:.1f}×",
                    "",
                )
            )
        share = 1 - 0.008 * compute * 1e9 / alone.elapsed_ps
        out.append(
            Row(
                f"computation of {length}: slow-down by the other traffic",
                percent(PUBLISHED_SLOWDOWN, 1, "+"),
                percent(slow, 1, "+"),
                f"{100 * (slow - PUBLISHED_SLOWDOWN):+.1f} points",
                f"alone {percent(share)} of the time is communication",
            )
        )
    return out


if __name__ == "__main__":
    run(__doc__, "pf3d load", lambda: table(rows()))
