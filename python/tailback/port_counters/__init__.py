"""Port counters: collect them, read them, analyse them."""
