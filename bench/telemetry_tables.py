"""Tables and pictures of `telemetry_accuracy`: errors by scheme, tier and number of packets."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator
from PIL import Image
from telemetry_trace import table as trace_table
from telemetry_traffic import network_name

EVEN = "spread evenly"
Result = dict[str, Any]
DPI, COLOURS = 100, 64

SHOWN = {
    # The compact scheme with one bit has the same counts, edge marking those of node marking, and
    # full INT no error.
    ("single_bit", 1): ("published and compact, 1 bit", "#000000", "o"),
    ("compact", 2): ("compact, 2 bits", "#777777", "s"),
    ("coordinated", 1): ("coordinated, 1 + 1 bit", "#c6dbef", "v"),
    ("coordinated", 2): ("coordinated, 1 + 2 bits", "#9ecae1", "1"),
    ("coordinated", 3): ("coordinated, 1 + 3 bits", "#6baed6", "2"),
    ("coordinated", 4): ("coordinated, 1 + 4 bits", "#4292c6", "^"),
    ("coordinated", 5): ("coordinated, 1 + 5 bits", "#08519c", "D"),
    ("coordinated", 8): ("coordinated, 1 + 8 bits", "#08306b", "P"),
    ("xor_digest", 5): ("XOR digest, 1 + 5 bits", "#41ab5d", "<"),
    ("node_marking", None): ("node or edge marking", "#fd8d3c", ">"),
    ("full n=1", None): ("full, n = 1", "#cb181d", "X"),
    ("full n=2", None): ("full, n = 2", "#67000d", "*"),
}


def label(row: Result) -> str:
    """A scheme with its hash bits."""
    bits = row["hash_bits"]
    return str(row["scheme"]) + (f", {bits}-bit hash" if bits else "")


def factor(value: float | None) -> str:
    """A ratio; an error of 0 needs no packets."""
    return "exact" if value is None else f"{value:.3g}×"


def title(result: Result) -> str:
    """The measured results."""
    what = f"{network_name(result['network'])}, {result['pattern']}, {result['packets']} packets"
    if result["tagged"] > 1:
        what += f", one in {result['tagged']} tagged"
    return f"{what}, {result['repeats']} runs, seed {result['seed']}:"


def error_table(result: Result) -> str:
    """Errors of every tier and packets relative to the published scheme."""
    rows = result["schemes"]
    tiers = list(rows[0]["relative_error"])
    inner = [tier for tier in tiers if tier != "host"]
    if result["network"] == "tapered":
        inner = ["core up", "core down"]
    extra = "" if result["tagged"] > 1 else f" {inner[0]}, conserved |"
    lines = [
        title(result),
        "",
        "| scheme | header bits | "
        + " | ".join(tiers)
        + " | fewer packets: "
        + " | ".join(inner)
        + " |"
        + extra,
        "|---|" + "---:|" * (1 + len(tiers) + len(inner) + bool(extra)),
    ]
    for row in rows:
        cells = [f"{row['relative_error'][tier]:.3g}" for tier in tiers]
        cells += [factor(row["packets_relative"][tier]) for tier in inner]
        if extra:
            conserved = row.get("packets_relative_conserved")
            cells.append("" if conserved is None else factor(conserved[inner[0]]))
        lines.append(f"| {label(row)} | {row['header_bits']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def likelihood_table(results: list[Result]) -> str:
    """Linear, conserved and most likely counts side by side."""
    lines = [
        "| network, traffic, packets | scheme | tier | linear | conserved | maximum likelihood | "
        "spread evenly | duality gap, nats | steps |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for result in results:
        even = result["schemes"][-1]["relative_error"]
        for row in result["schemes"]:
            likely = row.get("likelihood_error")
            if not likely:
                continue
            tier = "core up" if result["network"] == "tapered" else next(iter(likely))
            lines.append(
                f"| {result['network']}, {result['pattern']}, {result['packets']} | {label(row)} | "
                f"{tier} | {row['relative_error'][tier]:.3g} | {row['conserved_error'][tier]:.3g} |"
                f" {likely[tier]:.3g} | {even[tier]:.3g} | {row['likelihood_gap_nats']:.1g} | "
                f"{row['likelihood_steps']} |"
            )
    return "\n".join(lines)


def page(results: list[Result], traces: list[Result]) -> str:
    """The part of the documentation that is measured."""
    most = max(result["packets"] for result in results)
    whole = [r for r in results if r["packets"] == most and r["tagged"] == 1]
    tagged = [r for r in results if r["tagged"] > 1]
    parts = [error_table(result) for result in whole]
    if tagged:
        parts += ["One packet in k tagged, counts multiplied by k:", *map(error_table, tagged)]
    parts += [
        "Non-negative decoding (root mean square error relative to the mean count):",
        likelihood_table(results),
        "Packets to trace a fixed path of five hops:",
        trace_table(traces),
    ]
    return "\n\n".join(parts)


def draw(results: list[Result], folder: Path) -> None:
    """Error against number of packets, a panel for each tier, a picture for each traffic."""
    folder.mkdir(parents=True, exist_ok=True)
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        if result["tagged"] == 1:
            groups.setdefault((result["network"], result["pattern"]), []).append(result)
    for (network, pattern), own in groups.items():
        own.sort(key=lambda result: int(result["packets"]))
        tiers = list(own[0]["schemes"][0]["relative_error"])
        fig, axes = plt.subplots(
            1,
            len(tiers),
            figsize=(2.9 * len(tiers) + 2.4, 3.7),
            sharey=True,
            squeeze=False,
            layout="constrained",
        )
        for panel, tier in zip(axes[0], tiers, strict=True):
            _panel(panel, tier, own, own, "packets", "packets")
        _finish(
            fig,
            axes[0][0],
            f"{network_name(network)}, {pattern} traffic",
            folder / f"accuracy-{network}-{pattern}.png",
        )
    _draw_tagged(results, folder)


def _draw_tagged(results: list[Result], folder: Path) -> None:
    tagged = [r for r in results if r["tagged"] > 1]
    if not tagged:
        return
    whole = [
        r
        for r in results
        if r["tagged"] == 1
        and all(r[key] == tagged[0][key] for key in ("network", "pattern", "packets"))
    ]
    own = sorted([*whole, *tagged], key=lambda result: int(result["tagged"]))
    tiers = list(own[0]["schemes"][0]["relative_error"])
    fig, axes = plt.subplots(
        1,
        len(tiers),
        figsize=(2.9 * len(tiers) + 2.4, 3.7),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for panel, tier in zip(axes[0], tiers, strict=True):
        _panel(panel, tier, own, tagged, "tagged", "one packet in k tagged: k")
    _finish(fig, axes[0][0], title(own[0]).split(", 2 runs")[0], folder / "accuracy-tagged.png")


def _panel(
    panel: Axes, tier: str, own: list[Result], needed: list[Result], key: str, name: str
) -> None:
    for (scheme, bits), (text, colour, marker) in SHOWN.items():
        points = []
        for result in own:
            for row in result["schemes"]:
                if (row["scheme"], row["hash_bits"]) == (scheme, bits):
                    points.append((result[key], row["relative_error"][tier]))
        if len(points) >= len(needed):
            panel.plot(
                *zip(*points, strict=True),
                color=colour,
                marker=marker,
                markersize=4,
                linewidth=1.2,
                label=text,
            )
    even = [(result[key], result["schemes"][-1]["relative_error"][tier]) for result in own]
    if any(error > 0 for _, error in even):
        panel.plot(
            *zip(*even, strict=True),
            color="#e7298a",
            linestyle="--",
            linewidth=2,
            label="spread evenly (no samples)",
        )
    else:
        panel.text(
            0.5,
            0.03,
            "spread evenly: exact",
            transform=panel.transAxes,
            ha="center",
            fontsize=8,
            color="#e7298a",
        )
    panel.set(xscale="log", yscale="log", title=tier, xlabel=name)
    at = sorted({int(result[key]) for result in own})
    panel.set_xticks(at, [f"{x:,}".replace(",000,000", "M").replace(",000", "k") for x in at])
    panel.xaxis.set_minor_locator(NullLocator())
    panel.grid(alpha=0.25)


def _finish(fig: plt.Figure, first: Axes, text: str, path: Path) -> None:
    first.set_ylabel("error of a link's count ÷ mean count")
    handles, labels = first.get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside right center", fontsize=8, frameon=False)
    fig.suptitle(text, fontsize=11)
    buffer = io.BytesIO()
    fig.savefig(buffer, dpi=DPI, format="png")
    plt.close(fig)
    image = Image.open(buffer).convert("RGB")
    image.quantize(COLOURS).save(path, optimize=True)
