"""What the benchmark of the recorder computes from CPU times."""

from __future__ import annotations

import numpy as np
import record
import record_halo


def test_the_added_time_is_of_consecutive_runs() -> None:
    runs = {
        "plain": [[2.0, 1.0, 0.1], [4.0, 2.0, 0.2], [2.0, 1.0, 0.1]],
        "record": [[2.2, 1.01, 0.101], [4.2, 2.02, 0.202], [2.2, 1.01, 0.101]],
        "failed": [[2.0, 1.0, 0.1]],
    }
    out = record.compared(runs, ranks=2, steps=5)
    assert out["cpu_ms_a_step_and_rank"] == 100.0
    threads = out["added_percent_of_mpi_threads"]
    assert threads.keys() == {"record"}
    assert threads["record"]["median"] == threads["record"]["fastest"] == 1.0
    assert out["added_us_of_an_exchange"]["record"]["median"] == 100.0
    assert out["added_percent_of_ranks"]["record"]["pairs"] == [10.0, 5.0, 10.0]


def test_the_medians_interval_holds_it_and_narrows() -> None:
    values = [float(number % 10) for number in range(20)]
    low, high = record.interval_of_median(values)
    assert low <= 4.5 <= high
    more = record.interval_of_median(values * 20)
    assert more[1] - more[0] < high - low


def test_steps_of_a_pair_are_compared() -> None:
    """Two rows of four columns: processor and elapsed time, recorded and not."""
    times = np.array([[1.01, 2.0, 1.0, 2.0], [3.02, 4.4, 3.0, 4.0], [2.02, 4.0, 2.0, 4.0]])
    cpu, elapsed = record_halo.added(times, 0), record_halo.added(times, 1)
    # In per cent of the median of the steps that are not recorded.
    assert cpu["median"] == 1.0 and cpu["mean"] == 0.833
    assert elapsed["median"] == 0.0
    assert record_halo.interval_of_median(np.full(9, 0.2)) == [0.2, 0.2]
