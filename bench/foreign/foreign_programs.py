"""MPI programs of the foreign reality: what each rank calls, and what the library does in a call.

A program is two lists for each rank: calls, as a tracer records them, and the operations of
``packets.cpp`` that they consist of:

    B call, E call      enters and leaves a call
    S peer tag slot n   sends n bytes; peer -2 is the source of the last receive
    R peer tag slot n   posts a receive; peer -1 is any source
    W first count told  waits for all of these slots; 1 reports the source
    Y first count       waits for any of these slots and reports which
    C ps, Z ps          computes; sleeps until the next multiple of a time
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

US = 10**6
"""Picoseconds of a microsecond."""

COLLECTIVE_TAG = 1 << 20
REDUCE_GBPS = 160
"""Rate at which a processor adds two vectors."""

SMALL_ALLREDUCE, SMALL_ALLTOALL = 4096, 256
"""Largest vector of recursive doubling and block of Bruck's algorithm, bytes."""


@dataclass
class Call:
    """An MPI call, or a region of the program.

    Attributes:
        name: The call.
        peer, size, tag: Of a message; of a collective, the bytes of one rank's vector or block.
        comm: Index of the communicator; 0 is the world.
        root: Rank in the communicator.
        requests: Numbers of the requests it posts or waits for, in the order of their slots.
        receive: Peer and bytes of the receive of ``MPI_Sendrecv``.
    """

    name: str
    peer: int = -1
    size: int = 0
    tag: int = 0
    comm: int = 0
    root: int = -1
    requests: list[int] = field(default_factory=list)
    receive: tuple[int, int] = (-1, 0)


@dataclass(frozen=True)
class Handle:
    """An open request: its slot in the simulator and its number in the trace."""

    slot: int
    number: int


class Rank:
    """Writes what one rank does."""

    def __init__(self, program: Program, rank: int) -> None:
        self.program, self.rank = program, rank
        self.calls: list[Call] = []
        self.ops: list[str] = []
        self.requests: dict[int, Call] = {}
        self._slot = 0

    def compute(self, us: float) -> None:
        """Compute for a mean time; the program's work decides how long this rank takes."""
        self.ops.append(f"C {self.program.work(self.rank, us * US)}")

    def sleep(self, period_us: float) -> None:
        """Wait for the next multiple of a time."""
        self.ops.append(f"Z {int(period_us * US)}")

    def _begin(self, call: Call) -> None:
        self.ops.append(f"B {len(self.calls)}")
        self.calls.append(call)

    def _end(self) -> None:
        self.ops.append(f"E {len(self.calls) - 1}")

    def _post(self, kind: str, peer: int, size: int, tag: int) -> int:
        self.ops.append(f"{kind} {peer} {tag} {self._slot} {size}")
        self._slot += 1
        return self._slot - 1

    def _wait(self, first: int, count: int, report: int = 0) -> None:
        self.ops.append(f"W {first} {count} {report}")

    def _nonblocking(self, kind: str, name: str, peer: int, size: int, tag: int) -> Handle:
        number = len(self.requests) + 1
        call = Call(name, peer, size, tag, requests=[number])
        self.requests[number] = call
        self._begin(call)
        slot = self._post(kind, peer, size, tag)
        self._end()
        return Handle(slot, number)

    def isend(self, peer: int, size: int, tag: int = 0) -> Handle:
        """Begin to send."""
        return self._nonblocking("S", "MPI_Isend", peer, size, tag)

    def irecv(self, peer: int, size: int, tag: int = 0) -> Handle:
        """Begin to receive."""
        return self._nonblocking("R", "MPI_Irecv", peer, size, tag)

    def waitall(self, handles: Sequence[Handle]) -> None:
        """Wait for all of some requests."""
        self._begin(Call("MPI_Waitall", requests=[h.number for h in handles]))
        self._wait(min(h.slot for h in handles), len(handles))
        self._end()
        self._slot = 0

    def waitany(self, handles: Sequence[Handle], last: bool) -> None:
        """Wait for one more of ``handles``, which were posted in sequence."""
        self._begin(Call("MPI_Waitany", requests=[h.number for h in handles]))
        self.ops.append(f"Y {handles[0].slot} {len(handles)}")
        self._end()
        self._slot = 0 if last else self._slot

    def send(self, peer: int, size: int, tag: int = 0) -> None:
        """Send, until the buffer may be used again."""
        self._begin(Call("MPI_Send", peer, size, tag))
        self._wait(self._post("S", peer, size, tag), 1)
        self._end()
        self._slot -= 1

    def recv(self, peer: int, size: int, tag: int = 0) -> None:
        """Receive; a negative peer is any rank."""
        self._begin(Call("MPI_Recv", peer, size, tag))
        self._wait(self._post("R", peer, size, tag), 1, int(peer < 0))
        self._end()
        self._slot -= 1

    # --- collectives -------------------------------------------------------------------------

    def _swap(self, to: int, sent: int, source: int, got: int, comm: int) -> None:
        first = self._post("R", source, got, COLLECTIVE_TAG + comm)
        self._post("S", to, sent, COLLECTIVE_TAG + comm)
        self._wait(first, 2)
        self._slot -= 2

    def _one(self, kind: str, peer: int, size: int, comm: int) -> None:
        self._wait(self._post(kind, peer, size, COLLECTIVE_TAG + comm), 1)
        self._slot -= 1

    def _add(self, size: int) -> None:
        self.ops.append(f"C {int(size * 8000 / REDUCE_GBPS)}")

    def allreduce(self, size: int, comm: int = 0) -> None:
        """Recursive doubling, or a ring of reduce-scatter and allgather for long vectors."""
        members = self.program.comms[comm]
        n, me = len(members), members.index(self.rank)
        self._begin(Call("MPI_Allreduce", size=size, comm=comm))
        if size <= SMALL_ALLREDUCE or n < 4:
            self._doubling(members, me, size, comm)
        else:
            block = -(-size // n)
            for step in range(2 * (n - 1)):
                self._swap(members[(me + 1) % n], block, members[me - 1], block, comm)
                if step < n - 1:
                    self._add(block)
        self._end()

    def _doubling(self, members: Sequence[int], me: int, size: int, comm: int) -> None:
        n = len(members)
        most = 1 << (n.bit_length() - 1)
        extra = n - most
        # Ranks beyond the power of two hand their vector to a partner and get the result.
        if me >= most:
            self._one("S", members[me - most], size, comm)
            self._one("R", members[me - most], size, comm)
            return
        if me < extra:
            self._one("R", members[me + most], size, comm)
        step = 1
        while step < most:
            peer = members[me ^ step]
            self._swap(peer, size, peer, size, comm)
            self._add(size)
            step *= 2
        if me < extra:
            self._one("S", members[me + most], size, comm)

    def alltoall(self, size: int, comm: int = 0) -> None:
        """Bruck for short blocks, else pairwise: in step k to the k-th next rank."""
        members = self.program.comms[comm]
        n, me = len(members), members.index(self.rank)
        self._begin(Call("MPI_Alltoall", size=size, comm=comm))
        if size <= SMALL_ALLTOALL:
            step = 1
            while step < n:
                part = size * sum(bool(k & step) for k in range(n))
                self._swap(members[(me + step) % n], part, members[me - step], part, comm)
                step *= 2
        else:
            for step in range(1, n):
                self._swap(members[(me + step) % n], size, members[me - step], size, comm)
        self._end()

    def bcast(self, size: int, root: int = 0, comm: int = 0) -> None:
        """A binomial tree."""
        members = self.program.comms[comm]
        n, me = len(members), (members.index(self.rank) - root) % len(members)
        self._begin(Call("MPI_Bcast", size=size, comm=comm, root=root))
        step = 1
        while step < n:
            if me & step:
                self._one("R", members[(me - step + root) % n], size, comm)
                break
            step *= 2
        step //= 2
        while step:
            if me + step < n:
                self._one("S", members[(me + step + root) % n], size, comm)
            step //= 2
        self._end()


class Program:
    """Calls and operations of all ranks.

    Args:
        ranks: Their number.
        seed: Of the computation's variation.
        factor: What each rank's computation is multiplied by.
        spread: Relative variation of a computation from step to step.
    """

    def __init__(
        self,
        ranks: int,
        seed: int,
        factor: Sequence[float] | None = None,
        spread: float = 0.005,
    ) -> None:
        self.n = ranks
        self.comms: list[list[int]] = [list(range(ranks))]
        self.ranks = [Rank(self, rank) for rank in range(ranks)]
        self._rng = [np.random.Generator(np.random.Philox(key=[seed, r])) for r in range(ranks)]
        self._factor = factor or [1.0] * ranks
        self._spread = spread

    def work(self, rank: int, ps: float) -> int:
        """Time of a computation of a rank, varied."""
        varied = 1.0 + self._spread * abs(float(self._rng[rank].standard_normal()))
        return int(ps * self._factor[rank] * varied)

    def split(self, members: Sequence[int]) -> int:
        """A new communicator; returns its index."""
        self.comms.append(list(members))
        return len(self.comms) - 1


# --- programs --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """What is drawn of a program.

    Attributes:
        steps: Repetitions.
        us: Mean computation of a rank in a step, microseconds.
        size: Bytes of a message.
        seed: Of the irregular parts.
        late: Share of the ranks that compute before they send; 0 without this cause.
        roots: Ranks to which all send; 0 spreads the bytes over all ranks.
    """

    steps: int
    us: float
    size: int
    seed: int
    late: float = 0.0
    roots: int = 0


def grid(n: int) -> tuple[int, int]:
    rows = max(d for d in range(1, int(n**0.5) + 1) if n % d == 0)
    return rows, n // rows


def sweep(program: Program, shape: Shape) -> None:
    """Wavefronts over a grid from one corner after another."""
    rows, columns = grid(program.n)
    for rank in program.ranks:
        y, x = divmod(rank.rank, columns)
        for step in range(shape.steps):
            dx, dy = (1, -1)[step // 4 % 2], (1, -1)[step // 8 % 2]
            before = [(y, x - dx), (y - dy, x)]
            after = [(y, x + dx), (y + dy, x)]
            inside = [
                [a * columns + b for a, b in some if 0 <= a < rows and 0 <= b < columns]
                for some in (before, after)
            ]
            for peer in inside[0]:
                rank.recv(peer, shape.size)
            rank.compute(shape.us)
            for peer in inside[1]:
                rank.send(peer, shape.size)
        rank.allreduce(8)


def pipeline(program: Program, shape: Shape) -> None:
    """Chains of eight stages through which items flow."""
    stages = 8
    for rank in program.ranks:
        stage = rank.rank % stages
        last = stage == stages - 1 or rank.rank == program.n - 1
        for _ in range(shape.steps):
            if stage:
                rank.recv(rank.rank - 1, shape.size)
            rank.compute(shape.us)
            if not last:
                rank.send(rank.rank + 1, shape.size)
        rank.allreduce(64)


def master(program: Program, shape: Shape) -> None:
    """Rank 0 hands out work to whoever asks next."""
    first, *workers = program.ranks
    for rank in program.ranks:
        rank.bcast(65536)
    for worker in workers:
        for _ in range(shape.steps):
            worker.send(0, 64, 1)
            worker.recv(0, shape.size, 2)
            worker.compute(shape.us)
    for _ in range(shape.steps * len(workers)):
        first.recv(-1, 64, 1)
        first.send(-2, shape.size, 2)
    for rank in program.ranks:
        rank.allreduce(8)


def neighbours(program: Program, shape: Shape) -> list[list[tuple[int, int]]]:
    """Peers of each rank and bytes: near ones, some farther, of unequal sizes."""
    rng = np.random.Generator(np.random.Philox(key=[shape.seed, 77]))
    out: list[dict[int, int]] = [{} for _ in range(program.n)]
    _, columns = grid(program.n)
    for a in range(program.n):
        for hop in (1, columns, columns + 1, int(rng.integers(2, max(3, columns)))):
            b = (a + hop) % program.n
            if b != a and (hop in (1, columns) or rng.random() < 0.4):
                size = int(shape.size * rng.uniform(0.5, 1.5)) // 8 * 8
                out[a][b] = out[b][a] = size
    return [sorted(some.items()) for some in out]


def stencil(program: Program, shape: Shape) -> None:
    """Bulk-synchronous exchange with irregular neighbours, then the residual."""
    peers = neighbours(program, shape)
    for rank in program.ranks:
        late = rank.rank % 8 < 8 * shape.late
        for _ in range(shape.steps):
            rank.compute(shape.us * 0.6)
            # What may be done before or after the exchange: late ranks do it before.
            if late:
                rank.compute(shape.us * 0.4)
            mine = peers[rank.rank]
            handles = [rank.irecv(peer, size, 5) for peer, size in mine]
            handles += [rank.isend(peer, size, 5) for peer, size in mine]
            rank.waitall(handles)
            if not late:
                rank.compute(shape.us * 0.4)
            rank.allreduce(16)


def anyorder(program: Program, shape: Shape) -> None:
    """Nearest neighbours of a ring of rings, worked on in the order in which they arrive."""
    rows, columns = grid(program.n)
    for rank in program.ranks:
        y, x = divmod(rank.rank, columns)
        near = [((y + dy) % rows) * columns + (x + dx) % columns for dy, dx in _CROSS]
        near = [peer for peer in dict.fromkeys(near) if peer != rank.rank]
        for step in range(shape.steps):
            rank.compute(shape.us * 0.8)
            gets = [rank.irecv(peer, shape.size, 3) for peer in near]
            puts = [rank.isend(peer, shape.size, 3) for peer in near]
            for _ in gets:
                rank.waitany(gets, last=False)
                rank.compute(shape.us * 0.2 / len(near))
            rank.waitall(puts)
            if step % 10 == 9:
                rank.allreduce(8)


_CROSS = ((0, 1), (1, 0), (0, -1), (-1, 0))


def fft(program: Program, shape: Shape) -> None:
    """Transposes of a cube split into pencils: along the rows of ranks, then along the columns."""
    rows, columns = grid(program.n)
    row = [program.split(range(y * columns, (y + 1) * columns)) for y in range(rows)]
    column = [program.split(range(x, program.n, columns)) for x in range(columns)]
    for rank in program.ranks:
        y, x = divmod(rank.rank, columns)
        for _ in range(shape.steps):
            rank.compute(shape.us * 0.5)
            rank.alltoall(shape.size // columns, row[y])
            rank.compute(shape.us * 0.5)
            rank.alltoall(shape.size // rows, column[x])
        rank.allreduce(8)


def training(program: Program, shape: Shape) -> None:
    """Steps of training: gradients go around a ring in buckets while the next are computed."""
    n = program.n
    buckets = 3
    for rank in program.ranks:
        left, right = (rank.rank - 1) % n, (rank.rank + 1) % n
        for _ in range(shape.steps):
            rank.compute(shape.us * 0.4)
            for bucket in range(buckets):
                for _ in range(2 * (n - 1)):
                    handles = [rank.irecv(left, shape.size // n, bucket)]
                    handles.append(rank.isend(right, shape.size // n, bucket))
                    rank.compute(shape.us * 0.6 / buckets / (2 * (n - 1)))
                    rank.waitall(handles)
        rank.allreduce(8)


def writer(program: Program, shape: Shape) -> None:
    """Every step, all ranks send their block to a few that write, or a share to every one."""
    n = program.n
    roots = shape.roots or n
    for rank in program.ranks:
        for step in range(shape.steps):
            rank.compute(shape.us)
            # All blocks of the step for a root, or equally many blocks to distant ranks.
            shift = 1 + step % (n - 1)
            handles = []
            if roots < n:
                if rank.rank < roots:
                    mine = range(rank.rank, n, roots)
                    handles += [rank.irecv(p, shape.size, 9) for p in mine if p != rank.rank]
                if rank.rank % roots != rank.rank:
                    handles.append(rank.isend(rank.rank % roots, shape.size, 9))
            else:
                handles.append(rank.irecv((rank.rank - shift) % n, shape.size, 9))
                handles.append(rank.isend((rank.rank + shift) % n, shape.size, 9))
            if handles:
                rank.waitall(handles)
            if step % 2:
                rank.allreduce(8)


def transpose(program: Program, shape: Shape) -> None:
    """A tuned all-to-all over all ranks: every block at once, to another rank first from each."""
    n = program.n
    size = shape.size // n
    for rank in program.ranks:
        for _ in range(shape.steps):
            rank.compute(shape.us)
            handles = [rank.irecv((rank.rank - k) % n, size, 4) for k in range(1, n)]
            handles += [rank.isend((rank.rank + k) % n, size, 4) for k in range(1, n)]
            rank.waitall(handles)
        rank.allreduce(8)


def incast(program: Program, shape: Shape) -> None:
    """A job without computation: all but ``roots`` ranks send to these, over and over."""
    for rank in program.ranks:
        if rank.rank < shape.roots:
            mine = range(rank.rank + shape.roots, program.n, shape.roots)
            rank.waitall([rank.irecv(p, shape.size) for p in mine])
        else:
            rank.send(rank.rank % shape.roots, shape.size)
            if shape.us:
                rank.sleep(shape.us)


def bursts(program: Program, shape: Shape) -> None:
    """A job that exchanges with distant hosts, at the same times on all of them."""
    n = program.n
    for rank in program.ranks:
        rank.sleep(shape.us)
        handles = []
        for shift in (n // 2, n // 2 + 1):
            handles.append(rank.irecv((rank.rank - shift) % n, shape.size))
            handles.append(rank.isend((rank.rank + shift) % n, shape.size))
        rank.waitall(handles)


PROGRAMS: dict[str, Callable[[Program, Shape], None]] = {
    "sweep": sweep,
    "pipeline": pipeline,
    "master": master,
    "stencil": stencil,
    "anyorder": anyorder,
    "fft": fft,
    "training": training,
    "writer": writer,
    "transpose": transpose,
    "incast": incast,
    "bursts": bursts,
}
