"""Rank files: exact text, commands, hostile host names, and Open MPI's own opinion."""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tailback.errors import PlacementError, TailbackError
from tailback.fabric.model import Fabric
from tailback.placement import WRITERS, Binding, assignment_for, place, problem_for, write
from tailback.traffic.readers.recorded_cores import core_numbers
from tests.factories.placement_fabrics import fabric_of, pairs, regular

NODES = np.array([1, 0, 1, 2, 0, 2])
LINES = {
    "openmpi": [
        "rank 0=node001 slot=0",
        "rank 1=node000 slot=0",
        "rank 2=node001 slot=1",
        "rank 3=node002 slot=0",
        "rank 4=node000 slot=1",
        "rank 5=node002 slot=1",
    ],
    "openmpi-seq": ["node001", "node000", "node001", "node002", "node000", "node002"],
    "slurm": ["node001", "node000", "node001", "node002", "node000", "node002"],
    "mpich": ["node001:1", "node000:1", "node001:1", "node002:1", "node000:1", "node002:1"],
    "cray": ["1,4,0,2,3,5"],
}
COMMANDS = {
    "openmpi": "mpirun -np 6 --rankfile 'my ranks' ./app",
    "openmpi-seq": "mpirun -np 6 --map-by seq --bind-to none --hostfile 'my ranks' ./app",
    "slurm": "SLURM_HOSTFILE='my ranks' srun --ntasks=6 --distribution=arbitrary "
    "--cpu-bind=none ./app",
    "mpich": "mpiexec -n 6 -machinefile 'my ranks' ./app",
    "cray": "cp 'my ranks' MPICH_RANK_ORDER && MPICH_RANK_REORDER_METHOD=3 "
    "srun --nodes=3 --nodelist='node[000-002]' --ntasks=6 --ntasks-per-node=2 ./app",
}


def test_every_writer_is_tested() -> None:
    assert sorted([*LINES, "torchrun"]) == sorted([*COMMANDS, "torchrun"]) == WRITERS.names()


def test_commands_of_open_mpi_take_its_options() -> None:
    for name in ("openmpi", "openmpi-seq", "slurm"):
        file = write(name, assignment_for(regular(3, 1, 3), np.array([2, 2, 0, 0])), "ranks")
        changed = file.with_openmpi_options("--mca key 1").command
        assert changed == file.command.replace("mpirun ", "mpirun --mca key 1 ")
        assert file.with_openmpi_options("") == file


def test_torchrun_gets_node_ranks_of_hosts() -> None:
    file = write("torchrun", assignment_for(regular(3, 1, 3), np.array([2, 2, 0, 0])), "ranks")
    assert file.text == "node002 0\nnode000 1\n"
    assert file.command == (
        "torchrun --nnodes=2 --nproc-per-node=2 --master-addr=node002 "
        """--node-rank=$(awk -v h="$(hostname -s)" '$1 == h { print $2 }' ranks) train.py"""
    )


TORCHRUN_OPTIONS = ("nnodes", "nproc-per-node", "node-rank", "master-addr", "master-port")
"""Those of torchrun's documented options that state where ranks run."""


def test_torchrun_command_gives_node_rank(tmp_path: Path) -> None:
    """A shell on each host hands torchrun options that it has, and the host's node rank."""
    file = write("torchrun", assignment_for(regular(3, 1, 3), np.array([2, 2, 0, 0])), "ranks")
    (tmp_path / "ranks").write_text(file.text)
    parser = argparse.ArgumentParser()
    for name in TORCHRUN_OPTIONS:
        parser.add_argument(f"--{name}")
    parser.add_argument("script")
    for host, rank in (("node002.cluster", "0"), ("node000.cluster", "1")):
        shell = (
            'torchrun() { printf "%s\\n" "$@"; }; '
            f'hostname() {{ [ "$1" = -s ] && echo {host.partition(".")[0]}; }}; {file.command}'
        )
        done = subprocess.run(
            ["bash", "-c", shell], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        stated = parser.parse_args(done.stdout.split("\n")[:-1])
        assert (stated.nnodes, stated.nproc_per_node, stated.node_rank) == ("2", "2", rank)
        assert (stated.master_addr, stated.script) == ("node002", "train.py")


def test_torchrun_refuses_scattered_ranks() -> None:
    with pytest.raises(PlacementError, match="consecutive ranks"):
        write("torchrun", assignment_for(regular(3, 1, 3), NODES), "ranks")


@pytest.mark.parametrize("name", LINES)
def test_text_and_command(name: str) -> None:
    file = write(name, assignment_for(regular(3, 1, 3), NODES), "my ranks")
    lines = file.text.split("\n")
    assert lines.pop() == ""
    comments = [line for line in lines if line.startswith("#")]
    assert [line for line in lines if not line.startswith("#")] == LINES[name]
    assert file.command == COMMANDS[name]
    assert (file.writer, file.file) == (name, "my ranks")
    if name == "slurm":
        assert not comments
    else:
        assert any(file.command in line for line in comments)


@pytest.mark.parametrize(
    ("nodes", "lines"),
    [
        ([1, 1, 0, 0], ["node001:2", "node000:2"]),
        # Hydra begins again, and so takes no host for two nodes.
        ([1, 0, 1, 0], ["node001:1", "node000:1"]),
        ([1, 1, 0, 1], ["node001:2", "node000:1"]),
        ([1, 1, 1, 1], ["node001:4"]),
        # Nothing helps here.
        ([1, 0, 0, 1, 1, 0], ["node001:1", "node000:2", "node001:2", "node000:1"]),
        (
            [0, 1, 2, 1, 0, 2],
            ["node000:1", "node001:1", "node002:1", "node001:1", "node000:1", "node002:1"],
        ),
    ],
)
def test_hydra_sees_each_host_once_where_it_can(
    nodes: list[int], lines: list[str], tmp_path: Path
) -> None:
    """A host that is listed again is another node for hydra: -v shows its process mapping."""
    fabric = regular(3, 1, 3)
    file = write("mpich", assignment_for(fabric, np.array(nodes)), "hosts")
    text = file.text.split("\n")
    assert [line for line in text[1:-1] if not line.startswith("#")] == lines
    again = len(lines) - len({line.split(":")[0] for line in lines})
    assert (f"# {again} times a host is listed again" in file.text) == (again > 0)
    assert _read_back(fabric, file.text, tmp_path, len(nodes), 4).tolist() == nodes


def test_slots_follow_the_adapters() -> None:
    fabric = fabric_of([(0, 1), (0,)], [0, 0])
    assignment = assignment_for(fabric, np.array([1, 0, 2, 1]))
    assert assignment.host == ("node000", "node000", "node001", "node000")
    assert assignment.slot.tolist() == [1, 0, 0, 3]
    assert assignment.slots == (4, 4)


@pytest.mark.parametrize(
    "name",
    [
        "a b",
        "a\nrank 1=evil",
        "a=b",
        "a;reboot",
        "$(x)",
        "`x`",
        "a:3",
        "",
        "-oProxy",
        "#x",
        "a,b",
        "nöde",
        "a" * 254,
        "a\x00b",
        "node001\n",
        ".",
        "a/b",
    ],
)
@pytest.mark.parametrize("writer", WRITERS.names())
def test_hostile_host_names(writer: str, name: str) -> None:
    fabric = fabric_of([(0,), (0,)], [0], names=["good", name])
    with pytest.raises(PlacementError, match="that a rank file cannot hold") as caught:
        write(writer, assignment_for(fabric, np.array([0, 1])))
    assert repr(name[:100]) in caught.value.message
    assert "\n" not in caught.value.message


def test_two_hosts_of_one_name() -> None:
    fabric = fabric_of([(0,), (0,)], [0], names=["twin", "twin"])
    with pytest.raises(PlacementError, match="two hosts are called 'twin'"):
        assignment_for(fabric, np.array([0, 1]))


def test_cray_needs_as_many_ranks_on_each_node() -> None:
    """Four tasks on three nodes: two, one and one, says srun's manual."""
    uneven = assignment_for(regular(3, 1, 3), np.array([0, 2, 2]), [0, 1, 2], 2)
    with pytest.raises(PlacementError, match="host 'node002' has 2 ranks and 'node000' 1"):
        write("cray", uneven)
    last = assignment_for(regular(3, 1, 3), np.array([0, 0, 0, 0, 1]), [0, 1], 4)
    with pytest.raises(PlacementError, match="host 'node001' has 1 ranks and 'node000' 4"):
        write("cray", last)  # srun would run three ranks on one and two on the other
    for nodes, chosen in [
        ([0, 1, 0, 1], "--nodes=2 --nodelist='node[000-001]' --ntasks=4 --ntasks-per-node=2"),
        ([0, 0, 2, 2], "--nodes=2 --nodelist='node[000,002]' --ntasks=4 --ntasks-per-node=2"),
        ([2, 2, 2], "--nodes=1 --nodelist=node002 --ntasks=3 --ntasks-per-node=3"),
    ]:
        spare = assignment_for(regular(3, 1, 3), np.array(nodes), [0, 1, 2], 4)
        assert f"srun {chosen} ./app" in write("cray", spare).command


def test_cray_follows_slurms_order_of_the_nodes(tmp_path: Path) -> None:
    """Slurm sorts the nodes of a step; the order of the job's hosts does not matter."""
    fabric = regular(3, 1, 3)
    order = assignment_for(fabric, np.array([2, 0, 2, 0]), [2, 0], 2)
    file = write("cray", order, "MPICH_RANK_ORDER")
    assert file.text.split("\n")[2:] == [
        "# nodes in this order:",
        "# node000 node002",
        "1,3,0,2",
        "",
    ]
    assert file.command.startswith("MPICH_RANK_REORDER")
    path = tmp_path / "order"
    path.write_text(file.text)
    problem = problem_for(fabric, pairs(4, []), [2, 1, 0], 2, 1)
    assert place("file", problem, {"file": str(path)}).tolist() == [2, 0, 2, 0]
    path.write_text(file.text.replace("node002", "node00x"))
    with pytest.raises(PlacementError, match="line 4: host 'node00x' is not one of the job's"):
        place("file", problem, {"file": str(path)})
    path.write_text(file.text.replace("node002", "node001 node002"))
    with pytest.raises(PlacementError, match="line 4: spreads 4 ranks over 3 nodes, which is not"):
        place("file", problem, {"file": str(path)})
    # A file without the comment fills the hosts as the job names them.
    path.write_text("1,3,0,2\n")
    assert place("file", problem, {"file": str(path)}).tolist() == [1, 2, 1, 2]


@pytest.mark.parametrize(
    ("names", "order", "listed"),
    [
        (["n10", "n9", "n2"], "n2 n9 n10", "'n[2,9-10]'"),
        (["n011", "n010", "n09"], "n09 n010 n011", "'n[09,010-011]'"),
        (["b1", "a2", "login"], "a2 b1 login", "a2,b1,login"),
    ],
)
def test_cray_sorts_names_by_their_numbers(names: list[str], order: str, listed: str) -> None:
    fabric = fabric_of([(0,)] * 3, [0], names=names)
    file = write("cray", assignment_for(fabric, np.arange(3)))
    assert file.text.split("\n")[3] == f"# {order}"
    there = file.command.split("--nodelist=")[1].split(" ")[0]
    assert sorted(there.strip("'").split(",")) == sorted(listed.strip("'").split(","))


def test_cray_refuses_names_whose_order_is_open() -> None:
    fabric = fabric_of([(0,)] * 2, [0], names=["r10n1", "r9n1"])
    with pytest.raises(PlacementError, match="whether 'r10n1' or 'r9n1' is first") as caught:
        write("cray", assignment_for(fabric, np.array([0, 1])))
    assert "names differ in one number" in caught.value.remedy


def test_wrong_assignments() -> None:
    fabric = regular(3, 1, 3)
    with pytest.raises(PlacementError, match="'node002' outside the allocation"):
        assignment_for(fabric, np.array([0, 2]), [0, 1])
    with pytest.raises(PlacementError, match="needs 2 slots but has 1"):
        assignment_for(fabric, np.array([0, 0]), [0], 1)
    with pytest.raises(PlacementError, match="'node001' needs 2 slots but has 1") as caught:
        assignment_for(fabric, np.array([0, 0, 1, 1]), [0, 1], [2, 1])
    assert "the host's slots" in caught.value.remedy
    with pytest.raises(PlacementError, match="3 numbers for 2 hosts"):
        assignment_for(fabric, np.array([0, 1]), [0, 1], [1, 1, 1])
    with pytest.raises(PlacementError, match="beyond the 3"):
        assignment_for(fabric, np.array([3]))
    with pytest.raises(TailbackError, match="unknown rank-file 'slrum'"):
        write("slrum", assignment_for(fabric, np.array([0])))
    with pytest.raises(PlacementError, match="not a name for a file"):
        write("slurm", assignment_for(fabric, np.array([0])), "a\nb")


def _read_back(
    fabric: Fabric, text: str, folder: Path, n_ranks: int = 2, per_host: int = 2
) -> np.ndarray:
    path = folder / "placement"
    path.write_text(text)
    problem = problem_for(fabric, pairs(n_ranks, []), list(range(fabric.n_hosts)), per_host, 1)
    return place("file", problem, {"file": str(path)})


@pytest.mark.parametrize("name", LINES)
def test_files_read_back(name: str, tmp_path: Path) -> None:
    fabric = regular(3, 1, 3)
    assignment = assignment_for(fabric, NODES, list(range(3)), 2)
    text = write(name, assignment).text
    assert _read_back(fabric, text, tmp_path, 6).tolist() == NODES.tolist()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no placement"),
        ("# only a comment\n", "holds no placement"),
        ("node000\n", "places 1 ranks, the job has 2"),
        ("node000\nnode00x\n", "line 2: host 'node00x' is not one"),
        ("node001\nnode000\nnode000\n", "places 3 ranks"),
        ("node000\n", "say ranks a host: host:n"),
        ("node000:0\n", "has 0 slots, the job has 2 ranks"),
        (
            "node000:1 slots=1\n",
            "line 1: 'node000:1 slots=1' gives the number of ranks of the host twice",
        ),
        ("node000:1\nnode001 slots=1\n", "some lines use host:n and others slots=n"),
        ("node000 slots=1\n", "has 1 slots, the job has 2 ranks"),
        ("node000 slots=1 max_slots=2\n", "has 1 slots, the job has 2 ranks"),
        ("node000 slots=2 max_slots=1\n", "line 1: max_slots = 1 is less than slots = 2"),
        ("node000 slots=two\n", "slots = 'two' is not a number"),
        ("node000 slts=2\n", "a host has no 'slts'"),
        ("node000 slots=1\nnode000\n", "line 2: host 'node000' is listed again after line 1"),
        ("node000\nnode000 slots=1\n", "line 2: host 'node000' is listed again after line 1"),
        ("node000\nwhat is this\n", "line 2: 'what is this' is not a host"),
        ("rank 0=node000 slot=0\nrank 0=node000 slot=1\n", "line 2: rank 0 is listed twice"),
        ("rank 0=node000 slot=0\nrank 2=node000 slot=1\n", "rank 1 is missing"),
        ("rank 0=node000 slot=0\nrank x\n", "line 2: 'rank x' cannot be read"),
        ("0,0\n", "does not name every rank once"),
        ("0-999999999\n", "places 3 ranks"),
        ("0,1\n1;2\n", "line 2: '1;2' is not a list"),
    ],
)
def test_wrong_files(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(PlacementError, match=message) as caught:
        _read_back(regular(3, 1, 3), text, tmp_path)
    assert caught.value.file == tmp_path / "placement"
    assert caught.value.remedy


@pytest.mark.parametrize(
    "text", ["node000:3\n", "node000:999999999\n", "node000 slots=999999999\n", "node000:1\n"]
)
def test_more_ranks_than_the_host_holds(text: str, tmp_path: Path) -> None:
    with pytest.raises(PlacementError, match="line 1: host 'node000' holds 2 ranks, the file puts"):
        _read_back(regular(3, 1, 3), text, tmp_path, 3)


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("node002 slots=2 max_slots=4 # spare\n\nnode000 slots=2\n", [2, 2, 0]),
        ("node002 slots=2 max_slots=2\nnode000 slots=2\n", [2, 2, 0]),
        ("node002 slots-max=2 // all\nnode000 count=1 max-slots=2\n", [2, 2, 0]),
        ("me@node002 slots = 1 port=22\nnode000 cpu=2\n", [2, 0, 0]),
        # Listed without a number: the machine's processors, here the host's slots in the job.
        ("node002 slots=1\nnode000\nnode001\n", [2, 0, 0]),
        # Listed line after line, in a list that says slots elsewhere: a slot each, at the first.
        ("node002\nnode000 slots=1\nnode002\n", [2, 2, 0]),
        ("node002 slots=0\nnode000 slots=2\nnode001 slots=1\n", [0, 0, 1]),
        # Without any number the list is one host a rank.
        ("node002\nnode000\nnode002\n", [2, 0, 2]),
        # Hydra deals its list round again, and leaves over what it does not need.
        ("node002:1\nnode000:1\n", [2, 0, 2]),
        ("node002:2\nnode000:2\n", [2, 2, 0]),
    ],
)
def test_lists_of_hosts_as_their_launchers_read_them(
    text: str, nodes: list[int], tmp_path: Path
) -> None:
    """As Open MPI 4.1 with `--display-map --do-not-launch` and hydra 4.0 with `-v` show them.

    All but the number of processors, which only a machine that is there can tell.
    """
    assert _read_back(regular(3, 1, 3), text, tmp_path, 3).tolist() == nodes


def test_a_line_of_blanks_is_refused_at_once(tmp_path: Path) -> None:
    """A search that begins anew at every blank takes time with their square: half a minute."""
    begin = time.process_time()
    with pytest.raises(PlacementError, match="is not a host"):
        _read_back(regular(3, 1, 3), f"node000{' ' * 200_000}x\n", tmp_path)
    assert time.process_time() - begin < 5


def test_binary_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"\xff\xfe\x00")
    problem = problem_for(regular(3, 1, 3), pairs(2, []), [0, 1, 2], 1, 1)
    with pytest.raises(PlacementError, match="not a text file"):
        place("file", problem, {"file": str(path)})


def test_core_names_are_not_slots(tmp_path: Path) -> None:
    text = "rank 0=node001 slot=0:3\nrank 1=node001 slot=0:1\n"
    assert _read_back(regular(3, 1, 3), text, tmp_path).tolist() == [1, 1]
    # Nor is a number that two ranks of a host share: then both take slots in order.
    shared = "rank 0=node001 slot=1\nrank 1=node001 slot=1\n"
    assert _read_back(regular(3, 1, 3), shared, tmp_path).tolist() == [1, 1]


BOUND = {
    "openmpi": "mpirun -np 6 --rankfile 'my ranks' -x OMP_NUM_THREADS=4 ./app",
    "openmpi-seq": "mpirun -np 6 --map-by seq:PE=2 --bind-to core -x OMP_NUM_THREADS=4 "
    "--hostfile 'my ranks' ./app",
    "slurm": "OMP_NUM_THREADS=4 SLURM_HOSTFILE='my ranks' srun --ntasks=6 --distribution=arbitrary "
    "--cpus-per-task=2 --cpu-bind=cores ./app",
    "mpich": "mpiexec -n 6 -bind-to core:2 -genv OMP_NUM_THREADS 4 -machinefile 'my ranks' ./app",
    "cray": "cp 'my ranks' MPICH_RANK_ORDER && OMP_NUM_THREADS=4 MPICH_RANK_REORDER_METHOD=3 "
    "srun --nodes=3 --nodelist='node[000-002]' --ntasks=6 --ntasks-per-node=2 --cpus-per-task=2 "
    "./app",
}


@pytest.mark.parametrize("name", BOUND)
def test_ranks_get_their_cores_and_threads(name: str, tmp_path: Path) -> None:
    fabric = regular(3, 1, 3)
    assignment = replace(assignment_for(fabric, NODES), binding=Binding(cores=2, threads=4))
    file = write(name, assignment, "my ranks")
    assert file.command == BOUND[name]
    if name == "openmpi":
        assert "rank 2=node001 slot=2-3\n" in file.text
        assert "binds each rank to one core" not in file.text
    assert _read_back(fabric, file.text, tmp_path, 6).tolist() == NODES.tolist()


LAUNCHERS = {"openmpi": "mpirun.openmpi", "openmpi-seq": "mpirun.openmpi", "mpich": "mpiexec.hydra"}


@pytest.mark.tools
@pytest.mark.parametrize("binding", [None, Binding(), Binding(1, 3), Binding(2, 2)])
@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_launcher_starts_ranks_with_cores_and_threads(
    name: str, binding: Binding | None, tmp_path: Path
) -> None:
    """One machine can only hold one host, so what is tested is syntax, order and binding."""
    launcher = shutil.which(LAUNCHERS[name])
    if launcher is None:
        pytest.skip("needs the Debian packages openmpi-bin and mpich")
    available = len(os.sched_getaffinity(0))
    count = 2 // (binding.cores or 1) if binding else 2
    if available < 2 or (binding and binding.cores > 1 and _threads_per_core() > 1):
        pytest.skip("needs two cores with one hardware thread each")
    fabric = fabric_of([(0,) * count], [0], names=[socket.gethostname()])
    try:
        # Ranks in reverse order on the adapters, so that rank 0 has the last slot.
        assignment = assignment_for(fabric, np.arange(count)[::-1])
    except PlacementError:
        pytest.skip(f"this machine's name {socket.gethostname()!r} cannot stand in a rank file")
    file = write(name, replace(assignment, binding=binding), "ranks")
    (tmp_path / "ranks").write_text(file.text)
    command = file.command.split(" ")
    script = (
        "echo ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} ${OMP_NUM_THREADS:-0} "
        "$(sed -n s/Cpus_allowed_list:.//p /proc/self/status)"
    )
    inherited = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    done = subprocess.run(
        [launcher, *command[1:-1], "sh", "-c", script],
        cwd=tmp_path,
        env=inherited,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ranks = sorted(line.split(" ") for line in done.stdout.strip().split("\n"))
    assert [rank for rank, *_ in ranks] == [str(rank) for rank in range(count)]
    assert {threads for _, threads, _ in ranks} == {str(binding.threads if binding else 0)}
    cores = [core_numbers(text) for *_, text in ranks]
    if name == "openmpi" or (binding and binding.cores):
        each = binding.cores or 1 if binding else 1
        assert [len(some) for some in cores] == [each] * count
        assert len(set[int]().union(*cores)) == each * count
    else:
        assert cores == [os.sched_getaffinity(0)] * count


def _threads_per_core() -> int:
    siblings = Path("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")
    return len(core_numbers(siblings.read_text().strip())) if siblings.is_file() else 1
