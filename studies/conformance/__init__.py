"""The published simulator's own traffic, run by our engine: how nearly they agree."""
