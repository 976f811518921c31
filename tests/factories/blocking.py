"""A program run by MPI's blocking rules alone, without a network."""

from __future__ import annotations

from collections import defaultdict, deque

from tailback.traffic.program import POSTS, SENDS, Op, Program


def run_blocking(program: Program) -> bool:
    """Run with synchronous sends; True when every rank comes to its end with nothing open."""
    start = program.rank_start.astype(int)
    at = list(start[:-1])
    open_requests: list[set[int]] = [set() for _ in at]
    waiting: dict[tuple[bool, int, int, int], deque[int]] = defaultdict(deque)
    moved = True
    while moved:
        moved = False
        for rank, end in enumerate(start[1:]):
            while at[rank] < end:
                i = at[rank]
                op, request = Op(program.kind[i]), int(program.request[i])
                if op == Op.WAIT and request in open_requests[rank]:
                    break
                if op == Op.WAITALL and open_requests[rank]:
                    break
                if op in POSTS:
                    peer, tag, sends = int(program.peer[i]), int(program.tag[i]), op in SENDS
                    pair = (rank, peer) if sends else (peer, rank)
                    if waiting[not sends, *pair, tag]:
                        open_requests[peer].discard(waiting[not sends, *pair, tag].popleft())
                    else:
                        assert request not in open_requests[rank]
                        waiting[sends, *pair, tag].append(request)
                        open_requests[rank].add(request)
                at[rank] += 1
                moved = True
    return at == list(start[1:]) and not any(open_requests) and not any(waiting.values())
