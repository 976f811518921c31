"""What a trace format records: the columns of ``tailback list reader``."""

from __future__ import annotations

from typing import NamedTuple


class Capabilities(NamedTuple):
    """What a trace of this format records; a few words each.

    Attributes:
        times: Whether calls have times, so that a diagnosis can compare with the measured run.
        sources: Whether every receive names its sender.
        completion: Whether the completion of non-blocking calls is recorded.
        call_site: Whether the calling function is recorded.
        compute: Source of the computation times between calls.
    """

    times: str
    sources: str
    completion: str
    call_site: str
    compute: str
