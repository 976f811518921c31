"""Scenario files: their keys, ranges and reference page."""
