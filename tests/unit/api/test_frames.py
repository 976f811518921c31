"""Runs as objects of other libraries, which are not among the dependencies."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

import tailback as tb
from tests.factories.report_data import make_run


@pytest.fixture(scope="module")
def run() -> tb.Run:
    return tb.Run.of(make_run())


def test_graph_frame_adds_up_to_the_stall(run: tb.Run) -> None:
    pytest.importorskip("hatchet", reason="hatchet (llnl-hatchet) is not installed")
    frame = run.to_hatchet()
    times = frame.dataframe
    assert times["time (inc)"].max() == pytest.approx(times["time"].sum())
    assert times["time"].sum() > 0
    kinds = {node.frame["type"] for node in frame.graph.traverse()}
    assert kinds == {"all", "link", "line", "rank"}


def test_pipits_matrix_has_the_bytes_of_the_run(run: tb.Run) -> None:
    pipit = pytest.importorskip("pipit", reason="pipit is not installed")
    if not hasattr(pipit, "Trace"):
        pytest.skip("pipit is another package of this name")
    matrix = run.to_pipit().comm_matrix()
    ranks = run.tables["ranks"].height
    expected = np.zeros((ranks, ranks))
    for src, dst, size in (
        run.tables["messages"].select("src_rank", "dst_rank", "size_bytes").iter_rows()
    ):
        expected[src, dst] += size
    assert np.array_equal(matrix, expected) and expected.any()


@pytest.mark.parametrize(("library", "method"), [("hatchet", "to_hatchet"), ("pipit", "to_pipit")])
def test_absent_library_is_named(
    run: tb.Run, library: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PyPI has packages of both names that are other ones.
    monkeypatch.setitem(sys.modules, library, ModuleType(library))
    with pytest.raises(tb.TailbackError, match=f"needs the package {library}\n.*pip install"):
        getattr(run, method)()
