"""The traffic and mappings of the published simulator, written as files that scenarios name.

    python -m studies.conformance.traffic          write random.hosts, ring.hosts, background.*

Taffet's thesis (2019) gives the shapes; what it leaves open (which hosts, which permutation, which
destinations) follows from the source of its simulator, a public fork of CODES:

* Random mapping: rank k - 1 runs on node m_k - 1, where m_k are the values 2411^k mod 4621 that are
  at most 4608, in order of k. 4621 is prime and 2411 generates all its residues.
* Ring: the nodes i whose i² has an even number of 1 bits, 2173 of them. (The formula in section 4.4
  of the thesis has (i + 1)², which makes 2172.)
* Background: the other 2435 nodes send three messages each to destinations drawn by the generator
  CLCG4 (L'Ecuyer and Andres, 1997), a stream for each node, seeded as ROSS does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
NODES = 4608
MESSAGES = 3
MESSAGE_BYTES = 128 * 1024

MODULI = (2147483647, 2147483543, 2147483423, 2147483323)
FACTORS = (45991, 207707, 138556, 49689)
SEEDS = (11111111, 22222222, 33333333, 44444444)
STREAM_LENGTH = 2**72


class Clcg4:
    """A stream of L'Ecuyer and Andres' combined generator: four multiplicative ones, summed.

    Args:
        stream: Number of the stream; neighbours lie 2^72 numbers apart.
    """

    def __init__(self, stream: int) -> None:
        self.state = [
            seed * pow(factor, STREAM_LENGTH * stream, modulus) % modulus
            for seed, factor, modulus in zip(SEEDS, FACTORS, MODULI, strict=True)
        ]

    def uniform(self) -> float:
        """The next number, above 0 and below 1."""
        self.state = [
            state * factor % modulus
            for state, factor, modulus in zip(self.state, FACTORS, MODULI, strict=True)
        ]
        signed = (
            sign * state / modulus
            for sign, state, modulus in zip((1, -1, 1, -1), self.state, MODULI, strict=True)
        )
        return sum(signed) % 1.0


def in_ring(node: int) -> bool:
    """Whether a node belongs to the ring; the others make the background."""
    return (node * node).bit_count() % 2 == 0


def random_mapping() -> list[int]:
    """Node of each rank."""
    powers = (pow(2411, k, 4621) for k in range(1, 4621))
    return [power - 1 for power in powers if power <= NODES]


def ring_nodes() -> list[int]:
    """Node of each rank of the ring."""
    return [node for node in range(NODES) if in_ring(node)]


def background_messages() -> Iterator[tuple[int, int]]:
    """Source and destination node of every message, in the order each source sends them."""
    for node in range(NODES):
        if in_ring(node):
            continue
        draw = Clcg4(2 * (67 * (node // 32) + node % 32))
        for _ in range(MESSAGES):
            draw.uniform()  # The simulator draws a number for the time but does not use it.
            to = int(NODES * draw.uniform())
            while to != node and in_ring(to):
                to = int(NODES * draw.uniform())
            yield node, (node + 1) % (NODES - 1) if to == node else to


def write(folder: Path = HERE) -> None:
    """Write all files into a folder."""
    _write_hosts(folder / "random.hosts", random_mapping())
    _write_hosts(folder / "ring.hosts", ring_nodes())
    messages = list(background_messages())
    # One message goes to a node of the ring: it needs a rank to receive it.
    nodes = sorted({node for pair in messages for node in pair})
    _write_hosts(folder / "background.hosts", nodes)
    rank = {node: number for number, node in enumerate(nodes)}
    rows = [f"{rank[source]},{rank[to]},{MESSAGE_BYTES}" for source, to in messages]
    text = "\n".join(["source,destination,bytes", *rows])
    (folder / "background.csv").write_text(text + "\n", encoding="utf-8")


def _write_hosts(file: Path, nodes: list[int]) -> None:
    file.write_text("".join(f"n{node:04d}\n" for node in nodes), encoding="utf-8")


if __name__ == "__main__":
    write()
