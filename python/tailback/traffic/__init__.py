"""What the ranks of an application do: patterns, collectives and readers of real traces."""
