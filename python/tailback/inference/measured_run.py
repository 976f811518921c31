"""The measured run of the observed job."""

from __future__ import annotations

from dataclasses import replace

from tailback.evidence import MeasuredRun, has_times, measure
from tailback.simulation import PreparedScenario
from tailback.stages import stage


@stage("measured run")
def measured_run(prepared: PreparedScenario) -> MeasuredRun | None:
    """The measured run in the trace of the observed job.

    None if nothing was measured: the traffic is a pattern, its trace has no times, or several jobs
    are observed, which were recorded separately.

    Raises:
        TraceError: The trace is damaged.
    """
    job = prepared.observed
    section = job.section
    several = sum(one.section.observed for one in prepared.jobs) > 1
    if section.trace is None or several or not has_times(section.trace, section.format):
        return None
    hosts = None
    if section.hosts != "all":
        fabric = prepared.fabric
        hosts = [fabric.host_name[host] for host in fabric.node_host[job.node].tolist()]
    return measure(
        section.trace, rank_file=section.placement_file, hosts=hosts, format=section.format
    )


def with_round_robin_adapters(prepared: PreparedScenario) -> PreparedScenario:
    """The scenario of a measured run, with adapters that share their link between messages.

    Adapters serve queue pairs in turn, and hosts their sockets. Messages on the same queue pair go
    one after another, as in published simulators, which takes up to a third longer if ranks send to
    several partners at once. A scenario that states the injection is left as it is.
    """
    engine = prepared.scenario.engine
    if "injection" in engine.model_fields_set:
        return prepared
    shared = engine.model_copy(update={"injection": "round-robin"})
    shared.model_fields_set.add("injection")
    return replace(prepared, scenario=prepared.scenario.model_copy(update={"engine": shared}))


def differences_from_recorded(prepared: PreparedScenario) -> str:
    """How the scenario differs from the recorded run, in words; empty if it does not."""
    section = prepared.observed.section
    changes = []
    if section.compute_scale != 1:
        changes.append(f"computation times {section.compute_scale:g}")
    if section.repeat != 1:
        changes.append(f"{section.repeat} repetitions")
    return " and ".join(changes)
