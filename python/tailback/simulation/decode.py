"""Decodes the packet headers of a run to counts of links and to samples for the diagnosis."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tailback import _core
from tailback.errors import FabricError, RunError, ScenarioError, TailbackError, nearest
from tailback.fabric.core_errors import translate_core_error
from tailback.fabric.degraded import degrade
from tailback.fabric.model import Fabric
from tailback.run.run import Run
from tailback.simulation.prepare import load_fabric
from tailback.simulation.routes import routes_for
from tailback.telemetry.candidates import (
    PairCandidates,
    all_links_candidates,
    fixed_choices,
    minimal_choices,
    pair_candidates,
    routed_choices,
)
from tailback.telemetry.capture import nodes_of
from tailback.telemetry.estimate import (
    count_interval,
    link_estimates,
    path_excess,
    usual_excess,
)
from tailback.telemetry.header_counts import ANY_PATH_LENGTH, LinkCounts, count_from_headers
from tailback.telemetry.receiver import HashCore, build_samples
from tailback.telemetry.run_views import received_by

MAX_PATHS = 1 << 23
"""Maximum product of destinations and switches for tracing deterministic routes one by one.

Beyond it, all paths of the routing rule are candidates and decoding is more ambiguous.
"""

NO_DETOUR = 0xFFFFFFFF
"""Value for a packet that takes no detour."""


BOTTLENECKS_ONLY: Final = (
    "scheme csig names the bottleneck of each packet and counts neither packets nor congested "
    "packets of a link: packets are spread evenly over the routes, and a link has at least as many "
    "congested packets as those whose bottleneck it was"
)
"""Note of a run whose table ``samples`` was decoded from such tags."""


COMPILED_DECODER: Final[HashCore] = _core
"""Decodes hashes of links, for :func:`tailback.telemetry.count_links`."""


def link_hash(
    name: str,
    packet_id: NDArray[np.uint32],
    link: NDArray[np.uint32],
    bits: int = 1,
    id_bits: int = 24,
) -> NDArray[np.uint8]:
    """Hash of a link that a packet carries.

    Args:
        name: ``gf`` (linear over GF(2), Tailback's own) or ``published`` (Taffet and
            Mellor-Crummey, 2019).
        packet_id: Identity of each packet, shape (P,).
        link: Number or word that represents the link of each packet, shape (P,).
        bits: Bits per hash, 1–8.
        id_bits: Number of bits of the packet id that are hashed.

    Returns:
        Hashes, shape (P,).

    Raises:
        ScenarioError: There is no such hash, or a number is out of range.
    """
    with translate_core_error("link_hash"):
        return _core.link_hash(name, packet_id, link, bits, id_bits)


def decode_published(
    packet_id: NDArray[np.uint32],
    hashes: NDArray[np.uint8],
    weight: NDArray[np.uint8],
    links: NDArray[np.uint32],
) -> NDArray[np.int64]:
    """Score of each link by the published one-bit hash (Taffet and Mellor-Crummey, 2019).

    Args:
        packet_id: Identity of each packet, shape (P,).
        hashes: Hash that each carried, shape (P,).
        weight: Weight of each sample, shape (P,).
        links: Words that represent the candidate links, shape (L,).

    Returns:
        Total weight of matching samples minus that of non-matching ones, shape (L,).
    """
    with translate_core_error("decode_published"):
        return _core.decode_published(packet_id, hashes, weight, links)


def decode_link_counts(
    run: Run, fabric: Fabric | None = None, *, receiver: str | None = None
) -> LinkCounts:
    """Decode table ``packets`` of a run.

    Args:
        run: A run that kept packets.
        fabric: Its fabric, read or built from its scenario when None.
        receiver: Decode only the packets that this host received, with the standard errors of that
            part. The parts of all hosts add up to the counts of the run.

    Raises:
        RunError: The run or the receiver has no packets, there is no such host, or the scheme
            cannot be decoded in the run.
        FabricError: The fabric cannot be read, or its routing has paths of several lengths.
    """
    if run.tables["packets"].height == 0:
        raise RunError(
            "the run has kept no packets",
            remedy="set [telemetry] packets, or a scheme other than full and off",
        )
    if receiver is not None:
        packets = run.tables["packets"].filter(pl.col("dst_node").is_in(nodes_of(run, receiver)))
        if not packets.height:
            raise RunError(
                f"host {receiver!r} received no packet with a sample",
                remedy="choose a host of an observed job",
            )
        run = replace(run, tables={**run.tables, "packets": packets})
    return count_from_headers(run, route_candidates(run, fabric or _fabric(run)), _core)


def link_counts(run: Run, receiver: str | None = None) -> pl.DataFrame:
    """Counts of every link from the samples of a run, however they are kept.

    Args:
        run: A run with packets, or with samples that were added up as they arrived.
        receiver: Only the samples that this host received.

    Returns:
        One row per link, as :meth:`~tailback.telemetry.header_counts.LinkCounts.table`: null where
        nothing is known.

    Raises:
        RunError: As :func:`decode_link_counts`, or samples of receivers were not kept apart.
    """
    if run.tables["packets"].height or not run.scenario.telemetry.summed_on_arrival:
        return decode_link_counts(run, receiver=receiver).table()
    part = run if receiver is None else received_by(run, receiver)
    estimates = link_estimates(part.tables["samples"])
    weight, variance = estimates["congested"].to_numpy(), estimates["congested_se"].to_numpy() ** 2
    samples = estimates["congested_samples"].cast(pl.Float64).to_numpy()
    excess, usual = path_excess(samples, weight, variance), usual_excess(samples, weight, variance)
    # Of a link without congested samples, as many hops may have been congested as there are.
    longest = estimates["hop_excess"].to_numpy()
    low, high = count_interval(weight, variance, np.where(samples > 0, excess, longest), usual)
    counts = estimates.select(
        "link",
        "packets",
        "packets_variance",
        "packets_low",
        "packets_high",
        "congested",
        congested_variance=pl.Series(variance),
        congested_low=pl.Series(low),
        congested_high=pl.Series(high),
    )
    links = run.tables["links"].select("link")
    return links.join(counts, on="link", how="left", maintain_order="left")


def decode_samples(run: Run, fabric: Fabric | None = None) -> Run:
    """The run with table ``samples`` decoded from the headers of received packets.

    Args:
        run: A run of any scheme. It is returned unchanged if the engine has aggregated the samples
            already (scheme ``full`` with one slot) or if no packets were kept.
        fabric: Its fabric, read or built from its scenario when None.

    Returns:
        The run; if its scheme cannot be decoded, with a note and without samples.
    """
    telemetry = run.scenario.telemetry
    decoded = not telemetry.summed_on_arrival and telemetry.scheme != "off"
    if not (decoded and run.tables["packets"].height):
        return run
    try:
        samples = build_samples(run, route_candidates(run, fabric or _fabric(run)), _core)
    except TailbackError as error:
        note = f"the headers of the packets cannot be decoded: {error.message}"
        if error.remedy:
            note += f"; {error.remedy}"
        return replace(run, notes=[*run.notes, note])
    notes = run.notes
    if run.scenario.telemetry.scheme == "csig":
        notes = [*notes, BOTTLENECKS_ONLY]
    return replace(run, tables={**run.tables, "samples": samples}, notes=notes)


def _fabric(run: Run) -> Fabric:
    return degrade(load_fabric(run.scenario.fabric), run.scenario.fabric.degraded)


def route_candidates(run: Run, fabric: Fabric) -> PairCandidates:
    """Candidate links by the run's routing, whose paths need not be the shortest.

    With forwarding tables or D-mod-k there is one path per destination. If packets may take
    detours, every link is a candidate.
    """
    stamped = stamping_mask(fabric, run.scenario.telemetry.stamping)
    return _trace_routes(run, fabric).stamped_only(stamped)


def _trace_routes(run: Run, fabric: Fabric) -> PairCandidates:
    packets, section = run.tables["packets"], run.scenario.fabric
    if packets["hops"].null_count():
        return all_links_candidates(fabric)
    src, dst = packets["src_node"].to_numpy(), packets["dst_node"].to_numpy()
    fixed = run.scenario.engine.routing == "deterministic"
    fixed &= len(np.unique(dst)) * fabric.n_switches <= MAX_PATHS
    if section.file is None and section.topology is None and not fixed:
        return pair_candidates(fabric, minimal_choices(fabric), src, dst)
    nodes = np.unique(run.tables["ranks"]["node"].to_numpy()).tolist()
    routes = routes_for(run.scenario, fabric, nodes)
    rule = routes.rule or _core.NetworkRouting.of_network(routes.network)
    if fixed or section.forwarding is not None:
        choices = fixed_choices(fabric, rule.deterministic_links, dst)
    else:
        choices = routed_choices(fabric, lambda at, node: rule.next(at, node, NO_DETOUR, 0)[0])
    try:
        return pair_candidates(fabric, choices, src, dst)
    except FabricError:
        # Paths of different lengths, as in a dragonfly with few groups.
        if run.scenario.telemetry.scheme in ANY_PATH_LENGTH:
            return all_links_candidates(fabric)
        raise


# --- switches that put samples into packets ----------------------------------------------------


def stamping_mask(fabric: Fabric, stamping: str | list[str]) -> NDArray[np.bool_]:
    """Whether the switch at the head of each link puts samples into packets, shape (L,).

    Injection links count as stamped only if all switches stamp.

    Args:
        fabric: The fabric.
        stamping: ``"all"``, ``"leaf"`` for the switches that have nodes, or names of switches.

    Raises:
        ScenarioError: A named switch does not exist.
    """
    if stamping == "all":
        return np.ones(fabric.n_links, np.bool_)
    acts = np.zeros(fabric.n_nodes + fabric.n_switches, np.bool_)
    if stamping == "leaf":
        acts[fabric.n_nodes + fabric.node_switch.astype(np.int64)] = True
    else:
        number = {name: index for index, name in enumerate(fabric.switch_name)}
        for name in stamping:
            if name not in number:
                raise ScenarioError(
                    f"no switch {name!r} in the fabric",
                    place="[telemetry] stamping",
                    remedy=nearest(name, number),
                )
            acts[fabric.n_nodes + number[name]] = True
    return np.asarray(acts[fabric.link_src], np.bool_)


def stamping_links(fabric: Fabric, stamping: str | list[str]) -> tuple[tuple[bool, ...], list[str]]:
    """The mask in the engine's form, empty if all links are stamped, and a note on unstamped links.

    Raises:
        ScenarioError: As :func:`stamping_mask`.
    """
    mask = stamping_mask(fabric, stamping)
    if mask.all():
        return (), []
    inner = fabric.link_src >= fabric.n_nodes
    silent = int((inner & ~mask).sum())
    note = (
        f"packets get no samples at {silent} of {int(inner.sum())} links, whose switches do not "
        "stamp: there are no estimates of these links"
    )
    return tuple(mask.tolist()), [note] if silent else []
