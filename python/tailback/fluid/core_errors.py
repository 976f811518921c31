"""What the Rust core complains of, as an error a user can act on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tailback.errors import FabricError, ScenarioError, TailbackError, TraceError


@contextmanager
def explained() -> Iterator[None]:
    """Turn a ValueError of the core into the TailbackError it stands for."""
    try:
        yield
    except ValueError as error:
        raise _explain(str(error)) from None
    except OverflowError as error:
        raise ScenarioError(
            f"a number is out of range: {error}", place="the fluid model",
            remedy="counts, times and sizes are not negative",
        ) from None  # fmt: skip


def _explain(text: str) -> TailbackError:
    if "not connected" in text:
        return FabricError(text, remedy="choose hosts of one part, or check the cables")
    if "blocked for ever" in text or " sends " in text or text.startswith("rank "):
        return TraceError(
            text, remedy="the traffic is not complete: record it again, or raise the eager limit "
            "if the program relies on buffered sends",
        )  # fmt: skip
    return ScenarioError(
        text, place="the fluid model", remedy="correct the value the message names"
    )
