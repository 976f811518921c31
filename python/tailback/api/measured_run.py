"""The measured run of the job that a command works on."""

from __future__ import annotations

from dataclasses import replace

from tailback.evidence import MeasuredRun, has_times, measure
from tailback.simulation import PreparedScenario
from tailback.stages import stage


@stage("measured run")
def measured_run(prepared: PreparedScenario) -> MeasuredRun | None:
    """What the trace of the observed job records about times.

    None where nothing was measured: the traffic is made up, its trace has no times, or several jobs
    are observed, which were recorded one by one.

    Raises:
        TraceError: The trace is damaged.
    """
    job = prepared.observed
    section = job.section
    several = sum(one.section.observed for one in prepared.jobs) > 1
    if section.trace is None or several or not has_times(section.trace):
        return None
    hosts = None
    if section.hosts != "all":
        fabric = prepared.fabric
        hosts = [fabric.host_name[host] for host in fabric.node_host[job.node].tolist()]
    return measure(section.trace, rank_file=section.placement_file, hosts=hosts)


def with_round_robin_adapters(prepared: PreparedScenario) -> PreparedScenario:
    """The scenario of a measured run, with adapters that share their link between messages.

    Adapters serve queue pairs in turn, and hosts their sockets. Where messages share a queue pair
    they go one after the other, as in published simulators, which takes up to a third longer where
    ranks send to several partners at once. A scenario that says how they share is left as it is.
    """
    engine = prepared.scenario.engine
    if "injection" in engine.model_fields_set:
        return prepared
    real = engine.model_copy(update={"injection": "round-robin"})
    real.model_fields_set.add("injection")
    return replace(prepared, scenario=prepared.scenario.model_copy(update={"engine": real}))


def another_run(prepared: PreparedScenario) -> str:
    """What the scenario changes of the recorded run, as words; empty where nothing."""
    section = prepared.observed.section
    changes = []
    if section.compute_scale != 1:
        changes.append(f"computation times {section.compute_scale:g}")
    if section.repeat != 1:
        changes.append(f"{section.repeat} repetitions")
    return " and ".join(changes)
