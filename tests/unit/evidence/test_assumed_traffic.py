"""What an unknown job is assumed to send, and that a trace beside one shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tailback.evaluate import Change
from tailback.evidence import measure
from tailback.evidence.assumed_traffic import MAX_HOSTS, assumed_messages, hosts_of_others
from tailback.evidence.call_profile import call_profile
from tailback.fabric.degraded import SlowLink
from tailback.inference.evidence import NetworkEvidence
from tailback.inference.hypotheses import Posterior
from tailback.inference.hypothesis_space import HypothesisSpace
from tailback.inference.network_clues import OtherJobs, comparisons
from tailback.inference.search import ExplanationSearch
from tailback.run.run import Run
from tailback.scenario.model import parse
from tailback.simulation import PreparedScenario, make_evaluate, prepare
from tests.factories.otf2_traces import writing
from tests.factories.simulated_traces import RESOLUTION, scripts_of

TREE = {"hosts_per_leaf": 4, "leaves": 4, "aggregation": 1}
OURS = [f"n{leaf * 4 + place:02}" for leaf in range(4) for place in range(2)]
PATTERN = {
    "kind": "stencil2d",
    "dims": [4, 2],
    "size": "256 KiB",
    "rounds": 24,
    "post": "all",
    "boundary": "skip",
    "compute": "30 us",
}
CHANGE = Change(computations=True, measure=True)


def world(job: dict[str, Any], seed: int = 1) -> PreparedScenario:
    data = {
        "seed": seed,
        "fabric": {"fat_tree": TREE},
        "engine": {"injection": "round-robin"},
        "job": [{"hosts": ",".join(OURS), **job}],
    }
    return prepare(parse(data))


def weigh_causes(tmp_path: Path, happened: Run, prepared: PreparedScenario) -> Posterior:
    """What the trace of a run that happened shows."""
    write = writing(tmp_path)
    path = write(
        scripts_of(prepared.observed.program, happened),
        resolution=RESOLUTION,
        hosts=[prepared.fabric.host_name[node] for node in prepared.observed.node],
    )
    measured = measure(path, environment={})
    again = world({"trace": str(path)})
    alone = make_evaluate(again)(CHANGE)
    profile = call_profile(measured.tables, again.observed.program)
    compared = comparisons(again, measured, NetworkEvidence(), alone, profile)
    case = HypothesisSpace(
        OtherJobs(), profile, compared, measured, NetworkEvidence(), lambda *_: None, 1
    )
    return ExplanationSearch(case).explained(again, None)


def beside(prepared: PreparedScenario, load: float, length_ps: int) -> Run:
    """Our job beside another on the hosts it does not use; its partners are nobody's guess."""
    nodes = hosts_of_others(prepared.fabric, prepared.observed.node)
    messages = assumed_messages(prepared.fabric, nodes, load, 30, length_ps, seed=77)
    return make_evaluate(prepared.with_other_traffic("other", messages))(CHANGE)


@pytest.mark.slow
def test_a_hidden_job_is_found_with_its_cost(tmp_path: Path) -> None:
    prepared = world({"pattern": PATTERN})
    alone = make_evaluate(prepared)(CHANGE)
    happened = beside(prepared, 0.5, 2 * alone.elapsed_ps)
    cost = happened.elapsed_ps - alone.elapsed_ps
    assert cost > 0.15 * happened.elapsed_ps
    posterior = weigh_causes(tmp_path, happened, prepared)
    best = posterior.best
    assert best.job is not None and best.alone_ps is not None
    assert best.outcome.elapsed_ps - best.alone_ps == pytest.approx(cost, rel=0.3)
    assert posterior.of_cause("other-traffic") > 0.5


@pytest.mark.slow
def test_a_slow_host_cable_is_no_hidden_job(tmp_path: Path) -> None:
    prepared = world({"pattern": PATTERN})
    fabric = prepared.fabric
    link = int(np.flatnonzero(fabric.link_src == prepared.observed.node[5])[0])
    slow = (SlowLink(link, 0.4 * float(fabric.link_gbps[link])),)
    happened = make_evaluate(prepared)(Change(slow=slow, computations=True, measure=True))
    posterior = weigh_causes(tmp_path, happened, prepared)
    # At best a job explains a part of the difference, which the right cable explains wholly.
    assert posterior.of_cause("other-traffic") < 0.1
    assert {slow_link.link for slow_link in posterior.best.slow} <= {
        link,
        int(fabric.link_reverse[link]),
    }
    assert posterior.of_cause("slow-link") > 0.9


def test_assumed_hosts_are_unused_and_nearest_first() -> None:
    prepared = world({"pattern": PATTERN})
    nodes = hosts_of_others(prepared.fabric, prepared.observed.node)
    names = {prepared.fabric.host_name[prepared.fabric.node_host[node]] for node in nodes}
    assert not names & set(OURS) and len(nodes) == 8
    pair = {"hosts": "n100,n101", "pattern": {"kind": "ring", "ranks": 2, "size": "1 KiB"}}
    large = prepare(parse({"fabric": {"fat_tree": {**TREE, "leaves": 40}}, "job": [pair]}))
    some = hosts_of_others(large.fabric, large.observed.node)
    assert len(some) == MAX_HOSTS
    ours = large.fabric.node_switch[large.observed.node[0]]
    assert (large.fabric.node_switch[some[:2]] == ours).all()


def test_assumed_messages_have_load_and_one_partner() -> None:
    fabric = world({"pattern": PATTERN}).fabric
    nodes = np.arange(2, 8)
    length = 10**10
    messages = assumed_messages(fabric, nodes, 0.4, 96, length, seed=3)
    at, src, dst, size = (np.array(column) for column in zip(*messages, strict=True))
    assert (np.diff(at) >= 0).all() and at.min() >= 0
    partner = {(int(a), int(b)) for a, b in zip(src, dst, strict=True)}
    assert len(partner) == 6 and {a for a, _ in partner} == {b for _, b in partner} == set(
        range(2, 8)
    )
    assert all(a != b for a, b in partner)
    offered = size.sum() * 8000.0 / (float(fabric.link_gbps[0]) * 6 * length)
    assert offered == pytest.approx(0.4, rel=0.25)


def test_a_share_of_the_free_hosts_may_send() -> None:
    fabric = world({"pattern": PATTERN}).fabric
    nodes = np.arange(2, 8)
    senders = [
        {a for _, a, _, _ in assumed_messages(fabric, nodes, 0.4, 24, 10**10, seed, share=0.5)}
        for seed in range(4)
    ]
    assert {len(some) for some in senders} == {3} and len(set(map(frozenset, senders))) > 1
    # Bursts that are shorter than a message still have one.
    assert assumed_messages(fabric, nodes, 0.01, 96, 10**8, seed=1, share=0.0)
