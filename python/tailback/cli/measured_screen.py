"""The parts of the screen with the measured times."""

from __future__ import annotations

from tailback.cli.text import align_columns, heading, truncate, wrap
from tailback.diagnosis.model import Diagnosis
from tailback.evidence.model import ClockReport, Efficiency, Measured
from tailback.evidence.split import PART_NAMES
from tailback.units import format_time, format_times, percent

COARSE_CLOCKS = 0.05
"""Uncertainty of the clocks, as a share of the measured time, that the screen points out: just
below the smallest share that counts as a fault."""

_SMALL = 0.005
"""Fraction below which parts are summarized."""


def first_line(diagnosis: Diagnosis) -> list[str]:
    """What a forecast is of, or the measured time and what the model expects."""
    measured, forecast = diagnosis.measured, diagnosis.forecast
    if forecast is not None:
        return [*wrap(f"{format_time(diagnosis.elapsed_ps)} {forecast}", first="FORECAST  "), ""]
    if measured is None:
        return []
    groups = f", {measured.parallelism}" if measured.parallelism else ""
    text = (
        f"{format_time(measured.elapsed_ps)} on {measured.n_ranks} ranks{groups}"
        f"{_interval(measured)}; "
        f"{_expected(diagnosis)}"
    )
    return [*wrap(text, first="MEASURED  "), ""]


def measured_lines(diagnosis: Diagnosis) -> list[str]:
    """Where the measured time went, and how well clocks and hosts are known."""
    measured = diagnosis.measured
    if measured is None:
        return []
    lines = ["", heading("MEASURED TIME", "mean over the ranks"), *_parts(measured)]
    lines += wrap(_efficiencies(measured.efficiency))
    lines += wrap(_clocks(measured.clocks, measured.elapsed_ps))
    lines += wrap(_hosts(measured))
    for note in measured.notes:
        lines += wrap(f"note: {truncate(note, 200)}")
    return lines


def _interval(measured: Measured) -> str:
    if measured.high_ps - measured.low_ps < 0.005 * measured.elapsed_ps:
        return ""
    return f" ({format_times(measured.low_ps, measured.high_ps)})"


def _parts(measured: Measured) -> list[str]:
    rows, small = [], 0
    for part in measured.parts:
        wide = part.high_ps - part.low_ps >= _SMALL * measured.elapsed_ps
        if part.share < _SMALL and not wide:
            small += part.ps
            continue
        rows.append(
            (
                PART_NAMES[part.name],
                format_time(part.ps),
                percent(part.share),
                format_times(part.low_ps, part.high_ps) if wide else "",
            )
        )
    if small:
        rows.append(("smaller parts", format_time(small), percent(small / measured.elapsed_ps), ""))
    return align_columns(("where it went", "time", "share", "by the clocks"), rows, " rrr")


def _efficiencies(efficiency: Efficiency) -> str:
    """Efficiencies, as the POP project names them."""
    named = {
        "parallel": efficiency.parallel,
        "load balance": efficiency.load_balance,
        "serialisation": efficiency.serialisation,
        "transfer": efficiency.transfer,
    }
    parts = [f"{name} {percent(value)}" for name, value in named.items() if value is not None]
    return f"efficiencies (POP): {', '.join(parts)}"


def _expected(diagnosis: Diagnosis) -> str:
    unexplained_ps, total_ps = diagnosis.not_explained_ps or 0, max(diagnosis.elapsed_ps, 1)
    text = f"the model expects {format_time(diagnosis.modelled_ps)}"
    if diagnosis.explanation is not None:
        return text  # The unexplained time has a row among the causes.
    if unexplained_ps < 0:
        return f"{text}, {format_time(-unexplained_ps)} more than measured"
    low, high = diagnosis.not_explained_low_ps or 0, diagnosis.not_explained_high_ps or 0
    between = ""
    if high - low >= _SMALL * total_ps:
        between = f", {format_times(max(low, 0), max(high, 0))} by the clocks"
    share = percent(unexplained_ps / total_ps)
    return f"{text}; unexplained: {format_time(unexplained_ps)} ({share}{between})"


def _clocks(clocks: ClockReport, elapsed_ps: int) -> str:
    if clocks.clocks == 1:
        return "clocks: one, which all ranks share"
    text = {
        "none": "clocks: as recorded",
        "host": f"clocks: hosts up to {format_time(clocks.largest_offset_ps)} apart, corrected",
        "rank": f"clocks: ranks up to {format_time(clocks.largest_offset_ps)} apart, corrected",
    }[clocks.unit]
    if clocks.drifting:
        text += ", and their drift"
    if clocks.recorded_offsets:
        text += f" ({clocks.recorded_offsets} clock offsets from the trace applied)"
    if clocks.repaired:
        text += (
            f"; {clocks.repaired} messages were still received before they were sent (by at most "
            f"{format_time(clocks.largest_repair_ps)}) and were corrected"
        )
    if clocks.error_ps is None:
        return f"{text}; most pairs of ranks exchange no messages in both directions to compare by"
    if clocks.error_ps == 0 and clocks.unit == "none":
        return text
    text = f"{text}; remaining uncertainty {format_time(clocks.error_ps)} (median over pairs)"
    if clocks.error_ps > COARSE_CLOCKS * elapsed_ps:
        text += ": too coarse to tell waits from transfers"
    return text


def _hosts(measured: Measured) -> str:
    hosts = measured.hosts
    if hosts is None:
        return f"hosts of the ranks: not recorded{' of all' * bool(measured.not_recorded)}"
    each = f"up to {hosts.most_ranks} ranks each" if hosts.most_ranks > 1 else "one rank each"
    return f"hosts: {hosts.hosts}, from {hosts.source}, {each}"
