"""The network and messages of a case for SST's merlin; ``sst`` runs this file.

    sst merlin_network.py -- CASE.json COUNTERS.csv

``CASE.json`` is written by :mod:`studies.conformance.peers`. Each host is a ``merlin.pt2pt_test``,
which prints when the first and the last packet of its message arrived.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import sst  # type: ignore[import-not-found]  # a module of the program that runs this file

case: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
hosts_per_leaf, leaves, tops = case["hosts_per_leaf"], case["leaves"], case["aggregation"]
shape = f"{hosts_per_leaf},{tops}:{leaves}"


def router(number: int, ports: int) -> Any:
    """A router of the tree: leaves first, then the top level."""
    made = sst.Component(f"rtr{number}", "merlin.hr_router")
    made.addParams(
        {
            "id": number,
            "num_ports": ports,
            "num_vns": 1,
            "flit_size": case["flit"],
            "link_bw": case["rate"],
            "xbar_bw": case["crossbar"],
            "xbar_arb": "merlin.xbar_arb_lru",
            "input_latency": case["input_latency"],
            "output_latency": case["output_latency"],
            "input_buf_size": case["input_buffer"],
            "output_buf_size": case["output_buffer"],
        }
    )
    topology = made.setSubComponent("topology", "merlin.fattree")
    topology.addParams({"shape": shape, "routing_alg": "deterministic"})
    return made


routers = [router(leaf, hosts_per_leaf + tops) for leaf in range(leaves)]
routers += [router(leaves + top, leaves) for top in range(tops)]
for leaf in range(leaves):
    for top in range(tops):
        link = sst.Link(f"up{leaf}_{top}")
        link.connect(
            (routers[leaf], f"port{hosts_per_leaf + top}", case["delay"]),
            (routers[leaves + top], f"port{leaf}", case["delay"]),
        )
for host in range(hosts_per_leaf * leaves):
    end = sst.Component(f"host{host}", "merlin.pt2pt_test")
    end.addParams(
        {
            "packet_size": case["packet"],
            "packets_to_send": case["packets"],
            "buffer_size": case["host_buffer"],
            "link_bw": case["rate"],
            "src": case["src"],
            "dest": case["dst"],
        }
    )
    control = end.setSubComponent("networkIF", "merlin.linkcontrol")
    control.addParams(
        {
            "link_bw": case["rate"],
            "input_buf_size": case["input_buffer"],
            "output_buf_size": case["host_buffer"],
        }
    )
    link = sst.Link(f"host_link{host}")
    port = f"port{host % hosts_per_leaf}"
    link.connect(
        (control, "rtr_port", case["delay"]), (routers[host // hosts_per_leaf], port, case["delay"])
    )

sst.setStatisticLoadLevel(3)
sst.setStatisticOutput("sst.statOutputCSV", {"filepath": sys.argv[2], "separator": ","})
sst.enableAllStatisticsForAllComponents()
