"""Other NCCL algorithms for the same collectives."""

from __future__ import annotations

from tailback.diagnosis.model import Diagnosis
from tailback.evaluate import Change
from tailback.remedy.proposal import REMEDIES, Proposal, RemedyContext
from tailback.run.run import Run
from tailback.scenario.model import NcclSection
from tailback.traffic.program import Program

_ALTERNATIVES = (
    ("nccl-ring", NcclSection(algorithm="ring"), "NCCL_ALGO=Ring"),
    ("nccl-tree", NcclSection(algorithm="tree"), "NCCL_ALGO=Tree"),
    (
        "nccl-tree-simple",
        NcclSection(algorithm="tree", protocol="simple"),
        "NCCL_ALGO=Tree NCCL_PROTO=Simple",
    ),
    (
        "nccl-ring-simple",
        NcclSection(algorithm="ring", protocol="simple"),
        "NCCL_ALGO=Ring NCCL_PROTO=Simple",
    ),
)


@REMEDIES.register("collectives")
def collectives(run: Run, diagnosis: Diagnosis, context: RemedyContext) -> list[Proposal]:
    """NCCL's all-reduces by ring or tree, and without the flags of its low-latency protocols."""
    program = context.program
    if program is None or program.recompile is None:
        return []
    proposals: list[Proposal] = []
    seen = {_traffic(program)}
    for name, section, variables in _ALTERNATIVES:
        other = program.recompile(section)
        if _traffic(other) in seen:
            continue  # Already in use.
        seen.add(_traffic(other))
        proposals.append(
            Proposal(
                "pattern",
                name,
                Change(program=other),
                f"Set {variables} in the environment of the job ({section}).",
                "NCCL follows these variables: no tuner plugin overrides them",
            )
        )
    return proposals


def _traffic(program: Program) -> bytes:
    """Key that is equal for programs that send the same messages."""
    return program.peer.tobytes() + program.amount.tobytes()
