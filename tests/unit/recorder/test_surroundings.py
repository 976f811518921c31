"""What a recording says of its surroundings: the job, its topology, the fabric, pauses."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest

from tailback.cli.record import _network
from tailback.recorder.session import record
from tailback.recorder.surroundings import changed_statistics, write_fabric, write_job
from tailback.traffic.readers.recorded_cores import sharing_ranks
from tests.factories.recorded_programs import idle_program, library_to_preload

DRIVER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdarg.h>
#include <string.h>
/* Every interface has the statistics of one with priority flow control, whose pauses rise. */
static const char *const names[] = {"rx_packets", "rx_prio3_pause", "rx_prio3_pause_duration",
                                    "tx_discards_phy", "rx_ecn_mark"};
int ioctl(int fd, unsigned long request, ...) {
  static unsigned long long readings;
  va_list rest;
  va_start(rest, request);
  void *given = va_arg(rest, void *);
  va_end(rest);
  if (request != SIOCETHTOOL)
    return ((int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl"))(fd, request, given);
  void *data = ((struct ifreq *)given)->ifr_data;
  switch (*(__u32 *)data) {
    case ETHTOOL_GSSET_INFO: ((struct ethtool_sset_info *)data)->data[0] = 5; break;
    case ETHTOOL_GSTRINGS:
      for (int i = 0; i < 5; i++)
        strcpy((char *)((struct ethtool_gstrings *)data)->data + i * ETH_GSTRING_LEN, names[i]);
      break;
    default:
      readings++;
      for (int i = 0; i < 5; i++)
        ((struct ethtool_stats *)data)->data[i] = i == 1 || i == 2 ? 1000 * i + readings : 7;
  }
  return 0;
}
"""


@pytest.mark.tools
def test_pauses_discards_and_marks_of_drivers_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which("mpicc") or not shutil.which("mpirun"):
        pytest.skip("needs Debian packages openmpi-bin, libopenmpi-dev")
    if not any(interface.name != "lo" for interface in Path("/sys/class/net").iterdir()):
        pytest.skip("needs a network interface")
    program = idle_program(tmp_path, 500_000)
    driver = library_to_preload(tmp_path, DRIVER)
    monkeypatch.setenv("LD_PRELOAD", str(driver))
    command = ["mpirun", "--oversubscribe", "-np", "2", str(program)]
    recording = record(command, tmp_path / "out")
    (file,) = (tmp_path / "out" / "counters").glob("ethtool-*.csv")
    rows = pl.read_csv(file)
    # First and last reading: everything that is wanted; in between what changes.
    counts = dict(rows.group_by("counter").len().iter_rows())
    interfaces = rows["iface"].n_unique()
    assert counts["tx_discards_phy"] == counts["rx_ecn_mark"] == 2 * interfaces
    assert counts["rx_prio3_pause"] == counts["rx_prio3_pause_duration"] >= 4 * interfaces
    assert "rx_packets" not in counts
    assert any(
        "counted while the program ran" in note and "rx_prio3_pause" in note
        for note in recording.notes
    )


def test_only_statistics_that_rise_are_told(tmp_path: Path) -> None:
    head = "time_utc,node,iface,counter,value\n"
    (tmp_path / "ethtool-a-0.csv").write_text(
        head + "t,a,e0,rx_pause,5\nt,a,e0,tx_pause,1\nt,a,e0,rx_pause,9\nt,a,e0,tx_pause,1\nt,a,e"
    )
    assert changed_statistics([tmp_path / "ethtool-a-0.csv"]) == [
        "a counted while the program ran: e0 rx_pause 4 (counters/ethtool-*.csv)"
    ]


def test_ranks_that_share_cores_are_told(tmp_path: Path) -> None:
    assert sharing_ranks(tmp_path) is None
    file = tmp_path / "rank_host.csv"
    rows = [(0, "a", "0-1"), (1, "a", "0,1"), (2, "b", "0-3,8"), (3, "b", "0-3,8"), (4, "c", "5")]
    for extra, note in (([], ""), ([(5, "c", "5"), (6, "c", "5")], "3 ranks share 1 core on c")):
        text = "".join(f'{rank},{host},"{cores}"\n' for rank, host, cores in [*rows, *extra])
        file.write_text("rank,host,cores\n" + text)
        assert sharing_ranks(tmp_path) == note
    for text in ("rank,host,ip\n0,a,1\n", "rank,host,cores\n0,a,x\n", "rank,host,cores\n0,a\n"):
        file.write_text(text)
        assert sharing_ranks(tmp_path) is None


def _program(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_slurm_topology_and_nodes_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs, out = tmp_path / "bin", tmp_path / "out"
    programs.mkdir()
    out.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    _program(
        programs,
        "scontrol",
        'case "$*" in\n'
        "*topology) echo SwitchName=s0 Nodes=n[0-1];;\n"
        '*hostnames*) printf "n0\\nn1\\n";;\n'
        '*) echo "slurm_load_jobs error" >&2; exit 1;;\n'
        "esac",
    )
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[0-1]", "SLURM_JWT": "secret"}
    notes: list[str] = []
    write_job(job, out, notes)
    assert (out / "topology.conf").read_text() == "SwitchName=s0 Nodes=n[0-1]\n"
    assert (out / "nodefile").read_text() == "n0\nn1\n"
    assert "secret" not in (out / "job.env").read_text()
    assert notes == ["job.txt is missing: scontrol --details show job 7: slurm_load_jobs error"]
    assert _network(out) == f"--fabric {out / 'topology.conf'} --cable-rate RATE"
    write_job({"HOME": "/"}, tmp_path, notes)
    assert not (tmp_path / "job.env").exists()


def test_an_unreadable_fabric_names_who_can_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs, devices = tmp_path / "bin", tmp_path / "infiniband"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    notes: list[str] = []
    write_fabric(tmp_path, notes, devices)
    assert notes == []
    (devices / "mlx5_0").mkdir(parents=True)
    write_fabric(tmp_path, notes, devices)
    assert "ibnetdiscover: not installed here" in notes[0]
    assert "ibnetdiscover > fabric.txt" in notes[0]
    _program(programs, "ibnetdiscover", "echo 'ibpanic: can not open umad port' >&2; exit 255")
    write_fabric(tmp_path, notes, devices)
    assert "can not open umad port" in notes[1]
    _program(programs, "ibnetdiscover", "echo 'vendid=0x2c9'")
    _program(programs, "dump_fts", "echo 'Unicast lids [0x1-0x2] of switch'")
    write_fabric(tmp_path, notes, devices)
    assert len(notes) == 2
    assert (tmp_path / "fabric.txt").read_text() == "vendid=0x2c9\n"
    assert _network(tmp_path) == "--fabric FABRIC"
    (tmp_path / "recording.json").write_text("{}")
    assert _network(tmp_path) == ""
