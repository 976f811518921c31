"""What the benchmark of the recorder computes from times of steps."""

from __future__ import annotations

import numpy as np
import record_halo


def test_steps_of_a_pair_are_compared() -> None:
    """Two rows of four columns: processor and elapsed time, recorded and not."""
    times = np.array([[1.01, 2.0, 1.0, 2.0], [3.02, 4.4, 3.0, 4.0], [2.02, 4.0, 2.0, 4.0]])
    cpu, elapsed = record_halo.added(times, 0), record_halo.added(times, 1)
    # In per cent of the median of the steps that are not recorded.
    assert cpu["median"] == 1.0 and cpu["mean"] == 0.833
    assert elapsed["median"] == 0.0
    assert record_halo.interval_of_median(np.full(9, 0.2)) == [0.2, 0.2]
