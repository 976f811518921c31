"""Hosts of ranks from what launchers and schedulers leave behind."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from tailback.cli import cli
from tailback.errors import PlacementError, TailbackError
from tailback.names.hosts import expand_hosts
from tailback.placement.rank_hosts import rank_hosts
from tailback.run.run import Run


def hosts(folder: Path, text: str | bytes) -> list[str]:
    path = folder / "ranks"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return rank_hosts(path)


MPI = "".join(
    f"[1,{rank}]<stdout>:OMPI_COMM_WORLD_RANK={rank}\n[1,{rank}]<stdout>:HOSTNAME=n{rank // 2}\n"
    f"[1,{rank}]<stdout>:OMPI_COMM_WORLD_LOCAL_RANK={rank % 2}\n[1,{rank}]<stdout>:PATH=/bin\n"
    for rank in (2, 0, 3, 1)
)
SLURM = (
    "SLURM_JOB_NODELIST=n[08-10],x\nSLURM_TASKS_PER_NODE=2(x3),1\nSLURM_NTASKS=7\nUSER=someone\n"
)


def test_every_form_gives_the_host_of_each_rank(tmp_path: Path) -> None:
    four = ["n0", "n0", "n1", "n1"]
    csv = "rank,host,ip\n3,n1,10.0.0.1\n1,n0,-\n0,n0,-\n2,n1,-\n"
    assert hosts(tmp_path, csv) == four
    assert hosts(tmp_path, gzip.compress(csv.encode())) == four
    assert hosts(tmp_path, MPI) == four
    assert hosts(tmp_path, "rank 1=n0 slot=1\nrank 0=n0 slot=0\nrank 2=n1 slots=0:1\n") == four[:3]
    assert hosts(tmp_path, "n0\nn0\nn1\nn1\n") == four
    assert hosts(tmp_path, "n0 slots=2\nn1 slots=2 # comment\n") == four
    assert hosts(tmp_path, "n0:2\nn1:2\n") == four


DISPLAY_MAP = """\
 Data for node: n0\tNum slots: 2\tMax slots: 0\tNum procs: 2
 \tProcess OMPI jobid: [14913,1] App: 0 Process rank: 0 Bound: socket 0[core 0[hwt 0-1]]:[BB/..]
output of the program
 \tProcess OMPI jobid: [14913,1] App: 0 Process rank: 1 Bound: N/A

 Data for node: n1\tNum slots: 2\tMax slots: 0\tNum procs: 2
 \tProcess jobid: [prterun-n0-9@1,2] App: 0 Process rank: 2 Bound: package[0][core:0]
 \tProcess jobid: [prterun-n0-9@1,3] App: 0 Process rank: 3 Bound: package[0][core:1]
"""
BINDINGS = """\
[n0:04101] MCW rank 0 bound to socket 0[core 0[hwt 0]]: [B/./././.]
[n1:50199] MCW rank 3 is not bound (or bound to all available processors)
[n0:04101] Rank 1 bound to package[0][core:1]
output of the program
[n1:50199] MCW rank 2 bound to socket 0[core 0[hwt 0]]: [B/./././.]
"""
ERF = """\
cpu_index_using: logical
# two on each host
rank: 0-1: { host: 1; cpu: {0-3} }
rank: 3: { host: 2; cpu: {4-7} }
rank: 2: { host: 2; cpu: {0-3} } : app 0
"""


@pytest.mark.parametrize(
    "text",
    [
        "0: n0\n1: n0\n3: n1\n2: n1\n",  # srun -l hostname
        "[1,1]<stdout>:n0\n[1,0]<stdout>:n0\n\n[1,2]<stdout>:n1\n[1,3]<stdout>:n1\n",
        "".join(f"[prterun-n0-9@1,{r}]<stdout>: n{r // 2}\n" for r in range(4)),
        "[0] n0\n[2] n1\n[1] n0\n[3] n1\n",  # mpiexec.hydra -l
        DISPLAY_MAP,
        BINDINGS,
        "LSB_HOSTS=n0 n0 n1 n1\nLSB_MCPU_HOSTS=n0 2 n1 2\nLSB_DJOB_NUMPROC=4\n",
        'LSB_MCPU_HOSTS="n0 2 n1 2"\n',
        "n0:2:0-1\nn1:2\n",
        "# nodes in this order:\n# n0 n1\n1,0\n2-3\n",  # MPICH_RANK_ORDER of tailback place
    ],
)
@pytest.mark.parametrize("option", ["--rankfile", "--placement"])
def test_launcher_output_gives_each_ranks_host(tmp_path: Path, text: str, option: str) -> None:
    assert hosts(tmp_path, text) == ["n0", "n0", "n1", "n1"]
    assert placed(tmp_path, text, option, "n0:2,n1:2") == ["n0", "n0", "n1", "n1"]


def test_cray_order_without_nodes_fills_the_hosts(tmp_path: Path) -> None:
    with pytest.raises(PlacementError, match="does not name their hosts"):
        hosts(tmp_path, "3,0,1,2\n")
    for option in ("--rankfile", "--placement"):
        assert placed(tmp_path, "3,0,1,2\n", option, "n3:2,n1:2") == ["n3", "n1", "n1", "n3"]


def test_explicit_resources_number_the_hosts_of_the_job(tmp_path: Path) -> None:
    with pytest.raises(PlacementError, match="numbers the hosts of the job"):
        hosts(tmp_path, ERF)
    for option in ("--rankfile", "--placement"):
        assert placed(tmp_path, ERF, option, "n3:2,n1:2") == ["n3", "n3", "n1", "n1"]
    with pytest.raises(TailbackError, match="puts ranks on host 2, the job has 1 hosts"):
        placed(tmp_path, ERF, "--rankfile", "n3:4")


LAUNCHERS = {
    "mpirun.openmpi --tag-output": "hostname",
    "mpirun.openmpi --display-map": "true",
    "mpirun.openmpi --report-bindings --bind-to core": "true",
    "mpiexec.hydra -l": "hostname",
}


@pytest.mark.tools
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_output_of_a_launcher_is_read(launcher: str, tmp_path: Path) -> None:
    words = launcher.split()
    if shutil.which(words[0]) is None:
        pytest.skip(f"needs {words[0]} (Debian packages openmpi-bin, mpich)")
    run = subprocess.run([*words, "-n", "2", LAUNCHERS[launcher]], capture_output=True, text=True)
    name = os.uname().nodename
    assert hosts(tmp_path, run.stdout + run.stderr) == [name, name], run.stderr


def test_environments_one_after_the_other_without_tags(tmp_path: Path) -> None:
    text = "".join(f"PMI_RANK={r}\nHOME=/\nSLURMD_NODENAME=n{r % 2}\n" for r in range(4))
    assert hosts(tmp_path, text) == ["n0", "n1", "n0", "n1"]


def test_the_environment_of_a_slurm_job(tmp_path: Path) -> None:
    block = ["n08", "n08", "n09", "n09", "n10", "n10", "x"]
    assert hosts(tmp_path, SLURM) == block
    assert hosts(tmp_path, SLURM + "SLURM_DISTRIBUTION=block:cyclic\n") == block
    cyclic = ["n08", "n09", "n10", "x", "n08", "n09", "n10"]
    assert hosts(tmp_path, SLURM + "SLURM_DISTRIBUTION=cyclic\n") == cyclic
    # A single shell of the job has a rank too: that of its batch step.
    assert hosts(tmp_path, SLURM + "SLURM_PROCID=0\n") == block


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rank,host\n0,a\n0,b\n", "line 3, column 1 (rank): rank 0 is listed twice"),
        ("rank,host\n0,a\n2,b\n", "rank 1 is missing"),
        ("rank,host\nx,a\n", "line 2, column 1 (rank): 'x' is not a whole number"),
        ("rank,host\n0,\n", "line 2, column 2 (host): the field is empty"),
        ("rank,host\n0", "line 2, column 2: 1 fields"),
        ("rank,host\n", "names no rank"),
        ("rank 0=a slot=0\nrank 0=b slot=1\n", "line 2: rank 0 is twice"),
        ("rank 0=a\n", "line 1: 'rank 0=a' cannot be read"),
        (MPI.replace("RANK=3", "RANK=9", 1), "rank 3 is missing (the highest is 9)"),
        (MPI.replace("HOSTNAME=n1", "HOSTNAME=n0"), "it is the name of the host that launched"),
        (MPI.replace("HOSTNAME", "SHELL"), "names ranks but no hosts"),
        (SLURM.replace("2(x3)", "2(x4)"), "does not match the list of 4"),
        (SLURM.replace("2(x3)", "two"), "SLURM_TASKS_PER_NODE = 'two,1' cannot be read"),
        (SLURM.replace("TASKS=7", "TASKS=8"), "SLURM_NTASKS = 8, but 7 tasks"),
        (SLURM.replace("[08-10]", "[08-1"), "unmatched bracket"),
        (SLURM + "SLURM_DISTRIBUTION=arbitrary\n", "'arbitrary' does not determine the hosts"),
        ("0: a\n0: b\n", "line 2: rank 0 is on 'a' and on 'b'"),
        ("[1,0]<stdout>:a\n[1,2]<stdout>:a\n", "rank 1 is missing"),
        (BINDINGS.replace("rank 3", "rank 4"), "rank 3 is missing (the highest is 4)"),
        ("LSB_MCPU_HOSTS=a 2 b\n", "LSB_MCPU_HOSTS = 'a 2 b' cannot be read"),
        ("LSB_HOSTS=a b\nLSB_DJOB_NUMPROC=3\n", "LSB_DJOB_NUMPROC = 3, but 2 slots"),
        (ERF.replace("host: 2", "host: *"), "line 4: 'rank: 3: { host: *"),
        (ERF.replace("0-1", "0-"), "line 3"),
        ("0,1,1\n", "does not name every rank once"),
        ("0,1\nx\n", "line 2: 'x' is not a list of ranks"),
        ("# nodes in this order:\n# a b\n0,1,2\n", "line 2: spreads 3 ranks over 2 nodes"),
        ("", "the file is empty"),
        ("\0\0", "zero byte"),
        ("a b c d\n", "'a b c d' is not a host"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(PlacementError) as caught:
        hosts(tmp_path, text)
    assert says in str(caught.value) and "remedy: " in str(caught.value)
    assert str(tmp_path / "ranks") in str(caught.value)


def test_cut_files_never_end_in_a_traceback(tmp_path: Path) -> None:
    for text in (MPI, SLURM, DISPLAY_MAP, BINDINGS, "rank,host\n0,n0\n1,n1\n"):
        for end in range(0, len(text), 3):
            try:
                assert hosts(tmp_path, text[:end])
            except TailbackError as error:
                assert error.remedy


def test_lists_of_hosts() -> None:
    assert expand_hosts("n[1-2]x[3,5],y z;w") == ["n1x3", "n1x5", "n2x3", "n2x5", "y", "z", "w"]
    assert expand_hosts("a[008-010]") == ["a008", "a009", "a010"]
    assert expand_hosts("") == []
    for wrong, says in (
        ("a[3-1]", "backwards"),
        ("a[", "unmatched"),
        ("a[x]", "neither a number"),
        ("a[1-9999999]", "more than"),
        ("a[0-999][0-999][0-9]", "more than"),
        ("a]", "unmatched"),
    ):
        with pytest.raises(PlacementError, match=says):
            expand_hosts(wrong)


LINKS = "src,dst,rate_gbit\n" + "".join(f"n{i},s,10\n" for i in range(4))
SCENARIO = """
[fabric]
file = "links.csv"
[[job]]
pattern = { kind = "ring", ranks = 4, size = "64 KiB" }
"""


def placed(folder: Path, text: str, option: str, hosts: str = "") -> list[str]:
    """Host of each rank of a run that was placed with a file."""
    (folder / "links.csv").write_text(LINKS)
    (folder / "ranks").write_text(text)
    (folder / "s.toml").write_text(SCENARIO)
    command = [
        "simulate",
        str(folder / "s.toml"),
        option,
        str(folder / "ranks"),
        "--out",
        str(folder / "run"),
        "--force",
        *(["--hosts", hosts] if hosts else []),
    ]
    result = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    run = Run.read(folder / "run")
    ranks = run.tables["ranks"].join(run.tables["nodes"], on="node").sort("rank")
    return ranks["host_name"].to_list()


@pytest.mark.parametrize("option", ["--rankfile", "--placement"])
def test_the_command_line_places_ranks_where_they_ran(tmp_path: Path, option: str) -> None:
    text = "host,rank\nn2,0\nn0,2\nn2,1\nn0,3\n"
    names = "n0:2,n2:2" if option == "--placement" else ""
    assert placed(tmp_path, text, option, names) == ["n2", "n2", "n0", "n0"]


def test_wrong_rank_files_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "links.csv").write_text(LINKS)
    (tmp_path / "s.toml").write_text(SCENARIO)

    def refused(ranks: str, *more: str) -> str:
        (tmp_path / "ranks.csv").write_text(ranks)
        command = ["simulate", str(tmp_path / "s.toml"), "--rankfile", str(tmp_path / "ranks.csv")]
        with pytest.raises(TailbackError) as caught:
            CliRunner().invoke(cli, [*command, *more], catch_exceptions=False)
        return str(caught.value)

    assert "'n9' is not in the fabric" in refused("rank,host\n0,n9\n1,n0\n2,n0\n3,n0\n")
    # What lacks is a rank of the file, not room on the hosts.
    for text in ("rank,host\n0,n1\n1,n0\n", "n1\nn0\n", "rank 0=n1 slot=0\nrank 1=n0 slot=0\n"):
        message = refused(text)
        assert "ranks.csv: rank 2 is missing: the file places 2 ranks, the job has 4" in message
        assert "add the host of each rank up to 3" in message and "hosts hold" not in message
    six = "rank,host\n" + "".join(f"{rank},n0\n" for rank in range(6))
    assert "places 6 ranks, the job has 4" in refused(six)
    four = "rank,host\n0,n1\n1,n1\n2,n1\n3,n1\n"
    assert "--rankfile and --placement both state" in refused(four, "--placement", "block")
    message = refused(four, "--hosts", "n1:3,n0:1")
    assert "rank 3: host 'n1' holds 3 ranks, the file puts more there" in message
