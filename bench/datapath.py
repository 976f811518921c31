r"""Samples of real packets, compared with what the kernel counted: ``python bench/datapath.py``.

    python bench/datapath.py --runs 25 --keep cases --json

Needs root and what ``tailback lab up --telemetry`` needs. Brings up the fabric of ``examples/lab``
for each scheme, runs its halo exchange under Open MPI with a fault drawn from the seed (a slow
cable, other traffic, one spine, a bad placement, or none), and compares estimates of each link with
the truth: packets with the counters of the interface, congested packets with what the port itself
counted.

links               links with traffic, over all runs
coverage            share of them whose 95 % interval has the packets that the interface sent
z_mean, z_rms       of (estimate - truth) / stated standard deviation
congested_links     links of which 1 to 99 % of packets met congestion, over all runs
congested_coverage  share of all links with traffic whose interval has the congested fraction;
                    congested_between is the same of those links only
congested_bias      mean of estimated minus true fraction of those links
queue_correlation   of the congested fraction that a port counted with the share of its packets that
                    were sent when a reading of its queue, ten a second by netlink, found more bytes
                    than the threshold: the congestion bit comes from the real queue
idle_coverage       links without traffic whose interval has the few packets that they sent
lost                packets that queues dropped, of all that were sent: their samples are missing
ns_per_packet_hop   the program of a port, as the kernel measured it during the runs, in caches that
                    everything else uses too; ns_receiver that of a receiver
ns_warm             the program of a port on one packet over and over; ns_receiver_warm that of a
                    receiver

``--throughput PAIRS`` instead sends with iperf3 from a host to another one of its leaf, through
ports that nothing limits but the processor, in turn with and without sampling.

Cases that ``--keep`` finds in its folder are not run again. Where many runs share a scheme they are
summed up by scheme, too.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import platform
import random
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from _shared import cpu_seconds, machine, put

from tailback import TailbackError
from tailback.lab import fabric, spec, system, telemetry
from tailback.lab.datapath.counts import LinkSums, fraction_interval
from tailback.lab.datapath.kernel import dry_run, opened, run_time, run_times
from tailback.lab.datapath.sampling import FIRST_INDEX, INITIAL_TTL, PacketScheme
from tailback.lab.plan import Plan

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "lab"
SPECIFICATION = "leaf-spine.toml"
PAGE = ROOT / "docs" / "measurements" / "accuracy.md"
SCHEMES = (
    (4, "coordinated:4"),
    (4, "coordinated:5"),
    (4, "compact:2"),
    (4, "single-bit:1"),
    (6, "coordinated:4"),
    (6, "full"),
)
"""Version of IP and scheme; whole links fit the flow label only."""

HALOS = ((60, 40_000, 15), (40, 60_000, 15), (80, 25_000, 15))
"""Iterations, bytes a message and milliseconds of computation; drawn with the seed."""

IDLE = 100
"""Packets below which a link counts as idle: only a scan for neighbours and the start cross it."""


def causes(seed: int) -> list[str]:
    """Faults of a run: causes that fill queues, but seldom until they drop packets."""
    dice = random.Random(seed)
    cable = f"slow-cable:l{dice.randrange(4)}-s{dice.randrange(2)}={dice.randint(25, 60)}%"
    host = dice.choice(["h00", "h10", "h20", "h30"])
    other = f"slow-cable:{host}-l{host[1]}={dice.randint(25, 60)}%"
    return dice.choice(
        [
            [],
            [cable],
            [other],
            [cable, other],
            ["placement"],
            [f"one-spine:s{dice.randrange(2)}"],
            ["bursts:h02-h22,h32-h12,0.3s/0.6s"],
        ]
    )


@contextmanager
def lab(ip: int, scheme: str) -> Iterator[Plan]:
    """A lab whose ports sample packets; removed at the end."""
    base = spec.load(EXAMPLE / SPECIFICATION)
    wanted = base.model_copy(
        update={"name": f"bench{os.getpid()}", "fabric": base.fabric.model_copy(update={"ip": ip})}
    )
    plan = fabric.bring_up(wanted, PacketScheme.parse(scheme))
    try:
        yield plan
    finally:
        fabric.take_down(wanted.name)


def warm(plan: Plan) -> list[int]:
    """Nanoseconds of the program of a port, and of a receiver, on one packet a million times."""
    number = {(link.source, link.target): link.number for link in plan.links}
    nanoseconds = []
    for node, to, way, hop in (("l0", "s0", "egress", 1), ("h10", "l1", "ingress", 3)):
        context = bytearray(192)
        # Field ifindex of struct __sk_buff.
        struct.pack_into("=I", context, 40, FIRST_INDEX + number[node, to])
        program = fabric.folder_of(plan) / telemetry.FOLDER / "programs" / f"tailback_{way}"
        with system.inside(plan.namespace(node)), opened(program) as descriptor:
            packet = _packet(plan.address("h00"), plan.address("h10"), hop)
            nanoseconds.append(dry_run(descriptor, packet, bytes(context), 1_000_000)[1])
    return nanoseconds


def _packet(source: str, target: str, hop: int) -> bytes:
    """A full segment of TCP with a sample of one hop."""
    ends = b"".join(ipaddress.ip_address(end).packed for end in (source, target))
    segment = struct.pack("!HHIIBBHHH", 40000, 1024, 12345, 678, 0x50, 0x10, 500, 0, 0)
    segment += bytes(1440)
    if ":" in source:
        head = struct.pack("!IHBB", 6 << 28 | 0x41, len(segment), 6, INITIAL_TTL - hop)
        return bytes(12) + b"\x86\xdd" + head + ends + segment
    head = struct.pack(
        "!BBHHHBBH", 0x45, 0, 20 + len(segment), 0x41, 0x4000, INITIAL_TTL - hop, 6, 0
    )
    return bytes(12) + b"\x08\x00" + head + ends + segment


def run(ip: int, scheme: str, seeds: list[int], folder: Path) -> None:
    """Run the cases of some seeds; writes how long the programs took beside each."""
    halo = folder / "halo"
    subprocess.run(["mpicc", "-O2", "-o", halo, EXAMPLE / "halo.c"], check=True)
    with lab(ip, scheme) as plan, ExitStack() as measured:
        # Before the kernel starts to measure, which costs as much as the program itself.
        repeated = warm(plan)
        measured.enter_context(run_times())
        programs = fabric.folder_of(plan) / telemetry.FOLDER / "programs"
        names = ("tailback_egress", "tailback_ingress")
        for seed in seeds:
            before = [run_time(programs / name) for name in names]
            out = folder / name_of(ip, scheme, seed)
            chosen = [word for cause in causes(seed) for word in ("--cause", cause)]
            halos = random.Random(f"halo {seed}").choice(HALOS)
            done = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "tailback",
                    "lab",
                    "run",
                    "--quiet",
                    "--force",
                    "--lab",
                    plan.spec.name,
                    "--out",
                    out,
                    *chosen,
                    "--",
                    halo,
                    "4",
                    "4",
                    *map(str, halos),
                ],
                capture_output=True,
                text=True,
                timeout=600,
            )
            if done.returncode != 0:
                raise SystemExit(f"the run of seed {seed} failed:\n{done.stderr}")
            spent = [
                [
                    *(now - then for now, then in zip(run_time(programs / name), old, strict=True)),
                    repeated[number],
                ]
                for number, (name, old) in enumerate(zip(names, before, strict=True))
            ]
            (out / "truth" / "programs.json").write_text(json.dumps(spent))
            print(
                f"IPv{ip} {scheme} {seed}: {', '.join(causes(seed)) or 'nothing wrong'}",
                file=sys.stderr,
                flush=True,
            )


def name_of(ip: int, scheme: str, seed: int) -> str:
    """Folder of a case."""
    return f"case-{ip}-{scheme.replace(':', '-')}-{seed}"


def estimates(case: Path, links: int) -> tuple[LinkSums, LinkSums]:
    """Packets and congested packets of every link, as they stand at the end of a case."""
    rows = pl.read_csv(case / telemetry.SAMPLES, infer_schema_length=None)
    last = rows.sort("time_utc").group_by("rank", "call", "link").last()
    sums = last.group_by("link").agg(pl.exclude("time_utc", "rank", "call").sum())
    number = sums["link"].to_numpy()

    def column(name: str) -> np.ndarray:
        out = np.zeros(links + 1)
        out[number] = sums[name].to_numpy()
        return out

    return (
        LinkSums(
            *(
                column(n)
                for n in (
                    "samples",
                    "packets",
                    "packets_variance",
                    "packets_idle_variance",
                    "bytes",
                )
            )
        ),
        LinkSums(
            *(
                column(n)
                for n in (
                    "congested_samples",
                    "congested",
                    "congested_variance",
                    "congested_idle_variance",
                )
            ),
            np.zeros(links + 1),
        ),
    )


def links_of(case: Path, ip: int, scheme: str, seed: int) -> pl.DataFrame:
    """A row a link: truth, estimate, and whether the intervals have the truth."""
    truth = pl.read_csv(case / "truth" / "links.csv").sort("link")
    read = pl.read_csv(case / "counters.csv.gz").sort("time_utc")
    sent_since = pl.col("tx_packets").diff().over("link")
    full = pl.col("qdisc_backlog") > spec.load(EXAMPLE / SPECIFICATION).fabric.congested_bytes
    moved = (
        read.with_columns(step=sent_since.fill_null(0), full=full)
        .group_by("link")
        .agg(
            pl.col("step").sum().alias("sent"),
            (pl.col("qdisc_drops").last() - pl.col("qdisc_drops").first()).alias("dropped"),
            ((pl.col("step") * pl.col("full")).sum() / pl.col("step").sum()).alias("queued"),
        )
    )
    truth = truth.join(moved, on="link").sort("link")
    packets, met = estimates(case, truth.height)
    counts = packets.counts()
    low, high = (ends[1:] for ends in counts.interval())
    one_reservoir = PacketScheme.parse(scheme).one_reservoir
    few, many = (ends[1:] for ends in fraction_interval(packets, met, one_reservoir))
    n, sent = truth["packets"].to_numpy(), truth["sent"].to_numpy()
    true = truth["congested"].to_numpy() / np.maximum(n, 1)
    # The deviation that the truth predicts: that of an idle link, and what packets add.
    sd = np.sqrt(counts.null_variance[1:] + counts.slope[1:] * sent)
    w, m = packets.packets[1:], met.packets[1:]
    return truth.with_columns(
        ip=pl.lit(ip),
        scheme=pl.lit(scheme),
        seed=pl.lit(seed),
        estimate=pl.Series(w),
        z=pl.Series((w - sent) / np.maximum(sd, 1e-9)),
        covered=pl.Series((low <= sent) & (sent <= high)),
        fraction=pl.Series(true),
        error=pl.Series(m / np.maximum(w, 1.0) - true),
        fraction_covered=pl.Series((few <= true) & (true <= many)),
    )


def summary(rows: pl.DataFrame, spent: np.ndarray) -> dict[str, Any]:
    """Figures of some cases.

    Args:
        rows: Of :func:`links_of`.
        spent: Sums over the cases: nanoseconds, runs, and nanoseconds of a warm run; of the program
            of a port and of a receiver, shape (2, 3).
    """
    cases = rows.select("ip", "scheme", "seed").n_unique()
    used = rows.filter(pl.col("sent") >= IDLE)
    idle = rows.filter(pl.col("sent") < IDLE)
    between = used.filter(pl.col("fraction").is_between(0.01, 0.99))

    def mean(values: pl.Series, digits: int) -> float | None:
        return round(float(values.mean()), digits) if len(values) else None  # type: ignore[arg-type]

    return {
        "runs": cases,
        "links": used.height,
        "packet_hops": int(rows["packets"].sum()),
        "coverage": mean(used["covered"], 4),
        "z_mean": mean(used["z"], 3),
        "z_rms": round(float((used["z"] ** 2).mean()) ** 0.5, 3),  # type: ignore[arg-type]
        "congested_links": between.height,
        "congested_coverage": mean(used["fraction_covered"], 4),
        "congested_between": mean(between["fraction_covered"], 4),
        "congested_bias": mean(between["error"], 5),
        "queue_correlation": round(float(np.corrcoef(used["queued"], used["fraction"])[0, 1]), 3),
        "idle_links": idle.height,
        "idle_coverage": mean(idle["covered"], 4),
        "lost": round(float(rows["dropped"].sum() / rows["sent"].sum()), 6),
        "super_packets": int(rows["super_packets"].sum()),
        "no_room": int(rows["lost"].sum()),
        "ns_per_packet_hop": round(float(spent[0, 0] / max(spent[0, 1], 1)), 1),
        "ns_receiver": round(float(spent[1, 0] / max(spent[1, 1], 1)), 1),
        "ns_warm": round(float(spent[0, 2]) / cases, 1),
        "ns_receiver_warm": round(float(spent[1, 2]) / cases, 1),
    }


def bench(seeds: range, folder: Path, schemes: list[tuple[int, str]]) -> dict[str, Any]:
    """Figures of all cases, and of each scheme; runs what is not in the folder."""
    tables, times = [], []
    for ip, scheme in schemes:
        missing = [
            seed
            for seed in seeds
            if not (folder / name_of(ip, scheme, seed) / "truth" / "programs.json").is_file()
        ]
        if missing:
            run(ip, scheme, missing, folder)
        for seed in seeds:
            case = folder / name_of(ip, scheme, seed)
            tables.append(links_of(case, ip, scheme, seed))
            times.append(np.array(json.loads((case / "truth" / "programs.json").read_text())))
    every = pl.concat(tables)
    by_scheme = []
    for number, (ip, scheme) in enumerate(schemes):
        part = every.filter((pl.col("ip") == ip) & (pl.col("scheme") == scheme))
        spent = np.sum(times[number * len(seeds) : (number + 1) * len(seeds)], axis=0)
        by_scheme.append({"ip": ip, "scheme": scheme, **summary(part, spent)})
    return {**summary(every, np.sum(times, axis=0)), "machine": machine(), "schemes": by_scheme}


def table(figures: dict[str, Any]) -> str:
    """The figures as the page has them."""

    def percent(share: float | None) -> str:
        return "–" if share is None else f"{100 * share:.1f} %"

    lines = [
        "| | links | packets in their 95 % interval | z, mean | z, rms | congested fraction in its "
        "interval | of links between 1 and 99 % | error there, mean |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rows = [*figures["schemes"], {"scheme": "all", "ip": None, **figures}]
    for row in rows:
        name = "**all**" if row["ip"] is None else f"`{row['scheme']}`, IPv{row['ip']}"
        lines.append(
            f"| {name} | {row['links']} | {percent(row['coverage'])} | {row['z_mean']:+.3f} | "
            f"{row['z_rms']:.3f} | {percent(row['congested_coverage'])} | "
            f"{percent(row['congested_between'])} of {row['congested_links']} | "
            f"{row['congested_bias'] or 0:+.4f} |"
        )
    head = "| ns a packet | port, in place | port, warm | receiver, in place | receiver, warm |"
    lines += ["", head, "|---|---|---|---|---|"]
    lines += [
        f"| `{row['scheme']}`, IPv{row['ip']} | {row['ns_per_packet_hop']:.0f} | "
        f"{row['ns_warm']:.0f} | {row['ns_receiver']:.0f} | {row['ns_receiver_warm']:.0f} |"
        for row in figures["schemes"]
    ]
    lines += [
        "",
        f"{figures['runs']} runs, {figures['packet_hops'] / 1e6:.1f} million packet-hops. Queues "
        f"dropped {100 * figures['lost']:.4f} % of packets. Of {figures['idle_links']} links with "
        f"fewer than {IDLE} packets, {percent(figures['idle_coverage'])} have them in their "
        f"intervals. {figures['super_packets']} segments were in super-packets, "
        f"{figures['no_room']} samples found no room. The congested fractions that ports counted "
        f"correlate with readings of their queues by {figures['queue_correlation']:.3f}. "
        f"{figures['machine']}, Linux {platform.release()}.",
    ]
    return "\n".join(lines)


@contextmanager
def two_hosts(name: str, scheme: str | None) -> Iterator[Plan]:
    """Two hosts of one leaf, on cables that are faster than any processor sends."""
    shape = {
        "leaves": 1,
        "spines": 1,
        "hosts_per_leaf": 2,
        "host_rate": "400 Gb/s",
        "spine_rate": "400 Gb/s",
        "queue": "8 MB",
        "burst": "4 MB",
    }
    lab = spec.parse({"name": name, "fabric": shape, "job": {"hosts": ["h00"]}})
    plan = fabric.bring_up(lab, None if scheme is None else PacketScheme.parse(scheme))
    try:
        fabric.settle(plan, {}, ["s0"])
        yield plan
    finally:
        fabric.take_down(name)


def stream(plan: Plan, seconds: int) -> tuple[float, float]:
    """Gb/s that iperf3 reaches from h00 to h01, and processor seconds of both ends per GB."""

    def command(host: str, *arguments: str) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{plan.namespace(host)}", "iperf3", *arguments]

    before = cpu_seconds()
    server = subprocess.Popen(
        command("h01", "-s"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        client = command("h00", "-c", plan.address("h01"), "-t", str(seconds), "--json")
        for _ in range(50):  # until the server listens
            ran = subprocess.run(client, capture_output=True, text=True, timeout=seconds + 20)
            ended = json.loads(ran.stdout).get("end", {})
            if "sum_received" in ended:
                break
            time.sleep(0.1)
    finally:
        server.terminate()
        server.wait()
    received = ended["sum_received"]
    return received["bits_per_second"] / 1e9, (cpu_seconds() - before) / (received["bytes"] / 1e9)


def throughput(pairs: int, scheme: str, seconds: int = 3) -> dict[str, Any]:
    """Throughput and processor time with sampling and without, by turns."""
    streams: dict[str, list[tuple[float, float]]] = {"without": [], "with": []}
    with two_hosts("tbplain", None) as plain, two_hosts("tbsampled", scheme) as sampled:
        for _ in range(pairs):
            streams["without"].append(stream(plain, seconds))
            streams["with"].append(stream(sampled, seconds))
        truth = telemetry.truth(sampled, fabric.folder_of(sampled))
    without, with_ = (np.array(streams[name]) for name in ("without", "with"))
    ratio = with_ / without
    return {
        "scheme": scheme,
        "pairs": pairs,
        "gbps_without": round(float(np.median(without[:, 0])), 2),
        "gbps_with": round(float(np.median(with_[:, 0])), 2),
        "throughput_ratio": round(float(np.median(ratio[:, 0])), 3),
        "throughput_ratio_range": np.round(np.quantile(ratio[:, 0], [0.25, 0.75]), 3).tolist(),
        "cpu_ratio": round(float(np.median(ratio[:, 1])), 3),
        "cpu_ratio_range": np.round(np.quantile(ratio[:, 1], [0.25, 0.75]), 3).tolist(),
        "packets_sampled": int(truth.packets.sum()),
    }


def throughput_table(rows: list[dict[str, Any]]) -> str:
    """The figures as the page has them."""
    lines = [
        "| scheme | Gb/s without | with | throughput, with / without | processor time a byte, "
        "with / without |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        (slow, fast), (less, more) = row["throughput_ratio_range"], row["cpu_ratio_range"]
        lines.append(
            f"| `{row['scheme']}` | {row['gbps_without']} | {row['gbps_with']} | "
            f"{row['throughput_ratio']} ({slow}–{fast}) | {row['cpu_ratio']} ({less}–{more}) |"
        )
    return "\n".join(
        [*lines, "", f"Medians of {rows[0]['pairs']} pairs, with quartiles. {machine()}."]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Samples of real packets against the kernel.")
    parser.add_argument("--runs", type=int, default=5, help="runs of each scheme")
    parser.add_argument("--first", type=int, default=1, help="first seed")
    parser.add_argument("--only", help="one scheme, like coordinated:4")
    parser.add_argument("--keep", type=Path, help="folder of the cases")
    parser.add_argument("--throughput", type=int, metavar="PAIRS", help="measure throughput only")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--write", action="store_true", help=f"update docs/measurements/{PAGE.name}"
    )
    args = parser.parse_args()
    chosen = [scheme for scheme in SCHEMES if args.only in (None, scheme[1])]
    try:
        system.require(system.FABRIC_TOOLS | system.JOB_TOOLS | telemetry.TOOLS)
        if args.throughput:
            system.require({"iperf3": "iperf3"})
            rows = [throughput(args.throughput, scheme) for ip, scheme in chosen if ip == 4]
            if args.write:
                put(PAGE, {"throughput": throughput_table(rows)})
            print(json.dumps(rows, indent=2) if args.json else throughput_table(rows))
            return 0
        with tempfile.TemporaryDirectory(prefix="tailback-bench-") as name:
            folder = args.keep or Path(name)
            folder.mkdir(parents=True, exist_ok=True)
            figures = bench(range(args.first, args.first + args.runs), folder, chosen)
    except TailbackError as error:
        print(error, file=sys.stderr)
        return 2
    if args.write:
        put(PAGE, {"estimates": table(figures)})
    if args.json:
        print(json.dumps(figures, indent=2))
    else:
        for row in (*figures["schemes"], {"ip": "4 and 6", "scheme": "all", **figures}):
            print(
                "IPv{ip}, {scheme}: {links} links, coverage {coverage}, z {z_mean} rms {z_rms}, "
                "congested fraction {congested_coverage}".format(**row)
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
