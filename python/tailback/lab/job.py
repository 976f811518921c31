"""A real MPI program across a lab: Open MPI over TCP, traced by EZTrace."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

from tailback.lab import flows, system
from tailback.lab.causes import Setting
from tailback.lab.datapath.calls import defines
from tailback.lab.datapath.sampling import MAX_PROCESSES
from tailback.lab.plan import Command, Plan
from tailback.lab.spec import LabError

NOTES = "notes"
"""Folder in the work folder where ranks may write their own measurements."""

_FIRST_PORT = 20_000
_SHOWN_LINES = 30

_AGENT = """#!/bin/bash
# Open MPI starts its daemons with this: HOST COMMAND…
host=$1
shift
exec nsenter --net=/run/netns/{lab}-"$host" unshare --uts --mount bash -c \\
  'hostname "$0" && mount --bind {hosts} /etc/hosts && exec bash -c "$1"' "$host" "$*"
"""


def run(
    plan: Plan, setting: Setting, program: Sequence[str], work: Path, *, calls: Path | None = None
) -> Path:
    """Run a program to its end.

    Args:
        plan: A lab that is up.
        setting: Hosts of the ranks, and environment of the program.
        program: The program and its arguments.
        work: An empty folder of the lab.
        calls: Map of the calls of ranks: their sockets are marked, so that receivers know whose
            samples they have, and in which call.

    Returns:
        The folder of the trace.

    Raises:
        LabError: The program failed, or left no trace.
    """
    hosts = work / "hosts"
    hosts.write_text(
        "127.0.0.1 localhost\n::1 localhost\n"
        + "".join(f"{plan.address(host)} {host}\n" for host in plan.hosts)
    )
    agent = work / "agent"
    agent.write_text(_AGENT.format(lab=plan.spec.name, hosts=hosts))
    agent.chmod(0o700)
    (work / "ranks").write_text("".join(f"{host}\n" for host in setting.hosts))
    for folder in ("tmp", NOTES):
        (work / folder).mkdir()
    library = _library(work, marked=calls is not None)
    command = _mpirun(plan, setting, work, agent, library, calls)
    command += ["eztrace", "-t", "openmpi", "-o", str(work / "trace"), *program]
    # Open MPI's own start runs on the first host: its daemons connect to it across the fabric.
    done = subprocess.run(
        [agent, setting.hosts[0], shlex.join(command)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={
            **os.environ,
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "TMPDIR": str(work / "tmp"),
        },
    )
    if done.returncode != 0:
        last_lines = "\n".join(done.stdout.strip().splitlines()[-_SHOWN_LINES:])
        raise LabError(
            f"{program[0]!r} failed with exit code {done.returncode}:\n{last_lines}",
            remedy="make it run outside the lab first, with: mpirun -np "
            f"{len(setting.hosts)} {shlex.join(program)}",
        )
    anchors = sorted((work / "trace").glob("*/*.otf2"))
    if len(anchors) != 1:
        raise LabError(
            f"{program[0]!r} left no trace",
            remedy="give a program that calls MPI, as: "
            "tailback lab run --out CASE -- PROGRAM ARGUMENTS",
        )
    return anchors[0].parent


def _mpirun(
    plan: Plan, setting: Setting, work: Path, agent: Path, library: Path, calls: Path | None
) -> list[str]:
    # Open MPI only supports networks of IPv4. The hosts have one interface besides the loopback.
    network = "10.0.0.0/8" if plan.ip == 4 else "e0"
    other = 10 - plan.ip
    parameters = {
        "btl_tcp_disable_family": str(other),
        f"oob_tcp_disable_ipv{other}_family": "1",
        "rmaps": "seq",
        "plm_rsh_agent": str(agent),
        "plm_rsh_no_tree_spawn": "1",
        "pml": "ob1",
        "btl": "tcp,self",
        "btl_tcp_if_include": network,
        "oob_tcp_if_include": network,
        "mpi_yield_when_idle": "1",
        "orte_tmpdir_base": str(work / "tmp"),
    }
    environment = {
        "LD_PRELOAD": str(library),
        "TAILBACK_LAB_NOTES": str(work / NOTES),
        **({} if calls is None else {"TAILBACK_LAB_CALLS": str(calls)}),
        **setting.environment,
    }
    command = [
        system.mpirun(),
        "-np",
        str(len(setting.hosts)),
        "--hostfile",
        str(work / "ranks"),
        "--bind-to",
        "none",
        "--leave-session-attached",
    ]
    for key, value in parameters.items():
        command += ["--mca", key, value]
    for key, value in environment.items():
        command += ["-x", f"{key}={value}"]
    return command


def _library(work: Path, *, marked: bool) -> Path:
    """The compiled library that makes waiting ranks sleep, and tells receivers of them."""
    library = work / "ranks.so"
    names = ["pause.c", "mark.c", "calls.c"] if marked else ["pause.c"]
    options = [*defines(), f"-DMAX_PROCESSES={MAX_PROCESSES}", "-ldl"]
    with as_file(files("tailback.lab")) as folder:
        sources = [str(folder / name) for name in names]
        words = ("cc", "-O2", "-shared", "-fPIC", "-o", str(library), *sources, *options)
        system.run(Command(words))
    return library


@contextmanager
def other_traffic(plan: Plan, setting: Setting) -> Iterator[None]:
    """Context manager: the flows of a setting run in the background."""
    started: list[subprocess.Popen[bytes]] = []

    def start(host: str, *arguments: object) -> None:
        namespace = f"--net=/run/netns/{plan.namespace(host)}"
        words = ["nsenter", namespace, sys.executable, "-S", flows.__file__, *map(str, arguments)]
        started.append(
            subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    try:
        for number, flow in enumerate(setting.flows):
            port = _FIRST_PORT + number
            start(flow.target, "receive", plan.address(flow.target), port)
            start(flow.source, "send", plan.address(flow.target), port, flow.on_s, flow.off_s)
        yield
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()
