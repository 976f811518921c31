"""Cables ranked in coarse packets: when, which of them are left, and what is said of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from tailback.diagnosis.cable_search import Outcome
from tailback.evaluate import Change
from tailback.inference import explain_wording
from tailback.inference.coarse_ranking import (
    CLEAR,
    FEWEST_KEPT,
    CoarseRanking,
    coarse_size,
    one_stands_out,
    rank,
)
from tailback.inference.error_model import ErrorModel
from tailback.inference.hypotheses import Prior
from tailback.inference.measured_cables import MeasuredCableTrials
from tailback.inference.search import SUSPECTS_PER_ROUTING
from tailback.scenario.model import parse

MEASURED = 1000
HEALTHY = Outcome(600, {"calls": 0.3, "sends": 0.3})
MODEL = ErrorModel.of(MEASURED, [[HEALTHY]], lossy=False)


def engine(**settings: Any) -> Any:
    fabric = {"fat_tree": {"hosts_per_leaf": 2, "leaves": 2, "aggregation": 2}}
    job = [{"pattern": {"kind": "ring", "ranks": 4}}]
    return parse({"fabric": fabric, "job": job, "engine": settings}).engine


def run_of(*sizes_kib: int) -> Any:
    sizes = pl.Series("size_bytes", [size << 10 for size in sizes_kib], pl.UInt64)
    return SimpleNamespace(tables={"messages": pl.DataFrame(sizes)})


@pytest.mark.parametrize(
    ("sizes", "settings", "size"),
    [
        ([256, 256, 128], {}, 16 << 10),
        ([4096, 256], {}, 32 << 10),
        ([128] * 10, {}, None),
        # A few large messages among many bytes in small ones.
        ([256] + [32] * 10, {}, None),
        ([256], {"packet": "8 KiB"}, None),
        ([4096], {"packet": "8 KiB"}, 32 << 10),
        ([4096], {"coarse": "16 KiB"}, None),
        ([4096], {"injection": "per-destination", "pacing": {"kind": "spaced"}}, None),
    ],
)
def test_only_large_messages_are_simulated_in_coarse_packets(
    sizes: list[int], settings: dict[str, Any], size: int | None
) -> None:
    assert coarse_size(run_of(*sizes), engine(**settings)) == size


def test_cables_are_ranked_where_one_clearly_fits() -> None:
    good = Outcome(MEASURED, {"calls": 0.02, "sends": 0.02})
    assert MODEL.log_shape(good) > MODEL.log_shape(HEALTHY) + CLEAR
    assert one_stands_out([HEALTHY, good], HEALTHY, MODEL)
    nearly = Outcome(MEASURED, {"calls": 0.25, "sends": 0.25})
    assert not one_stands_out([nearly], HEALTHY, MODEL)
    assert not one_stands_out([], HEALTHY, MODEL)


def ranked(misfits: dict[int, float]) -> Any:
    """The ranking of cables by the misfit that each has when it is slow."""

    def predict(change: Change) -> Outcome:
        return Outcome(MEASURED, dict.fromkeys(("calls", "sends"), misfits[change.slow[0].link]))

    reverse: Any = list(range(100))
    nominal: Any = [100.0] * 100
    trials = MeasuredCableTrials(
        predict=predict,
        model=MODEL,
        prior=Prior(len(misfits), reverse),
        healthy=HEALTHY,
        nominal=nominal,
    )
    return rank(trials, list(misfits), 16 << 10, lambda *_: None)


def test_clearly_worse_cables_leave_the_ranking() -> None:
    misfits = {link: 0.2 + link / 1000 for link in range(40)} | {30: 0.02}
    ranking = ranked(misfits)
    assert ranking.considered == 40 and ranking.trials >= 40 and ranking.size_bytes == 16 << 10
    # The best twelve, in their former order.
    assert ranking.suspects == [*range(FEWEST_KEPT - 1), 30]


def test_cables_about_as_good_as_the_best_stay() -> None:
    misfits = {link: 0.05 + link / 1000 for link in range(20)} | dict.fromkeys(range(20, 40), 0.3)
    assert ranked(misfits).suspects == list(range(20))


def test_cables_after_a_full_explanation_stay_possible() -> None:
    misfits = dict.fromkeys(range(20), 0.2) | {20: 0.001} | dict.fromkeys(range(21, 30), 0.2)
    ranking = ranked(misfits)
    assert 20 in ranking.suspects and ranking.suspects[-9:] == list(range(21, 30))
    assert len(ranking.suspects) == FEWEST_KEPT + 9


def test_a_search_keeps_as_many_as_it_examines() -> None:
    assert FEWEST_KEPT >= SUSPECTS_PER_ROUTING


def test_a_diagnosis_mentions_coarse_ranking() -> None:
    ranking = CoarseRanking(list(range(12)), considered=160, size_bytes=16 << 10, trials=200)
    sentence = explain_wording.ruled_out_coarsely(ranking)
    assert sentence.startswith("of 160 cables, 148 were ruled out") and "of 16 KiB" in sentence
