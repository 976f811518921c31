"""Labs for tests: whether this machine can have one, and one that is gone at the end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tailback.lab import fabric, system
from tailback.lab.plan import Plan
from tailback.lab.spec import LabSpec, parse


@cache
def why_not(*, jobs: bool = False) -> str | None:
    """Why this machine cannot have a lab (that runs MPI programs); None if it can."""
    tools = system.FABRIC_TOOLS | (system.JOB_TOOLS if jobs else {})
    reason = system.missing(tools)
    if reason is None and jobs and system.missing({"mpicc": "libopenmpi-dev"}):
        return "no mpicc"
    if reason is not None:
        return reason
    # Root in a container may not be allowed to.
    probe = f"tbprobe{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if made.returncode != 0:
        return f"no network namespaces: {made.stderr.strip()}"
    try:
        shaped = subprocess.run(
            [
                "tc",
                "-n",
                probe,
                "qdisc",
                "add",
                "dev",
                "lo",
                "root",
                "tbf",
                "rate",
                "1mbit",
                "burst",
                "2000",
                "limit",
                "4000",
            ],
            capture_output=True,
            text=True,
        )
    finally:
        subprocess.run(["ip", "netns", "delete", probe], capture_output=True)
    return f"no tbf: {shaped.stderr.strip()}" if shaped.returncode != 0 else None


def tiny(name: str) -> LabSpec:
    """Two leaves, two spines, two hosts a leaf; one rank on one host of each leaf."""
    return parse(
        {
            "name": f"{name}{os.getpid()}",
            "fabric": {"leaves": 2, "spines": 2, "hosts_per_leaf": 2},
            "job": {"hosts": ["h00", "h10"]},
        }
    )


@contextmanager
def up(spec: LabSpec) -> Iterator[Plan]:
    """The lab is up meanwhile."""
    plan = fabric.bring_up(spec)
    try:
        yield plan
    finally:
        fabric.take_down(spec.name)


def left_over(plan: Plan) -> list[str]:
    """What of a lab is on this machine: namespaces and its folder."""
    folder = fabric.STATE / plan.spec.name
    namespaces = system.existing([plan.namespace(node) for node in plan.nodes])
    return namespaces + ([str(folder)] if folder.exists() else [])


def as_toml(spec: LabSpec, file: Path) -> Path:
    """The specification as a file."""
    shape = spec.fabric
    file.write_text(
        f'name = "{spec.name}"\n[fabric]\nleaves = {shape.leaves}\nspines = {shape.spines}\n'
        f"hosts_per_leaf = {shape.hosts_per_leaf}\n[job]\nhosts = {spec.job.hosts!r}\n"
    )
    return file
