"""Texts of the verdict on a measured run: its headline, and the evidence for each cause.

``measured_verdict`` chooses the cause and computes the costs; nothing here changes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tailback.diagnosis.cause_wording import NAMES, SENTENCES, UNEVEN_ROUTING
from tailback.diagnosis.explanation import Cost, SuspectLink
from tailback.diagnosis.model import Cause, Estimate
from tailback.errors import option
from tailback.evidence.model import LateRank
from tailback.inference.changes_over_time import ChangeOverTime
from tailback.units import format_time, percent

OUTSIDE_MODEL: Final = "set-up, end and calls without data"
COMPUTATION: Final = "computation (mean over ranks)"
DEPENDENCIES: Final = "dependencies between ranks"
BOUND_BY_PROGRAM: Final = "imbalance, late partners and adapters at line rate"
NOISE_IN_CALLS: Final = "interruptions inside calls"
REMAINDER: Final = "remainder of the model"
UNEXPLAINED: Final = "not explained"
"""Names of the parts of the measured time that are not bars of the waterfall."""

SHOWN_BY_MODEL: dict[Cause, str] = {
    "pattern": "several nodes send to one at the same time, on an ideal switch as well",
    "placement": "the run is faster with another placement on the same hosts",
    "capacity": "links between switches are full under the best placement tried, too",
    "routing": "the run is faster with its traffic spread over all paths",
}
"""Evidence for causes found by re-simulation."""

USUAL_COLLISIONS: Final = (
    "links between switches are full: switches hash flows to paths, and most hashes let some of "
    "these flows share a link"
)
"""Evidence for what is lost by flows that share links whatever the hash."""

FASTER_WITH_EVEN_TABLES: Final = (
    "the run is faster with forwarding tables that spread destinations evenly over up-links"
)
"""Evidence for the routing of forwarding tables that are not uneven in themselves."""

HASHED_TOGETHER: Final = (
    "the run takes as long as measured if a hash (ECMP) puts these flows on one path, while "
    "parallel ones are idle"
)
"""Evidence for flows that collide."""

TAKEN_TURNS: Final = (
    "all ranks compute for the same time, but one after another, and the late ones receive nothing "
    "before they send"
)
"""Evidence for late partners."""

_COMPUTATION = {
    "imbalance": "some ranks compute longer between calls than others",
    "noise": "some repetitions of the same computation take longer than others",
}

UNDETERMINED: Final = "The evidence does not determine the cause"
"""Title of the finding of a run whose cause is undetermined."""


def collide_more(chance: float) -> str:
    """Evidence for flows that share links as few hashes let them, with the share of those."""
    few = f"{percent(chance)} of the hashes" if chance > 0.0 else "no hash that was drawn"
    return f"flows share links while others idle, as by {few}"


def uneven_links(deviation: float) -> str:
    """Evidence for uneven routing: the mean deviation of parallel links from their mean, 0–2."""
    return f"parallel links carried {percent(deviation)} more or less than others"


def uneven_tables(deviation: float) -> str:
    """Evidence for faulty tables: mean deviation of parallel up-links from their mean, 0–2."""
    return (
        "the forwarding tables put far more destinations on some up-links of a leaf switch than on "
        f"others (mean deviation {percent(deviation)})"
    )


def noise_in_calls(ps: int) -> str:
    """Evidence for noise that looks like communication, as a clause."""
    return f"{format_time(ps)} of it inside calls, where it looks like communication"


def slow_side(late: Sequence[LateRank], cause: str) -> str:
    """Whether slow accelerators or their hosts are late, as a parenthesis; empty if unknown.

    Args:
        late: The late ranks.
        cause: ``imbalance`` or ``noise``.
    """
    idle = _idle_share(late)
    if cause == "noise" or idle is None:
        return ""
    side = "waiting for launches by the host" if idle >= 0.5 else "computing on the accelerator"
    return f" ({side} for {percent(max(idle, 1.0 - idle))} of the excess)"


def check_side(late: Sequence[LateRank]) -> str:
    """What to check on slow accelerators or their hosts; empty if neither is known."""
    idle = _idle_share(late)
    if idle is None:
        return ""
    if idle >= 0.5:
        return (
            "Check the hosts of these ranks: data loading, launches of small kernels, other "
            "processes on their cores."
        )
    return (
        "If all ranks have the same work, check the accelerators of these ranks (clocks, power, "
        "temperature, memory errors) or exchange their hosts; otherwise balance the work."
    )


def _idle_share(late: Sequence[LateRank]) -> float | None:
    """Share of the excess of slow ranks in which accelerators wait for hosts; None if unknown."""
    slow = [rank for rank in late if rank.idle_share is not None]
    total = sum(rank.excess_ps for rank in slow)
    if not total:
        return None
    return sum(rank.excess_ps * (rank.idle_share or 0.0) for rank in slow) / total


def waits_for_computation(cause: str) -> str:
    """Evidence for imbalance or noise."""
    return f"{_COMPUTATION[cause]}, and the others wait"


def nothing_costs(elapsed_ps: int) -> str:
    """Headline of a healthy run in which no cause costs any time."""
    return f"No fault found: no cause costs any of the measured {format_time(elapsed_ps)}."


def no_fault(elapsed_ps: int, nearest: Cost, least: float) -> str:
    """Headline of a healthy run; ``nearest`` would be a fault at share ``least`` or more."""
    return (
        f"No fault found in the measured {format_time(elapsed_ps)}. The nearest to a fault is "
        f"{NAMES[nearest.cause]}, at {percent(nearest.share, 1)} of the time; {percent(least)} "
        "would be a fault."
    )


def bound_by_communication(share: float) -> str:
    """Addition to the headline of a healthy run that communicates longer than it computes."""
    return (
        f" {percent(share)} of the time is communication that takes as long on an idle network: "
        "only fewer or smaller messages, another collective algorithm, or overlap with computation "
        "would shorten it."
    )


def longer_delays(share: float, factor: float) -> str:
    """Addition to the headline of a healthy run that longer delays than assumed explain."""
    return (
        f" {percent(share)} more than the model expects would be delays {factor:.2g} times as long "
        "as assumed, as many machines have: tailback calibrate shows them."
    )


def bound_by_dependencies(share: float) -> str:
    """Addition to the headline of a healthy run whose ranks wait for one another in chains."""
    return (
        f" {percent(share)} of the time ranks wait for others that receive, compute and send on, "
        "as in a pipeline or a wavefront. This is the program's order; only where a message does "
        "not need what its sender receives first would sending it earlier save time."
    )


ONE_RANK: Final = "The trace has a single rank, so there is no communication to diagnose"
"""Reason why a trace of one rank cannot be diagnosed."""


def almost_no_calls(share: float) -> str:
    """Reason why a trace cannot be diagnosed if ``share`` of its time is not modelled."""
    return (
        f"The trace contains almost no MPI communication: {percent(share)} of its time is set-up, "
        "shutdown or not recorded. Check what the tracer intercepts"
    )


def one_sided_waits(inside_ps: int, elapsed_ps: int) -> str:
    """Headline of a run whose waits in one-sided calls cannot be told from transfers."""
    return (
        f"{format_time(inside_ps)} of {format_time(elapsed_ps)} is inside calls that synchronise "
        "one-sided communication, where the trace does not tell waits for other ranks from "
        "transfers; nothing else is at fault."
    )


def not_explained(
    rest_ps: int, elapsed_ps: int, candidates: Sequence[str], slow_anywhere: str
) -> str:
    """Headline without a cause.

    Args:
        rest_ps: Time that is not explained.
        elapsed_ps: Measured time.
        candidates: Links of which one may be slow.
        slow_anywhere: Which links may be slow, in words, if there are too many to list.
    """
    text = (
        f"{format_time(rest_ps)} of {format_time(elapsed_ps)} is not explained by any cause with "
        "evidence"
    )
    if slow_anywhere:
        text += f"; {slow_anywhere}"
    elif candidates:
        which = "a link may be slow, and these fit best of those tried"
        which = which if len(candidates) > 1 else "this link may be slow"
        text += f"; {which}: {'; '.join(candidates)}"
    return f"{text}."


def shown_all_the_same(slow: Cost) -> str:
    """What counters show of slow links, where most of the time is explained by no cause."""
    most = slow.high_ps / max(slow.ps, 1) * slow.share
    return (
        f" Counters show a slow link all the same: {slow.subject}. In the model it costs "
        f"{percent(slow.share)} of the time, at most {percent(min(most, 1.0))}."
    )


def errors_not_excluded(links: Sequence[SuspectLink]) -> str:
    """Headline if nothing is missing, but a link with errors may cost time; empty if none may."""
    faulty = [link for link in links if link.may_have_errors]
    if not faulty:
        return ""
    shown = "; ".join(f"{link.name}: {link.evidence}; {link.reason}" for link in faulty[:2])
    more = f"; and {len(faulty) - 2} more" if len(faulty) > 2 else ""
    return f"No cause costs as much as a fault, but links with errors may: {shown}{more}."


PLACEMENTS_NOT_TESTED: Final = (
    "No cause that was tested costs as much as a fault, but the time budget left out other "
    "placements: give a larger one."
)


def interruptions_not_excluded(probability: float) -> str:
    """Headline if nothing is missing, but interruptions may be in every computation."""
    return (
        "No cause costs as much as a fault, but noise may: computations are so long that each "
        "would contain many interruptions, and they vary as they would with them "
        f"({percent(probability)} probable). Shorter steps, or the same work on an idle host, "
        "would show it."
    )


def collisions_not_excluded(share: float) -> str:
    """Headline if nothing is missing, but flows may be hashed to the same paths."""
    return (
        "No cause costs as much as a fault, but routes may: if switches hash flows to paths, "
        f"collisions cost up to {percent(share)}, and TCP takes an uncertain time in any case. "
        "Counters of the ports between switches would show it."
    )


def cost_together(other: str, ps: int, share: float) -> str:
    """Cost of a cause and another one together."""
    return f"without this and {NAMES[other]}, the run saves {percent(share)} ({format_time(ps)})"


def concealed(waits: Cost) -> str:
    """Addition if waits for computation may conceal a fault that was not found."""
    return (
        f" Besides, {percent(waits.share)} of the time would be {NAMES[waits.cause]} if nothing "
        "else were wrong; but the times of calls and sends agree with no simulation without a "
        "further fault, which may cause part of these waits."
    )


def slower_part(change: ChangeOverTime) -> str:
    """The part of the run in which calls take longer, and by how much."""
    start, end = (
        None if ps is None else format_time(round(ps)) for ps in (change.start_ps, change.end_ps)
    )
    if start is None:
        when = f"until about {end}"
    else:
        when = f"from about {start} on" if end is None else f"from about {start} to {end}"
    return (
        f"{when}, the same calls take {change.factor:.2g} times as long as in the rest of the run"
    )


def changed(change: ChangeOverTime, elapsed_ps: int) -> str:
    """Headline if calls take longer in a part of the run, and nothing explains it."""
    part = slower_part(change)
    lost = format_time(round(change.share * elapsed_ps))
    return (
        f"{part[:1].upper()}{part[1:]}, which costs {percent(change.share)} of the measured time "
        f"({lost} of {format_time(elapsed_ps)}). Something began or ended there that the evidence "
        "does not show: another job, a cable that lost speed, a host that was slowed down."
    )


def look_around(change: ChangeOverTime) -> str:
    """Action if calls take longer in a part of the run: evidence from the time where it begins."""
    turns = [format_time(round(ps)) for ps in (change.start_ps, change.end_ps) if ps is not None]
    when = " and ".join(turns)
    return (
        f"First look at what changed about {when} after the start: jobs that began or ended "
        "(sacct), speed and error counters of the links of the job's hosts, throttling in the logs "
        "of its hosts. Record the next run with port counters at short intervals (tailback record, "
        "tailback collect --interval), which show the link or the traffic."
    )


def model_too_slow(expected_ps: int, measured_ps: int, candidates: Sequence[str] = ()) -> str:
    """Headline if the simulation takes longer than the run, so that it does not describe it.

    Args:
        expected_ps: Time of the simulation.
        measured_ps: Measured time that it should explain.
        candidates: Links of which one may be slow.
    """
    text = (
        f"The model expects {format_time(expected_ps)} for the part of the run that it models, "
        f"which took {format_time(measured_ps)}, so it does not describe this run, and no cause "
        "can be ruled out."
    )
    if candidates:
        text += f" If a link is slow, these fit best of those tried: {'; '.join(candidates)}."
    return text


def make_model_fit() -> str:
    """Action if the simulation takes longer than the run."""
    return (
        f"First make the model fit the machine: check the rates of links in {option('fabric')}, "
        f"that the tables in {option('forwarding')} are those of that day, the hosts of the ranks "
        "and, if the program calls collectives, how many bytes the tracer records for them; fit "
        "the other settings with tailback calibrate, and give the result with "
        f"{option('calibration')}."
    )


def cost_of_others_open(low_ps: int, high_ps: int, elapsed_ps: int) -> str:
    """Headline if the model cannot determine the cost of other traffic."""
    lower = percent(low_ps / elapsed_ps) if low_ps > 0 else "nothing"
    return (
        f"Other jobs send over links that your job uses. This costs between {lower} and "
        f"{percent(high_ps / elapsed_ps)} of the measured {format_time(elapsed_ps)}; with all of "
        "their traffic the model expects more time than was measured."
    )


LISTED = 0.05
"""Smallest probability at which an explanation is listed: one in twenty is a usual error."""


def candidates(
    chances: Mapping[Cause, float], subjects: Mapping[str, str], unknown: float, elapsed_ps: int
) -> str:
    """Headline of a run that several explanations fit, with the probability of each.

    Args:
        chances: Probability that each cause is the main one, and of ``healthy``.
        subjects: Subject of each cause: links, jobs.
        unknown: Probability that the cause is none of these.
        elapsed_ps: Measured time.
    """
    likely = sorted(chances, key=lambda cause: (-chances[cause], cause))
    named = [
        f"{NAMES[cause]} ({percent(chances[cause])}{_of(subjects.get(cause, ''))})"
        for cause in likely
        if chances[cause] >= LISTED or cause == likely[0]
    ]
    if unknown >= LISTED:
        named.append(f"a cause that the evidence does not show ({percent(unknown)})")
    return f"No explanation of the measured {format_time(elapsed_ps)} is sure: {', '.join(named)}."


def _of(subject: str) -> str:
    return f": {subject}" if subject else ""


def main_cause(cause: Cause, main: Cost, elapsed_ps: int) -> str:
    """Headline with a main cause and its cost."""
    sentence = UNEVEN_ROUTING if cause == "routing" else SENTENCES[cause]
    subject = f": {main.subject}" if main.subject else ""
    return f"{sentence}{subject}. {_costs(main, elapsed_ps)}"


def one_of_the_links(
    main: Cost, elapsed_ps: int, candidates: Sequence[str], slow_anywhere: str = ""
) -> str:
    """Headline of a slow link if the evidence fits several links.

    ``slow_anywhere``: which links may be slow, in words, if also others may be; else empty.
    """
    others = f" ({slow_anywhere})" if slow_anywhere else ""
    return (
        f"{SENTENCES['slow-link']}. The evidence does not tell which{others}; of the cables that "
        f"were tried, these fit best: {'; '.join(candidates)}. {_costs(main, elapsed_ps)}"
    )


PATHS_UNKNOWN: Final = "place open, as the paths of messages are unknown"
"""Subject of a slow link whose place depends on the paths of messages."""


def place_open(main: Cost, elapsed_ps: int, candidates: Sequence[str]) -> str:
    """Headline of a slow link whose place depends on unknown paths of messages."""
    return (
        f"{SENTENCES['slow-link']}, but which one is open: the paths of messages are unknown, and "
        "with the routing that was assumed no cable agrees with all evidence as well as usual. "
        f"The nearest to it, which need not contain it: {'; '.join(candidates)}. "
        f"{_costs(main, elapsed_ps)}"
    )


def find_paths(candidates: Sequence[str]) -> str:
    """Action if the place of a slow link depends on unknown paths of messages."""
    return (
        "Get the forwarding tables (dump_lfts.sh > lfts.txt) and diagnose again with "
        f"{option('forwarding', 'lfts.txt')}, or ask the operators to check all cables "
        "of the switches and hosts concerned (speed, width, error counters), beginning with "
        f"{'; '.join(candidates)}."
    )


def one_of(candidates: Sequence[str], slow_anywhere: str = "") -> str:
    """Subject of a slow link if the evidence fits several links, or any (``slow_anywhere``)."""
    start = f"{slow_anywhere}, such as" if slow_anywhere else "these fit best:"
    return f"{start} {'; '.join(candidates)}"


LOOK_AT_THE_HOST: Final = (
    "First look at the host itself: all ranks ran on one, so that no message crossed the network "
    "(cores of each rank, memory bandwidth, other processes)."
)
"""Action if the cause is unknown and the network was not used."""


def ranks_missing(which: str) -> str:
    """Why a run of which only some ranks are recorded has no cause, without a full stop."""
    return (
        f"The recording lacks {which}: what these computed, sent and received, and who waited for "
        "them, is unknown, and may be the cause of anything"
    )


RECORD_ALL: Final = (
    "Record it again with all ranks: link their programs to the shared library of MPI, and keep "
    "LD_PRELOAD set for them (docs/how-to/record.md)."
)
"""Action if ranks are not recorded."""

TRACE_ALL: Final = (
    "Record all ranks, and give the folder with their files: only the others tell whether a rank "
    "waits for them or for the network (docs/how-to/training.md)."
)
"""The same for ranks on accelerators."""


def find_first(
    cause: Cause, missing: Sequence[str], slow: Sequence[str] = (), begin: str = "First"
) -> tuple[str, ...]:
    """Actions if the cause, or the source of other traffic, is unknown: collect evidence first.

    Args:
        cause: The verdict.
        missing: Evidence that is missing, the most useful first.
        slow: Links that may be slow, which are quicker to check than anything else is to collect.
        begin: First words of the sentence.
    """
    if slow:
        check = (
            "First ask the operators to check these links (speed, width, error counters): "
            f"{'; '.join(slow)}."
        )
        return check, *find_first(cause, missing, begin="If they are sound,")
    what = "the cause" if cause == "undetermined" else "whose traffic it is"
    if missing:
        return (f"{begin} get the evidence that shows {what}: {missing[0]}.",)
    return (
        f"{begin} find {what}: test the links of the job's hosts one by one while it does not run "
        "(ib_write_bw, iperf3), and record it again with counters at shorter intervals (tailback "
        "collect --interval).",
    )


def gain_of_measured(gain: Estimate, elapsed_ps: int) -> str:
    """How much less than the measured time a run takes with a remedy."""
    low, high = percent(gain.low), percent(gain.high)
    return (
        f"{percent(gain.value)} less time than the measured {format_time(elapsed_ps)} "
        f"({low} to {high}, 95 %)"
    )


NO_PREDICTED_GAIN: Final = (
    "No change is recommended: the best one is predicted to save nothing of the measured time."
)
"""Action if the re-simulated gain of the best change is within what the simulation has too much."""


def check_each_of(candidates: Sequence[str]) -> str:
    """Action if one of several cables is slow and the evidence fits each of them."""
    return (
        "Ask the operators to check cables (speed, width, error counters), first those that fit "
        f"best: {'; '.join(candidates)}."
    )


def as_sentence(text: str) -> str:
    """Turn a clause into a sentence."""
    return text if text.endswith(".") else f"{text[:1].upper()}{text[1:]}."


def _costs(main: Cost, elapsed_ps: int) -> str:
    return (
        f"It costs {percent(main.share)} of the measured time "
        f"({format_time(main.ps)} of {format_time(elapsed_ps)})."
    )
