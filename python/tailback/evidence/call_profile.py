"""Time that each rank spends in MPI, by call site, measured and simulated.

A *stretch* is the time a rank spends in MPI between two computations. Each is compared with the
corresponding stretch of a simulation of the same program. Both are timed by the clock of the rank
itself, so clock offsets cancel. Stretches of a rank with the same calls and partners are
repetitions of one *site*; a profile holds the quantiles of their durations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.arrays import Floats, Ints
from tailback.evidence.site_quantiles import alternate, site_quantiles
from tailback.run.run import Run
from tailback.traffic.program import Op, Program


@dataclass(frozen=True)
class CallProfile:
    """The MPI time of all ranks, by site.

    Attributes:
        rank: Rank of each site, shape (K,).
        count: Repetitions of each site, shape (K,).
        quantiles_ps: Quantiles of the time in MPI at each site, shape (K, Q).
        name: MPI calls of each site, length K.
        site_of: Site of each stretch, ordered by rank; -1 for excluded ranks, shape (S,).
        stretches: Number of stretches of each rank, shape (R,).
        duration_ps: Duration of each stretch, shape (S,).
        complete: Ranks whose stretches match the program, shape (R,).
    """

    rank: Ints
    count: Floats
    quantiles_ps: Floats
    name: list[str]
    site_of: Ints
    stretches: Ints
    duration_ps: Floats
    complete: NDArray[np.bool_]

    def of_run(self, run: Run, program: Program) -> Floats | None:
        """Quantiles of each site in a simulation that recorded computations, shape (K, Q)."""
        matched = self.matched(run, program)
        if matched is None:
            return None
        site, _, simulated = matched
        return site_quantiles(site, simulated, len(self.rank))

    def of_alternating(self, run: Run, other: Run, share: float, program: Program) -> Floats | None:
        """The same with a share of the repetitions as in another simulation, shape (K, Q)."""
        matched, matched_other = self.matched(run, program), self.matched(other, program)
        if matched is None or matched_other is None:
            return None
        site, _, simulated = matched
        mixed = alternate(site, simulated, matched_other[2], share)
        return site_quantiles(site, mixed, len(self.rank))

    def with_times_of(self, run: Run, program: Program) -> CallProfile | None:
        """The same with the durations of a simulation; None if its stretches do not match."""
        simulated = times_between_computations(run, program)
        if simulated is None or not np.array_equal(
            simulated[1][self.complete], self.stretches[self.complete]
        ):
            return None
        durations, counts = simulated
        took = self.duration_ps.copy()
        took[np.repeat(self.complete, self.stretches)] = durations[np.repeat(self.complete, counts)]
        quantiles = site_quantiles(
            self.site_of[self.site_of >= 0], took[self.site_of >= 0], len(self.rank)
        )
        return replace(self, duration_ps=took, quantiles_ps=quantiles)

    def matched(self, run: Run, program: Program) -> tuple[Ints, Floats, Floats] | None:
        """Match stretches with those of a simulation: site, measured and simulated durations.

        None if the stretches of the simulation do not match.
        """
        simulated = times_between_computations(run, program)
        if simulated is None:
            return None
        durations, counts = simulated
        if not np.array_equal(counts[self.complete], self.stretches[self.complete]):
            return None
        # Both are ordered by rank, and the compared ranks have equally many.
        compared = np.repeat(self.complete, self.stretches)
        has_site = self.site_of[compared] >= 0
        expected = durations[np.repeat(self.complete, counts)]
        return (
            self.site_of[compared][has_site],
            self.duration_ps[compared][has_site],
            expected[has_site],
        )


def call_profile(tables: Mapping[str, pl.DataFrame], program: Program) -> CallProfile:
    """Compute the profile of a measured run.

    Args:
        tables: Tables ``calls``, ``transfers`` and ``hosts`` of the measured run.
        program: The program compiled from the same trace.
    """
    calls = tables["calls"]
    partners = (
        tables["transfers"]
        .filter(pl.col("recv_done_call").is_not_null())
        .group_by("recv_done_call")
        .agg(pl.col("src_rank").unique().sort())
        .rename({"recv_done_call": "call", "src_rank": "partners"})
    )
    rows = (
        calls.join(partners, on="call", how="left")
        .sort("rank", "enter_ps")
        .with_columns(
            gap=(pl.col("enter_ps") - pl.col("leave_ps").shift(1).over("rank")).fill_null(0)
        )
        .with_columns(block=(pl.col("gap") > 0).cast(pl.Int64).cum_sum().over("rank"))
    )
    # The calls of accelerators are of a kind each: operation, size and group.
    kind = "name" if program.recompile is None else "path"
    call_names = pl.col(kind) + pl.col("partners").list.eval(
        pl.element().cast(pl.String)
    ).list.join(",").fill_null("")
    blocks = rows.group_by("rank", "block", maintain_order=True).agg(
        took=(pl.col("leave_ps").max() - pl.col("enter_ps").min()).cast(pl.Float64),
        name=call_names.str.join(" "),
        calls=pl.col("name").unique(maintain_order=True).str.join(" "),
    )
    blocks = pl.concat([blocks, _empty_stretches(tables["hosts"], calls, blocks)]).sort(
        "rank", "block", maintain_order=True
    )
    n = program.n_ranks
    stretches = np.bincount(blocks["rank"].to_numpy().astype(np.int64), minlength=n)
    expected = np.bincount(program.op_rank[program.separate_computations], minlength=n) + 1
    complete = stretches == expected
    keys = blocks.with_columns(
        site=pl.struct("rank", "name").rank("dense").cast(pl.Int64) - 1,
        known=pl.Series(complete).gather(blocks["rank"].cast(pl.Int64)) & (pl.col("name") != ""),
    )
    sites = (
        keys.filter("known")
        .group_by("site")
        .agg(pl.col("rank").first(), pl.len(), pl.col("calls").first())
        .sort("site")
    )
    dense_site = np.full(int(keys["site"].max() or 0) + 1, -1, np.int64)  # type: ignore[arg-type]
    dense_site[sites["site"].to_numpy()] = np.arange(sites.height)
    site_of, took = dense_site[keys["site"].to_numpy()], blocks["took"].to_numpy()
    included = site_of >= 0
    return CallProfile(
        sites["rank"].to_numpy().astype(np.int64),
        sites["len"].to_numpy().astype(np.float64),
        site_quantiles(site_of[included], took[included], sites.height),
        sites["calls"].to_list(),
        site_of,
        stretches.astype(np.int64),
        took,
        complete,
    )


def _empty_stretches(
    hosts: pl.DataFrame, calls: pl.DataFrame, blocks: pl.DataFrame
) -> pl.DataFrame:
    """Empty stretches before a rank's first and after its last computation.

    Traces with MPI_Init and MPI_Finalize include computation before the first and after the last
    analysed call.
    """
    bounds = (
        calls.group_by("rank")
        .agg(first=pl.col("enter_ps").min(), last=pl.col("leave_ps").max())
        .join(hosts.select("rank", "start_ps", "end_ps"), on="rank")
    )
    before = bounds.filter(pl.col("first") > pl.col("start_ps")).select(
        "rank", block=pl.lit(-1, pl.Int64)
    )
    after = bounds.filter(pl.col("end_ps") > pl.col("last")).select(
        "rank", block=pl.lit(1 << 40, pl.Int64)
    )
    rows = pl.concat([before, after]).with_columns(
        took=pl.lit(0.0), name=pl.lit(""), calls=pl.lit("")
    )
    return rows.select(pl.col(name).cast(dtype) for name, dtype in blocks.schema.items())


def times_between_computations(run: Run, program: Program) -> tuple[Floats, Ints] | None:
    """Durations of stretches in a simulation, ordered by rank, and their number per rank.

    None if the run did not record its computations, or if they do not match the program.
    """
    table = run.computations
    if table is None:
        return None
    observed = run.tables["jobs"].filter("observed").select("job")
    ranks = run.tables["ranks"].join(observed, on="job", how="semi").sort("job_rank")
    starts = table.join(ranks.select("rank", "job_rank"), on="rank").sort(
        "job_rank", "start_ps", maintain_order=True
    )
    compute = program.kind == Op.COMPUTE
    counts = np.bincount(program.op_rank[compute], minlength=program.n_ranks)
    if starts.height != int(counts.sum()):
        return None
    separate = program.separate_computations
    start = starts["start_ps"].to_numpy().astype(np.float64)[separate[compute]]
    end = start + program.amount[separate].astype(np.float64)
    counts = np.bincount(program.op_rank[separate], minlength=program.n_ranks)
    first_computation = np.concatenate([[0], np.cumsum(counts)])
    finish = ranks["finish_ps"].to_numpy().astype(np.float64)
    # Per rank: from 0 to the first computation, between computations, and from the last to the end.
    first_stretch = first_computation[:-1] + np.arange(program.n_ranks)
    stretch_start = np.zeros(len(start) + program.n_ranks)
    stretch_end = np.zeros_like(stretch_start)
    not_first = np.ones(len(stretch_start), np.bool_)
    not_first[first_stretch] = False
    stretch_start[not_first] = end
    not_last = np.ones(len(stretch_start), np.bool_)
    not_last[first_stretch + counts] = False
    stretch_end[not_last] = start
    stretch_end[first_stretch + counts] = finish
    return stretch_end - stretch_start, counts + 1
