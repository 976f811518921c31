"""Fabrics: the model, the builders, and the readers of real ones."""
