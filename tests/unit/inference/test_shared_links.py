"""Links that other jobs use besides ours: which are listed, and how the screen shows them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from tailback.cli.explanation_screen import explanation_lines
from tailback.diagnosis.explanation import Explanation
from tailback.evidence.job_shares import OURS, SCHEMA
from tailback.evidence.other_traffic import OtherTraffic
from tailback.inference.explain import shared_links
from tests.factories.counted_links import small_tree

FABRIC = small_tree()
NOBODY = OtherTraffic(np.zeros(12), np.zeros(12), 1.0, 0.01, (), pl.DataFrame(), 4096)
LINKS = pl.DataFrame(
    [
        (30, OURS, 4e6, 0.4, 0.02),
        (30, "21", 5e6, 0.5, 0.02),
        (30, "unknown", 1e6, 0.1, 0.02),
        (31, OURS, 2e7, 0.5, 0.05),
        (31, "21", 1.8e7, 0.45, 0.05),
        (31, "unknown", 2e6, 0.05, 0.05),
        (32, OURS, 9.5e6, 0.95, 0.01),
        (32, "21", 5e5, 0.05, 0.01),
        (32, "unknown", 0.0, 0.0, 0.01),
        (33, OURS, 0.0, 0.0, 0.01),
        (33, "21", 9e7, 1.0, 0.01),
        (33, "unknown", 0.0, 0.0, 0.01),
    ],
    schema=SCHEMA,
    orient="row",
)


def test_shared_links_are_ordered_by_others_traffic() -> None:
    links = shared_links(replace(NOBODY, links=LINKS), FABRIC)
    assert [link.link for link in links] == [FABRIC.link_name(31), FABRIC.link_name(30)]
    # A job whose share may as well be nothing is not named.
    assert links[0].jobs == {"21": 0.45} and links[0].ours == 0.5
    assert links[1].jobs == {"21": 0.5, "unknown": 0.1}
    assert shared_links(None, FABRIC) == () and shared_links(NOBODY, FABRIC) == ()


def test_the_screen_names_jobs_and_shares() -> None:
    links = shared_links(replace(NOBODY, links=LINKS), FABRIC)
    explanation = Explanation(
        elapsed_ps=10,
        parts={"computation": 10},
        costs=[],
        not_explained_ps=0,
        model_error_ps=0,
        missing=[],
        sources=["trace"],
        shared_links=list(links),
    )
    screen = " ".join(" ".join(explanation_lines(explanation, verbose=True)).split())
    assert f"shared link {FABRIC.link_name(30)}: job 21 50 %, unknown senders 10 %, " in screen
    assert "your job 40 % of its bytes (± 4 points)" in screen
    assert Explanation.model_validate_json(explanation.model_dump_json()) == explanation
