"""What benchmarks share with studies: benchmarks are run by their path, so it is not on theirs."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from measuring import cpu_seconds, machine, processor, put

__all__ = ["cpu_seconds", "machine", "processor", "put"]
