"""What people look at: figures, and the self-contained HTML report.

Everything here reads a run's tables and a diagnosis; nothing is simulated or decided. A figure is
one file in ``figures`` with one line that registers it.
"""

from tailback.report.attribution import Attribution, HotLine, attribute, by_line, to_json
from tailback.report.evidence import Case, Evidence
from tailback.report.export import export_figures, make_case
from tailback.report.figure import FIGURES, Options, draw, figure, render
from tailback.report.html import render_report, write_report

__all__ = [
    "FIGURES",
    "Attribution",
    "Case",
    "Evidence",
    "HotLine",
    "Options",
    "attribute",
    "by_line",
    "draw",
    "export_figures",
    "figure",
    "make_case",
    "render",
    "render_report",
    "to_json",
    "write_report",
]
