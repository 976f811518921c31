"""Findings about ports and adapters that counters and events show by themselves."""
