"""Files of port counters."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import polars as pl

from tailback.schema import TABLES


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
        summary={}, skip_notes=[],
        tables={
            "windows": table("windows", [
                {"window": 0, "start_ps": 0, "end_ps": 1_000_000},
                {"window": 1, "start_ps": 1_000_000, "end_ps": 1_500_000},
            ]),
            "links": table("links", [
                {"link": n, "src_name": "leaf", "src_port": n + 1, "direction": "up",
                 "rate_gbps": 100.0}
                for n in (0, 1)
            ]),
            "truth": table("truth", [
                {"window": 1, "link": 0, "packets": 2, "bytes": 900, "busy_ps": 400_000,
                 "stall_ps": 100_000},
            ]),
        }
    )  # fmt: skip
