"""What people look at: figures, and the self-contained HTML report.

Everything here reads a run's tables and a diagnosis; nothing is simulated or decided. A figure is
one file in ``figures`` with one line that registers it.
"""

from tailback.report.attribution import (
    Attribution,
    HotLine,
    attribute,
    by_line,
    to_json,
    to_table,
)
from tailback.report.difference import change_table, line_changes
from tailback.report.evidence import Case, Evidence
from tailback.report.export import export_figures, make_case, same_fabric
from tailback.report.figure import FIGURES, Options, draw, figure, render
from tailback.report.html import render_report, write_comparison, write_report

__all__ = [
    "FIGURES",
    "Attribution",
    "Case",
    "Evidence",
    "HotLine",
    "Options",
    "attribute",
    "by_line",
    "change_table",
    "draw",
    "export_figures",
    "figure",
    "line_changes",
    "make_case",
    "render",
    "render_report",
    "same_fabric",
    "to_json",
    "to_table",
    "write_comparison",
    "write_report",
]
