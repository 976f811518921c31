"""Text output of commands: the content of their JSON on one screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from itertools import chain
from pathlib import Path

from tailback.cli.explanation_screen import explanation_lines, measurement_lines, port_event_lines
from tailback.cli.measured_screen import first_line, measured_lines
from tailback.cli.text import (
    SCREEN_LINES,
    Section,
    align_columns,
    command_lines,
    fitting,
    heading,
    table_width,
    text_width,
    truncate,
    without_gap,
    wrap,
)
from tailback.diagnosis.cause_wording import CODE, verdict_name
from tailback.diagnosis.model import Candidate, Diagnosis, LinkEvidence, Remedy, Status
from tailback.diagnosis.waterfall import displayed_bars
from tailback.diagnosis.wording import (
    bar_name,
    budget_left_out,
    budget_note,
    budget_taken,
    confidence_sentence,
    measured_confidence,
)
from tailback.names.display import display_width, printable, shorten_names
from tailback.placement import RankFile
from tailback.sources.diagnosis_folder import RATES_FILE
from tailback.units import counted, format_time, percent

CAUSES_ON_LINKS = (
    "pattern",
    "placement",
    "capacity",
    "routing",
    "slow-link",
    "other-traffic",
    "injection",
)
"""Causes of a measured run for which the screen lists links and the call sites that load them."""

_COLOURS = {"undetermined": "yellow", "none": "green", "healthy": "green", "not-network": "green"}
"""Colours of verdicts that accuse no network; others are red."""

_NOTES = 2
"""Notes on one screen; others are counted."""

_REMEDY_LINES = 8
"""Lines of what to do on one screen; an action that does not fit is left to ``-v``."""

_NOT_USED_WIDTH = 300
"""Columns of a line on what was not used: names of files may be long."""


def _communication(diagnosis: Diagnosis) -> str:
    """Share of exposed communication, and of hidden communication if there is any."""
    share, waits = percent(diagnosis.communication_fraction), "with waits for late ranks"
    if diagnosis.hidden_fraction is None:
        return f"{share} of rank time in communication ({waits})"
    hidden = percent(diagnosis.hidden_fraction)
    return (
        f"{share} of rank time in exposed communication ({waits}), {hidden} more hidden behind "
        "computation"
    )


def diagnosis_lines(
    diagnosis: Diagnosis,
    folder: Path,
    call_sites: Sequence[str] = (),
    rank_files: Sequence[RankFile] = (),
    *,
    verbose: bool = False,
) -> list[str]:
    """The summary of a diagnosis: verdict, what to do, where, and what the verdict rests on.

    Args:
        diagnosis: What was found.
        folder: Where its report and rank files are.
        call_sites: Lines to show after the links.
        rank_files: Rank files of the remedy.
        verbose: Whether to show all evidence, candidates and notes; otherwise one screen.
    """
    asked = None if diagnosis.explanation is None else diagnosis.explanation.next_measurement
    # Last: what is read first after a long screen.
    measurement = [] if asked is None else measurement_lines(asked)
    before, after = _sections(diagnosis, folder, call_sites, rank_files, verbose=verbose)
    not_used = [*_budget(diagnosis), *_not_used(diagnosis)]
    if verbose:
        notes: Section = ("notes", without_gap(_notes(diagnosis)))
        shown, _ = fitting([*before, *after, notes], SCREEN_LINES, verbose=True)
        return [*shown, *not_used, "", *_next(folder), *measurement]
    essential = _essential(diagnosis)
    notes = ("notes", _short_notes(essential))
    # The notes on an open question tell why it is open.
    is_open = diagnosis.cause == "undetermined"
    room = SCREEN_LINES - len(not_used) - 2 - len(measurement)
    parts = [*before, notes, *after] if is_open else [*before, *after, notes]
    shown, left_out = fitting(parts, room)
    more = _more(diagnosis, left_out, () if "notes" in left_out else essential)
    return [*shown, *not_used, "", *_next(folder, more), *measurement]


def _sections(
    diagnosis: Diagnosis,
    folder: Path,
    call_sites: Sequence[str],
    rank_files: Sequence[RankFile],
    *,
    verbose: bool,
) -> tuple[list[Section], list[Section]]:
    """Verdict and what to do; and what they rest on."""
    explanation = diagnosis.explanation
    measured = explanation is not None
    remedy = _remedy(diagnosis, folder, rank_files, verbose=verbose)
    before: list[Section] = [
        ("verdict", _verdict_lines(diagnosis, verbose=verbose)),
        ("what to do", without_gap(remedy)),
    ]
    if explanation is not None and not verbose:
        before.insert(1, ("ports that count errors", port_event_lines(explanation)))
    after = list[Section]()
    if not measured or diagnosis.cause in CAUSES_ON_LINKS:
        links = _links_in_question(diagnosis, call_sites, verbose=verbose)
        after += [("links", without_gap(links))]
    if explanation is not None:
        costs = explanation_lines(explanation, verbose=verbose)
        after += [("cost of each cause", without_gap(costs))]
    if diagnosis.waterfall and (verbose or not measured):
        of_model = " IN THE MODEL" if measured else ""
        title = heading(f"WHERE THE TIME GOES{of_model}")
        after += [("where the time goes", [title, *_waterfall(diagnosis)])]
    if verbose:
        if measured and diagnosis.cause not in CAUSES_ON_LINKS:
            after += [("links", wrap(_findings_without_links(diagnosis), first=""))]
        after += [("measured time", without_gap(measured_lines(diagnosis)))]
        after += [("how sure", [heading("HOW SURE"), *wrap(_how_sure(diagnosis))])]
    return before, after


def _verdict_lines(diagnosis: Diagnosis, *, verbose: bool) -> list[str]:
    """What is diagnosed, the verdict, and what the recording lacks."""
    colour = _COLOURS.get(diagnosis.cause, "red")
    lines = first_line(diagnosis)
    lines += [heading("VERDICT", _verdict(diagnosis), colour), *wrap(diagnosis.headline)]
    if verbose:
        return lines + _about_times(diagnosis)
    if diagnosis.confidence <= 0 and diagnosis.explanation is None:
        lines += wrap(_how_sure(diagnosis))
        lines += _lacking(diagnosis)
    return [*lines, *wrap(diagnosis.times_from)] if diagnosis.captured else lines


def _verdict(diagnosis: Diagnosis) -> str:
    """The cause with its alternatives, and their probability."""
    name = verdict_name(diagnosis.cause, diagnosis.alternatives).upper()
    if diagnosis.confidence <= 0:
        return name
    return f"{name}, {percent(diagnosis.confidence, 0)} sure"


def _about_times(diagnosis: Diagnosis) -> list[str]:
    """What the times of a verdict are, and what the recording lacks."""
    lines = list[str]()
    if diagnosis.explanation is None:
        times = [] if diagnosis.captured else [_communication(diagnosis)]
        if diagnosis.forecast is None:
            times.insert(0, f"{diagnosis.times} {format_time(diagnosis.modelled_ps)}")
        lines += wrap("; ".join(times))
        lines += wrap(diagnosis.times_from)
    return lines + _lacking(diagnosis)


def _lacking(diagnosis: Diagnosis) -> list[str]:
    """What the recording lacks."""
    if not diagnosis.not_recorded:
        return []
    return wrap(f"not in the recording: {', '.join(diagnosis.not_recorded)}")


def _not_used(diagnosis: Diagnosis) -> list[str]:
    """What was read and not used."""
    if not diagnosis.not_used:
        return []
    texts = [truncate(text, _NOT_USED_WIDTH) for text in diagnosis.not_used]
    first, *others = texts
    lines = wrap(first, indent=" " * 10, first=f"{heading('NOT USED')}  ")
    for text in others:
        lines += wrap(text, indent=" " * 10)
    return ["", *lines]


def _budget(diagnosis: Diagnosis) -> list[str]:
    """The time budget, and the names of all steps that it left out."""
    if (use := diagnosis.budget) is None:
        return []
    text = f"{budget_taken(use)}; {budget_left_out([left.step for left in use.left_out])}"
    return ["", *wrap(text, indent=" " * 8, first=f"{heading('BUDGET')}  ")]


def _notes(diagnosis: Diagnosis) -> list[str]:
    """All assumptions and warnings."""
    above = {*diagnosis.assumptions, *diagnosis.not_used}
    others = [text for text in diagnosis.warnings if text not in above]
    notes = [*diagnosis.assumptions, *others]
    shown = chain.from_iterable(wrap(f"note: {text}") for text in notes)
    return ["", heading("NOTES"), *shown] if notes else []


def _short_notes(texts: Sequence[str]) -> list[str]:
    """Notes, each cut to two lines."""
    shown = (wrap(f"note: {truncate(text, 2 * text_width() - 20)}") for text in texts)
    return list(chain.from_iterable(shown))


def _essential(diagnosis: Diagnosis) -> list[str]:
    """The notes on one screen: the first assumptions; without a verdict, any notes."""
    open_question = diagnosis.cause == "undetermined"
    notes = [*diagnosis.assumptions, *(diagnosis.warnings if open_question else ())]
    return [text for text in dict.fromkeys(notes) if text not in _shown_always(diagnosis)][:_NOTES]


def _shown_always(diagnosis: Diagnosis) -> set[str]:
    """Warnings that lines of their own say."""
    use = diagnosis.budget
    return {*diagnosis.not_used, *([] if use is None else [budget_note(use)])}


def _more(diagnosis: Diagnosis, left_out: Sequence[str], shown: Sequence[str]) -> str:
    """What ``-v`` prints and one screen does not."""
    notes = {*diagnosis.warnings, *diagnosis.assumptions} - _shown_always(diagnosis)
    more = len(notes) - len(shown)
    names = ["evidence", "candidates", *(name for name in left_out if name != "notes")]
    return ", ".join([*names, *([counted(more, "more note")] if more > 0 else [])])


def _next(folder: Path, more: str = "") -> list[str]:
    """Where the report is, and what ``-v`` prints."""
    report = f"open {printable(str(folder / 'report.html'))}"
    text = f"{report}; -v prints {more}" if more else report
    return wrap(text, indent=" " * 6, first=heading("NEXT  "))


def _links_in_question(
    diagnosis: Diagnosis, call_sites: Sequence[str], *, verbose: bool
) -> list[str]:
    """The most congested links, and the call sites and findings of the rules behind them."""
    of_model = " IN THE MODEL" if diagnosis.explanation is not None else ""
    lines = list[str]()
    if diagnosis.top_links:
        links = diagnosis.top_links[: 3 if call_sites or not verbose else 5]
        roots = _roots(diagnosis)
        if roots and not any(link.link in roots for link in links):
            surest = max(roots.values(), key=lambda link: link.congested_fraction.low)
            links = [surest, *links[:-1]]
        lines += ["", heading(f"MOST CONGESTED LINKS{of_model}", "95 % intervals")]
        lines += _links(links, set(roots))
    if not verbose:
        return lines
    if call_sites:
        lines += ["", *call_sites]
    return lines + _findings(diagnosis, of_model)


def _findings(diagnosis: Diagnosis, of_model: str) -> list[str]:
    """The findings of the rules; one without a rule only repeats the verdict."""
    findings = [finding for finding in diagnosis.findings if finding.code != CODE]
    if not findings:
        return []
    phases = shorten_names([", ".join(f.phases[:3]) for f in findings[:3]], 18)
    width = table_width() - 18 - max(map(display_width, (*phases, "phase")))
    sampled = diagnosis.sampling.packets > 0
    rows = [
        (f.code, percent(f.share) if sampled else "—", truncate(f.title, width), phase)
        for f, phase in zip(findings, phases, strict=False)
    ]
    table = align_columns(("rule", "share", "what", "phase"), rows, " r")
    return ["", heading(f"SHARE OF CONGESTION BY CAUSE{of_model}"), *table]


def _findings_without_links(diagnosis: Diagnosis) -> str:
    """One sentence instead of the tables of links, if no link is the cause."""
    if not diagnosis.top_links:
        return "No link is congested in the model."
    most = max(diagnosis.top_links, key=lambda link: link.congested_fraction.low)
    why = "none is to blame"
    if diagnosis.cause == "undetermined":
        why = "it is open whether one is to blame"
    return (
        f"Links are not listed here, as {why}. In the model, {most.name} is the most congested one "
        f"({percent(most.congested_fraction.value)} of its packets met a queue); the report has "
        "them all."
    )


def _how_sure(diagnosis: Diagnosis) -> str:
    if diagnosis.confidence <= 0:
        return diagnosis.sampling.note
    if diagnosis.explanation is not None:
        return f"{measured_confidence(diagnosis.confidence)} {diagnosis.sampling.note}"
    how = confidence_sentence(diagnosis.confidence, diagnosis.basis, diagnosis.agreement)
    return f"{how} {diagnosis.sampling.note}"


def _waterfall(diagnosis: Diagnosis) -> list[str]:
    longest_ps = max(bar.elapsed_ps for bar in diagnosis.waterfall) or 1
    width, rows = 24, []
    ends = ("ideal", "observed")
    # Steps that add nothing in any repetition (most were not simulated) are left to the report.
    bars = [
        bar
        for bar in displayed_bars(diagnosis.waterfall)
        if bar.name in ends or bar.delta_ps or bar.low_ps or bar.high_ps
    ]
    for bar in bars:
        end = round(width * bar.elapsed_ps / longest_ps)
        if bar.name in ends:
            picture, amount = "█" * end, format_time(bar.elapsed_ps)
        else:
            begin = min(
                round(width * (bar.elapsed_ps - max(bar.delta_ps, 0)) / longest_ps), width - 1
            )
            picture = " " * begin + "▒" * max(end - begin, 1 if bar.delta_ps > 0 else 0)
            sign = "+" if bar.delta_ps >= 0 else "-"
            amount = sign + format_time(abs(bar.delta_ps))
        rows.append((bar_name(bar, diagnosis.times), amount, picture))
    return align_columns(("", "", ""), rows, " r")[1:]


def _roots(diagnosis: Diagnosis) -> dict[int, LinkEvidence]:
    """Links at which congestion begins, as the report marks them."""
    return {link.link: link for finding in diagnosis.findings for link in finding.links}


def _links(links: Sequence[LinkEvidence], roots: Set[int]) -> list[str]:
    shown_roots = any(link.link in roots for link in links)
    # Networks without tiers have directions, which the names of links do not say.
    named = any(link.flat_direction for link in links)
    rows = [
        (
            link.name,
            *(("root" if link.link in roots else "",) if shown_roots else ()),
            *((link.flat_direction or "host",) if named else ()),
            f"{100 * link.congested_fraction.value:.0f} "
            f"({100 * link.congested_fraction.low:.0f}–{100 * link.congested_fraction.high:.0f})",
            f"{100 * link.utilization.value:.0f} "
            f"({100 * link.utilization.low:.0f}–{100 * link.utilization.high:.0f})",
            link.phase,
        )
        # Sorted by the lower end of the interval, as shown in the rows.
        for link in sorted(links, key=lambda link: -link.congested_fraction.low)
    ]
    words = [*(("part",) if shown_roots else ()), *(("direction",) if named else ())]
    head = ("link", *words, "congested %", "your load %", "mostly in")
    right = " " * (1 + len(words)) + "rr"
    return align_columns(head, rows, right, names=(0, len(head) - 1))


def _remedy(
    diagnosis: Diagnosis, folder: Path, rank_files: Sequence[RankFile], *, verbose: bool
) -> list[str]:
    """What to do, and how; in full, with all that was tried."""
    remedy = diagnosis.remedy
    if remedy is None:
        return []
    actions = list(remedy.actions)
    text = wrap(remedy.action)
    while not verbose and len(text) > _REMEDY_LINES and len(actions) > 1:
        actions.pop()
        text = wrap(f"{' '.join(actions)} …")
    lines = ["", heading("REMEDY"), *text]
    files = [file for file in rank_files if file.file in remedy.files]
    if files:
        first, *others = files
        lines += command_lines(first.command_from(folder))
        if others:
            launchers = ", ".join(file.writer for file in others)
            lines += wrap(f"for {launchers}: same folder, commands in the report")
    if RATES_FILE in remedy.files:
        lines += wrap(f"{remedy.files[RATES_FILE]}: {printable(str(folder / RATES_FILE))}")
    if not verbose:
        return lines
    return lines + _tried(diagnosis, remedy)


def _tried(diagnosis: Diagnosis, remedy: Remedy) -> list[str]:
    """The candidates that were simulated, and those ruled out."""
    lines = list[str]()
    proved = remedy.shown_candidates
    times = {candidate.name: diagnosis.time_with(candidate)[0] for candidate in proved}
    # The remedy first, even if a faster candidate is not applicable.
    proved.sort(key=lambda candidate: (candidate.name != remedy.name, times[candidate.name]))
    hidden = sum(candidate.proved for candidate in remedy.candidates) - len(proved)
    if proved:
        # Shares of the simulated time are not those of the measured one.
        forecast = diagnosis.explanation is None
        lines += candidate_lines(proved, remedy.before_ps, times, gains=forecast)
    if hidden:
        lines += wrap(f"and {counted(hidden, 'slower combination')}")
    left_out = [c for c in remedy.candidates if c.status is Status.RULED_OUT]
    for by, names in (
        ("by the fluid model", [c.name for c in left_out if c.estimate_ps]),
        ("by a simulation without contention", [c.name for c in left_out if not c.estimate_ps]),
    ):
        if names:
            lines += wrap(f"ruled out {by}: {', '.join(names)}")
    return lines


def candidate_lines(
    candidates: Sequence[Candidate],
    before_ps: int,
    times: Mapping[str, int],
    *,
    gains: bool = True,
) -> list[str]:
    """Estimate and proof of every simulated candidate, slower ones included.

    Args:
        candidates: The candidates.
        before_ps: Simulated time of the unchanged run, in a separate row unless it is that of one
            of the candidates.
        times: Time by packets of each, by name.
        gains: Also show the share of ``before_ps`` that each saves by packets.
    """
    rows = list[tuple[str, ...]]()
    if all(c.elapsed_ps != before_ps for c in candidates):
        rows.append(("unchanged", "", format_time(before_ps), "", ""))
    rows += [
        (
            c.name,
            format_time(c.estimate_ps) if c.estimate_ps else "—",
            format_time(times[c.name]),
            percent(1 - times[c.name] / max(before_ps, 1)),
            "—" if c.congested_fraction is None else percent(c.congested_fraction),
        )
        for c in candidates
    ]
    head: tuple[str, ...] = ("tried", "by fluid", "by packets", "gain", "congested")
    if not gains:
        at = head.index("gain")
        head, rows = _without(head, at), [_without(row, at) for row in rows]
    return align_columns(head, rows, " rrrr"[: len(head)], names=(0,), to_type=True)


def _without(row: tuple[str, ...], at: int) -> tuple[str, ...]:
    return row[:at] + row[at + 1 :]
