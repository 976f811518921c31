"""Two measurement studies of production networks, reproduced by simulation."""
