"""The workflow behind the public API: what ``import tailback`` and the command line both call."""
