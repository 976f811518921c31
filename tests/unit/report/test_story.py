"""The verdict in steps on the first screen."""

from __future__ import annotations

from dataclasses import replace

from tailback.report.attribution import CallSite
from tailback.report.story import story_of
from tests.factories.report_data import make_diagnosis, make_run

SITE = CallSite(
    place="leaf00: 4 down-links", link=3, ours=True, line="MPI_Isend in ring", phase="ring",
    call="MPI_Isend", tag=1, communicator="MPI_COMM_WORLD", share=0.5, stall=2.0,
    ranks=frozenset({1}),
)  # fmt: skip


def test_a_line_that_congests_several_groups_of_links_is_named_once() -> None:
    diagnosis = make_diagnosis(make_run())
    sites = [SITE, replace(SITE, place="leaf01: 2 down-links", link=9),
             replace(SITE, line="MPI_Isend in halo", phase="halo")]  # fmt: skip
    steps = story_of(diagnosis, "Placement of ranks", diagnosis.top_links, sites, [])
    step = next(step for step in steps if step.name == "Phase and call")
    assert [item.text for item in step.items] == ["MPI_Isend in ring", "MPI_Isend in halo"]
