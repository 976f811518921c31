"""What a recording says of its surroundings: the batch system's job, its topology, the fabric."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from pathlib import Path

from tailback.recorder.commands import output_of
from tailback.units import counted

_JOB_PREFIXES = ("SLURM_", "PBS_", "LSB_", "OAR_", "COBALT_", "SGE_", "FLUX_")
_SECRET = ("JWT", "TOKEN", "KEY", "SECRET", "PASS", "COOKIE", "CRED")
_INFINIBAND = Path("/sys/class/infiniband")
_ASK = "an administrator can write it once: ibnetdiscover > fabric.txt; dump_fts > lfts.txt"


def job_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables with which a batch system describes a job, without secrets."""
    return {
        key: value
        for key, value in sorted(environment.items())
        if key.startswith(_JOB_PREFIXES) and not any(word in key for word in _SECRET)
    }


def write_job(environment: Mapping[str, str], folder: Path, notes: list[str]) -> None:
    """What the batch system states about the job: variables, nodes, its topology of switches.

    Writes ``job.env``, ``nodefile`` and, with Slurm, ``job.txt`` and ``topology.conf``; nothing
    outside a batch job.
    """
    variables = job_variables(environment)
    if not variables:
        return
    (folder / "job.env").write_text("".join(f"{k}={v}\n" for k, v in variables.items()))
    nodes = environment.get("PBS_NODEFILE")
    if nodes and os.path.isfile(nodes):
        (folder / "nodefile").write_bytes(Path(nodes).read_bytes())
    job = environment.get("SLURM_JOB_ID")
    if not job:
        return
    wanted = {
        "job.txt": ["scontrol", "--details", "show", "job", job],
        "topology.conf": ["scontrol", "show", "topology"],
    }
    if listed := environment.get("SLURM_JOB_NODELIST"):
        wanted["nodefile"] = ["scontrol", "show", "hostnames", listed]
    for name, command in wanted.items():
        shown, problem = output_of(command)
        if shown.strip():
            (folder / name).write_text(shown)
        elif problem:
            notes.append(f"{name} is missing: {' '.join(command)}: {problem}")


def write_fabric(folder: Path, notes: list[str], devices: Path = _INFINIBAND) -> None:
    """The InfiniBand fabric and its forwarding tables, where this user may ask for them.

    Writes ``fabric.txt`` and ``lfts.txt``; otherwise a note says who can. Without an InfiniBand
    adapter on this host nothing is asked.

    Args:
        folder: The recording.
        notes: Gets a line for each that is missing.
        devices: Folder of the adapters in sysfs.
    """
    if not devices.is_dir() or not any(devices.iterdir()):
        return
    fabric, problem = output_of(["ibnetdiscover"])
    if problem or not fabric.strip():
        notes.append(f"the fabric is not recorded: ibnetdiscover: {problem or 'no output'}; {_ASK}")
        return
    (folder / "fabric.txt").write_text(fabric)
    tables, problem = output_of(["dump_fts"])
    if problem or not tables.strip():
        notes.append(
            "the forwarding tables are not recorded, so that all shortest paths count: "
            f"dump_fts: {problem or 'no output'}; {_ASK}"
        )
        return
    (folder / "lfts.txt").write_text(tables)


def changed_statistics(files: list[Path]) -> list[str]:
    """What statistics of network drivers rose by while the program ran, a line for each host.

    Args:
        files: Tables ``ethtool-HOST-RANK.csv`` of the recorder.
    """
    rises: dict[str, dict[tuple[str, str], int]] = {}
    for file in files:
        first: dict[tuple[str, str], int] = {}
        with file.open(newline="", encoding="utf-8", errors="replace") as rows:
            for row in csv.DictReader(rows):
                # A rank that was killed may have left half a line.
                if row["value"] is None or not row["value"].isdigit():
                    continue
                key = (row["iface"], row["counter"])
                rise = int(row["value"]) - first.setdefault(key, int(row["value"]))
                if rise > 0:
                    rises.setdefault(row["node"], {})[key] = rise
    out = []
    for host, host_rises in sorted(rises.items()):
        most = sorted(host_rises.items(), key=lambda item: -item[1])
        some = ", ".join(f"{iface} {name} {rise}" for (iface, name), rise in most[:4])
        more = f" and {counted(len(most) - 4, 'more counter')}" if len(most) > 4 else ""
        out.append(f"{host} counted while the program ran: {some}{more} (counters/ethtool-*.csv)")
    return out
