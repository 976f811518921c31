"""A lab on this machine: brought up, found again, settled, taken down."""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tailback.lab import system, telemetry
from tailback.lab.datapath.sampling import PacketScheme, SamplingError
from tailback.lab.plan import HASH_SEED, SYSCTLS, Plan
from tailback.lab.spec import LabError, LabSpec, parse

STATE = Path("/run/tailback-lab")
"""One folder per lab, with its specification and the files of a run in progress."""

_FILE = "lab.json"


def bring_up(spec: LabSpec, sampled: PacketScheme | None = None) -> Plan:
    """Create the fabric of a specification. On failure everything created is removed.

    Args:
        spec: The specification.
        sampled: Scheme by which its ports sample packets; None for none.

    Raises:
        LabError: A lab or a namespace of this name exists, or the machine refuses.
    """
    system.require(system.FABRIC_TOOLS)
    plan, folder = Plan(spec), STATE / spec.name
    namespaces = [plan.namespace(node) for node in plan.nodes]
    if folder.exists():
        raise LabError(
            f"the lab {spec.name!r} is up already",
            remedy=f"take it down with: tailback lab down {spec.name}",
        )
    if foreign := system.existing(namespaces):
        raise LabError(
            f"there is a namespace {foreign[0]!r} that does not belong to a lab",
            remedy="give the specification another name",
        )
    try:
        folder.mkdir(parents=True, mode=0o700)
        # Written first: whatever comes later can be found and taken down.
        state = {
            "namespaces": namespaces,
            "spec": spec.model_dump(mode="json"),
            "sampling": None if sampled is None else str(sampled),
        }
        (folder / _FILE).write_text(json.dumps(state))
        system.run(plan.create())
        _set_sysctls(plan)
        for command in plan.configure():
            system.run(command)
        settle(plan, {}, plan.spines)
        if sampled is not None:
            telemetry.install(plan, sampled, folder)
    except OSError as error:
        take_down(spec.name)
        raise LabError(
            f"cannot be written: {error.strerror}",
            file=folder,
            remedy="free space there, and run as root",
        ) from None
    except BaseException:
        take_down(spec.name)
        raise
    return plan


def _set_sysctls(plan: Plan) -> None:
    for node in plan.nodes:
        with system.inside(plan.namespace(node)):
            for key, value in SYSCTLS[plan.ip]:
                # A kernel without IPv6 does not need that setting.
                system.write_sysctl(key, value, optional="disable_ipv6" in key)
            system.write_sysctl(HASH_SEED, str(plan.spec.fabric.ecmp_seed), optional=True)


def seed_paths(plan: Plan, seed: int) -> None:
    """Choose other paths for the same flows: set the seed of ECMP in every switch."""
    for node in [*plan.leaves, *plan.spines]:
        with system.inside(plan.namespace(node)):
            system.write_sysctl(HASH_SEED, str(seed), optional=True)


def settle(
    plan: Plan, rates_bps: dict[int, int], spines: list[str], *, static: bool = False
) -> None:
    """Set the rates of all links, nominal where not given, and how leaves use which spines."""
    for command in plan.settle(rates_bps, spines, static=static):
        system.run(command)


def names() -> list[str]:
    """Names of the labs that are up, or partly so."""
    return sorted(path.name for path in STATE.iterdir()) if STATE.is_dir() else []


def find(name: str | None) -> Plan:
    """The lab of this name, or the only one.

    Raises:
        LabError: There is none, or there are several and no name.
    """
    system.require(system.FABRIC_TOOLS)
    up = names()
    if not up:
        raise LabError("no lab is up", remedy="bring one up with: tailback lab up SPEC")
    if name is None and len(up) > 1:
        raise LabError(f"several labs are up: {', '.join(up)}", remedy="choose one with --lab")
    if name is not None and name not in up:
        raise LabError(f"no lab {name!r} is up", remedy=f"choose one of: {', '.join(up)}")
    plan = _read(STATE / (name or up[0]))
    wanted = [plan.namespace(node) for node in plan.nodes]
    if len(system.existing(wanted)) < len(wanted):
        raise LabError(
            f"the lab {plan.spec.name!r} is only partly up",
            remedy=f"take it down with: tailback lab down {plan.spec.name}",
        )
    return plan


def folder_of(plan: Plan) -> Path:
    """Folder of a lab, whether it is up or not."""
    return STATE / plan.spec.name


def sampling_of(plan: Plan) -> PacketScheme | None:
    """Scheme by which the ports of a lab that is up sample packets."""
    file = STATE / plan.spec.name / _FILE
    try:
        text = json.loads(file.read_text())["sampling"]
        return None if text is None else PacketScheme.parse(text)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SamplingError) as error:
        raise _unreadable(file, error) from None


def _read(folder: Path) -> Plan:
    file = folder / _FILE
    try:
        return Plan(parse(json.loads(file.read_text())["spec"], file))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(file, error) from None


def _unreadable(file: Path, error: Exception) -> LabError:
    return LabError(
        f"cannot be read: {error}",
        file=file,
        remedy=f"take it down with: tailback lab down {file.parent.name}",
    )


@contextmanager
def in_use(plan: Plan) -> Iterator[Path]:
    """Reserve the lab for this process, with a fresh folder that is removed at the end.

    Processes and files left by a killed run are removed first, and those of this run at the end.

    Raises:
        LabError: Another process uses the lab.
    """
    folder = STATE / plan.spec.name
    namespaces = [plan.namespace(node) for node in plan.nodes]
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LabError(
                f"the lab {plan.spec.name!r} is in use by another run", remedy="wait until it ends"
            ) from None
        work = folder / "run"

        def clean() -> None:
            system.end_processes(namespaces)
            shutil.rmtree(work, ignore_errors=True)
            settle(plan, {}, plan.spines)
            seed_paths(plan, plan.spec.fabric.ecmp_seed)

        clean()
        work.mkdir()
        try:
            yield work
        finally:
            clean()


def take_down(name: str) -> bool:
    """Remove a lab: its processes, namespaces and folder. Returns whether there was anything.

    Can be repeated, and works on a lab that is half up.
    """
    system.require(system.FABRIC_TOOLS)
    if name not in names():
        return False
    folder = STATE / name
    try:
        listed = json.loads((folder / _FILE).read_text())["namespaces"]
    except (OSError, ValueError, KeyError, TypeError):
        # Killed before the specification was written, so nothing had been created.
        listed = []
    present = system.existing(listed)
    system.end_processes(present)
    system.delete(present)
    telemetry.remove(folder)
    shutil.rmtree(folder)
    return True
