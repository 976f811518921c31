"""Tables of a run: their schema, reading, writing and checks that they fit together."""
