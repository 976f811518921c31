"""Figures and the self-contained HTML report.

These modules only read the tables of a run and a diagnosis; they neither simulate nor decide. A
figure is one file in ``figures`` with one line that registers it.
"""

from tailback.report.attribution import (
    Attribution,
    CallSite,
    attribute,
    by_call_site,
    to_json,
    to_table,
)
from tailback.report.coverage import coverage, shown_coverage
from tailback.report.difference import call_site_changes, change_table
from tailback.report.export import export_figures, make_case, same_fabric
from tailback.report.figure import FIGURES, Options, canvas, draw, figure, render, style
from tailback.report.figure_data import FigureCase, FigureData
from tailback.report.figures.congested_fraction import draw_congestion
from tailback.report.html import render_report, write_comparison, write_report
from tailback.report.scales import FAINT, INK, MUTED, colormap

__all__ = [
    "FAINT",
    "FIGURES",
    "INK",
    "MUTED",
    "Attribution",
    "CallSite",
    "FigureCase",
    "FigureData",
    "Options",
    "attribute",
    "by_call_site",
    "call_site_changes",
    "canvas",
    "change_table",
    "colormap",
    "coverage",
    "draw",
    "draw_congestion",
    "export_figures",
    "figure",
    "make_case",
    "render",
    "render_report",
    "same_fabric",
    "shown_coverage",
    "style",
    "to_json",
    "to_table",
    "write_comparison",
    "write_report",
]
