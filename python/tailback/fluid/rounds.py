"""Simulation without rate control: switches serve their inputs round-robin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tailback import _core
from tailback.fabric.core_errors import translate_core_error
from tailback.fluid.paths import FlowPaths


def rounds_to_completion(
    n_links: int, paths: FlowPaths, cells: int, buffer: int = 8, *, assigned: bool = False
) -> NDArray[np.uint64]:
    """Rounds until the last of ``cells`` cells of each flow has arrived.

    In a round each link moves one cell, if the buffer at its far end has room. Switches have
    virtual output queues and serve their inputs in turn; a node serves its flows in turn. All flows
    are equal and start at once; divide by ``cells`` to compare with ``W``.

    Args:
        n_links: Number of links L.
        paths: Single paths of F flows.
        cells: Cells of each flow.
        buffer: Cells that fit at the far end of each link.
        assigned: Inject a cell of flow f every ``W_f`` rounds at most, as the assignment says.

    Returns:
        Rounds, shape (F,).

    Raises:
        ScenarioError: A number that is not positive, or a link that does not exist.
    """
    with translate_core_error("the fluid model"):
        return np.asarray(_core.fluid_rounds(n_links, paths.columns, cells, buffer, assigned))
