"""Placing the ranks of a job: ``tb.place`` and ``tailback place``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback.api.candidates import default_methods, make_candidates, require_placements
from tailback.api.congestion import measured_fractions
from tailback.api.rankfiles import rank_files, write_with_rank_files
from tailback.errors import PlacementError, known_keywords, option
from tailback.evaluate import Change
from tailback.io.progress import Progress
from tailback.placement import RankFile, edge_cut, left_out, path_length
from tailback.placement.variant import nodes_by_name
from tailback.simulation import (
    PreparedScenario,
    Routes,
    Watch,
    busiest_link_ps,
    make_evaluate,
    prepare,
    routes_for,
)
from tailback.sources.source import ScenarioOptions, Source, SourceLike

COLUMNS = {
    "placement": pl.String,
    "busiest_link_ps": pl.Int64,
    "path_length": pl.Float64,
    "edge_cut": pl.Float64,
    "elapsed_ps": pl.Int64,
}


_ORDER = ("elapsed_ps", "busiest_link_ps", "path_length")
"""Column by which placements are sorted, if it is known."""


@dataclass(frozen=True, eq=False)
class PlacementResult:
    """Placements of a job, best first.

    Attributes:
        rows: For each placement its name, ``busiest_link_ps`` (time that the busiest link needs for
            its bytes, by the routing), ``path_length`` (switches a packet visits), ``edge_cut``
            (share of the packets between leaves) and, where simulated, ``elapsed_ps``.
        nodes: Node of each rank by placement, shape (R,).
        rank_files: The best placement in the launchers' formats.
        no_rank_file: For launchers without a rank file, the reason.
        refused: Why no launcher can run the best placement; empty if one can.
        left_out: Placements that could not be computed, and why.
        omitted: Sentence on the hosts of the fabric that the job does not use; empty if none.
        notes: Irregularities in the input that were accepted.
        skipped: Which steps were extrapolated, of every placement with any.
    """

    rows: list[dict[str, Any]]
    nodes: dict[str, NDArray[np.uint32]]
    rank_files: list[RankFile]
    no_rank_file: dict[str, str]
    refused: str
    left_out: dict[str, str]
    omitted: str
    notes: list[str]
    skipped: list[str]

    def __repr__(self) -> str:
        return f"<Placements, best first: {', '.join(row['placement'] for row in self.rows)}>"

    @property
    def best(self) -> str:
        """The placement with the shortest simulated time, else that of the busiest link."""
        return str(self.rows[0]["placement"])

    @property
    def frame(self) -> pl.DataFrame:
        """:attr:`rows` as a frame."""
        return pl.DataFrame(self.rows, COLUMNS)

    def to_pandas(self) -> Any:
        """:attr:`frame` as a pandas data frame; needs pandas and pyarrow."""
        return self.frame.to_pandas()

    def write(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write the rank files of the best placement and ``placement.json``.

        Args:
            folder: A new folder; written completely or not at all.
            force: Replace that folder if Tailback wrote it.

        Raises:
            RunError: The folder exists (without ``force``) or cannot be written.
        """
        files, name = self.rank_files, "placement.json"
        return write_with_rank_files(folder, files, name, self.rows, force=force)

    def _repr_html_(self) -> str:
        return self.frame._repr_html_()


@known_keywords(ScenarioOptions)
def place(
    source: SourceLike,
    *,
    methods: Sequence[str] = (),
    simulate: bool = False,
    allow_hosts: str | None = None,
    congestion: str | Path | None = None,
    require_rank_files: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    watch: Watch | None = None,
    **options: Unpack[ScenarioOptions],
) -> PlacementResult:
    """Place the ranks of a job and compare the results.

    Args:
        source: As for :func:`load_scenario`.
        methods: Placements to compute (``tailback list placement``); default: all that apply.
        simulate: Also simulate the job under each placement.
        allow_hosts: Hosts that placements may use; ``all``: every compute host.
        congestion: Measured congestion, which placements ``incremental`` and ``shift`` avoid: a
            run, a capture, counts of samples, or port counters.
        require_rank_files: Refuse placements that no launcher can run before they are evaluated.
        threads: Threads of the engine; default: idle cores.
        progress: Called with the current step and its progress, 0–1.
        watch: Called regularly with (simulated time in ps, packets delivered, packets, events).
        options: As for :func:`load_scenario`: ``fabric``, ``hosts``, ``seed`` …

    Raises:
        PlacementError: A requested placement does not fit the job, or no placement does.
        TailbackError: The source, or a file that it names, is invalid.

    Example:
        >>> placed = tb.place("app_trace/", fabric="fabric.txt", methods=["tile", "rcm"])
        >>> placed.best, placed.frame
        >>> placed.write("ranks")
    """
    require_placements(option("methods"), methods)
    step = progress or (lambda _what, _share: None)
    job_source = Source.of(source, **options)
    with job_source.named_in_errors(changed=allow_hosts is not None):
        prepared = prepare(job_source.scenario, allow_hosts, job_source.notes)
    fraction = None if congestion is None else measured_fractions(Path(congestion), prepared)
    tried = methods or default_methods(prepared)
    placed, errors = make_candidates(prepared, tried, None, step, fraction)
    made = nodes_by_name(placed)
    if methods and errors:
        variant, error = errors[0]
        error.place = ": ".join(filter(None, (option("methods", variant.name), error.place)))
        raise error.located(source) if isinstance(source, (str, Path)) else error
    if require_rank_files:
        for node in made.values():
            rank_files(prepared, node)
    evaluate = make_evaluate(prepared, watch, threads=threads)
    routes = routes_for(prepared.scenario, prepared.fabric, prepared.slots().tolist())
    rows, skipped = [], list[str]()
    for number, (name, node) in enumerate(made.items()):
        step(f"evaluating {name}", number / len(made))
        run = evaluate(Change(placement=node)) if simulate else None
        elapsed = None if run is None else run.elapsed_ps
        skipped += [f"{name}: {note}" for note in (() if run is None else run.skip_notes)]
        metrics = _evaluate_placement(prepared, routes, node)
        rows.append({"placement": name, **metrics, "elapsed_ps": elapsed})
    if not rows:
        raise PlacementError("no placement fits the job", remedy="see 'tailback list placement'")
    rows.sort(key=lambda row: tuple(row[name] or 0 for name in _ORDER))
    files, unwritten, refused = list[RankFile](), dict[str, str](), ""
    try:
        files, unwritten = rank_files(prepared, made[rows[0]["placement"]])
    except PlacementError as error:
        refused = error.message
    omitted = left_out(prepared.observed.section.hosts, prepared.fabric)
    return PlacementResult(
        rows,
        made,
        files,
        unwritten,
        refused,
        {variant.name: error.message for variant, error in errors},
        omitted.note if omitted is not None else "",
        prepared.notes,
        skipped,
    )


def _evaluate_placement(
    prepared: PreparedScenario, routes: Routes, node: NDArray[np.uint32]
) -> dict[str, Any]:
    """Bytes of the busiest link, and metrics weighted by packets.

    Packets, because 8 bytes of a reduction load the network less than a halo.
    """
    fabric, program = prepared.fabric, prepared.observed.program
    packet = prepared.scenario.engine.packet
    return {
        "busiest_link_ps": round(busiest_link_ps(prepared, routes, node)),
        "path_length": path_length(fabric, program, node, "packets", packet),
        "edge_cut": edge_cut(fabric, program, node, "leaf", "packets", packet),
    }
