"""The packets of a run in InfiniBand wire format."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from tailback.errors import RunError, nearest
from tailback.run.run import Run
from tailback.scenario.model import RESERVED_BITS
from tailback.telemetry.entropy_ecn import ENTROPY_ECN
from tailback.telemetry.packet_ids import ids_of
from tailback.telemetry.wire import RC_SEND_ONLY, UD_SEND_ONLY, IbPacket

MAX_LIDS = 0xBFFF
"""Local ids of one subnet (InfiniBand Architecture Specification, volume 1, section 4.1.3)."""
_DATAGRAMS_TO = 2
_PS_PER_NS = 1000


def packets_of(
    run: Run, *, host: str | None = None, limit: int | None = None, payload: int = 0
) -> Iterator[tuple[int, IbPacket]]:
    """Packets of table ``packets`` in order of arrival.

    The local id of a node is its number + 1, queue pair and packet sequence number are those of the
    table, the six reserved bits are the header; with ``entropy-ecn`` FECN is the mark. Packets of
    queue pairs that serve all peers are datagrams to queue pair 2. The payload is zeros: message
    contents are not simulated.

    Args:
        run: A run that kept packets of a scheme with at most six header bits.
        host: Only packets that arrive at this host or leave it.
        limit: Maximum number of packets.
        payload: Maximum bytes of payload per packet.

    Returns:
        Iterator of arrival time, in nanoseconds since the start of the run, and packet.

    Raises:
        RunError: No packets, no such host, a header that does not fit, too many nodes.
    """
    telemetry, table = run.scenario.telemetry, run.tables["packets"]
    bits = telemetry.header_bits
    ids_of(table)  # refuses runs without queue pairs
    if table.height == 0:
        raise RunError(
            "the run has kept no packets",
            remedy='set [telemetry] scheme = "compact", "coordinated" or "xor-digest" and simulate '
            "again",
        )
    if telemetry.scheme == ENTROPY_ECN and run.scenario.engine.routing != "deterministic":
        raise RunError(
            f"scheme {telemetry.scheme!r} needs entropy values, which InfiniBand packets do not "
            "have",
            remedy='set [engine] routing = "deterministic": FECN is the mark then',
        )
    if bits > RESERVED_BITS:
        raise RunError(
            f"scheme {telemetry.scheme!r} takes {bits} header bits; InfiniBand has {RESERVED_BITS}"
            " to spare",
            remedy='use "compact" with hash_bits + count_bits up to 5, or "coordinated" or '
            '"xor-digest" with hash_bits up to 5',
        )
    if run.tables["nodes"].height > MAX_LIDS:
        raise RunError(f"{run.tables['nodes'].height} nodes; a subnet has {MAX_LIDS} local ids")
    if host is not None:
        nodes = nodes_of(run, host)
        at = pl.col("dst_node").is_in(nodes) | pl.col("src_node").is_in(nodes)
        table = table.filter(at)
    table = table.sort("time_ps", "packet").head(table.height if limit is None else limit)
    marks = telemetry.scheme == ENTROPY_ECN
    return _on_the_wire(table, payload, telemetry.queue_pairs == "shared", marks)


def _on_the_wire(
    table: pl.DataFrame, payload: int, shared: bool, marks: bool
) -> Iterator[tuple[int, IbPacket]]:
    columns = ("time_ps", "src_node", "dst_node", "sequence", "queue_pair", "size_bytes", "header")
    for time_ps, source, destination, psn, pair, size, header in table.select(columns).iter_rows():
        packet = IbPacket(
            source_lid=source + 1,
            destination_lid=destination + 1,
            psn=psn,
            opcode=UD_SEND_ONLY if shared else RC_SEND_ONLY,
            destination_qp=_DATAGRAMS_TO if shared else pair,
            source_qp=pair if shared else None,
            sample=0 if marks else header,
            fecn=bool(marks and header & 1),
            payload=bytes(min(size, payload)),
        )
        yield time_ps // _PS_PER_NS, packet


def nodes_of(run: Run, host: str) -> list[int]:
    """Nodes of a host, or the node of that name.

    Raises:
        RunError: There is no such host or node.
    """
    nodes = run.tables["nodes"]
    mine = nodes.filter((pl.col("host_name") == host) | (pl.col("name") == host))
    if mine.height == 0:
        raise RunError(
            f"no host {host!r} in this run",
            remedy=nearest(host, nodes["host_name"].unique(maintain_order=True).to_list()),
        )
    return [int(node) for node in mine["node"]]
