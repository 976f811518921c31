"""Files similar to port counters that no reader reads: their kind, and what to give instead."""

from __future__ import annotations

import re
from pathlib import Path

from tailback.io.delimited import header_names, header_of
from tailback.io.input_files import head
from tailback.port_counters.readers.ethernet_csv import ALIASES, NEEDED
from tailback.port_counters.readers.model import quoted_text
from tailback.port_counters.schema import CounterError

_START = 1 << 16
_LDMS_CSV = re.compile(r"\A#\s*\"?Time\"?\s*,", re.IGNORECASE)
_LDMS_LS = re.compile(
    r"^\s*(?:#\s*ldms_ls\b|\S+: (?:in)?consistent, last update:|\S+/\S+: (?:in)?consistent\b)",
    re.MULTILINE,
)
_ONE_PORT = re.compile(r"^PortSelect:", re.MULTILINE)
_CABLES = re.compile(r"^(?:(?:CA|Switch): .*:\s*$|vendid=0x)", re.MULTILINE)
_NO_ERRORS = re.compile(r"^## Summary: [0-9]+ nodes checked", re.MULTILINE)
_FAILED = re.compile(r"^.*(?:\bib(?:warn|error|panic): |: command not found).*$", re.MULTILINE)


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
    if (error := _missing_columns_error(path, start)) is not None:
        return error
    if (error := _no_counters_error(path, start)) is not None:
        return error
    return CounterError(
        "no reader recognises this format",
        file=path,
        remedy="give what perfquery or ibqueryerrors --data printed, a sysfs tree, an LDMS "
        "CSV with its header, a CSV with time, node, interface and tx_bytes, the answer of a "
        "Prometheus server or the page of an exporter, or the folder of a collection, a run or a "
        "diagnosis: tailback list counter-source",
    )


def _no_counters_error(path: Path, start: str) -> CounterError | None:
    """The error for what a tool of InfiniBand printed instead of counters."""
    if _CABLES.search(start):
        return CounterError(
            "cables and ports of a fabric, without counters",
            file=path,
            remedy="give it as the fabric, beside what perfquery or ibqueryerrors printed",
        )
    if _NO_ERRORS.search(start):
        return CounterError(
            "a summary of ibqueryerrors without a port: none was above its thresholds",
            file=path,
            remedy="run ibqueryerrors --data, which prints data and waits of every port with any",
        )
    if match := _FAILED.search(start):
        return CounterError(
            f"a tool failed, and printed {quoted_text(match[0])}",
            file=path,
            place=f"line {start.count(chr(10), 0, match.start()) + 1}",
            remedy="mend what it says, run it again, and keep its counters",
        )
    return None


def _missing_columns_error(path: Path, start: str) -> CounterError | None:
    """The error for a CSV with some of the columns of counters of interfaces."""
    roles = header_of(start, ALIASES) or {}
    lacking = [role for role in NEEDED if role not in roles]
    if 2 * len(lacking) > len(NEEDED):
        return None
    names = header_names(start)
    shown = ", ".join(quoted_text(name) for name in names[:12]) + (", …" if names[12:] else "")
    remedy = "; ".join(f"{role}: {', '.join(ALIASES[role][:4])}" for role in lacking)
    return CounterError(
        f"a CSV without a column for {' and '.join(f'the {role}' for role in lacking)}; its "
        f"columns are {shown}",
        file=path,
        remedy=f"name it as one of these ({remedy})",
    )


def _beginning(path: Path) -> str:
    """Beginning of a file as text; empty for a folder or one that cannot be read."""
    return head(path, _START).replace("\r", "")
