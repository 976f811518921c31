"""What benchmarks print, made up for a machine of 1.2 µs latency and 12.5 GB/s."""

from __future__ import annotations

from collections.abc import Callable

SIZES = [1 << k for k in range(23)]
LATENCY_US = 1.2
RATE = 12.5e3
"""Bytes a microsecond."""


def time_us(size: int, latency_us: float = LATENCY_US, eager: int = 1 << 30) -> float:
    """One way of one message; a handshake takes 0.8 µs."""
    return latency_us + size / RATE + 0.8 * (size > eager)


def rate_mbs(size: int, window: int = 64) -> float:
    """Megabytes per second of a window of messages."""
    return size * window / (window * size / RATE + 2 * LATENCY_US)


def wobble(row: int) -> float:
    """A repeatable error of a few permille."""
    return 1 + 0.003 * ((row * 7) % 5 - 2) / 2


def osu_latency(time: Callable[[int], float] = time_us) -> str:
    lines = ["# OSU MPI Latency Test v5.9", "# Size          Latency (us)"]
    lines += [f"{size:<10d}{time(size) * wobble(i):>18.2f}" for i, size in enumerate([0, *SIZES])]
    return "\n".join(lines) + "\n"


def osu_latency_7() -> str:
    """A newer version with all its columns."""
    lines = [
        "[node01:1234] Rank 0 bound to package[0][core:0]",
        "",
        "# OSU MPI Latency Test v7.4",
        "# Datatype: MPI_CHAR.",
        "# Size       Avg Latency(us)    Min Latency(us)    Max Latency(us)    Iterations    "
        "P50 Tail Lat(us)    P99 Tail Lat(us)    Validation",
    ]
    for i, size in enumerate(SIZES):
        us = time_us(size) * wobble(i)
        lines.append(
            f"{size:<10d}{us:>18.2f}{us * 0.9:>19.2f}{us * 9:>19.2f}{1000:>14d}"
            f"{us * 0.97:>20.2f}{us * 2:>20.2f}{'Pass':>14}"
        )
    return "\n".join(lines) + "\n"


def osu_bw(title: str = "Bandwidth Test", factor: float = 1) -> str:
    lines = [f"# OSU MPI {title} v5.9", "# Size      Bandwidth (MB/s)"]
    lines += [
        f"{size:<10d}{factor * rate_mbs(size) * wobble(i):>18.2f}" for i, size in enumerate(SIZES)
    ]
    return "\n".join(lines) + "\n"


def osu_mbw_mr(pairs: int = 4) -> str:
    lines = [
        "# OSU MPI Multiple Bandwidth / Message Rate Test v5.9",
        f"# [ pairs: {pairs} ] [ window size: 64 ]",
        "# Size                  MB/s        Messages/s",
    ]
    for i, size in enumerate(SIZES):
        rate = rate_mbs(size) * wobble(i)
        lines.append(f"{size:<10d}{rate:>18.2f}{rate * 1e6 / size:>18.2f}")
    return "\n".join(lines) + "\n"


def imb(test: str = "PingPong", processes: int = 2, time: Callable[[int], float] = time_us) -> str:
    rule = "#" + "-" * 51
    lines = [
        "#    Intel(R) MPI Benchmarks 2019 Update 6, MPI-1 part",
        "#",
        rule,
        f"# Benchmarking {test} ",
        f"# #processes = {processes} ",
        rule,
        "       #bytes #repetitions      t[usec]   Mbytes/sec",
    ]
    for i, size in enumerate([0, *SIZES]):
        us = time(size) * wobble(i)
        lines.append(f"{size:>13d}{1000:>13d}{us:>13.2f}{size / us:>13.2f}")
    return "\n".join([*lines, "", "# All processes entering MPI_Finalize", ""])


_DASHES = "-" * 87


def _perftest(title: str, mtu: int, header: str, rows: list[str]) -> str:
    return "\n".join(
        [
            _DASHES,
            f"                    {title}",
            " Dual-port       : OFF\t\tDevice         : mlx5_0",
            " Number of qps   : 1\t\tTransport type : IB",
            " Connection type : RC\t\tUsing SRQ      : OFF",
            f" Mtu             : {mtu}[B]",
            " Link type       : IB",
            _DASHES,
            " local address: LID 0x18 QPN 0x04da PSN 0x8635a",
            " remote address: LID 0x13 QPN 0x16490 PSN 0xd64f07",
            _DASHES,
            header,
            "Conflicting CPU frequency values detected: 1000.0 != 1259.4. "
            "CPU Frequency is not max.",
            *rows,
            _DASHES,
            "",
        ]
    )


def ib_write_lat(mtu: int = 4096) -> str:
    header = (
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]"
        "    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] "
    )
    rows = []
    for i, size in enumerate(SIZES[1:]):
        us = time_us(size, 0.9) * wobble(i)
        rows.append(
            f" {size:<7d} 1000          {us * 0.98:<7.2f}        {us * 4:<7.2f}      "
            f"{us:<7.2f}  \t       {us * 1.1:<7.2f}     \t0.02\t\t{us * 2:<7.2f} \t\t"
            f"{us * 4:<7.2f}"
        )
    return _perftest("RDMA_Write Latency Test", mtu, header, rows)


def ib_write_bw(gbits: bool = False, mtu: int = 4096) -> str:
    unit = "Gb/sec" if gbits else "MB/sec"
    scale = 8e-3 if gbits else 1 / 1.048576
    header = f" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]"
    rows = []
    for i, size in enumerate(SIZES[1:]):
        rate = rate_mbs(size) * wobble(i)
        rows.append(
            f" {size:<7d}    {5000:<10d}       {rate * scale * 1.01:<7.2f}            "
            f"{rate * scale:<7.2f}\t\t   {rate / size:<7.6f}"
        )
    return _perftest("RDMA_Write BW Test", mtu, header, rows)


def nccl_text(hosts: tuple[str, ...] = ("n0", "n1")) -> str:
    lines = [
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5",
        "#",
        "# Using devices",
    ]
    lines += [
        f"#  Rank {rank:2d} Group  0 Pid {4000 + rank:6d} on {host:>10} device  0 [0x07] "
        "NVIDIA A100-SXM4-40GB"
        for rank, host in enumerate(hosts)
    ]
    lines += [
        "#",
        " " * 62 + "out-of-place                       in-place          ",
        "#       size         count      type   redop    root     time   algbw   busbw #wrong"
        "     time   algbw   busbw #wrong",
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)       "
        "     (us)  (GB/s)  (GB/s)       ",
    ]
    for i, size in enumerate(1 << k for k in range(3, 28)):
        us = (30 + size / RATE) * wobble(i)
        rate = size / us / 1e3
        lines.append(
            f"{size:>12d}{size // 4:>14d}{'float':>10}{'sum':>8}{-1:>8}"
            f"{us:>9.2f}{rate:>8.2f}{rate:>8.2f}{0:>7d}"
            f"{us:>9.2f}{rate:>8.2f}{rate:>8.2f}{0:>7d}"
        )
    return "\n".join([*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 4.2", ""])


def nccl_json(hosts: tuple[str, ...] = ("n0", "n1")) -> str:
    import json

    results = []
    for i, size in enumerate(1 << k for k in range(3, 28)):
        us = (30 + size / RATE) * wobble(i)
        times = {"time": us, "alg_bw": size / us / 1e3, "bus_bw": size / us / 1e3, "nwrong": 0.0}
        results.append(
            {
                "size": size,
                "count": size // 4,
                "type": "float",
                "redop": "sum",
                "root": "    -1",
                "out_of_place": times,
                "in_place": times,
            }
        )
    ranks = [
        {"rank": rank, "group": 0, "pid": 1, "hostname": host, "device": 0}
        for rank, host in enumerate(hosts)
    ]
    return json.dumps({"version": 2, "config": {"devices": ranks}, "results": results})


def gpcnet(latency: str = "1.9") -> str:
    bar = "+---------------------------------+--------------+--------------+--------------+"
    rows = [
        ("Name", "Avg", "99%", "Units"),
        ("RR Two-sided Lat (8 B)", latency, "3.4", "usec"),
        ("RR Two-sided BW+Sync (131072 B)", "3786.1", "485.1", "MiB/s/rank"),
    ]
    lines = [
        "Network Tests v1.3",
        "  Test with 32 MPI ranks (32 nodes)",
        "",
        "+" + "-" * 78 + "+",
        f"|{'Isolated Network Tests':^78}|",
        bar,
    ]
    for name, mean, late, unit in rows:
        lines += [f"| {name:>31} | {mean:>12} | {late:>12} | {unit:>12} |", bar]
    lines += ["", f"|{'Network Tests running with Congestion Tests':^78}|", bar]
    for name, mean, late, unit in rows[:2]:
        worse = mean if name == "Name" else "9.7"
        lines += [f"| {name:>31} | {worse:>12} | {late:>12} | {unit:>12} |", bar]
    return "\n".join(lines) + "\n"
