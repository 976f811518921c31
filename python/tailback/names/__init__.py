"""Names of hosts, ports and links: their syntax, and how they are shown."""
