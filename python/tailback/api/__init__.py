"""The workflow behind ``import tailback`` and the command line."""
