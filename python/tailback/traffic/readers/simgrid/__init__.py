"""Time-independent traces of SimGrid."""
