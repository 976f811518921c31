"""From captures to a run: packets read by the core, and their samples decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback import _core
from tailback.errors import FabricError, RunError, option
from tailback.fabric.model import Fabric
from tailback.io.input_files import regular_file
from tailback.io.manifest import require_unchanged
from tailback.run.run import Run
from tailback.run.schema import TABLES, conform
from tailback.scenario.model import OWN_FIELDS, RESERVED_BITS, JobSection, Scenario
from tailback.simulation.decode import BOTTLENECKS_ONLY, COMPILED_DECODER, route_candidates
from tailback.simulation.prepare import load_fabric, with_slow_cables
from tailback.simulation.routes import routes_for
from tailback.simulation.tables import fabric_tables
from tailback.telemetry.bottlenecks import SIGNAL_SHIFT, values, writable
from tailback.telemetry.candidates import PairCandidates
from tailback.telemetry.captured import (
    PATHS,
    Captured,
    CapturedFile,
    CaptureError,
    Contexts,
    discovered_lids,
    labelled,
    nodes_of_addresses,
    read_contexts,
)
from tailback.telemetry.entropy_ecn import ENTROPY_ECN
from tailback.telemetry.header_counts import HASHED
from tailback.telemetry.measured_paths import read_paths
from tailback.telemetry.path_hash import TCP
from tailback.telemetry.receiver import CHANCE_OF_FOREIGN_BITS, build_samples, hash_agreement
from tailback.units import percent

MAX_PACKETS = 10_000_000
"""Maximum number of packets kept, as for a simulated run. Beyond it, one in 2^k is decoded."""
CONGESTION_EXPERIENCED = 3
"""Largest value of the ECN field of IP (RFC 3168)."""
CSIG_TYPE = 0x9900
"""Ethernet type of the tags that the core reads: that of switch software, as none is assigned."""
_PS_PER_NS = 1000
_SHOWN = 5
_OUTBOUND, _UNKNOWN = 2, 0


def read_captured(
    paths: Sequence[Path], max_packets: int = MAX_PACKETS, *, tcp: bool = False
) -> Captured:
    """Read captures.

    Args:
        paths: Files of pcap, pcapng or ERF.
        max_packets: Maximum number of packets to keep. Beyond it, a hash chooses one in 2^k.
        tcp: Whether to keep packets of TCP.

    Raises:
        CaptureError: A file cannot be read or is damaged, or is given twice.
    """
    seen = set[Path]()
    for path in paths:
        if path.resolve() in seen:
            raise CaptureError("is given twice", file=path, remedy="give each capture once")
        seen.add(path.resolve())
        regular_file(path, CaptureError)
        require_unchanged(path)
    try:
        captured = _core.read_captures(list(paths), max_packets, tcp)
    except ValueError as error:
        message, number, offset, remedy = error.args
        raise CaptureError(
            message, file=paths[number], place=f"byte {offset}", remedy=remedy
        ) from None
    files = [
        CapturedFile(path, **facts) for path, facts in zip(paths, captured["files"], strict=True)
    ]
    return Captured(
        files, pl.DataFrame(captured["packets"]), captured["addresses"], captured["one_in"]
    )


def captured_run(
    paths: Sequence[Path],
    setting: Scenario,
    *,
    contexts: Path | None = None,
    one_in: float = 1,
    assumed: bool = False,
) -> Run:
    """Make a measured run from captures.

    Args:
        paths: The captures.
        setting: Fabric, routing and telemetry of the network; its jobs are not used.
        contexts: Folder of addresses and calling contexts.
        one_in: Number of packets in the network per packet that carries a sample.
        assumed: Whether nothing states the telemetry, which a note then says.

    Returns:
        A run without messages. Its ``samples`` are those of the captured packets, and each node
        that sent or received one has a rank. Notes state which packets were left out. If the bits
        of the packets are no samples, it has none, and ``without_samples`` of its summary says why.

    Raises:
        TailbackError: A file cannot be read, no packet is of the fabric, or the scheme of the
        telemetry does not fit into the six reserved bits or cannot be decoded in the fabric.
    """
    telemetry, first = setting.telemetry, paths[0]
    if telemetry.scheme not in OWN_FIELDS and not 0 < telemetry.header_bits <= RESERVED_BITS:
        raise CaptureError(
            f"scheme {telemetry.scheme!r} takes {telemetry.header_bits} header bits; the reserved "
            f"bits of a packet are {RESERVED_BITS}",
            file=first,
            remedy='state what the switches write: [telemetry] scheme = "coordinated", "compact" '
            'or "xor-digest" with six bits or less, "csig" or "entropy-ecn", in a scenario given '
            f"as {option('fabric')}",
        )
    setting, fabric = with_slow_cables(setting, load_fabric(setting.fabric))
    contexts_read = read_contexts(contexts, fabric)
    measured, path_notes = read_paths(contexts, fabric)
    # Marks need no header of Tailback's: packets of TCP have them, too.
    captured = read_captured(
        paths, telemetry.packets or MAX_PACKETS, tcp=telemetry.scheme == ENTROPY_ECN
    )
    notes = [loss for file in captured.files for loss in file.losses()]
    if assumed:
        bits = f" with {telemetry.hash_bits} hash bits" if telemetry.scheme in HASHED else ""
        notes.append(
            f"nothing states what the switches write: scheme {telemetry.scheme!r}{bits} "
            "is assumed; [telemetry] of a scenario states it"
        )
    if captured.one_in > 1:
        notes.append(f"one packet in {captured.one_in} is decoded, to limit memory")
    captured = _add_headers(captured, telemetry.scheme, notes)
    packets = _locate_packets(captured, fabric, contexts_read, setting.fabric.file, notes)
    if not packets.height:
        counts = "; ".join(notes) or "it holds no frame"
        raise CaptureError(
            f"holds no received packet of the fabric's nodes: {counts}",
            file=first,
            remedy="check that it is of this fabric, and name the nodes of its addresses in "
            f"addresses.csv of {option('contexts')}",
        )
    if telemetry.scheme == ENTROPY_ECN:
        packets = _add_paths(packets, captured, measured, setting, notes)
    notes += path_notes
    packets = packets.with_columns(
        label=pl.Series(labelled(packets, contexts_read), dtype=pl.UInt32)
    )
    if contexts_read.rows.height and (lost := int((packets["label"] == 0).sum())):
        notes.append(f"{lost:,} of {packets.height:,} packets fit no row of the contexts")
    if contexts_read.rows["first_byte"].count():
        late = packets.filter(pl.col("protocol") == TCP, pl.col("stream_byte") < 0).height
        if late:
            notes.append(
                f"{late:,} packets are of TCP connections whose start is not in their capture, so "
                "their bytes have no numbers: start capturing before the program"
            )
    notes += [note for note in (*contexts_read.notes, *fabric.notes) if note not in notes]
    return _make_run(
        setting, fabric, first, packets, contexts_read, one_in * captured.one_in, notes
    )


def _add_headers(captured: Captured, scheme: str, notes: list[str]) -> Captured:
    """Column ``header`` of the scheme, and ``written``, 0 where no switch has written anything.

    It is the six reserved bits, or the CSIG tag of packets that have one. If no packet has a tag,
    all are kept, with 0.
    """
    tagged = captured.packets.filter(pl.col("csig") > 0)
    if scheme == ENTROPY_ECN:
        return _add_marks(captured, notes)
    if scheme != "csig":
        if tagged.height:
            notes.append(
                f"{tagged.height * captured.one_in:,} packets have CSIG tags, which are not read: "
                f"[telemetry] states scheme {scheme!r}, not 'csig', or nothing"
            )
        header = pl.col("sample").cast(pl.UInt64)
        return replace(
            captured, packets=captured.packets.with_columns(header=header, written=header)
        )
    if not tagged.height:
        return _without_headers(captured)
    if lost := captured.packets.height - tagged.height:
        notes.append(f"{lost * captured.one_in:,} packets left out: they have no CSIG tag")
    notes.append(BOTTLENECKS_ONLY)
    header = (pl.col("csig") & 0xFFFF).cast(pl.UInt64)
    written = header % (1 << SIGNAL_SHIFT)
    return replace(captured, packets=tagged.with_columns(header=header, written=written))


def _without_headers(captured: Captured) -> Captured:
    empty = pl.lit(0, pl.UInt64)
    return replace(captured, packets=captured.packets.with_columns(header=empty, written=empty))


def _add_marks(captured: Captured, notes: list[str]) -> Captured:
    """Column ``header``: the mark, and the entropy value; of packets that may be marked.

    If none may be, all are kept, without marks.
    """
    able = captured.packets.filter(pl.col("ecn") > 0)
    if not able.height:
        return _without_headers(captured)
    if lost := captured.packets.height - able.height:
        notes.append(
            f"{lost * captured.one_in:,} packets left out: switches may not mark them (not "
            "ECN-capable)"
        )
    marked = (pl.col("ecn") == CONGESTION_EXPERIENCED).cast(pl.UInt64)
    header = pl.col("entropy").cast(pl.UInt64) * 2 + marked
    return replace(captured, packets=able.with_columns(header=header, written=marked))


def _add_paths(
    packets: pl.DataFrame,
    captured: Captured,
    measured: pl.DataFrame | None,
    setting: Scenario,
    notes: list[str],
) -> pl.DataFrame:
    """Addresses of the packets, for the hash of switches, and the links of measured paths.

    With measured paths, other packets are left out unless the scenario states the hash.
    """
    names = pl.Series(captured.addresses, dtype=pl.Categorical)
    if "." in "".join(captured.addresses) or ":" in "".join(captured.addresses):
        packets = packets.with_columns(
            source_address=names[packets["source"].to_numpy()],
            destination_address=names[packets["destination"].to_numpy()],
        )
    if measured is None:
        return packets
    on = ["src_node", "dst_node", "entropy"]
    keys = measured.with_columns(pl.col(on).cast(pl.Int64))
    packets = packets.with_columns(pl.col(on).cast(pl.Int64)).join(
        keys, on=on, how="left", maintain_order="left"
    )
    if "path_hash" in setting.telemetry.model_fields_set:
        return packets
    kept = packets.filter(pl.col("links").is_not_null())
    if lost := packets.height - kept.height:
        notes.append(
            f"{lost * captured.one_in:,} packets left out: {PATHS} has no path of theirs, and "
            "[telemetry] states no path_hash"
        )
    return kept


def _locate_packets(
    captured: Captured, fabric: Fabric, contexts: Contexts, discovery: Path | None, notes: list[str]
) -> pl.DataFrame:
    """Packets received by nodes of the fabric, in the format of table ``packets``."""
    nodes = contexts.nodes or discovered_lids(discovery, fabric)
    node = nodes_of_addresses(captured.addresses, fabric, nodes)
    table = captured.packets.rename({"psn": "sequence"}).with_columns(
        src_node=pl.Series(node[captured.packets["source"].to_numpy()]),
        dst_node=pl.Series(node[captured.packets["destination"].to_numpy()]),
    )
    strange = (pl.col("src_node") < 0) | (pl.col("dst_node") < 0)
    lost = table.filter(strange)
    if lost.height:
        ends = pl.concat([lost["source"], lost["destination"]])
        without = ends.filter(pl.Series(node[ends.to_numpy()]) < 0)
        named = without.value_counts(sort=True)[without.name].head(_SHOWN).to_list()
        shown = ", ".join(captured.addresses[number] for number in named)
        notes.append(
            f"{lost.height * captured.one_in:,} packets left out: the fabric has no node for one "
            f"of their addresses, most often {shown}; addresses.csv of "
            f"{option('contexts')} can name it"
        )
    table = table.filter(~strange)
    within = table["src_node"] == table["dst_node"]
    if within.any():
        notes.append(f"{int(within.sum()):,} packets left out that a node sent to itself")
    return _keep_received(table.filter(~within), captured, fabric, notes)


def _keep_received(
    table: pl.DataFrame, captured: Captured, fabric: Fabric, notes: list[str]
) -> pl.DataFrame:
    """Only packets captured by their receivers: at its sender a packet has passed no switch yet."""
    parts = []
    host = fabric.node_host.astype(np.int64)
    number = {name: index for index, name in enumerate(fabric.host_name)}
    for index, file in enumerate(captured.files):
        mine = table.filter(pl.col("file") == index)
        src, dst = (host[mine[name].to_numpy()] for name in ("src_node", "dst_node"))
        stated = mine["direction"].to_numpy()
        owner = number.get(file.path.stem, -1)
        sent = stated == _OUTBOUND
        strange = np.zeros(mine.height, np.bool_)
        if owner >= 0:
            strange = (src != owner) & (dst != owner)
            sent |= (src == owner) & (stated == _UNKNOWN)
        elif mine.height and not stated.any():
            written = mine["written"].to_numpy()
            sent |= _find_sent_by_host(src, dst, written, len(captured.files) > 1)
        if (count := int(strange.sum())) > 0:
            notes.append(
                f"{file.path.name}: {count * captured.one_in:,} packets left out, neither from nor "
                f"to host {file.path.stem!r} that the file is named after"
            )
        if (count := int((sent & ~strange).sum())) > 0:
            notes.append(
                f"{file.path.name}: {count * captured.one_in:,} packets left out that the "
                "capturing host sent: they had passed no switch"
            )
        parts.append(mine.filter(pl.Series(~(sent | strange))))
    return pl.concat(parts)


def _find_sent_by_host(
    src: NDArray[np.int64], dst: NDArray[np.int64], sample: NDArray[np.uint64], several: bool
) -> NDArray[np.bool_]:
    """Packets sent by the one host that all packets have in common, if it captured them.

    In a single capture, sent packets are recognised by their empty samples: no switch has written
    them yet. With several captures, each packet is counted where it was received.
    """
    nothing = np.zeros(len(src), np.bool_)
    common = [end for end in {int(src[0]), int(dst[0])} if ((src == end) | (dst == end)).all()]
    if several and len(common) == 1:
        return np.asarray(src == common[0], np.bool_)
    for end in common:
        sent = np.asarray(src == end, np.bool_)
        if sent.any() and not sample[sent].any() and sample[~sent].any():
            return sent
    return nothing


def _make_run(
    setting: Scenario,
    fabric: Fabric,
    first: Path,
    packets: pl.DataFrame,
    contexts: Contexts,
    one_in: float,
    notes: list[str],
) -> Run:
    """The run, with table ``samples`` decoded and without the packets."""
    origin = int(packets["time_ns"].min())  # type: ignore[arg-type]
    packets = packets.sort("time_ns", maintain_order=True).with_columns(
        packet=pl.int_range(pl.len(), dtype=pl.UInt64),
        time_ps=((pl.col("time_ns") - origin) * _PS_PER_NS).cast(pl.UInt64),
        hops=pl.lit(1, pl.UInt8),
        src_node=pl.col("src_node").cast(pl.UInt32),
        dst_node=pl.col("dst_node").cast(pl.UInt32),
    )
    elapsed = int(packets["time_ps"].max()) + 1  # type: ignore[arg-type]
    nodes = pl.concat([packets["src_node"], packets["dst_node"]]).unique().sort()
    tables = fabric_tables(fabric) | _job_tables(nodes, elapsed, contexts)
    tables["windows"] = _equal_windows(elapsed, setting.telemetry.windows)
    tables["packets"] = packets
    job = JobSection(name="captured", trace=first.absolute())
    scenario = setting.model_copy(update={"name": first.stem, "job": [job]})
    summary: dict[str, Any] = {
        "elapsed_ps": elapsed,
        "end_ps": elapsed,
        "complete": True,
        "times": "measured",
        "source": "capture",
        "one_in": one_in,
        "packets": round(packets.height * one_in),
        "observed_packets": round(packets.height * one_in),
        "packet_hops": 0,
        "events": 0,
        "messages": 0,
        "average_path_length": 1.0,
        "job_elapsed_ps": {"0": elapsed},
        "window_ps": int(tables["windows"]["end_ps"][0]),
    }
    tables |= {
        name: pl.DataFrame(schema=TABLES[name].polars_schema)
        for name in TABLES
        if name not in tables
    }
    run = Run(scenario, tables, summary, notes=notes)
    try:
        run = _decode_run(run, fabric)
    except (FabricError, RunError) as error:
        raise error.located(first) from None
    return run


def _decode_run(run: Run, fabric: Fabric) -> Run:
    packets = run.tables["packets"]
    nodes = run.tables["ranks"]["node"].to_list()
    if routes_for(run.scenario, fabric, nodes).detour != "never":
        packets = packets.with_columns(hops=pl.lit(None, pl.UInt8))
    run = replace(run, tables={**run.tables, "packets": packets})
    pairs = route_candidates(run, fabric)
    if pairs.lengths_known:
        pair = pairs.of(packets["src_node"].to_numpy(), packets["dst_node"].to_numpy())
        packets = packets.with_columns(hops=pl.Series(pairs.length[pair], dtype=pl.UInt8))
    else:
        packets = packets.with_columns(hops=pl.lit(None, pl.UInt8))
    run = replace(run, tables={**run.tables, "packets": packets})
    hops = packets["hops"].mean()
    summary = {**run.summary, "average_path_length": float(hops or 1.0)}  # type: ignore[arg-type]
    tables, notes = {**run.tables, "packets": packets.clear()}, run.notes
    why, doubt = _why_no_samples(run, pairs)
    if why:
        summary["without_samples"] = why
    else:
        tables["samples"] = build_samples(run, pairs, COMPILED_DECODER)
    notes = [*notes, doubt] if doubt else notes
    tables = {name: conform(name, tables[name]) for name in TABLES}
    return replace(run, tables=tables, summary=summary, notes=notes)


def _why_no_samples(run: Run, pairs: PairCandidates) -> tuple[str, str]:
    """Why the reserved bits of a capture are no samples, and a note if some of them are not."""
    telemetry = run.scenario.telemetry
    if telemetry.scheme == "csig":
        return why_tags_are_foreign(run.tables["packets"], pairs), ""
    if telemetry.scheme == ENTROPY_ECN:
        return _why_no_marks(run.tables["packets"]), ""
    if telemetry.scheme not in HASHED:
        return "", ""
    if not run.tables["packets"]["header"].max():
        return f"all {run.tables['packets'].height:,} packets have reserved bits of 0", ""
    agreement = hash_agreement(run, pairs, COMPILED_DECODER)
    if agreement.are_samples:
        if not agreement.some_are_foreign:
            return "", ""
        return "", (
            f"about {percent(1.0 - agreement.share)} of the samples carry the hash of no link on "
            "the path of their packet: switches that do not write samples, other numbers of links "
            "than in table links, or damaged headers"
        )
    if not agreement.enough:
        return f"{agreement.samples:,} packets are too few to tell samples from other bits", ""
    return (
        f"the reserved bits of {agreement.samples:,} packets do not depend on the packets as the "
        f"hashes of scheme {telemetry.scheme!r} do ({agreement.agreeing:,} of {agreement.pairs:,} "
        f"fit a link on the path, {agreement.pairs / 2**agreement.bits:,.0f} by chance): other "
        "bits, another scheme, or other numbers of links"
    ), ""


def _why_no_marks(packets: pl.DataFrame) -> str:
    """Why packets tell nothing about congestion; empty if they do."""
    count = f"{packets.height:,} packets"
    if not packets["ecn"].max():
        return f"none of {count} is ECN-capable: their senders have ECN switched off"
    if not (packets["ecn"] == CONGESTION_EXPERIENCED).any():
        return f"none of {count} is marked: no port was congested, or no switch marks (ECN)"
    return ""


def why_tags_are_foreign(packets: pl.DataFrame, pairs: PairCandidates) -> str:
    """Why the tags of a capture are not those of CSIG in this fabric; empty if they are."""
    tags, assumed = f"{packets.height:,} packets", f"Ethernet type {CSIG_TYPE:#06x} is assumed"
    if not packets["csig"].max():
        return f"none of {tags} has a CSIG tag ({assumed})"
    header = packets["header"].to_numpy()
    written = writable(packets, pairs)
    if foreign := int((written == 0).sum()):
        row = packets.row(int(np.argmax(written == 0)), named=True)
        return (
            f"no switch of the fabric writes the tags of {foreign:,} of {tags}, like "
            f"{row['header']:#06x}: the signal type must be 2 or 3 (delay, queue depth), the "
            "reserved bit 0, and the locator that of a link on the packet's path "
            f"({assumed}, and links numbered as in table links)"
        )
    used = np.flatnonzero(values(header) > 0)
    if not len(used):
        return (
            f"the CSIG tags of {tags} are empty: no port was congested, or no switch writes them "
            f"({assumed})"
        )
    if len(packets["header"].unique()) == 1:
        return f"the CSIG tags of {tags} are equal: they do not depend on the paths ({assumed})"
    draws = (
        packets[used]
        .select("src_node", "dst_node", "header")
        .with_columns(chance=pl.Series(written[used] / 2.0**16))
    )
    chance = float(draws.unique()["chance"].log().sum())
    if chance > np.log(CHANCE_OF_FOREIGN_BITS):
        return f"{tags} with CSIG tags are too few to tell them from other bits ({assumed})"
    return ""


def _job_tables(nodes: pl.Series, elapsed: int, contexts: Contexts) -> dict[str, pl.DataFrame]:
    """Tables ``jobs``, ``ranks`` and ``labels``: one job, with a rank for each node."""
    n_ranks, n_labels = len(nodes), len(contexts.labels)
    order = pl.int_range(n_ranks, dtype=pl.UInt32, eager=True)
    phase, call, path = zip(*contexts.labels, strict=True)
    return {
        "jobs": pl.DataFrame(
            {
                "job": [0],
                "name": ["captured"],
                "observed": [True],
                "ranks": [n_ranks],
                "placement": ["captured"],
                "grid": [""],
            }
        ),
        "ranks": pl.DataFrame(
            {
                "rank": order,
                "job": [0] * n_ranks,
                "job_rank": order,
                "node": nodes,
                "finish_ps": [elapsed] * n_ranks,
                "compute_ps": [0] * n_ranks,
                "wait_ps": [elapsed] * n_ranks,
            }
        ),
        "labels": pl.DataFrame(
            {
                "label": range(n_labels),
                "job": [0] * n_labels,
                "phase": phase,
                "call": call,
                "tag": [-1] * n_labels,
                "communicator": [""] * n_labels,
                "path": path,
            }
        ),
    }


def _equal_windows(elapsed: int, least: int) -> pl.DataFrame:
    """At least ``least`` windows of equal length, except the last, which ends at ``elapsed``."""
    width = max(1, elapsed // least)
    start = np.arange(0, elapsed, width, dtype=np.uint64)
    end = np.minimum(start + np.uint64(width), np.uint64(elapsed))
    return pl.DataFrame(
        {"window": np.arange(len(start), dtype=np.uint32), "start_ps": start, "end_ps": end}
    )
