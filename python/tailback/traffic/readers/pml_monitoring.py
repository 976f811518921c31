"""Open MPI's monitoring: ``prof.<rank>.prof``, bytes and messages between every pair of ranks.

It needs neither a tracer nor recompilation: ``mpirun --mca pml_monitoring_enable 2 --mca
pml_monitoring_enable_output 3 --mca pml_monitoring_filename prof …``. Open MPI writes one file per
rank with tab-separated fields:

* ``E src dst n bytes m msgs sent [histogram]``: point-to-point messages of the application;
* ``I …``: messages that the library sent for collectives;
* ``C``, ``O2A``, ``A2O``, ``A2A``: collective calls, whose messages ``I`` already counts;
* ``S``, ``R``: bytes of one-sided puts and gets, which are left out;
* ``D name procs: 0,1,…``: the members of a communicator.

There are no times and no order: a program from a profile posts everything at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tailback.errors import TraceError
from tailback.io.delimited import NotUsed
from tailback.io.input_files import head_bytes, text_content
from tailback.traffic.program import Label, Program
from tailback.traffic.readers.capabilities import Capabilities
from tailback.traffic.readers.pair_totals import program_of_totals

CAPABILITIES = Capabilities(
    times="no",
    sources="totals of every pair of ranks",
    completion="no",
    call_site="no",
    compute="no",
)

_FILE = re.compile(r"^(?P<stem>.+)\.(?P<rank>[0-9]{1,9})\.prof$")
_TRAFFIC = re.compile(
    r"^(?P<kind>[EI])\t(?P<src>[0-9]{1,9})\t(?P<dst>[0-9]{1,9})\t(?P<bytes>[0-9]{1,19}) bytes"
    r"\t(?P<messages>[0-9]{1,18}) msgs sent(?:\t[0-9,]*)?$"
)
_MEMBERS = re.compile(r"^D\t(?P<name>[^\t]*)\tprocs: (?P<members>[0-9]{1,9}(?:,[0-9]{1,9})*)$")
_OTHER = re.compile(r"^(?:C|O2A|A2O|A2A|S|R)\t[0-9\t]+ bytes\t[0-9]+ msgs sent(?:\t[0-9,]*)?$")
_ONE_SIDED = ("S\t", "R\t")

LABELS = [
    Label("point-to-point", "point-to-point"),
    Label("collectives", "collectives"),
]


@dataclass
class Profile:
    """Content of a set of profiles.

    Attributes:
        n_ranks: Number of ranks.
        traffic: Bytes and messages by (source, destination, 0 point-to-point | 1 collectives).
        communicators: Name and world ranks of the members of each communicator; names need not be
            unique.
        one_sided: Lines about one-sided traffic that were left out.
    """

    n_ranks: int = 0
    traffic: dict[tuple[int, int, int], tuple[int, int]] = field(default_factory=dict)
    communicators: set[tuple[str, tuple[int, ...]]] = field(default_factory=set)
    one_sided: int = 0


def sniff(path: Path) -> bool:
    """A ``*.<rank>.prof`` file with the header of Open MPI, or a folder with some."""
    if path.is_file():
        if not _FILE.match(path.name):
            return False
        return head_bytes(path, 16).startswith(b"# POINT TO POINT")
    return path.is_dir() and any(True for _ in _profiles(path))


def read(path: Path) -> Program:
    """Compile the profiles of all ranks to a program of messages.

    Every rank posts all its receives, then its sends one message after the other to each partner in
    turn, then waits for all. ``n`` messages of ``b`` bytes in total become ``n`` of ``b // n``,
    with the remainder in the last.

    Args:
        path: The folder of the profiles, or one of them.

    Returns:
        The program; phases are ``"point-to-point"`` and ``"collectives"``.

    Raises:
        TraceError: A profile is missing, unreadable or has a line that does not fit.
    """
    profile = read_profile(path)
    try:
        return to_program(profile, (path if path.is_dir() else path.parent).name)
    except TraceError as error:
        raise error.located(path) from None


def read_profile(path: Path) -> Profile:
    """Parse all profiles next to ``path`` (or in it); raises TraceError as :func:`read` does."""
    if path.is_file():
        match = _FILE.match(path.name)
        if not match:
            raise TraceError(
                f"{path.name!r} is not called <name>.<rank>.prof",
                file=path,
                remedy="give one of the files Open MPI wrote, or their folder",
            )
        files = sorted(_profiles(path.parent, match["stem"]))
    else:
        stems = sorted({stem for _, stem, _ in _profiles(path)})
        if len(stems) != 1:
            raise TraceError(
                f"holds the profiles of {len(stems)} runs" if stems else "holds no profiles",
                file=path,
                remedy=f"name one file of the run you mean: {', '.join(map(repr, stems[:5]))}"
                if stems
                else "run with --mca pml_monitoring_enable 2 and name the folder of prof.*.prof",
            )
        files = sorted(_profiles(path, stems[0]))
    profile = Profile(n_ranks=len(files))
    for expected, (rank, _, file) in enumerate(files):
        if rank != expected:
            raise TraceError(
                f"the profile of rank {expected} is missing",
                file=file.parent,
                remedy="copy the files of all ranks into one folder",
            )
    listed = [_parse(file, rank, profile) for rank, _, file in files]
    if any(listed) and not all(listed):
        # Every rank is a member of MPI_COMM_WORLD, if the library lists communicators at all.
        raise TraceError(
            "lists no communicator, as the profiles of other ranks do: it is cut short",
            file=files[listed.index(False)][2],
            remedy="copy the file again, or run again and let the program end normally",
        )
    return profile


def _profiles(folder: Path, stem: str | None = None) -> Iterator[tuple[int, str, Path]]:
    try:
        for entry in folder.iterdir():
            match = _FILE.match(entry.name)
            if match and (stem is None or match["stem"] == stem) and entry.is_file():
                yield int(match["rank"]), match["stem"], entry
    except OSError as error:
        raise TraceError(f"cannot be read: {error.strerror}", file=folder) from error


def _parse(file: Path, rank: int, profile: Profile) -> bool:
    """Add the profile of a rank; returns whether it lists the members of a communicator."""
    text = text_content(file, TraceError)
    lines = text.split("\n")
    if lines.pop():
        raise TraceError(
            "the line has no end: the file is cut short",
            file=file,
            place=f"line {len(lines) + 1}",
            remedy="copy the file again, or run again and let the program end normally",
        )
    for number, line in enumerate(lines, 1):
        try:
            _parse_line(line.rstrip("\r"), rank, profile)
        except ValueError as error:
            raise TraceError(
                str(error),
                file=file,
                place=f"line {number}",
                remedy="the file may be damaged or from another version, or the profiles of the "
                "last ranks are missing: copy the files of all ranks into one folder",
            ) from None
    return any(line.startswith("D\t") for line in lines)


def _parse_line(line: str, rank: int, profile: Profile) -> None:
    if not line or line.startswith("#"):
        return
    if match := _TRAFFIC.match(line):
        source, target = int(match["src"]), int(match["dst"])
        size, messages = int(match["bytes"]), int(match["messages"])
        if source != rank:
            raise ValueError(f"source {source} in the profile of rank {rank}")
        if target >= profile.n_ranks:
            raise ValueError(f"destination {target} of a run of {profile.n_ranks} ranks")
        if size and not messages:
            raise ValueError(f"{size} bytes in no message")
        key = (source, target, "EI".index(match["kind"]))
        if key in profile.traffic:
            raise ValueError(f"a second line for destination {target}")
        profile.traffic[key] = (size, messages)
    elif match := _MEMBERS.match(line):
        members = tuple(int(member) for member in match["members"].split(","))
        if max(members) >= profile.n_ranks:
            raise ValueError(f"member {max(members)} of a run of {profile.n_ranks} ranks")
        profile.communicators.add((match["name"], members))
    elif not _OTHER.match(line):
        raise ValueError(f"cannot parse {line[:80]!r}")
    elif line.startswith(_ONE_SIDED):
        profile.one_sided += 1


def to_program(profile: Profile, name: str) -> Program:
    """Messages of a profile as a rank program without times; raises TraceError if too many."""
    notes: list[str] = []
    if profile.one_sided:
        notes.append(NotUsed(f"{profile.one_sided} lines about one-sided traffic are left out"))
    rows = [(*key, *value) for key, value in sorted(profile.traffic.items()) if value[1]]
    return program_of_totals(name, profile.n_ranks, rows, LABELS, notes)
