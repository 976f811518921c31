"""The texts of the findings TB001 to TB008: titles, explanations, advice.

The rules in :mod:`tailback.diagnosis.rules` decide which fire and compute the numbers; this module
only words them. Shares are 0–1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tailback.diagnosis.fanin import FanIn
from tailback.diagnosis.root_utilization import FULL_UTILIZATION
from tailback.units import counted, percent, rate_of_rate

ENDPOINT: Final = "Endpoint congestion: nodes are sent more than they can receive"
PLACEMENT: Final = "Placement: your own traffic fills links inside the network"
OTHER_TRAFFIC: Final = "Other traffic: congested links that your job hardly uses"
NO_COST: Final = "Not the network: congestion does not cost the time"
WITHIN_HOSTS: Final = "Not the network: none of your messages crosses it"
TOO_FEW_SAMPLES: Final = "Too few samples to be sure"
NO_SAMPLE: Final = "Too few samples: no packet carried one"
NOT_DECODED: Final = "Too few samples: those that arrived cannot be decoded"
ROUTING: Final = "Routing imbalance: links are full while equivalent ones are not"
SLOW_LINK: Final = "Slow link: a link runs slower than it should"
INJECTION: Final = "Injection limit: adapters send at line rate"
IN_HOST: Final = "In-host limit: messages within a host fill the port of a rank"

PLACE_TOGETHER: Final = (
    "Place ranks that exchange a lot of data on the same switch, and compare placements by "
    "re-simulation."
)
GO_ELSEWHERE: Final = "Run again at another time, or request nodes away from the listed links."
SPREAD_TRAFFIC: Final = "Spread this traffic over the equivalent links with multipath routing."
SEND_LESS: Final = "Send less, keep more traffic within the node, or overlap it with computation."
SEND_LESS_WITHIN_HOSTS: Final = (
    "Send less within the host, overlap it with computation, or use a faster switch in the host."
)
LOOK_AT_COMPUTATION: Final = "Look at computation and load balance."
LOOK_AT_PROGRAMS: Final = "Look at the programs: their messages did not wait for the network."
LOOK_AT_LATENCY: Final = "Look at load balance, data volume and the latency of small messages."
LOOK_WITHIN_HOSTS: Final = "Look at load balance and within the hosts: memory, sockets, processors."
SWITCH_ON: Final = "Switch telemetry on (scheme = 'full') for a job with observed = true."
STATE_TELEMETRY: Final = (
    "Let the switches write samples, and state which in [telemetry] of the scenario given as the "
    "fabric; without them, port counters show congestion."
)
FOLLOW_NOTE: Final = "Follow that note, or use scheme = 'full', which works on all routes."
COUNT_PACKETS: Final = (
    "Use a scheme that counts packets, like coordinated with 5 hash bits (6 bits a packet): links "
    "that share a locator remain indistinguishable in any number of packets."
)

STAYS_WITHIN_HOSTS: Final = (
    "No message of an observed job crosses a switch: all communication stays within hosts, or "
    "there is none."
)
WITHOUT_SAMPLES: Final = "The capture has no samples, so there is no verdict: {}."
NOTHING_SAMPLED: Final = (
    "No packet of an observed job carried a sample, so the state of the links is unknown."
)


def endpoint(share: float, nodes: int, root: str, use: float, who: FanIn | None) -> str:
    """TB001: nodes are sent more than they can receive.

    Args:
        share: Share of the congested packets that wait for them.
        nodes: How many nodes.
        root: Name of the heaviest root.
        use: Its utilization by our messages while it is congested, 0–1.
        who: Senders to its node; None if unknown.
    """
    text = (
        f"{percent(share)} of the congested packets wait for {counted(nodes, 'node')} to receive "
        f"what is sent to them. The heaviest root, {root}, carries your own messages at "
        f"{percent(use)} of its line rate while it is congested. Moving the rank would move the "
        "congestion with it"
    )
    if who is not None:
        text += (
            f". {counted(who.sender_ranks, 'rank')} on {counted(who.senders, 'node')} "
            f"{'sends' if who.sender_ranks == 1 else 'send'} to it"
            + (f" ({who.ranks_on_node} ranks share it)" if who.ranks_on_node > 1 else "")
            + (f", mostly by {who.call}" if who.call else "")
        )
    return f"{text}."


def spread_messages(where: str) -> str:
    """TB001, senders unknown; ``where``: a phase, or 'there'."""
    return f"Change the communication {where}: spread the messages over receivers or time."


def different_partners(call: str, where: str) -> str:
    """TB001, an all-to-all."""
    return (
        f"Let every rank start {call} {where} at a different partner (rank + i, not i), so that "
        "they do not all send to the same node at once."
    )


def tree_algorithm(call: str, where: str, receiver: int) -> str:
    """TB001, a collective with a root."""
    return (
        f"{call} {where} sends everything to rank {receiver}: choose a tree algorithm in the MPI "
        "library, or a call that does not need the whole result on one rank."
    )


def use_collective(call: str, where: str, receiver: int) -> str:
    """TB001, a loop of sends to one rank."""
    return (
        f"Replace the sends to rank {receiver} by {call} {where} with the collective (MPI_Reduce, "
        "MPI_Gather), which combines data along the tree instead of on one node."
    )


def order_exchange(call: str, where: str, who: FanIn) -> str:
    """TB001, several ranks of a node receive at once."""
    return (
        f"{who.ranks_on_node} ranks of one node receive at once from {who.senders} nodes by {call} "
        f"{where}: order the exchange so that they arrive spread over time, or send one message "
        "per node instead of one per rank."
    )


def stay_in_step(call: str, where: str) -> str:
    """TB001, one sender whose phases overlap."""
    return (
        f"One node sends more by {call} {where} than the other can receive as phases overlap: let "
        "ranks wait for a missing neighbour instead of skipping it, so they stay in step."
    )


def take_turns(call: str, where: str, senders: int) -> str:
    """TB001, a few neighbours that send at once."""
    return (
        f"{senders} nodes send to the same node at once by {call} {where}: order the exchange so "
        "that they take turns (wait for a missing neighbour instead of skipping it), or do not "
        "synchronise between the phases."
    )


def placement(share: float, links: int, kind: str, such_as: str, use: float) -> str:
    """TB002: our own traffic fills links inside the network.

    Args:
        share: Share of the congested packets that wait for them.
        links: How many links.
        kind: Name of most of them, such as ``tier-0 up-links``.
        such_as: Name of the heaviest of these.
        use: Mean utilization by our traffic while they are congested.
    """
    return (
        f"{percent(share)} of the congested packets wait for {counted(links, 'link')} inside the "
        f"network, mostly {kind} (such as {such_as}). No link downstream of them is congested, and "
        f"your own traffic fills them to {percent(min(use, 1.0))} of the line rate while they are "
        f"congested (≥ {percent(FULL_UTILIZATION)} counts as full): this placement needs more "
        "capacity there than the network has."
    )


def links_of_tier(tier: int, direction: int) -> str:
    """Name of the links of a tier and direction (1 up, 0 flat, -1 down)."""
    word = {1: "up-links", 0: "links between switches", -1: "down-links"}[direction]
    return f"tier-{tier} {word}"


def other_traffic(
    share: float,
    links: int,
    use: float,
    heaviest: str,
    fraction: float,
    most: float,
    *,
    with_log: bool,
) -> str:
    """TB003: congested links that our job hardly uses.

    Args:
        share: Share of the congested packets that wait for them.
        links: How many links.
        use: Mean utilization by our traffic while they are congested.
        heaviest: Name of the heaviest.
        fraction: Its congested fraction.
        most: Upper 95 % bound of its utilization by our traffic.
        with_log: Whether a message log shows bursts that are shorter than a window.
    """
    text = (
        f"{percent(share)} of the congested packets wait for {counted(links, 'link')} on which "
        f"your own traffic uses {percent(use)} of the line rate while they are congested. The "
        f"heaviest, {heaviest}, has a congested fraction of {percent(fraction)}, and with 95 % "
        f"confidence your job uses at most {percent(most)} of it (less than "
        f"{percent(FULL_UTILIZATION)} is not full). A congested root is full, so the rest must be "
        "other traffic."
    )
    if with_log:
        return text
    return (
        f"{text} Without a message log, bursts of your own traffic shorter than a time window "
        "would look the same."
    )


def little_communication(busy: float, met: float | None) -> str:
    """TB004: ranks are rarely blocked; ``met``: share of packet-hops that met congestion."""
    text = f"Ranks are blocked in communication for {percent(busy, 1)} of their time"
    if met is None:
        return f"{text}."
    return (
        f"{text}; {percent(met, 1)} of the packet-hops met congestion, which can cost no more than "
        "that."
    )


def quiet_capture(met: str) -> str:
    """TB004: nothing is congested in captured packets; ``met`` from :func:`met_congestion`."""
    return f"{met} while packets were captured."


def quiet_network(met: str, busy: float) -> str:
    """TB004: nothing is congested, though ranks wait."""
    return (
        f"{met}, while ranks are blocked for {percent(busy)} of their time: they wait for each "
        "other, or are limited by latency and line rate, not by congestion."
    )


def met_congestion(value: float, high: float) -> str:
    """Text for the congested share of packet-hops, with its 95 % upper bound if estimated."""
    text = f"{percent(value, 1)} of packet-hops met congestion"
    return text if high == value else f"{text} (at most {percent(high, 1)} with 95 % confidence)"


def too_few_samples(
    packets: int,
    seen: int,
    sure: int,
    share: float,
    more: int | None,
    least_certain: Sequence[str],
) -> str:
    """TB005: how many links the samples can settle.

    Args:
        packets: Packets with a sample.
        seen: Links that they sampled.
        sure: Number of these links with enough samples.
        share: Share of the congested packets that remain uncertain.
        more: Further packets that would settle most of them; None if no number would.
        least_certain: Names of the links.
    """
    where = f" Least certain: {'; '.join(least_certain)}." if least_certain else ""
    settled = (
        f" About {more:,} more packets of this traffic would settle most of them."
        if more is not None
        else ""
    )
    return (
        f"{packets:,} packets sampled {seen:,} links, enough to judge {sure:,} of them; "
        f"{percent(share)} of the congested packets are on links or in trees that remain "
        f"uncertain.{settled}{where}"
    )


def sample_more(more: int, phase: str, hash_bits: int | None) -> str:
    """TB005: advice; ``hash_bits`` for hashed schemes, None for others."""
    which = f" of phase {phase!r}" if phase else ""
    bits = (
        f"; with more than {hash_bits} hash bit{'s' * (hash_bits > 1)} per packet fewer are needed"
        if hash_bits is not None
        else ""
    )
    return f"Sample about {more:,} more packets{which}: repeat it, or use smaller packets{bits}."


def not_decoded(packets: int, scheme: str) -> str:
    """TB005: headers do not identify links on these routes."""
    return (
        f"{packets} packets arrived with a header of scheme {scheme}, but on these routes it does "
        "not identify links (a note of the run says why), so the state of the links is unknown."
    )


def routing(
    share: float, links: int, heaviest: str, use: float, idle: int, equivalents: int
) -> str:
    """TB006: links are full while equivalent links are not.

    Args:
        share: Share of the congested packets that wait for them.
        links: How many links.
        heaviest: Name of the heaviest.
        use: Its utilization by our traffic.
        idle: Its equivalents with less than half of its packets.
        equivalents: All its equivalents.
    """
    return (
        f"{percent(share)} of the congested packets wait for {counted(links, 'link')} inside the "
        f"network that your own traffic fills while equivalent links are not full. The heaviest, "
        f"{heaviest}, is {percent(use)} used (≥ {percent(FULL_UTILIZATION)} counts as full); "
        f"{idle} of its {equivalents} equivalents carried less than half as many of your packets."
    )


def slow_node(name: str, fastest: float, median: float) -> str:
    """TB007: all large messages of one node are slow; rates as shares of the line rate."""
    return (
        f"No large message to or from {name} got more than {percent(fastest)} of the line rate, "
        f"though those of the median node reach {percent(median)}: its cable is slow."
    )


def slow_link(
    share: float, links: int, heaviest: str, fraction: float, most: float, explained: float | None
) -> str:
    """TB007: links that run slower than equivalent ones.

    Args:
        share: Share of the congested packets that wait for them.
        links: How many links.
        heaviest: Name of the heaviest.
        fraction: Its congested fraction.
        most: Upper bound of its utilization by our traffic.
        explained: Share of the squared lateness that its cable explains; None if it leads into one
            of our nodes.
    """
    why = (
        "it leads into one of your nodes, to which no other job sends, and no large message of "
        "that node is fast, although those of other nodes are"
        if explained is None
        else "equivalent links carry as much of your traffic and are hardly congested, and this "
        f"cable alone explains {percent(explained)} of the squared lateness of your messages"
    )
    slow, which = (
        ("1 link that runs slower than it should", "This link")
        if links == 1
        else (f"{links:,} links that run slower than they should", "The heaviest")
    )
    return (
        f"{percent(share)} of the congested packets wait for {slow}. {which}, {heaviest}, has a "
        f"congested fraction of {percent(fraction)} but carries your traffic at no more than "
        f"{percent(most)} of its line rate. Other traffic is not the reason: {why}."
    )


def filled_slow_link(
    share: float, links: int, heaviest: str, gbps: float, nominal_gbps: float, use: float
) -> str:
    """TB007: links of an expected run that are slow according to the evidence.

    Args:
        share: Share of the congested packets that wait for them.
        links: How many links.
        heaviest: Name of the heaviest.
        gbps: Rate at which it serves.
        nominal_gbps: Its nominal rate.
        use: Its utilization by our traffic, as a share of the rate at which it serves.
    """
    slow = "1 link that is" if links == 1 else f"{links:,} links that are"
    return (
        f"{percent(share)} of the congested packets wait for {slow} slow according to the "
        f"evidence: {heaviest} serves {rate_of_rate(gbps, nominal_gbps)}, and your own traffic "
        f"fills it to {percent(min(use, 1.0))} of that."
    )


CHECK_NAMED_CABLES = (
    "Ask the operators to check the cables that the measured run shows to be slow (speed, width, "
    "error counters); avoid them until then."
)
"""TB007: advice for an expected run; several cables may fit the evidence."""


def check_cable(name: str, *, of_node: bool) -> str:
    """TB007: advice for the cable of a node or of a link."""
    cable = f"cable of {name}" if of_node else f"cable {name}"
    return (
        f"Ask the operators to check the {cable} (speed, width, error counters); avoid it until "
        "then."
    )


def in_host(rank: int, does: str, share: float, rate_gbps: float) -> str:
    """TB009: the busiest rank within a host, what its port does, for how long, its rate."""
    return (
        f"The port of rank {rank} to the switch inside its host takes {percent(share)} of the time "
        f"to {does} the messages of its host at {rate_gbps:g} Gb/s: they do not enter the network."
    )


def injection(adapter: str, share: float, rate_gbps: float, met: str) -> str:
    """TB008: the busiest adapter, its share of the run time, its rate."""
    return (
        f"Adapter {adapter} needs {percent(share)} of the time to send its data at {rate_gbps:g} "
        f"Gb/s, and {met}: the network does not slow it down."
    )
