"""A run as the library returns it: with figures, and a summary for notebooks."""

from __future__ import annotations

from dataclasses import fields
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from tailback.api.runs import congestion_of, model_description, with_samples
from tailback.errors import known_keywords
from tailback.run import run as base
from tailback.telemetry.run_views import labelled_by_receives, received_by
from tailback.units import format_time, percent

if TYPE_CHECKING:
    from tailback.api.plots import Plots


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
        >>> run.tables["messages"].to_pandas()
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
