"""Which host a rank ran on: from the trace, the environment, a file or a list, in this order."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailback.errors import PlacementError
from tailback.evidence.hosts import find_hosts

SCORE_P = [[("cn1", "node"), ("Linux", "machine")], [("cn2", "node"), ("Linux", "machine")]]
EZTRACE = [[("halo", "halo")], [("halo", "halo")]]
SLURM = {"SLURM_JOB_NODELIST": "n[08-09]", "SLURM_TASKS_PER_NODE": "1(x2)"}


def test_the_first_that_tells_is_taken(tmp_path: Path) -> None:
    rank_file = tmp_path / "ranks.txt"
    rank_file.write_text("rank 1=f1 slot=0\nrank 0=f0 slot=0\n")
    sources = {"environment": SLURM, "rank_file": rank_file, "hosts": ["l0"]}

    def locate(system: list[list[tuple[str, str]]], **options: object) -> tuple[list[str], str]:
        hosts = find_hosts(system, 2, **options)  # type: ignore[arg-type]
        assert hosts is not None
        return hosts.of_rank, hosts.source

    assert locate(SCORE_P, **sources) == (["cn1", "cn2"], "the trace")
    assert locate(EZTRACE, **sources) == (["n08", "n09"], "Slurm's environment")
    sources["environment"] = {}
    assert locate(EZTRACE, **sources) == (["f0", "f1"], "ranks.txt")
    del sources["rank_file"]
    assert locate(EZTRACE, **sources) == (["l0", "l0"], "the list of hosts")
    assert find_hosts(EZTRACE, 2, environment={}) is None


def test_an_environment_of_another_size_is_another_job() -> None:
    assert find_hosts(EZTRACE, 3, environment=SLURM) is None
    cyclic = {**SLURM, "SLURM_DISTRIBUTION": "cyclic"}
    assert find_hosts(EZTRACE, 2, environment=cyclic) is None


def test_an_unreadable_node_list_is_no_source() -> None:
    for nodes in ("x[0-99999999]", "x[0-1", "x[a-b]"):
        variables = {**SLURM, "SLURM_JOB_NODELIST": nodes}
        assert find_hosts(EZTRACE, 2, environment=variables) is None
    ordered = {**SLURM, "SLURM_JOB_NODELIST": "r[1-2]n[02]"}
    hosts = find_hosts(EZTRACE, 2, environment=ordered)
    assert hosts is not None and hosts.of_rank == ["r1n02", "r2n02"]


def test_files_of_several_forms_tell_hosts(tmp_path: Path) -> None:
    pbs = tmp_path / "nodes"
    pbs.write_text("p0\np0\np1\n")
    hosts = find_hosts(EZTRACE, 3, environment={"PBS_NODEFILE": str(pbs)})
    assert hosts is not None and hosts.of_rank == ["p0", "p0", "p1"]
    assert hosts.most_ranks == 2
    table = tmp_path / "rank_host.csv"
    table.write_text("rank,host,ip\n0,h00,10.0.0.2\n1,h10,10.1.0.2\n")
    hosts = find_hosts(EZTRACE, 2, environment={}, rank_file=table)
    assert hosts is not None and hosts.of_rank == ["h00", "h10"]
    listed = tmp_path / "hosts"
    listed.write_text("a slots=2\nb slots=2\n")
    hosts = find_hosts(EZTRACE, 3, environment={}, rank_file=listed)
    assert hosts is not None and hosts.of_rank == ["a", "a", "b"]
    with pytest.raises(PlacementError, match="cannot be read"):
        find_hosts(EZTRACE, 2, environment={}, rank_file=tmp_path / "none")
