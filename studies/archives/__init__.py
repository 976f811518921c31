"""Synthetic archives of port counters of any size, for studies, benchmarks and tests."""
