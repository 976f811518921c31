"""Measured part of docs/measurements/accuracy.md, from the answers of ``diagnosis``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from diagnosis_suite import LABELS

from tailback.units import percent


@dataclass(frozen=True)
class Answer:
    """The diagnosis of one scenario, observed in one way."""

    number: int
    label: str
    kind: str
    routing: str
    scheme: str
    packets: int
    knowledge: str
    cause: str
    confidence: float
    basis: str
    headline: str
    seconds: float
    saved: dict[str, float]
    rejected: int

    @property
    def right(self) -> bool:
        """Whether it is the label."""
        return self.cause == self.label


def accuracy_table(rows: Sequence[dict[str, object]]) -> list[str]:
    """Accuracy by knowledge, scheme and packets."""
    out = [
        "| known | scheme | packets | right | accuracy | 95 % interval | calibration error | "
        "mean squared error |"
    ]
    out.append("|---|---|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        low, high = row["accuracy_95"]  # type: ignore[misc]
        out.append(
            f"| {row['knowledge']} | {row['scheme']} | {row['packets']:,} | {row['right']} of "
            f"{row['scenarios']} | {percent(row['accuracy'], 1)} | "
            f"{percent(low, 1)}–{percent(high, 1)} | {percent(row['calibration_error'], 1)} | "
            f"{row['squared_error']:.3f} |"
        )
    return out


def confusion_table(found: Sequence[Answer]) -> list[str]:
    """Labels in rows, verdicts in columns."""
    causes = [*LABELS, "undetermined"]
    count = Counter((a.label, a.cause) for a in found)
    out = ["| built in ↓ said → | " + " | ".join(causes) + " |", "|---" * (len(causes) + 1) + "|"]
    for label in LABELS:
        cells = [str(count[label, cause] or "") for cause in causes]
        out.append(f"| {label} | " + " | ".join(cells) + " |")
    return out


def calibration_table(bins: Sequence[dict[str, float]]) -> list[str]:
    """Stated confidence against the share of right answers."""
    out = [
        "| stated | answers | mean stated | right | 95 % interval |",
        "|---|---:|---:|---:|---:|",
    ]
    out += [
        f"| {percent(b['from'])}–{percent(b['to'])} | {b['answers']:.0f} | "
        f"{percent(b['stated'], 1)} | {percent(b['right'], 1)} | "
        f"{percent(b['right_low'], 1)}–{percent(b['right_high'], 1)} |"
        for b in bins
    ]
    return out


def fabric_table(found: Sequence[Answer]) -> list[str]:
    """Right answers by kind of fabric."""
    out = ["| fabric | right |", "|---|---:|"]
    for kind, total in sorted(Counter(a.kind for a in found).items()):
        out.append(f"| {kind} | {sum(a.right for a in found if a.kind == kind)} of {total} |")
    return out


def miss_table(found: Sequence[Answer]) -> list[str]:
    """Every miss, with the counterfactual times of the scenario."""
    out = [
        "| scenario | fabric, routing | built in | said | sure | saved by taking away alone |",
        "|---:|---|---|---|---:|---|",
    ]
    for a in found:
        if not a.right:
            saved = ", ".join(
                f"{name} {percent(value)}"
                for name, value in sorted(a.saved.items(), key=lambda item: -item[1])
                if name in LABELS and value >= 0.02
            )
            out.append(
                f"| {a.number} | {a.kind}, {a.routing} | {a.label} | {a.cause} | "
                f"{percent(a.confidence)} | {saved or 'nothing'} |"
            )
    return out
