"""Files near to port counters that no reader reads: what they are, and what to give instead."""

from __future__ import annotations

import re
from pathlib import Path

from tailback.io.input_files import head
from tailback.port_counters.readers import ethernet_csv
from tailback.port_counters.readers.model import quoted_text
from tailback.port_counters.schema import CounterError

_START = 1 << 16
_LDMS_CSV = re.compile(r"\A#\s*\"?Time\"?\s*,", re.IGNORECASE)
_LDMS_LS = re.compile(
    r"^\s*(?:#\s*ldms_ls\b|\S+: (?:in)?consistent, last update:|\S+/\S+: (?:in)?consistent\b)",
    re.MULTILINE,
)
_ONE_PORT = re.compile(r"^PortSelect:", re.MULTILINE)


def refusal(path: Path) -> CounterError:
    """The error for a file or folder that no reader recognises; it names what is known."""
    start = _beginning(path)
    if _LDMS_CSV.match(start):
        names = [name.strip().strip('"') for name in start[1:].split("\n", 1)[0].split(",")]
        shown = ", ".join(quoted_text(name) for name in names[:8])
        more = ", …" if len(names) > 8 else ""
        return CounterError(
            f"an LDMS CSV without counters of links; its columns are {shown}{more}",
            file=path,
            place="line 1",
            remedy="store the sets of a sampler of links: ibnet or sysclassib (InfiniBand), "
            "cray_gemini_r_sampler or cray_aries_r_sampler; columns of one sampler in a file",
        )
    if match := _LDMS_LS.search(start):
        line = start.count("\n", 0, match.end()) + 1
        return CounterError(
            "what ldms_ls printed: one reading, of one host",
            file=path,
            place=f"line {line}",
            remedy="give the CSV that store_csv wrote over time, with its header",
        )
    if match := _ONE_PORT.search(start):
        line = start.count("\n", 0, match.start()) + 1
        return CounterError(
            "counters without the name of their port",
            file=path,
            place=f"line {line}",
            remedy="keep the line perfquery prints above them: # Port counters: Lid 2 port 1 …",
        )
    missing = ethernet_csv.missing_columns(start)
    # A table of three of the four is one of interfaces.
    if len(missing) == 1:
        role = missing[0]
        accepted = ", ".join(ethernet_csv.ALIASES[role][:6])
        return CounterError(
            f"a table of interfaces without a column for the {role}",
            file=path,
            place="line 1",
            remedy=f"name that column in the header as one of: {accepted} …",
        )
    return CounterError(
        "no reader recognises this format",
        file=path,
        remedy="give what perfquery or ibqueryerrors --data printed, a sysfs tree, an LDMS "
        "CSV with its header, a CSV with time, node, interface and tx_bytes, the answer of a "
        "Prometheus server or the page of an exporter, or the folder of a collection, a run or a "
        "diagnosis",
    )


def _beginning(path: Path) -> str:
    """Beginning of a file as text; empty for a folder or one that cannot be read."""
    return head(path, _START).replace("\r", "")
