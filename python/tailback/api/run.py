"""A run as the library returns it: with figures, and a summary for notebooks."""

from __future__ import annotations

from dataclasses import fields
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from tailback.api.runs import congestion_of, model_description, with_samples
from tailback.errors import TailbackError, known_keywords, nearest
from tailback.names.ports import link_names
from tailback.run import run as base
from tailback.telemetry.run_views import labelled_by_receives, received_by
from tailback.units import format_time, percent

if TYPE_CHECKING:
    from tailback.api.plots import Plots


class _Names(NamedTuple):
    """Names of what numbers stand for: the table that defines it, and the columns to add."""

    table: str
    frame: pl.DataFrame


class Run(base.Run):
    """Tables, scenario and summary of one run.

    Attributes:
        scenario: The scenario that was run.
        tables: A polars frame for each table (docs/reference/tables.md); ``.to_pandas()``
            converts one.
        summary: Figures of the run as a whole: ``elapsed_ps``, ``packets`` …
        performance: Wall-clock figures.
        notes: Irregularities in the input that were accepted.

    Example:
        >>> run = tb.simulate("examples/demo/demo.toml")
        >>> run.to_pandas("messages")
        >>> run.plot.link_time().savefig("link_time.pdf")
        >>> run.write("run")
    """

    def __repr__(self) -> str:
        elapsed = format_time(self.elapsed_ps)
        return f"<Run {self.scenario.name!r}: {elapsed}, {len(self.tables)} tables>"

    @classmethod
    def of(cls, run: base.Run) -> Run:
        """The same run with figures; shares its tables."""
        return cls(**{field.name: getattr(run, field.name) for field in fields(base.Run)})

    @staticmethod
    def read(path: str | Path) -> Run:
        """Read a run directory; raises RunError naming what is missing or damaged."""
        return Run.of(base.Run.read(path))

    @property
    def plot(self) -> Plots:
        """Figures of the run; ``run.plot.NAME()`` draws one, ``dir(run.plot)`` lists them."""
        # Deferred: matplotlib takes half a second to load.
        from tailback.api.plots import Plots

        return Plots(self)

    def to_pandas(self, table: str = "messages") -> Any:
        """A table as a pandas data frame, with names beside the numbers of links, ranks and labels.

        Args:
            table: Name of the table (docs/reference/tables.md).

        Returns:
            Its rows and columns. A number of a link is followed by ``link_name``; one of a label by
            ``phase`` and ``call``; ``src_rank`` and ``dst_rank`` by ``src_host`` and ``dst_host``.

        Raises:
            TailbackError: There is no such table, or pandas or pyarrow is not installed.

        Example:
            >>> run.to_pandas().groupby("phase")["size_bytes"].sum()
        """
        if table not in self.tables:
            raise TailbackError(f"unknown table {table!r}", remedy=nearest(table, self.tables))
        frame = self.tables[table]
        for key, names in self._names().items():
            if key in frame.columns and table != names.table:
                frame = frame.join(names.frame, on=key, how="left", maintain_order="left")
        try:
            return frame.to_pandas()
        except ImportError as error:
            raise TailbackError(
                f"needs the package {error.name}", remedy="pip install pandas pyarrow"
            ) from None

    def to_hatchet(self) -> Any:
        """The back-pressure flame graph as a ``hatchet.GraphFrame``.

        Returns:
            Below the run its saturated links; below each the lines of the program and the ranks
            that wait on it. ``time`` and ``time (inc)`` are stall in seconds; of a run without a
            log of its messages, ``congested packets``.

        Raises:
            TailbackError: hatchet is not installed (``pip install llnl-hatchet``).

        Example:
            >>> print(run.to_hatchet().tree(metric_column="time (inc)"))
        """
        from tailback.api.frames import hatchet_frame

        return hatchet_frame(self)

    def to_pipit(self) -> Any:
        """The messages as a ``pipit.Trace``, with the columns of pipit's reader of OTF2.

        Returns:
            Sends at the time they are posted, and receives when the last byte arrives; ranks are
            processes.

        Raises:
            TailbackError: pipit of the HPC group (Maryland) is not installed.

        Example:
            >>> run.to_pipit().comm_matrix()
        """
        from tailback.api.frames import pipit_trace

        return pipit_trace(self)

    def _names(self) -> dict[str, _Names]:
        """By the column of a number, the columns that say what it stands for."""
        links, labels = self.tables["links"], self.tables["labels"]
        hosts = self.tables["ranks"].join(self.tables["nodes"], on="node", maintain_order="left")
        named = links.select("link", link_name=pl.Series(link_names(links), dtype=pl.String))
        ends = {
            f"{end}_rank": hosts.select(
                pl.col("rank").alias(f"{end}_rank"), pl.col("host_name").alias(f"{end}_host")
            )
            for end in ("src", "dst")
        }
        return {
            "link": _Names("links", named),
            "label": _Names("labels", labels.select("label", "phase", "call")),
            **{key: _Names("ranks", frame) for key, frame in ends.items()},
        }

    def received_by(self, host: str) -> Run:
        """The samples and messages that arrived at one host, or at one of its nodes.

        Needs a run with ``[telemetry] receivers = true``, or with headers of packets.
        """
        return Run.of(with_samples(received_by(self, host)))

    def by_receives(self) -> Run:
        """The same run with phases, calls and lines of the receiving side of each message."""
        return Run.of(labelled_by_receives(self))

    def _repr_html_(self) -> str:
        congested = congestion_of(self)
        rows = {
            "model": model_description(self),
            "elapsed": format_time(self.elapsed_ps),
            "packets": f"{self.summary['packets']:,}",
            "average path length": f"{self.summary['average_path_length']:.3f} switches",
            "congested hops": "not known" if congested is None else percent(congested, 2),
        }
        return table_html(f"Run {self.scenario.name}", rows)


def table_html(title: str, rows: dict[str, str]) -> str:
    """A titled table of names and values for a notebook; names and values are escaped."""
    cells = "".join(
        f"<tr><th style='text-align:left'>{escape(name)}</th><td>{escape(value)}</td></tr>"
        for name, value in rows.items()
    )
    return f"<table><caption>{escape(title)}</caption>{cells}</table>"


@known_keywords()
def read_run(folder: str | Path) -> Run:
    """Read a run that was written to a folder.

    Args:
        folder: What ``tailback simulate --out`` or :meth:`Run.write` wrote; of the folder of a
            diagnosis, the run that was diagnosed.

    Returns:
        The run. Samples that its packets carried in their headers have been decoded.

    Raises:
        RunError: The folder holds no run, or a damaged one.

    Example:
        >>> run = tb.read_run("diagnosis")
        >>> run.tables["links"]
    """
    return Run.of(with_samples(base.Run.read(base.run_folder(Path(folder)))))
