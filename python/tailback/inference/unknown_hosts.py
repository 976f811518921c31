"""Whether it is known on which hosts of the fabric the ranks ran."""

from __future__ import annotations

import numpy as np

from tailback.evidence import MeasuredRun
from tailback.inference import explain_wording as wording
from tailback.simulation import PreparedScenario


def unknown_hosts(prepared: PreparedScenario, measured: MeasuredRun) -> str:
    """A caveat if the hosts of the ranks are assumed; empty if they are known.

    Hosts named by the trace that the fabric has are part of the job's section, like stated ones.
    """
    section, fabric = prepared.observed.section, prepared.fabric
    used = len(np.unique(fabric.node_host[prepared.observed.node]))
    recorded = [name for name in measured.tables["hosts"]["host"].to_list() if name is not None]
    if section.hosts != "all" or section.placement_file is not None:
        count = len(set(recorded))
        return wording.other_number_of_hosts(count, used) if count not in (0, used) else ""
    foreign = [name for name in dict.fromkeys(recorded) if name not in set(fabric.host_name)]
    if foreign:
        return wording.foreign_hosts(foreign, fabric.host_name)
    return "" if recorded and len(set(recorded)) == used else wording.HOSTS_NOT_RECORDED
