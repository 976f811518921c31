"""What the two measurement studies computed from port counters, and the figures they drew."""
