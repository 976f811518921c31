"""The verdict in steps on the first screen."""

from __future__ import annotations

from dataclasses import replace

from tailback.diagnosis.explanation import Cost, Explanation, SubjectLink
from tailback.report.attribution import CallSite
from tailback.report.export import make_case
from tailback.report.story import story_of
from tests.factories.report_data import make_diagnosis, make_run

SITE = CallSite(
    place="leaf00: 4 down-links",
    link=3,
    ours=True,
    line="MPI_Isend in ring",
    phase="ring",
    call="MPI_Isend",
    tag=1,
    communicator="MPI_COMM_WORLD",
    share=0.5,
    stall=2.0,
    ranks=frozenset({1}),
)


def test_a_line_congesting_several_groups_is_named_once() -> None:
    diagnosis = make_diagnosis(make_run())
    sites = [
        SITE,
        replace(SITE, place="leaf01: 2 down-links", link=9),
        replace(SITE, line="MPI_Isend in halo", phase="halo"),
    ]
    steps = story_of(diagnosis, diagnosis.top_links, sites, {})
    step = next(step for step in steps if step.name == "Phase and call")
    assert [item.text for item in step.items] == ["MPI_Isend in ring", "MPI_Isend in halo"]


def test_every_possibly_slow_cable_is_listed() -> None:
    diagnosis = make_diagnosis(make_run())
    names = [f"l{i}[1] → s{i}" for i in range(12)]
    cables = [f"{names[1]} (25 of 100 Gb/s)", f"{names[11]} (25 of 100 Gb/s)"]
    cost = Cost(
        cause=diagnosis.cause,
        ps=5,
        low_ps=4,
        high_ps=6,
        share=0.5,
        subject="; ".join(cables),
        links=tuple(
            SubjectLink(link=link, name=names[link], text=text)
            for link, text in zip((1, 11), cables, strict=True)
        ),
        one_of_links=True,
        evidence="",
        rests_on=("model",),
    )
    explained = Explanation(
        elapsed_ps=10,
        parts={"computation": 10},
        costs=[cost],
        not_explained_ps=0,
        model_error_ps=0,
        missing=[],
        sources=[],
    )
    with_explanation = diagnosis.model_copy(update={"explanation": explained})
    steps = story_of(with_explanation, diagnosis.top_links, [], {})
    step = next(step for step in steps if step.name == "Root links")
    assert [item.text for item in step.items] == cables and step.note == "these fit best"
    assert [item.address for item in step.items] == ["#where?link=1", "#where?link=11"]


def test_placement_without_links_shows_where_congestion_begins() -> None:
    diagnosis = make_diagnosis(make_run())
    root = diagnosis.findings[0].links[0]
    without_links = diagnosis.findings[0].model_copy(update={"cause": "placement", "links": []})
    others = [each.model_copy(update={"cause": "capacity"}) for each in diagnosis.findings]
    findings = [without_links, *others]
    judged = diagnosis.model_copy(update={"cause": "placement", "findings": findings})
    place = next(s for s in story_of(judged, [root], [], {}) if s.name == "Root links")
    assert [item.text for item in place.items] == [root.name]


def test_a_slow_cable_names_both_congested_directions() -> None:
    diagnosis = make_diagnosis(make_run())
    root = diagnosis.findings[0].links[0]
    named = SubjectLink(link=root.link + 1, name="other", text="other serves 11 of 40 Mb/s")
    cost = Cost(
        cause=diagnosis.cause,
        ps=5,
        low_ps=4,
        high_ps=6,
        share=0.5,
        subject=named.text,
        links=(named,),
        evidence="its port sent less than its rate",
        rests_on=("counters", "model"),
    )
    explained = Explanation(
        elapsed_ps=10,
        parts={"computation": 10},
        costs=[cost],
        not_explained_ps=0,
        model_error_ps=0,
        missing=[],
        sources=[],
    )
    measured = diagnosis.model_copy(update={"explanation": explained})
    _, place, *_, why = story_of(measured, [root], [], {named.link: root.link})
    assert [item.text for item in place.items] == [
        named.text,
        f"{root.name}, the other direction",
    ]
    assert why.items[0].text == cost.evidence and why.note == "rests on counters, model"
    case = make_case(make_run(), measured, None, None, None)
    assert case.roots[0] == named.link and root.link in case.roots
