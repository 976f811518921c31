"""Folded stacks, for speedscope (https://speedscope.app), flamegraph.pl and inferno."""

from __future__ import annotations

from collections.abc import Iterator

from tailback.report.exports.model import EXPORTS, Exported, Result
from tailback.report.flame import Frame, title


@EXPORTS.register("folded")
def folded(result: Result) -> Exported:
    """Back-pressure as folded stacks: saturated links, what waits for them, lines, ranks."""
    attribution = result.attribution
    unit = "nanoseconds of stall" if attribution.unit == "ps" else "congested packets"
    scale = 1000 if attribution.unit == "ps" else 1
    lines = list(_stacks(attribution.flame, (), scale))
    return Exported(
        lines,
        f"{len(lines):,} stacks, values in {unit}",
        "open it in https://speedscope.app, or run flamegraph.pl FILE > flame.svg",
    )


def _stacks(frame: Frame, below: tuple[str, ...], scale: int) -> Iterator[str]:
    """A line for each box whose value is not all in the boxes above it."""
    path = below if frame.kind == "all" else (*below, _name(frame))
    stall_of_box = frame.value - sum(child.value for child in frame.children)
    # What is left of sums of the same numbers in another order is no time.
    if path and stall_of_box > 1e-9 * frame.value:
        yield f"{';'.join(path)} {max(round(stall_of_box / scale), 1)}"
    for child in frame.children:
        yield from _stacks(child, path, scale)


def _name(frame: Frame) -> str:
    """The name of a box: semicolons separate boxes, and line ends separate stacks."""
    return " ".join(title(frame).replace(";", ",").split()) or "?"
