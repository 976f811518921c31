"""A worker process of a sweep: ``python -m tailback.api.sweep.worker FOLDER``.

Reads the number of a run from each line of standard input, runs it, and answers with the number on
a line of standard output. It ends when standard input does.
"""

from __future__ import annotations

import sys

from tailback.api.sweep.study import ParameterStudy


def main(folder: str) -> None:
    """Run the points whose numbers arrive on standard input."""
    study = ParameterStudy.open(folder)
    for line in sys.stdin:
        study.run(int(line))
        print(int(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
