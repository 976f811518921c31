"""The evidence of a diagnosis as one table, whatever it came from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import polars as pl

from tailback.diagnosis.cause_wording import CODE
from tailback.diagnosis.explanation import EvidenceRow
from tailback.diagnosis.model import Diagnosis
from tailback.diagnosis.waterfall import CAUSE_OF_STEP
from tailback.run.schema import DERIVED

CAUSE_OF_BAR: Final = {**CAUSE_OF_STEP, "injection": "injection"}
"""Cause that a bar of the waterfall is the cost of."""


WORTH_A_MENTION: Final = 1.0
"""Logarithm of a likelihood ratio below which a row hardly speaks for or against a cause: "not
worth more than a bare mention" (Kass and Raftery 1995)."""


def by_weight(rows: Iterable[EvidenceRow]) -> list[EvidenceRow]:
    """The rows, the most decisive first.

    By likelihood ratio; of rows whose ratio is hardly worth a mention, those that are used
    otherwise come first.
    """
    return sorted(
        rows,
        key=lambda row: (
            row.weight < WORTH_A_MENTION,
            not row.says and row.weight < WORTH_A_MENTION,
            -row.weight,
        ),
    )


def evidence_table(rows: Sequence[EvidenceRow]) -> pl.DataFrame:
    """The rows as table ``evidence`` of the schema."""
    return pl.DataFrame(
        [
            {
                **row.model_dump(exclude={"log_ratios", "says"}),
                "for_slow_link": row.log_ratios.get("slow-link"),
                "for_other_traffic": row.log_ratios.get("other-traffic"),
                "says": [{"cause": cause, "text": text} for cause, text in row.says.items()],
            }
            for row in rows
        ],
        schema=dict(DERIVED["evidence"].polars_schema),
    )


def rows_of_model(diagnosis: Diagnosis) -> list[EvidenceRow]:
    """The evidence of a diagnosis without a measured run: findings of rules, and simulated costs.

    Args:
        diagnosis: The diagnosis.
    """
    end_ps = diagnosis.modelled_ps
    rows = [
        EvidenceRow(
            subject=", ".join(link.name for link in finding.links[:2]) or "all links",
            kind="link" if finding.links else "run",
            start_ps=0,
            end_ps=end_ps,
            quantity=f"congestion, {finding.code}",
            value=finding.share,
            unit="share",
            source="samples",
            says={finding.cause: f"for: {finding.title}"},
        )
        for finding in diagnosis.findings
        if finding.code != CODE  # A finding without a rule only repeats the verdict.
    ]
    for bar in diagnosis.waterfall:
        cause = CAUSE_OF_BAR.get(bar.name)
        adds = "for" if bar.delta_ps > 0 else "against"
        named = f"{'cost of' if bar.delta_ps >= 0 else 'time saved by'} {bar.name}"
        rows.append(
            EvidenceRow(
                subject="all ranks",
                kind="run",
                start_ps=0,
                end_ps=bar.elapsed_ps,
                quantity=named if cause else f"{bar.name} time",
                value=float(abs(bar.delta_ps) if cause else bar.elapsed_ps),
                unit="ps",
                error=(bar.high_ps - bar.low_ps) / 2.0 or None,
                source="model",
                says={cause: f"{adds}: {bar.meaning}"} if cause else {},
            )
        )
    return by_weight(rows)
