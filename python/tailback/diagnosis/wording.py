"""How screens and reports describe the times of a diagnosis: expected by the model, or measured.

Simulated times are *expected*, whatever was recorded. A run with measured times has
``times = "measured"`` in its summary.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tailback.budget import Budget, BudgetUse
from tailback.diagnosis.model import Agreement, Basis, Diagnosis, Forecast, Times, WaterfallBar
from tailback.errors import option
from tailback.evidence.model import LateRank
from tailback.run.run import Run
from tailback.traffic.program import RecordedTimes
from tailback.traffic.readers.recorded_cores import note_on_times
from tailback.units import counted, format_time, percent

WITHOUT_SAMPLES: Final = "The capture has no samples, so there is no verdict: {}."

VARIED = "random routes, buffers, delays, order of sending"
"""What differs between variations of the model."""

LONGER_PATHS = "on longer paths"
BETWEEN_HOSTS = "between hosts rather than within them"
"""Messages that take longer than others of the same job."""

UNEXPLAINED_TIMES = 3.0
"""Ratio of recorded to expected time from which the simulation does not represent the recording."""

SMALL_SHARE_OF_LARGEST: Final = 0.2
"""Share of the largest waiting time below which a late rank is not listed: five such ranks cost
less than the first, so listing them would not change what to do."""

MAX_HOSTS: Final = 3
"""Maximum number of hosts whose late ranks are listed."""


def times_of(run: Run) -> Times:
    """Whether the times of a run are measured or expected."""
    return "measured" if run.summary.get("times") == "measured" else "expected"


def with_budget(diagnosis: Diagnosis, budget: Budget | None) -> Diagnosis:
    """The diagnosis with the use of its time budget, if any, and a note on what that left out."""
    if budget is None:
        return diagnosis
    use = budget.use
    warnings = [*diagnosis.warnings, budget_note(use)]
    return diagnosis.model_copy(update={"budget": use, "warnings": warnings})


def budget_note(use: BudgetUse) -> str:
    """A sentence on a time budget: what it left out, with the time of that, and what it took."""
    steps = [
        f"{left.step} (after {counted(left.done, 'simulation')}; the next take "
        f"{left.estimate_s:.2g} s)"
        for left in use.left_out
    ]
    return f"{budget_taken(use)}; {budget_left_out(steps)}"


def budget_taken(use: BudgetUse) -> str:
    """A time budget and the time that was taken."""
    return f"time budget {use.asked_s:.4g} s, taken {use.taken_s:.0f} s without the report"


def budget_left_out(steps: Sequence[str]) -> str:
    """What a time budget left out.

    Args:
        steps: The steps, in words.
    """
    return f"left out or cut short: {', '.join(steps)}" if steps else "nothing was left out"


def bar_name(bar: WaterfallBar, times: Times) -> str:
    """Displayed name of a bar of the waterfall; ``observed`` is shown as expected or measured."""
    return times if bar.name == "observed" else bar.name


def run_label(times: Times) -> str:
    """Name of the diagnosed run next to its remedy."""
    return "As measured" if times == "measured" else "As simulated"


def confidence_sentence(confidence: float, basis: Basis, agreement: Agreement | None) -> str:
    """The sentences on the confidence of the verdict on an expected run."""
    if agreement is None:
        return f"Probability of this cause, based on {basis}: {percent(confidence)}."
    others = agreement.of - agreement.holds
    count = f"{agreement.holds} of {agreement.of}" if others else f"all {agreement.of}"
    text = f"The verdict is the same in {count} variations of the model ({VARIED})"
    if agreement.otherwise is not None:
        text += f"; in {'the other' if others == 1 else 'most others'} it is {agreement.otherwise}"
    if agreement.identified < 1.0:
        text += (
            ". The cause is not part of the model: that it explains the remaining time has a "
            f"probability of {percent(agreement.identified)}"
        )
    return f"{text}. As costs vary, its probability is {percent(confidence)}."


def measured_confidence(confidence: float) -> str:
    """The sentence on the confidence of the verdict on a measured run."""
    return (
        f"{percent(confidence, 0)} sure of the verdict: it holds in this share of the runs that "
        f"are consistent with the evidence."
    )


def provenance(run: Run) -> str:
    """One sentence on the source of the times."""
    if run.summary.get("source") == "capture":
        return (
            "The verdict rests only on captured packets. Nothing was simulated, so neither the "
            "cost of congestion nor a remedy is known."
        )
    if times_of(run) == "measured":
        return "All times were measured."
    recorded = _recording(run)
    if recorded is not None:
        scale = run.compute_scale
        used = "used" if scale in (None, 1.0) else f"scaled by {scale:g}"
        if scale == 0.0:
            used = "left out (compute_scale = 0)"
        what = "processor time" if recorded.processor_time else "time"
        return (
            f"The verdict's times come from a simulation. From the trace, the {what} between calls "
            f"({format_time(recorded.between_ps)} per rank) was {used}; the time inside calls "
            f"({format_time(recorded.calls_ps)} per rank, with waits for late ranks) was "
            "not used."
        )
    if any(job.trace is not None for job in run.scenario.job):
        return "All times come from a simulation; no recorded times were used."
    return "All times come from a simulation of the scenario; nothing was measured."


def recorded_warnings(run: Run) -> list[str]:
    """Why the times of a recording are not used, or may be unreliable."""
    recorded = _recording(run)
    if recorded is None:
        return []
    if note := note_on_times(recorded):
        return [note]
    total = format_time(recorded.total_ps)
    stated = run.compute_scale is not None
    if crowded := recorded.oversubscribed_ps:
        why = (
            f"even the last rank to enter a small collective spent {format_time(crowded)} in it, "
            "as ranks waited for a processor"
        )
        if stated:
            return [f"recording: {why}: its times ({total} per rank) are not used"]
        return [f"Recorded on too few cores: {why}. Record with one core per rank."]
    if stated:
        return [f"recording: its times ({total} per rank) are not compared with the forecast"]
    excess = _excess(run, recorded)
    if excess >= UNEXPLAINED_TIMES:
        return [
            f"The recorded run took {total} per rank, {excess:.1f} times what the model expects. "
            "The cause of the difference is not in the model."
        ]
    return []


def without_single_times(run: Run) -> list[str]:
    """A note on what the comparison of a measured run with one of skipped steps lacks."""
    facts = run.summary.get("skipped")
    if facts is None:
        return []
    return [
        "skipped: single calls and sends of the measured run are not compared with the simulated "
        f"one; without {option('skip_repeats', True)} the verdict may differ"
    ]


def recording_contradiction(run: Run) -> str:
    """Clause on why the network cannot be ruled out; empty if it can.

    A simulation without contention proves nothing about a recorded run that took much longer. A
    forecast is of another run than the recorded one.
    """
    recorded = _recording(run)
    if recorded is None or times_of(run) == "measured" or run.compute_scale is not None:
        return ""
    if recorded.oversubscribed_ps:
        return "the recording was made on too few cores"
    excess = _excess(run, recorded)
    return (
        f"the recorded run took {excess:.1f} times as long" if excess >= UNEXPLAINED_TIMES else ""
    )


def unordered(run: Run) -> str:
    """Headline of a pattern that a profile without order cannot show; empty for other runs."""
    if "order of messages" not in run.summary.get("not_recorded", []):
        return ""
    return (
        "The profile has no order of messages, and the simulation sends all at once: that may "
        "be why ranks wait for the same receiver. By their bytes, no receiver is busier than the "
        "busiest sender. Record a trace to see the pattern."
    )


def _excess(run: Run, recorded: RecordedTimes) -> float:
    """Ratio of the recorded time per rank to the expected time."""
    return recorded.total_ps / run.elapsed_ps if run.elapsed_ps > 0 else 0.0


def forecast_of(run: Run, *, captured: bool) -> Forecast | None:
    """What a simulated run forecasts; None for a run with measured times."""
    if captured or times_of(run) == "measured":
        return None
    section = run.scenario.fabric
    tree = "fat tree" if section.fat_tree is not None else ""
    kind = str((section.topology or {}).get("kind", ""))
    file = Path(section.file).name if section.file is not None else ""
    job = run.tables["jobs"].filter("observed").row(0, named=True)
    return Forecast(
        fabric=file or section.preset or tree or kind,
        ranks=job["ranks"],
        placement=job["placement"],
        communication_alone=run.compute_scale == 0.0,
        weak_scaling=any(job.observed and job.ranks for job in run.scenario.job),
    )


def _recording(run: Run) -> RecordedTimes | None:
    recorded = run.summary.get("recording")
    return RecordedTimes(**recorded) if isinstance(recorded, dict) else None


def met_congestion(value: float, high: float) -> str:
    """Text for the congested share of packet-hops, with its 95 % upper bound if estimated."""
    text = f"{percent(value, 1)} of packet-hops met congestion"
    return text if high == value else f"{text} (at most {percent(high, 1)} with 95 % confidence)"


def late_ranks(late: Sequence[LateRank], cause: str) -> str:
    """The ranks that others wait for, by host, without those that cost far less than the first.

    For imbalance these are the ranks that compute longer than others, if there are any.

    Args:
        late: The ranks.
        cause: ``imbalance`` or ``noise``.
    """
    slow = cause != "noise" and any(rank.excess_ps for rank in late)
    waited = {
        rank: rank.excess_ps
        if slow
        else rank.noise_ps
        if cause == "noise"
        else rank.waited_ps - rank.noise_ps
        for rank in late
    }
    threshold = SMALL_SHARE_OF_LARGEST * max(waited.values(), default=0)
    listed = sorted((rank for rank in late if waited[rank] > threshold), key=lambda r: -waited[r])
    by_host: dict[tuple[str, int], list[int]] = {}
    for late_rank in listed:
        # A rank without a known host forms its own group.
        key = late_rank.host, -1 if late_rank.host else late_rank.rank
        by_host.setdefault(key, []).append(late_rank.rank)
    groups = [(host, sorted(ranks)) for (host, _), ranks in by_host.items()]
    shown = [_ranks_of(ranks, host) for host, ranks in groups[:MAX_HOSTS]]
    more = sum(len(ranks) for _, ranks in groups[MAX_HOSTS:])
    return ", ".join(shown) + (f" and at least {more} other{'s' * (more > 1)}" if more else "")


def _ranks_of(ranks: Sequence[int], host: str) -> str:
    """Text for the ranks of one host; an empty ``host`` is unknown."""
    first, last = ranks[0], ranks[-1]
    which = f"rank {first}"
    if len(ranks) > 1 and last - first == len(ranks) - 1:
        which = f"ranks {first}–{last}"
    elif len(ranks) > 1:
        which = f"ranks {', '.join(map(str, ranks))}"
    return f"{which} on {host}" if host else which
