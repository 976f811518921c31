"""The published simulator's traffic, run by our engine: how closely both agree."""
