"""Translates errors of the Rust core to errors with a place and a remedy.

The core has an exception for each kind of error; nothing here depends on its wording.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tailback import _core
from tailback.errors import FabricError, ScenarioError, TailbackError, TraceError
from tailback.fabric.model import Fabric


class UnroutableVerticesError(FabricError):
    """No path between two switches or nodes whose names are not known yet."""

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
    """Raise a TailbackError in place of an exception of the core.

    Args:
        place: Where a wrong value comes from, unless the core names the key itself.
        remedy: What to do about such a value, unless the core knows it.
        fabric: Names the nodes, switches and links that the core knows by number.
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
            core_message(error, fabric),
            file=file,
            remedy="choose routes that use lanes for this topology: "
            "see docs/reference/topologies.md",
        ) from None
    except _core.EngineInputError as error:
        raise _engine_input(error, place, fabric, file) from None
    except _core.BadFabricError as error:
        raise FabricError(
            core_message(error, fabric), file=file, remedy="correct the cables of the fabric"
        ) from None
    except _core.BadProgramError as error:
        raise TraceError(
            str(error),
            remedy="the traffic is not complete: record it again, or raise "
            "engine.eager if the program relies on buffered sends",
        ) from None
    except ValueError as error:
        raise ScenarioError(str(error), place=place, remedy=remedy) from None
    except OverflowError as error:
        raise ScenarioError(
            f"a number is out of range: {error}",
            place=place,
            remedy="counts, times and sizes must be 0 or more",
        ) from None


def _engine_input(
    error: _core.EngineInputError, place: str, fabric: Fabric | None, file: Path | None
) -> TailbackError:
    """The error of a value that the engine refuses: of a link, or of the scenario."""
    message, remedy = error.message, error.remedy
    if error.link is None:
        return ScenarioError(message, place=error.place or place, remedy=remedy)
    if fabric is not None:
        message = message.replace(f"link {error.link}", fabric.link_name(error.link), 1)
    return FabricError(message, file=file, remedy=remedy)


def core_message(error: ValueError, fabric: Fabric | None) -> str:
    """The message of an exception of the core, with the names of nodes, switches and links.

    Args:
        error: The exception.
        fabric: Its names; None to keep the numbers.
    """
    parts: list[str | tuple[str, int]] = getattr(error, "parts", [])
    if fabric is None or not parts:
        return str(error)
    text = ""
    for part in parts:
        match part:
            case ("link", int(number)):
                text += fabric.link_name(number)
            case ("node", int(number)):
                text += repr(fabric.node_name[number])
            case ("switch", int(number)):
                text += repr(fabric.switch_name[number])
            case _:
                text += str(part)
    return text


def _unconnected(
    text: str,
    ends: tuple[str, int, int],
    fabric: Fabric | None,
    file: Path | None,
    forwarding: Path | None,
) -> FabricError:
    """The error for two switches or nodes without a path, by name if ``fabric`` is known."""
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
    first, other = (names[number] for number in numbers)
    text = f"no path from {kind} {first!r} to {kind} {other!r}: {why}"
    return FabricError(text, file=forwarding or file, remedy=remedy)
