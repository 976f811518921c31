"""The evidence in a folder that ``tailback lab run`` wrote."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_TRACE, _LINKS, _RANKS = "trace", "links.csv", "rank_host.csv"


@dataclass(frozen=True)
class LabCase:
    """Files of a run in the lab that a diagnosis may read.

    Attributes:
        trace: The trace.
        fabric: Links with their nominal rates.
        rankfile: Host of each rank.
        counters: Port counters, if any.
        samples: Counts of the samples in packets; None without telemetry.
    """

    trace: Path
    fabric: Path
    rankfile: Path
    counters: tuple[Path, ...]
    samples: Path | None

    @classmethod
    def of(cls, folder: object) -> LabCase | None:
        """The case in a folder; None if it is no folder of ``tailback lab run``."""
        if not isinstance(folder, str | Path):
            return None
        case = Path(folder)
        if not all((case / name).exists() for name in (_TRACE, _LINKS, _RANKS)):
            return None
        counters = [case / name for name in ("counters.csv.gz", "counters.csv")]
        samples = [case / name for name in ("samples.csv", "samples.csv.gz")]
        return cls(
            case / _TRACE,
            case / _LINKS,
            case / _RANKS,
            tuple(file for file in counters if file.is_file())[:1],
            next((file for file in samples if file.is_file()), None),
        )
