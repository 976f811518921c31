"""Files of port counters."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import polars as pl

from tailback.run.schema import TABLES


def put(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def sysfs(folder: Path) -> Path:
    for port, wait in ((1, "17\n"), (2, "N/A (no PMA)\n")):
        base = f"ib/mlx5_0/ports/{port}/"
        put(folder, base + "counters/port_xmit_wait", wait)
        put(folder, base + "counters/port_xmit_data", "1000\n")
        put(folder, base + "counters/port_xmit_packets", "3\n")
        put(folder, base + "counters/symbol_error", "0\n")
        put(folder, base + "rate", "100 Gb/sec (4X EDR)\n")
    put(folder, "ib/mlx5_0/node_guid", "0002:c903:0000:00ab\n")
    return folder / "ib"


def run_tables() -> SimpleNamespace:
    def table(name: str, rows: list[dict[str, object]]) -> pl.DataFrame:
        schema = TABLES[name].polars_schema
        return pl.DataFrame(
            [{column: row.get(column) for column in schema} for row in rows], schema=schema
        )

    return SimpleNamespace(
        summary={},
        skip_notes=[],
        tables={
            "windows": table(
                "windows",
                [
                    {"window": 0, "start_ps": 0, "end_ps": 1_000_000},
                    {"window": 1, "start_ps": 1_000_000, "end_ps": 1_500_000},
                ],
            ),
            "links": table(
                "links",
                [
                    {
                        "link": n,
                        "src_name": "leaf",
                        "src_port": n + 1,
                        "direction": "up",
                        "rate_gbps": 100.0,
                    }
                    for n in (0, 1)
                ],
            ),
            "truth": table(
                "truth",
                [
                    {
                        "window": 1,
                        "link": 0,
                        "packets": 2,
                        "bytes": 900,
                        "busy_ps": 400_000,
                        "stall_ps": 100_000,
                    },
                ],
            ),
        },
    )


TEXTS = {
    "perfquery-rounds": (
        "Leaf,down,r1,12,7,1456409893470000000,18350267,2426695474\n"
        "Leaf,down,r1,12,7,1456409893590953793,24841529,2433352285\n"
        "Leaf,down,r1,12,7,1456409893711953793,24841529,2433362285\n"
    ),
    "perfquery": (
        "# Port counters: Lid 7 port 3 (CapMask: 0x1300)\nPortXmitData:....12\n"
        "PortXmitWait:......5\n"
        "# Port extended counters: Lid 7 port 4 (CapMask: 0x5300 CapMask2: 0x2)\n"
        "PortXmitPkts:......7\nPortXmitWait:......18446744073709551615\n"
    ),
    "ibqueryerrors": (
        'Errors for "ys \\"1"\n   GUID 0x2c9 port 1: [PortXmitWait == 12] '
        "[PortXmitData == 97 (362.8B)]\n   GUID 0x2ca port 2: [PortXmitPkts == 5]\n"
    ),
    "ethernet-csv": (
        "time_utc,node,iface,tx_bytes,tx_packets,qdisc_backlog,qdisc_drops,speed_mbps\n"
        "2026-11-22T11:06:10.4Z,l0,swp1,5,1,0,0,10\n1795345571.5,l0,swp1,9,2,7,1,10\n"
    ),
    "recorded-infiniband": (
        "time_utc,node,iface,tx_bytes,tx_packets,xmit_wait,node_guid,rate\n"
        "2026-11-22T11:06:10Z,a,mlx5_0/1,5,1,0,0000:0000:0000:0010,100 Gb/sec (4X EDR)\n"
        "2026-11-22T11:06:11Z,a,mlx5_0/1,9,2,7,,\n"
    ),
    "ethtool": (
        "# n1 eth0 1700000000 100000\nNIC statistics:\n     tx_bytes_phy: 4096\n"
        "     tx_packets_phy: 4\n     rx_prio3_pause: 7\n     rx_prio3_pause_duration: 90\n"
        "# n1 eth1\nNIC statistics:\n     tx_bytes: 5\n"
    ),
    "influx-line": (
        "infiniband,device=mlx5_0,host=n\\ 1,port=1 port_xmit_data=12i,port_xmit_wait=5i "
        "1700000000\n"
        "ethtool,host=n1,interface=eth0 tx_bytes=12i,rx_prio3_pause=5i,up=t 1700000000000000000\n"
    ),
    "sonic": (
        '{"COUNTERS_PORT_NAME_MAP": {"Ethernet0": "oid:0x1", "Ethernet4": "oid:0x2"}, '
        '"COUNTERS:oid:0x1": {"value": {"SAI_PORT_STAT_IF_OUT_OCTETS": "12"}}, '
        '"COUNTERS:oid:0x2": {"SAI_PORT_STAT_PFC_3_RX_PKTS": "3"}}'
    ),
    "ufm-csv": (
        "timestamp,source_id,node_guid,port_num,node_description,PortXmitDataExtended,"
        "PortXmitWaitExtended,SymbolErrorCounterExtended\n"
        "1700000000000000,0x1,0xab,3,sw,12,5,0\n1700000030000000,0x1,0xab,3,sw,15,6,1\n"
    ),
    "ibdiagnet": (
        'START_NODES\nNodeDesc,NumPorts,NodeGUID\n"MF0;leaf01:MQM9700/U1",65,0x1\nEND_NODES\n'
        "START_PM_INFO\nNodeGUID,PortGUID,PortNumber,PortXmitData,PortXmitDataExtended,"
        "PortXmitWaitExt,LinkDownedCounter,PortRcvPkts\n"
        "0x1,0x1,3,4294967295,25,7,255,N/A\n0x1,0x1,4,1,26,8,0,9\nEND_PM_INFO\n"
    ),
    "gnmi": (
        '{"source": "leaf01:6030", "timestamp": 1700000000000000000, '
        '"prefix": "interfaces/interface[name=Ethernet1]/state/counters", "updates": '
        '[{"Path": "out-octets", "values": {"out-octets": "370930"}}]}\n'
        '[{"timestamp": 1700000010000000000, "tags": {"source": "leaf01", "interface_name": '
        '"Ethernet1"}, "values": {"/interfaces/interface/state/counters/out-octets": 370999}}]\n'
    ),
    "ldms-csv": (
        "#Time, Time_usec, CompId, X+_traffic (B), X+_credit_stall (ns), nettopo_mesh_coord_X,"
        " nettopo_mesh_coord_Y, nettopo_mesh_coord_Z\n1.5, 500000, 1, 2, 3, 4, 5, 6\n"
        "2.5, 500000, 1, 4, 6, 4, 5, 6\n"
    ),
    "exposition": (
        "# TYPE node_infiniband_port_data_transmitted_bytes_total counter\n"
        'node_infiniband_port_data_transmitted_bytes_total{device="mlx5_0",port="1"} 4096\n'
        'node_infiniband_port_data_transmitted_bytes_total{device="mlx5_0",port="2"} 8192\n'
        "# TYPE node_infiniband_port_transmit_wait_total counter\n"
        'node_infiniband_port_transmit_wait_total{device="mlx5_0",port="1"} 12\n'
    ),
    "prometheus": (
        '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":'
        '"tailback_port_xmit_bytes_total","node":"leaf0","port":"3","guid":"0xab"},"values":'
        '[[1700000000,"1"],[1700000010.5,"20"]]}]}}'
    ),
}
SECONDS = 1_700_000_000
MLXLINK = """\
# n1 mlx5_0 1700000000

Operational Info
----------------
State                              : Active
Physical state                     : LinkUp
Speed                              : IB-EDR
Width                              : 4x
FEC                                : Standard LL RS-FEC - RS(271,257)

Physical Counters and BER Info
------------------------------
Time Since Last Clear [Min]        : 10.0
Effective Physical Errors          : 4000
Effective Physical BER             : 7E-11
Raw Physical Errors Per Lane       : 700,20,3,4
Raw Physical BER                   : 1E-11
Link Down Counter                  : 1
Link Error Recovery Counter        : 0

"""
"""What mlxlink prints of one port."""
OPAPMAQUERY = """\
# n1 hfi1_0 {seconds} 100000
Getting Port Status...
Port Number             1
    VL Select Mask      0x00000001
    Performance: Transmit
        Xmit Data                        {mb} MB ({flits} Flits)
        Xmit Pkts                        1000
        MC Xmt Pkts                         2
    Performance: Receive
        Rcv Data                            0 MB (7 Flits)
        Rcv Pkts                            3
    Errors: Signal Integrity
        Link Qual Indicator                 5 (Excellent)
        Uncorrectable Errors              {bad}
        Link Downed                         0
        Rcv Errors                          0
    Performance: Congestion
        Rcv FECN                            8
        Mark FECN                        {bad}
        Xmit Wait                      {wait}

        VL Number    3
            Performance: Congestion
                 Rcv FECN                    8
                 Xmit Wait              {wait}
"""
"""What opapmaquery prints of one port."""

TEXTS |= {
    "mlxlink": MLXLINK + MLXLINK.replace(f"{SECONDS}", f"{SECONDS + 10}"),
    "opapmaquery": "".join(
        OPAPMAQUERY.format(seconds=SECONDS + 10 * n, mb=0, flits=8 * n, bad=1, wait=2 * n)
        for n in range(2)
    ),
    "ldms-csv ibnet": (
        "#Time,Time_usec,ProducerName,component_id,lid,port,PortXmitData,PortXmitPkts,PortXmitWait,"
        "port_query_time,node_name\n"
        "1.5,500000,a,1,7,1,2,3,4,0.001,sw\n2.5,500000,a,1,7,1,5,6,7,0.002,sw\n"
    ),
    "ldms-csv sysclassib": (
        "#Time,Time_usec,ProducerName,component_id,ib.port_xmit_data#mlx5_0.1,"
        "ib.port_xmit_wait#mlx5_0.1\n1.5,500000,a,1,2,4294967295\n2.5,500000,a,1,5,4294967295\n"
    ),
    "ldms-csv aries": (
        "#Time,Time_usec,ProducerName,component_id,traffic_000 (B),stalled_000 (ns)\n"
        "1.5,500000,a,1,2,3\n2.5,500000,a,1,5,6\n"
    ),
    "ldms-csv percentages": (
        "#Time,X+_SAMPLE_GEMINI_LINK_CREDIT_STALL (% x1e6),"
        "X+_SAMPLE_GEMINI_LINK_USED_BW (% x1e6),nettopo_mesh_coord_X,nettopo_mesh_coord_Y,"
        "nettopo_mesh_coord_Z\n1.5,5000000,100000,0,0,0\n2.5,5000000,100000,0,0,0\n"
    ),
}
"""Every text format, and every kind of table that LDMS stores."""
