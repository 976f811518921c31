"""Two measurement studies of production networks, seen by simulation."""
