"""The remedy of a measured run: what the model summary, or which evidence to collect first."""

from __future__ import annotations

from collections.abc import Sequence

from tailback.diagnosis.cause_wording import ADVICE, CODE
from tailback.diagnosis.model import Cause, Diagnosis, Remedy
from tailback.inference import measured_wording as wording
from tailback.inference.evidence_summary import EvidenceSummary

NOT_OF_THE_NETWORK: tuple[Cause, ...] = ("imbalance", "noise", "late-partner")
"""Causes that do not depend on the placement of the ranks."""

MIN_DIFFERENCE = 0.02
"""Difference between the gain of a remedy as a share of the expected and of the measured time from
which both are stated: less is within the range of repetitions."""


def remedy_for(
    diagnosis: Diagnosis,
    remedy: Remedy | None,
    summary: EvidenceSummary,
    missing: Sequence[str],
) -> Remedy | None:
    """The remedy summary by re-simulation, or an action if the model has no remedy.

    A healthy run needs none. If the cause is undetermined, the action is to collect the missing
    evidence.

    Args:
        diagnosis: The diagnosis.
        remedy: The remedy found by re-simulation.
        summary: Results from evidence other than the trace.
        missing: Evidence that is missing, the most useful first.
    """
    cause = diagnosis.cause
    unknown = cause == "other-traffic" and summary.unknown_job is not None
    if cause == "healthy":
        return None
    if cause in NOT_OF_THE_NETWORK:
        actions: tuple[str, ...] = (ADVICE[cause],)
    elif cause == "slow-link" and summary.candidates:
        open_place = summary.place_open
        actions = (
            (wording.find_paths if open_place else wording.check_each_of)(summary.candidates),
        )
    elif cause == "undetermined":
        # What helps a model that does not describe the run need not help the run.
        actions = _find_cause(diagnosis, summary, missing)
    elif unknown and not (remedy is not None and remedy.name):
        actions = wording.find_first(cause, missing)
    else:
        return remedy
    if remedy is not None and remedy.name and cause in NOT_OF_THE_NETWORK:
        return remedy.model_copy(update={"actions": (*actions, *remedy.actions), "avoid": []})
    if remedy is not None and cause != "undetermined":
        # A placement that avoids one candidate cable has been verified for that cable only.
        return remedy.model_copy(
            update={
                "actions": actions,
                "avoid": [],
                "name": "",
                "parts": (),
                "placement": "",
                "after_ps": remedy.before_ps,
                "gain": 0.0,
                "files": {},
                "commands": [],
            }
        )
    elapsed = diagnosis.modelled_ps
    return Remedy(
        actions=actions,
        placement="",
        before_ps=elapsed,
        after_ps=elapsed,
        gain=0.0,
        candidates=[],
        files={},
        commands=[],
    )


def _find_cause(
    diagnosis: Diagnosis, summary: EvidenceSummary, missing: Sequence[str]
) -> tuple[str, ...]:
    """The actions that show the cause of a run whose cause is undetermined."""
    if summary.ranks_missing:
        return (wording.RECORD_ALL,)
    if summary.impossible or (diagnosis.not_explained_ps or 0) < 0:
        return (wording.make_model_fit(),)
    if summary.change is not None and summary.change.is_fault:
        return (wording.look_around(summary.change),)
    hosts = diagnosis.measured.hosts if diagnosis.measured is not None else None
    if hosts is not None and hosts.hosts == 1:
        return (wording.LOOK_AT_THE_HOST,)
    # The headline names the same links.
    slow = () if summary.slow_anywhere else summary.candidates
    return wording.find_first("undetermined", missing, slow)


def advised(diagnosis: Diagnosis, remedy: Remedy | None) -> Diagnosis:
    """The diagnosis with its remedy, which is also the advice of an undetermined cause."""
    findings = diagnosis.findings
    if diagnosis.cause == "undetermined" and remedy is not None:
        texts = {"title": wording.UNDETERMINED, "advice": remedy.action}
        findings = [
            finding.model_copy(update=texts)
            if (finding.code, finding.cause) == (CODE, "undetermined")
            else finding
            for finding in findings
        ]
    return diagnosis.model_copy(update={"remedy": remedy, "findings": findings})


def of_measured(remedy: Remedy | None, elapsed_ps: int, remaining_ps: int) -> Remedy | None:
    """The remedy with its gain as a share of the measured time, where that differs.

    Args:
        remedy: The remedy; its gain is a share of the expected time.
        elapsed_ps: The measured time.
        remaining_ps: Measured time that the simulation lacks, and that the remedy does not change.
    """
    if remedy is None or remedy.gain <= 0:
        return remedy
    share = 1.0 - (remedy.after_ps + remaining_ps) / max(elapsed_ps, 1)
    if abs(share - remedy.gain) < MIN_DIFFERENCE:
        return remedy
    said = wording.gain_of_measured(share, elapsed_ps)
    return remedy.model_copy(update={"actions": (*remedy.actions, said)})
