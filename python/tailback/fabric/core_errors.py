"""Translates errors of the Rust core to errors with a place and a remedy.

The core has one exception per kind of error; nothing here depends on its wording.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tailback import _core
from tailback.errors import FabricError, ScenarioError, TraceError
from tailback.fabric.model import Fabric


class UnroutableVerticesError(FabricError):
    """No path between two vertices whose names are not known yet."""

    ends: tuple[str, int, int] = ("node", 0, 0)


@contextmanager
def translate_core_error(
    place: str,
    remedy: str = "correct the value the message names",
    *,
    fabric: Fabric | None = None,
    file: Path | None = None,
    forwarding: Path | None = None,
) -> Iterator[None]:
    """Translate an exception of the core to a TailbackError.

    Args:
        place: Place of the error if a value is out of range.
        remedy: Remedy for such a value.
        fabric: Names the nodes and switches that the core knows by number.
        file: File that the fabric was read from.
        forwarding: File or folder that the routes were read from.
    """
    try:
        yield
    except _core.UnconnectedError as error:
        raise _unconnected(str(error), error.ends, fabric, file, forwarding) from None
    except UnroutableVerticesError as error:
        raise _unconnected(error.message, error.ends, fabric, file, forwarding) from None
    except _core.DeadlockError as error:
        raise FabricError(
            str(error), file=file,
            remedy="choose routes that use lanes for this topology: "
                    "see docs/reference/topologies.md",
        ) from None  # fmt: skip
    except _core.BadProgramError as error:
        raise TraceError(
            str(error), remedy="the traffic is not complete: record it again, or raise "
            "engine.eager if the program relies on buffered sends",
        ) from None  # fmt: skip
    except ValueError as error:
        raise ScenarioError(str(error), place=place, remedy=remedy) from None
    except OverflowError as error:
        raise ScenarioError(
            f"a number is out of range: {error}", place=place,
            remedy="counts, times and sizes are not negative",
        ) from None  # fmt: skip


def _unconnected(
    text: str,
    ends: tuple[str, int, int],
    fabric: Fabric | None,
    file: Path | None,
    forwarding: Path | None,
) -> FabricError:
    """The error of two vertices without a path, by name where ``fabric`` is known."""
    why = "the fabric is not connected"
    remedy = (
        "the job's hosts lie in parts of the fabric without a path between them; choose hosts of "
        "one part or check the cables"
    )
    if forwarding is not None:
        why = "the forwarding tables do not lead there"
        remedy = (
            "read the tables of all switches again, choose other hosts, or leave forwarding out "
            "for up/down routes"
        )
    if fabric is None:
        unnamed = UnroutableVerticesError(text, file=forwarding or file, remedy=remedy)
        unnamed.ends = ends
        return unnamed
    kind, *numbers = ends
    names = fabric.node_name if kind == "node" else fabric.switch_name
    one, other = (names[number] for number in numbers)
    text = f"no path from {kind} {one!r} to {kind} {other!r}: {why}"
    return FabricError(text, file=forwarding or file, remedy=remedy)
