"""What a format of traces can say and what it cannot: the columns of ``tailback list reader``."""

from __future__ import annotations

from typing import NamedTuple


class Capabilities(NamedTuple):
    """What a program made from a trace of this format is based on; a few words each.

    Attributes:
        times: Whether calls have times, so that a diagnosis can say what was measured.
        sources: Whether every receive names its sender.
        completion: Whether it is known where a non-blocking call completes.
        call_site: Whether a call names the function that made it.
        compute: How long ranks compute between calls.
    """

    times: str
    sources: str
    completion: str
    call_site: str
    compute: str
