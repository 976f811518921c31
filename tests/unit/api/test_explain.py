"""What is said of evidence: links that may be slow, and what would settle it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tailback.api import explain
from tailback.api import explain_wording as wording
from tailback.api.attempts import Attempt
from tailback.api.evidence import NetworkEvidence
from tailback.diagnosis.hidden_cables import CableSearch, Trial
from tailback.diagnosis.unknown_job import UnknownJob
from tailback.fabric.degraded import SlowLink

BEST, RIVAL = Trial((SlowLink(3, 20.0),), 0.1, 1), Trial((SlowLink(5, 30.0),), 0.12, 1)


def attempt(search: CableSearch, job: UnknownJob | None = None) -> Attempt:
    return Attempt(None, None, (), "", search, 0.0, (), job)  # type: ignore[arg-type]


def test_several_links_may_be_slow_unless_an_unknown_job_explains_the_run() -> None:
    ambiguous = attempt(CableSearch(None, (RIVAL,), BEST))
    assert explain._candidates(ambiguous) == [BEST.cables, RIVAL.cables]
    assert explain._candidates(attempt(CableSearch(BEST, (), BEST))) == []
    job = UnknownJob(1, 1, 1, 0.3, 0.01, 0.2)
    assert explain._candidates(replace(ambiguous, unknown_job=job)) == []


def test_only_missing_evidence_is_asked_for() -> None:
    def asked(evidence: NetworkEvidence, *, tables: bool) -> list[str]:
        words = explain._Statements()
        explain._ask_for_more(words, evidence, tables=tables)
        return words.missing

    counters: Any = SimpleNamespace()
    assert asked(NetworkEvidence(), tables=False) == [wording.COUNTERS]
    assert asked(NetworkEvidence(), tables=True) == [wording.COUNTERS, wording.FORWARDING]
    assert asked(NetworkEvidence(counters), tables=False) == []
