"""Fabrics: the model, the builders, and the readers of real ones."""

from tailback.fabric.model import Fabric, in_port_order

__all__ = [
    "Fabric",
    "in_port_order",
]
