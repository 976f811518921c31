"""The evidence of a diagnosis as a table on the screen."""

from __future__ import annotations

from collections.abc import Sequence

from tailback.cli.text import align_columns, table_width, truncate, wrap
from tailback.diagnosis.cause_wording import NAMES
from tailback.diagnosis.explanation import EvidenceRow
from tailback.names.display import printable
from tailback.units import counted, format_times

SHOWN = 40
"""Rows on the screen: what fits on one page of a terminal; the files have all."""

WIDE, BESIDE = 140, 112
"""Columns from which what follows from a row is in the row itself, and those of the others."""


def evidence_lines(rows: Sequence[EvidenceRow]) -> list[str]:
    """The table of evidence, the most decisive rows first.

    Args:
        rows: The rows, in the order in which they are shown.
    """
    shown = rows[:SHOWN]
    if not shown:
        return []
    end_ps = max(row.end_ps for row in rows)
    causes = list(dict.fromkeys(cause for row in rows for cause in row.log_ratios))
    wide = table_width() >= WIDE
    head = ["subject", "quantity", "value", *(["when"] if wide else []), "source"]
    head += [NAMES[cause] if wide else NAMES[cause].split()[0] for cause in causes]
    head += ["what follows"] if wide else []
    cells = [
        [
            printable(row.subject),
            printable(row.quantity),
            row.text,
            *([_when(row, end_ps)] if wide else []),
            row.source,
            *(_signed(row.log_ratios.get(cause)) for cause in causes),
            *([truncate("; ".join(_says(row)), table_width() - BESIDE)] if wide else []),
        ]
        for row in shown
    ]
    right = "  r" + ("  " if wide else " ") + "r" * len(causes)
    titled, *lines = align_columns(head, cells, right, names=(0, 1) if wide else (0,))
    out = ["", "EVIDENCE, the most decisive first", titled]
    for row, line in zip(shown, lines, strict=True):
        out.append(line)
        for text in () if wide else _says(row):
            out += wrap(text, indent="      ")
    if len(rows) > SHOWN:
        out.append(f"  {counted(len(rows) - SHOWN, 'more row')} in evidence.parquet")
    if causes:
        out += wrap(
            f"Columns of causes ({', '.join(NAMES[cause] for cause in causes)}): natural logarithm "
            "of the likelihood with the cause over that without it; above 0 speaks for it. Rows of "
            "all subjects contain the others of their quantity."
        )
    return out


def _says(row: EvidenceRow) -> list[str]:
    """What follows from a row, by cause."""
    return [f"{NAMES.get(cause, cause)}, {text}" for cause, text in row.says.items()]


def _when(row: EvidenceRow, end_ps: int) -> str:
    """The time of a row; empty for all of the run."""
    if row.start_ps <= 0 and row.end_ps >= end_ps:
        return ""
    return format_times(row.start_ps, row.end_ps)


def _signed(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:+.1f}"
