"""What the collector says of faults, and when: ``python bench/faults.py [--write]``.

Runs the tests of faults on a simulated InfiniBand subnet (ibsim and opensm), and lists what each of
them recorded: the fault, what the collector says, and after how many seconds. ``--write`` puts the
table into docs/how-to/counters.md. Takes three minutes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

from _shared import put

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "how-to" / "counters.md"
TESTS = ("test_faults_ibsim.py", "test_link_changes_ibsim.py")


def rows() -> list[str]:
    """What the tests recorded; the first failure ends the program."""
    with tempfile.TemporaryDirectory() as name:
        report = Path(name) / "report.xml"
        files = [str(ROOT / "tests" / "ibsim" / test) for test in TESTS]
        command = [sys.executable, "-m", "pytest", "-q", "-x", *files, f"--junitxml={report}"]
        command += ["-o", "junit_family=xunit1", "-m", "slow"]
        if subprocess.run(command, cwd=ROOT, check=False).returncode:
            raise SystemExit("a fault was not told as it should be")
        properties = ET.parse(report).iter("property")
        return [str(each.get("value")) for each in properties if each.get("name") == "fault"]


def main() -> None:
    """Run, list, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"update {PAGE.name}")
    chosen = parser.parse_args()
    lines = ["| fault | the collector says | after |", "|---|---|---:|"]
    table = "\n".join([*lines, *(f"| {row} |" for row in rows())])
    if chosen.write:
        put(PAGE, {"faults": table})
    print(table)


if __name__ == "__main__":
    main()
