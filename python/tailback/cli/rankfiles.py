"""Rank files of a placement in every launcher's form."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tailback.errors import PlacementError
from tailback.placement import WRITERS, RankFile, assignment_for, slots_from_spec, write
from tailback.simulate import Prepared

FILE_NAME = {
    "openmpi": "rankfile.openmpi",
    "openmpi-seq": "hosts.openmpi-seq",
    "slurm": "hosts.slurm",
    "mpich": "hosts.mpich",
    "cray": "MPICH_RANK_ORDER",
}


def rank_files(prepared: Prepared, node: NDArray[np.uint32]) -> list[RankFile]:
    """The placement in every form that can express it.

    Raises:
        PlacementError: A host's name cannot stand in any rank file.
    """
    job = prepared.observed
    section = job.section
    hosts, slots = slots_from_spec(section.hosts, prepared.fabric, section.ranks_per_host)
    assignment = assignment_for(prepared.fabric, node, hosts, slots)
    files, problem = [], None
    for name in WRITERS.names():
        try:
            files.append(write(name, assignment, FILE_NAME.get(name, name)))
        except PlacementError as error:
            problem = error
    if not files and problem is not None:
        raise problem
    order = list(FILE_NAME)
    return sorted(files, key=lambda file: order.index(file.writer) if file.writer in order else 99)
