"""Time of each rank in its MPI calls by call site, measured and simulated.

Between two computations a rank is in MPI. Each such stretch is compared with the same stretch in a
simulation of the same program, by the clock of its own rank, so clock offsets do not matter.
Stretches of a rank that have the same calls with the same partners are repetitions of one
*site*; a profile holds quantiles of their times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.evidence.site_quantiles import site_quantiles
from tailback.run import Run
from tailback.traffic.program import Op, Program

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class CallProfile:
    """Sites of all ranks.

    Attributes:
        rank: Rank of each site, shape (K,).
        count: Repetitions of it, shape (K,).
        quantiles_ps: Quantiles of its times in MPI, shape (K, Q).
        name: Its calls, length K.
        site_of: Site of each stretch, rank after rank, -1 of ranks that are left out, shape (S,).
        stretches: Stretches of each rank, shape (R,).
        duration_ps: Time of each stretch, shape (S,).
        complete: Ranks whose stretches are those of the program.
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
        """Quantiles of each site in a simulation that recorded its computations, shape (K, Q)."""
        both = self.beside(run, program)
        if both is None:
            return None
        site, _, simulated = both
        return site_quantiles(site, simulated, len(self.rank))

    def beside(self, run: Run, program: Program) -> tuple[Ints, Floats, Floats] | None:
        """Each stretch beside that of a simulation: its site, measured and simulated time.

        None where the simulation has other stretches.
        """
        simulated = times_between_computations(run, program)
        if simulated is None:
            return None
        durations, counts = simulated
        if not np.array_equal(counts[self.complete], self.stretches[self.complete]):
            return None
        # Both are rank after rank, and the ranks that are compared have as many.
        seen = np.repeat(self.complete, self.stretches)
        known = self.site_of[seen] >= 0
        expected = durations[np.repeat(self.complete, counts)]
        return self.site_of[seen][known], self.duration_ps[seen][known], expected[known]


def call_profile(tables: Mapping[str, pl.DataFrame], program: Program) -> CallProfile:
    """The profile of a measured run.

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
    rows = calls.join(partners, on="call", how="left").sort("rank", "enter_ps").with_columns(
        gap=(pl.col("enter_ps") - pl.col("leave_ps").shift(1).over("rank")).fill_null(0)
    ).with_columns(block=(pl.col("gap") > 0).cast(pl.Int64).cum_sum().over("rank"))  # fmt: skip
    named = pl.col("name") + pl.col("partners").list.eval(
        pl.element().cast(pl.String)).list.join(",").fill_null("")  # fmt: skip
    blocks = rows.group_by("rank", "block", maintain_order=True).agg(
        took=(pl.col("leave_ps").max() - pl.col("enter_ps").min()).cast(pl.Float64),
        name=named.str.join(" "), calls=pl.col("name").unique(maintain_order=True).str.join(" "),
    )  # fmt: skip
    blocks = pl.concat([blocks, _ends(tables["hosts"], calls, blocks)]).sort(
        "rank", "block", maintain_order=True
    )
    n = program.n_ranks
    stretches = np.bincount(blocks["rank"].to_numpy().astype(np.int64), minlength=n)
    compute = program.kind == Op.COMPUTE
    wanted = np.bincount(program.op_rank[compute], minlength=n) + 1
    complete = stretches == wanted
    keys = blocks.with_columns(
        site=pl.struct("rank", "name").rank("dense").cast(pl.Int64) - 1,
        known=pl.Series(complete).gather(blocks["rank"].cast(pl.Int64)) & (pl.col("name") != ""),
    )
    sites = (
        keys.filter("known").group_by("site").agg(
            pl.col("rank").first(), pl.len(), pl.col("calls").first()
        ).sort("site")
    )  # fmt: skip
    number = np.full(int(keys["site"].max() or 0) + 1, -1, np.int64)  # type: ignore[arg-type]
    number[sites["site"].to_numpy()] = np.arange(sites.height)
    site_of, took = number[keys["site"].to_numpy()], blocks["took"].to_numpy()
    seen = site_of >= 0
    return CallProfile(
        sites["rank"].to_numpy().astype(np.int64), sites["len"].to_numpy().astype(np.float64),
        site_quantiles(site_of[seen], took[seen], sites.height), sites["calls"].to_list(), site_of,
        stretches.astype(np.int64), took, complete,
    )  # fmt: skip


def _ends(hosts: pl.DataFrame, calls: pl.DataFrame, blocks: pl.DataFrame) -> pl.DataFrame:
    """Stretches without calls before a rank's first and after its last computation.

    A trace with MPI_Init and MPI_Finalize includes computation before the first examined call and
    after the last.
    """
    seen = calls.group_by("rank").agg(
        first=pl.col("enter_ps").min(), last=pl.col("leave_ps").max()
    ).join(hosts.select("rank", "start_ps", "end_ps"), on="rank")  # fmt: skip
    before = seen.filter(pl.col("first") > pl.col("start_ps")).select(
        "rank", block=pl.lit(-1, pl.Int64)
    )
    behind = seen.filter(pl.col("end_ps") > pl.col("last")).select(
        "rank", block=pl.lit(1 << 40, pl.Int64)
    )
    out = pl.concat([before, behind]).with_columns(
        took=pl.lit(0.0), name=pl.lit(""), calls=pl.lit("")
    )
    return out.select(pl.col(name).cast(dtype) for name, dtype in blocks.schema.items())


def times_between_computations(run: Run, program: Program) -> tuple[Floats, Ints] | None:
    """Time between computations in a simulation, rank after rank, and how many each rank has.

    None where the run did not record its computations, or not those of the program.
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
    start = starts["start_ps"].to_numpy().astype(np.float64)
    end = start + program.amount[compute].astype(np.float64)
    first = np.concatenate([[0], np.cumsum(counts)])
    finish = ranks["finish_ps"].to_numpy().astype(np.float64)
    # Of each rank: from 0 to its first computation, between computations, and to its end.
    where = first[:-1] + np.arange(program.n_ranks)
    opens = np.zeros(len(start) + program.n_ranks)
    closes = np.zeros_like(opens)
    inner = np.ones(len(opens), np.bool_)
    inner[where] = False
    opens[inner] = end
    last = np.ones(len(opens), np.bool_)
    last[where + counts] = False
    closes[last] = start
    closes[where + counts] = finish
    return closes - opens, counts + 1
