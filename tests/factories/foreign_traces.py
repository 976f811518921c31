"""Small traces of every format, written by hand, and what they add up to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.factories.chakra_traces import compute, receive, send
from tests.factories.chakra_traces import write as write_chakra
from tests.factories.dumpi_traces import INT, WORLD
from tests.factories.dumpi_traces import write as write_dumpi
from tests.factories.flight_recorder import sample as write_flight_recorder
from tests.factories.inspector_files import sample as write_inspector
from tests.factories.kineto_traces import sample as write_kineto
from tests.factories.kineto_traces import sample_log as write_nccl_log
from tests.factories.nsight_exports import sample as write_nsight
from tests.factories.otf2_traces import call, writing

GOAL = """\
num_ranks 2

rank 0 {
l1: calc 50
l2: send 100b to 1 tag 5 // a comment
l2 requires l1
l3: recv 7b from 1 tag 6 cpu 0 nic 0
}

rank 1 {
a: recv 100b from 0 tag 5
b: calc 20 cpu 0
b requires a
c: send 7b to 0 tag 6
c irequires b
}
"""

SIMGRID_TI = """\
0 init
1 init
0 isend 1 5 100 6
1 Irecv 0 5 100 6
0 compute 2e3
1 wait 0 1 5
0 waitall 1
0 Bcast 25 0 1
1 Bcast 25 0 1
0 finalize
1 finalize
"""


IPM = """\
<?xml version="1.0" encoding="iso-8859-1"?>
<ipm_job_profile>
<task ipm_version="2.0.6" mpi_rank="0" mpi_size="2" username="u&amp;v" >
<hash nlog="5" nkey="3" >
<hent key="a" call="MPI_Isend" bytes="64" orank="1" region="1" count="3" >1e-3 1e-4 2e-4</hent>
<hent key="b" call="MPI_Irecv" bytes="8" orank="1" region="1" count="2" >1e-3 1e-4 2e-4</hent>
<hent key="c" call="MPI_Allreduce" bytes="8" orank="0" region="1" count="9" >1e-3 1e-4 2e-4</hent>
</hash>
</task>
<task ipm_version="2.0.6" mpi_rank="1" mpi_size="2" username="u" >
<hash nlog="3" nkey="2" >
<hent key="d" call="MPI_Send" bytes="8" orank="0" region="1" count="1" >1e-3 1e-4 2e-4</hent>
<hent key="e" call="MPI_Send" bytes="9" orank="0" region="1" count="1" >1e-3 1e-4 2e-4</hent>
</hash>
</task>
</ipm_job_profile>
"""

# A real report ends with one more rule: a cut there loses nothing.
MPIP = """\
@ mpiP
@ Command : ./app
@ Version                  : 3.4.1
@ MPI Task Assignment      : 0 n0
@ MPI Task Assignment      : 1 n1

---------------------------------------------------------------------------
@--- Aggregate Point-To-Point Stats (count, bytes, milliseconds) ----------
---------------------------------------------------------------------------
Src-Rank Dest-Rank Total-Count Total-Size Total-Time
       0         1           2         31      0.005
       1         0           1          4      0.004
---------------------------------------------------------------------------
@--- End of Report
"""


PROJECTIONS_STS = """\
PROJECTIONS_ID
VERSION 11.0
PROCESSORS 2
CHARE 4 "Ping" 1
ENTRY CHARE 9 "recv(Msg* m)" 4 0
ENTRY CHARE 8 "start()" 4 0
MESSAGE 0 0
END
"""

PROJECTIONS_LOGS = (
    # Works 10 us, sends to the other processor and to itself, works 5 us; waits; works 7 us.
    "PROJECTIONS-RECORD 9\n6 100\n2 5 8 110 0 0 64 0 3 1\n1 5 9 120 1 0 80 0\n1 5 9 120 2 0 96 0\n"
    "3 0 8 125 0 0 0 0\n2 5 9 126 2 0 96 0 1 1\n3 0 9 126 2 0 0 0\n14 130 0\n15 150 0\n"
    "2 5 9 151 1 1 72 0 1 1\n3 0 9 158 1 1 0 0\n7 160\n",
    "PROJECTIONS-RECORD 5\n6 100\n14 101 1\n15 131 1\n2 5 9 132 1 0 80 0 1 1\n"
    "20 5 9 140 1 1 72 0 2\n3 0 9 141 1 0 0 0\n7 160\n",
)


CALIPER = """\
[
{"mpi.rank":0,"mpi.msg.dst":1,"mpi.msg.size":40,"mpi.comm.is_world":"true","count":3},
{"mpi.rank":1,"mpi.msg.dst":0,"mpi.msg.size":"7","count":1},
{"mpi.rank":1,"mpi.function":"MPI_Barrier","count":1},
{"mpi.rank":1,"mpi.msg.dst":0,"mpi.msg.size":5,"mpi.comm.is_world":false,"count":2}
]
"""

PIPIT = """\
,Timestamp (ns),Event Type,Name,Thread,Process,Attributes
0,10,Enter,MPI_Send,0,0,{'region': 'Region 5'}
1,11,Instant,MpiSend,0,0,"{'receiver': 1, 'communicator': 'Comm 0', 'msg_length': 64}"
2,12,Leave,MPI_Send,0,0,
3,14,Instant,MpiRecv,0,1,"{'sender': 0, 'communicator': 'Comm 0', 'msg_length': 64}"
4,15,Instant,MpiIsend,0,1,"{'receiver': 0, 'communicator': 'Comm 0', 'msg_length': 8}"
5,16,Instant,MpiIsend,0,1,"{'receiver': 0, 'communicator': 'Comm 1', 'msg_length': 9}"
"""


@dataclass(frozen=True)
class Sample:
    """A trace as a writer of it makes it.

    Attributes:
        write: Writes it into an empty folder; returns what to read.
        messages: Messages of all ranks.
        bytes: Bytes of all messages.
        compute_ps: Computation of all ranks.
        cut: The file that is cut short in tests; None where the format's own tests do that.
    """

    write: Callable[[Path], Path]
    messages: int
    bytes: int
    compute_ps: int
    cut: str | None = None


def _text(name: str, text: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_text(text)
        return folder / name

    return write


def _otf2(folder: Path) -> Path:
    send = call("MPI_Send", 10, ("mpi_send", 1, "MPI_COMM_WORLD", 3, 64))
    receive = call("MPI_Recv", 10, ("mpi_recv", 0, "MPI_COMM_WORLD", 3, 64))
    return writing(folder)([send, receive])


def _chakra(folder: Path) -> Path:
    return write_chakra(
        folder,
        [compute(0, 3), send(1, 1, 50, 2, after=[0])],
        [receive(0, 0, 50, 2), compute(1, 4, after=[0])],
    )


def _dumpi(folder: Path) -> Path:
    message = {"count": 3, "datatype": INT, "dest": 1, "source": 0, "tag": 4, "comm": WORLD}
    bcast = {"count": 1, "datatype": INT, "root": 1, "comm": WORLD}
    return write_dumpi(
        folder,
        [(30, 40, "MPI_Send", message), (40, 50, "MPI_Bcast", bcast)],
        [(10, 40, "MPI_Recv", message), (45, 50, "MPI_Bcast", bcast)],
    )


def _profiles(folder: Path) -> Path:
    for rank in range(2):
        line = f"E\t{rank}\t{1 - rank}\t{40 + rank} bytes\t2 msgs sent\t0,1\n"
        members = "D\tMPI_COMM_WORLD\tprocs: 0,1\n"
        (folder / f"prof.{rank}.prof").write_text("# POINT TO POINT\n" + line + members)
    return folder


def _projections(folder: Path) -> Path:
    (folder / "ping.sts").write_text(PROJECTIONS_STS)
    for processor, log in enumerate(PROJECTIONS_LOGS):
        (folder / f"ping.{processor}.log").write_text(log)
    return folder / "ping.sts"


SAMPLES = {
    # Three messages of 40 B, one of 7 B; two are of another communicator.
    "caliper": Sample(_text("pairs.json", CALIPER), 4, 127, 0, "pairs.json"),
    # 50 B; 3 and 4 us. A trace cut between two nodes is whole: its own tests cut it.
    "chakra": Sample(_chakra, 1, 50, 7_000_000),
    # Three and one integer of 4 B; 20 ns before the send, 5 ns after the receive.
    "dumpi": Sample(_dumpi, 2, 16, 25_000, "run-0001.bin"),
    # Two sums of two ranks by a ring, two messages a rank of 4,000 B, doubled by LL; 100 us before
    # the second on one rank, a picosecond before the three other calls.
    "flight-recorder": Sample(write_flight_recorder, 8, 64_000, 100_000_003, "nccl_trace_rank_1"),
    # 100 B one way and 7 B the other; 50 ns and 20 ns.
    "goal": Sample(_text("two.goal", GOAL), 2, 107, 70_000, "two.goal"),
    # Three of 64 B one way; 8 B and 9 B the other.
    "ipm": Sample(_text("app.ipm.xml", IPM), 5, 209, 0, "app.ipm.xml"),
    # Two channels, two steps, two ranks of 1,000 B each, doubled by LL; 180 us a rank.
    "kineto": Sample(write_kineto, 8, 16_000, 360_000_000, "rank-1.1.pt.trace.json"),
    "mpip": Sample(_text("app.2.1.mpiP", MPIP), 3, 35, 0, "app.2.1.mpiP"),
    # Two sums by a ring of two, in one channel of 8,000 B; 100 us and 200 us between them. Its own
    # tests cut it: a last line cut short is left out.
    "nccl-inspector": Sample(write_inspector, 8, 32_000, 300_000_000),
    # Up and down a chain of three, two channels of 3,000 B (x 16/15); two steps of 40 B a rank.
    "nccl-log": Sample(write_nccl_log, 14, 25_840, 0),
    # 40 and 50 B, a broadcast of 30 B; 35 and 20 ns between calls. Its own tests cut it.
    "nsight": Sample(write_nsight, 3, 120, 55_000),
    "otf2": Sample(_otf2, 1, 64, 0),
    # 64 B and 8 B. A frame cut between two events is whole: its own tests cut it.
    "pipit": Sample(_text("events.csv", PIPIT), 2, 72, 0),
    "pml-monitoring": Sample(_profiles, 4, 81, 0, "prof.1.prof"),
    # 80 B and 72 B; 10 + 5 + 7 us and 8 + 1 us in entry methods.
    "projections": Sample(_projections, 2, 152, 31_000_000, "ping.1.log"),
    # One message of 100 B, a broadcast of 25 integers of 4 B to one rank; 2000 flops at 1 Gflop/s.
    "simgrid-ti": Sample(_text("ti.txt", SIMGRID_TI), 2, 200, 2_000_000, "ti.txt"),
}
