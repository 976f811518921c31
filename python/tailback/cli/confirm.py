"""``tailback confirm``: the predicted gain of a remedy beside the measured one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tailback.cli.grouped_help import GroupedHelp
from tailback.cli.loading import loading
from tailback.cli.option_types import format_option
from tailback.cli.result import EXIT_OK, EXIT_REFUTED, EXIT_UNDETERMINED, show
from tailback.cli.text import align_columns, wrap
from tailback.units import counted, format_time, format_times, percent

if TYPE_CHECKING:
    from tailback.diagnosis.model import Estimate
    from tailback.inference.confirmation import Confirmation, CostCheck, PartChange

_EXIT = {"confirmed": EXIT_OK, "refuted": EXIT_REFUTED, "undetermined": EXIT_UNDETERMINED}

_BAR = 46
"""Columns of the longest bar."""


@click.command(cls=GroupedHelp)
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", nargs=-1, required=True, type=click.Path(path_type=Path))
@format_option
def confirm(before: Path, after: tuple[Path, ...], form: str) -> int:
    """Compare the predicted gain of a remedy with the measured one.

    BEFORE is the diagnosis of a recorded run. AFTER is a recording with the remedy, or its
    diagnosis; several show how much runs differ.

    Exit code 1 (refuted): the 95 % interval of the predicted minus the measured gain excludes 0, or
    that of the measured gain is below 0. Else 0 (confirmed) if the latter is above 0. Else 3, as
    without a prediction or comparable runs of 24 iterations.

    \b
    tailback confirm diagnosis after-1 after-2 after-3
    """
    with loading():
        from tailback.api.confirm import confirm as api_confirm
    confirmation = api_confirm(before, after)
    code = _EXIT[confirmation.outcome]
    if form == "json":
        return show(confirmation.model_dump_json(indent=2), code)
    lines = [*confirmation_lines(confirmation), *_next_step(confirmation, before)]
    return show("\n".join(lines), code)


def confirmation_lines(confirmation: Confirmation) -> list[str]:
    """The screen: outcome, times on one axis, parts of the time, cost of the cause."""
    return [
        *wrap(_outcome(confirmation), first=f"{confirmation.outcome.upper()}  "),
        "",
        *_bars(confirmation),
        "",
        *_parts(confirmation),
        "",
        *(wrap(_cost(confirmation.cost)) if confirmation.cost is not None else ()),
        *wrap(_basis(confirmation)),
        *chain.from_iterable(wrap(f"{caveat}.") for caveat in confirmation.caveats),
    ]


def _next_step(confirmation: Confirmation, before: Path) -> list[str]:
    """What to do where the remedy is not confirmed."""
    from tailback.io.folders import shell_path

    if confirmation.outcome == "confirmed":
        return []
    if confirmation.outcome == "refuted":
        what = "diagnose a recording with the remedy: tailback diagnose AFTER"
    elif confirmation.predicted is None:
        what = "diagnose the recording without the remedy again, with all its evidence"
    else:
        what = (
            "record the run with the remedy several times, with the same input as before, and "
            f"give all: tailback confirm {shell_path(before)} AFTER AFTER2 …"
        )
    return ["", *wrap(what, " " * 6, first="NEXT  ")]


def _outcome(confirmation: Confirmation) -> str:
    predicted, measured = confirmation.predicted, confirmation.measured
    if confirmation.reason:
        text = f"{confirmation.reason}."
    else:
        text = f"The remedy is {confirmation.remedy}."
    if predicted is not None:
        text += f" Predicted gain: {_with_interval(predicted)}."
    if measured is not None:
        text += f" Measured gain: {_with_interval(measured)}."
    if confirmation.harms:
        text += " The run is slower with the remedy."
    return f"{text[:1].upper()}{text[1:]}"


def _with_interval(share: Estimate) -> str:
    return f"{percent(share.value)} ({percent(share.low)} to {percent(share.high)})"


def _bars(confirmation: Confirmation) -> Iterator[str]:
    """Times before, predicted and after on one axis, with their intervals."""
    before = confirmation.before_ps
    rows: list[tuple[str, float, float, float]] = [("before", 1.0, 1.0, 1.0)]
    for name, gain in (("predicted", confirmation.predicted), ("after", confirmation.measured)):
        if gain is not None:
            rows.append((name, 1 - gain.high, 1 - gain.value, 1 - gain.low))
        elif name == "after":
            share = confirmation.after_ps / max(before, 1)
            rows.append((name, share, share, share))
    longest = max(row[3] for row in rows)
    for name, *shares in rows:
        low, value, high = (round(_BAR * max(share, 0.0) / longest) for share in shares)
        bar = "█" * low + "▒" * (high - low)
        # The value stands out of its interval.
        bar = bar if high == low else f"{bar[:value]}│{bar[value + 1 :]}"
        yield f"  {name:9}  {format_time(shares[1] * before):>8}  {bar}"


def _parts(confirmation: Confirmation) -> list[str]:
    before = max(confirmation.before_ps, 1)
    rows = [
        (
            part.name,
            format_time(part.before_ps),
            format_time(part.after_ps),
            _change(part, before),
        )
        for part in confirmation.parts
        if part.before_ps or part.after_ps
    ]
    head = ("mean over the ranks", "before", "after", "change, of the time before")
    return align_columns(head, rows, " rrr")


def _change(part: PartChange, before_ps: int) -> str:
    """Change of a part as a share of the time before, with its bounds if clocks leave some."""
    value, low, high = (
        percent(change / before_ps, sign="+")
        for change in (part.after_ps - part.before_ps, part.change_low_ps, part.change_high_ps)
    )
    return value if low == high else f"{value} ({low} to {high})"


def _cost(cost: CostCheck) -> str:
    words = {
        "within": "which agrees",
        "less": "which is less than that",
        "more": "which is more than that",
    }
    return (
        f"Cause: {cost.cause}, predicted to cost {format_time(cost.ps)} "
        f"({format_times(cost.low_ps, cost.high_ps)}). The run saved {format_time(cost.saved_ps)} "
        f"({format_times(cost.saved_low_ps, cost.saved_high_ps)}), {words[cost.verdict]}."
    )


def _basis(confirmation: Confirmation) -> str:
    if confirmation.measured is None:
        return "Intervals (▒) are 95 %."
    parts = []
    if confirmation.iterations:
        blocks = f" in blocks of {confirmation.block}" if confirmation.block > 1 else ""
        parts.append(f"{counted(confirmation.iterations, 'iteration')}{blocks}")
    if confirmation.recordings > 1:
        parts.append(f"differences of {confirmation.recordings} recordings")
    text = f"Intervals (▒) are 95 %; that of the measured gain is from {' and '.join(parts)}."
    if confirmation.recordings == 1:
        text += " How much runs differ is not in it: give several recordings with the remedy."
    return text
