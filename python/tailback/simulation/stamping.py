"""Which switches put samples into packets, if not all do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tailback.errors import ScenarioError, nearest
from tailback.fabric.model import Fabric


def stamping_mask(fabric: Fabric, stamping: str | list[str]) -> NDArray[np.bool_]:
    """Whether the switch at the head of each link puts samples into packets, shape (L,).

    Injection links count as stamped only if all switches stamp.

    Args:
        fabric: The fabric.
        stamping: ``"all"``, ``"leaf"`` for the switches that have nodes, or names of switches.

    Raises:
        ScenarioError: A named switch does not exist.
    """
    if stamping == "all":
        return np.ones(fabric.n_links, np.bool_)
    acts = np.zeros(fabric.n_nodes + fabric.n_switches, np.bool_)
    if stamping == "leaf":
        acts[fabric.n_nodes + fabric.node_switch.astype(np.int64)] = True
    else:
        number = {name: index for index, name in enumerate(fabric.switch_name)}
        for name in stamping:
            if name not in number:
                raise ScenarioError(
                    f"no switch {name!r} in the fabric",
                    place="[telemetry] stamping",
                    remedy=nearest(name, number),
                )
            acts[fabric.n_nodes + number[name]] = True
    return np.asarray(acts[fabric.link_src], np.bool_)


def stamping_links(fabric: Fabric, stamping: str | list[str]) -> tuple[tuple[bool, ...], list[str]]:
    """The mask in the engine's form, empty if all links are stamped, and a note on unstamped links.

    Raises:
        ScenarioError: As :func:`stamping_mask`.
    """
    mask = stamping_mask(fabric, stamping)
    if mask.all():
        return (), []
    inner = fabric.link_src >= fabric.n_nodes
    silent = int((inner & ~mask).sum())
    note = (
        f"packets get no samples at {silent} of {int(inner.sum())} links, whose switches do not "
        "stamp: there are no estimates of these links"
    )
    return tuple(mask.tolist()), [note] if silent else []
