"""What ``tailback diagnose`` says of section 4.4 as the published simulator runs it.

    python -m studies.conformance.verdict --write

The ring's packets alone are seen, as in Figure 4.16. Packets of 512 B are routed whole, which takes
a quarter of the time. The thesis concludes that another job causes the congestion into leaf 37.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from measuring import put
from studies.conformance.compare import README, WHOLE_PACKET
from studies.conformance.thesis_cases import HOT_LEAF, unobserved_background
from studies.taffet2019.reproduction import Row, state_agreement, table
from tailback import Diagnosis, diagnose
from tailback.units import percent

REMEDIES = ("routing",)
"""Adaptive routes are the other explanation of such congestion, so changed ones are tried."""


def diagnosed(remedies: Sequence[str] = REMEDIES) -> Diagnosis:
    """The diagnosis of the ring among background that it cannot see."""
    model = unobserved_background()
    model.engine.packet = WHOLE_PACKET
    return diagnose(model, remedies=remedies).diagnosis


def rows(answer: Diagnosis) -> list[Row]:
    """Cause, confidence, and the links that the diagnosis names."""
    links = [link.name for finding in answer.findings for link in finding.links]
    into = [name for name in links if f"→ leaf{HOT_LEAF:03d}" in name]
    return [
        Row(
            "cause",
            "other traffic",
            f"{answer.cause}, {percent(answer.confidence or 0.0)} sure",
            state_agreement(answer.cause == "other-traffic"),
        ),
        Row(
            "links to blame that lead into leaf 37",
            "all",
            f"{len(into)} of {len(links)}",
            state_agreement(len(into) == len(links) > 0),
            ", ".join(links),
        ),
    ]


def main() -> None:
    """Print the table; write it on request."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="update README.md of the study")
    arguments = parser.parse_args()
    text = table(rows(diagnosed()))
    print(text)
    if arguments.write:
        put(README, {"thesis verdict": text})


if __name__ == "__main__":
    main()
