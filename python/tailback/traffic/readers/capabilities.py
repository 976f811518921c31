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

    def lacks(self) -> tuple[str, ...]:
        """What no trace of this format records, in words for a diagnosis.

        A field says so that begins with "no" or is about totals only.
        """
        return tuple(
            word
            for word, text in zip(LACKING, self, strict=True)
            if text == "no" or text.startswith(("no,", "no;", "totals"))
        )


ORDER = "order of messages"
"""What profiles lack besides all times."""

LACKING = ("times of calls", ORDER, "completion of non-blocking calls", "call sites", "computation")
"""Words for what is missing, in the order of the fields; of sources, profiles have totals."""
