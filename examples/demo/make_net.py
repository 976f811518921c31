#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write the demo's cluster as a topology file that ibsim loads.

128 hosts on 8 leaf switches, 4 spine switches, EDR everywhere. A leaf has 16 hosts below it and one
cable to each spine above it: a 4:1 taper.
"""

from __future__ import annotations

import sys

LEAVES, HOSTS_PER_LEAF, SPINES, RADIX = 8, 16, 4, 36
SPEED = "4xEDR"
HOST_GUID, SWITCH_GUID = 0x0002C90300100000, 0x0002C90300800000


def host_guid(host: int) -> int:
    """GUID of a host's adapter; its port has the next one."""
    return HOST_GUID + 4 * host


def switch_guid(switch: int) -> int:
    """GUID of a switch: leaves first, then spines."""
    return SWITCH_GUID + 64 * switch


def switch_name(switch: int) -> str:
    """``leaf01`` or ``spine01``."""
    if switch < LEAVES:
        return f"leaf{switch + 1:02d}"
    return f"spine{switch - LEAVES + 1:02d}"


def lid(vertex: int) -> int:
    """Hosts first, then switches; opensm assigns its own."""
    return vertex + 1


def host(number: int) -> list[str]:
    """The adapter of one host and its cable."""
    leaf, port = divmod(number, HOSTS_PER_LEAF)
    guid = host_guid(number)
    leaf_lid = lid(LEAVES * HOSTS_PER_LEAF + leaf)
    return [
        "",
        "vendid=0x2c9",
        "devid=0x1013",
        f"sysimgguid=0x{guid:x}",
        f"caguid=0x{guid:x}",
        f'Ca\t1 "H-{guid:016x}"\t\t# "node{number + 1:03d} mlx5_0"',
        f'[1]({guid + 1:x}) \t"S-{switch_guid(leaf):016x}"[{port + 1}]'
        f'\t\t# lid {lid(number)} lmc 0 "{switch_name(leaf)}" lid {leaf_lid} {SPEED}',
    ]


def switch(number: int) -> list[str]:
    """One switch and its cables."""
    guid = switch_guid(number)
    lines = [
        "",
        "vendid=0x2c9",
        "devid=0xcb20",
        f"sysimgguid=0x{guid:x}",
        f"switchguid=0x{guid:x}({guid:x})",
        f'Switch\t{RADIX} "S-{guid:016x}"\t\t# "{switch_name(number)}" enhanced port 0 '
        f"lid {lid(LEAVES * HOSTS_PER_LEAF + number)} lmc 0",
    ]
    if number < LEAVES:
        for port in range(HOSTS_PER_LEAF):
            below = number * HOSTS_PER_LEAF + port
            peer = host_guid(below)
            lines.append(
                f'[{port + 1}]\t"H-{peer:016x}"[1]({peer + 1:x}) '
                f'\t\t# "node{below + 1:03d} mlx5_0" lid {lid(below)} {SPEED}'
            )
        ends = [(HOSTS_PER_LEAF + 1 + s, LEAVES + s, number + 1) for s in range(SPINES)]
    else:
        ends = [(leaf + 1, leaf, HOSTS_PER_LEAF + 1 + number - LEAVES) for leaf in range(LEAVES)]
    for port, peer_switch, peer_port in ends:
        peer_lid = lid(LEAVES * HOSTS_PER_LEAF + peer_switch)
        lines.append(
            f'[{port}]\t"S-{switch_guid(peer_switch):016x}"[{peer_port}]'
            f'\t\t# "{switch_name(peer_switch)}" lid {peer_lid} {SPEED}'
        )
    return lines


def main() -> None:
    """Print the topology file."""
    lines = ["# Demo cluster: made by make_net.py for ibsim"]
    for number in range(LEAVES + SPINES):
        lines += switch(number)
    for number in range(LEAVES * HOSTS_PER_LEAF):
        lines += host(number)
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
