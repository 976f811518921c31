"""The text format of Prometheus, version 0.0.4: the one place where it is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

_LONGEST_LABEL: Final = 128
INFO: Final = "tailback_port_info"
"""Metric whose labels are the far end, the width and the speed of a port's link."""


def family(name: str, kind: str, help_text: str) -> list[str]:
    """Header lines of a metric family."""
    return [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]


def sample(name: str, value: float | int, labels: str = "") -> str:
    """One sample; ``labels`` from :func:`labelled`."""
    return f"{name}{labels} {_number(value)}"


def samples(name: str, values: Sequence[float | int], labels: Sequence[str]) -> list[str]:
    """Samples of a family, by their labels; none where a value is NaN."""
    return [
        f"{name}{label} {value if type(value) is int else _number(value)}"
        for label, value in zip(labels, values, strict=True)
        if value == value
    ]


def labelled(values: Mapping[str, str]) -> str:
    """Labels of a sample, in braces."""
    return "{" + ",".join(f'{name}="{label(value)}"' for name, value in values.items()) + "}"


def by_label(counts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Counts by label. Names that are cut to the same label become one sample."""
    merged: Counter[str] = Counter()
    for name, count in counts:
        merged[label(name)] += count
    return dict(merged)


def label(text: str) -> str:
    r"""Text as the value of a label: cut to 128 characters and escaped.

    Control characters, which the format allows and terminals do not, are written as ``\x1b`` or
    ``\u202e`` and a backslash as two, so that different names stay different. A scraper shows one
    backslash for each two of the page.
    """
    text = text[:_LONGEST_LABEL]
    if text.isprintable() and "\\" not in text and '"' not in text:
        return text
    visible = "".join(_visible(c) for c in text)
    return visible.replace("\\", "\\\\").replace('"', '\\"')


def _visible(character: str) -> str:
    if character == "\\":
        return "\\\\"
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")


def _number(value: float | int) -> str:
    return str(value) if isinstance(value, int) else f"{value:.9g}" if value < 1e9 else repr(value)
