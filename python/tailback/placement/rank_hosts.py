"""Host of each rank of a job, from files of launchers and schedulers.

Formats: a CSV with columns rank and host; the output of ``env`` in every rank (Open MPI, PMIx,
MPICH, Slurm); the environment of a Slurm or LSF job; the output of ``hostname`` with the number of
the rank before it (``srun -l``, ``mpirun --tag-output``, ``mpiexec -l``); what Open MPI prints with
``--display-map`` or ``--report-bindings``; a rank file of Open MPI; explicit resources of
``jsrun``; a Cray rank order that names its nodes; a host list with one line per rank (like
PBS_NODEFILE) or a number of ranks per host.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tailback.errors import PlacementError, option
from tailback.io.delimited import header_of, not_used, parse
from tailback.io.input_files import content, require_text
from tailback.io.manifest import require_unchanged
from tailback.names.hosts import expand_hosts
from tailback.placement.hostlist import host_list
from tailback.placement.writers.cray import NODES
from tailback.registry import Registry

ALIASES: Final = {
    "rank": ("rank", "mpi_rank", "world_rank", "process", "procid", "task", "task_id"),
    "host": ("host", "hostname", "node", "node_name", "nodename", "host_name"),
}
MAX_RANKS: Final = 1 << 24

_VARIABLE: Final = re.compile(
    r"^(\[[^\]]{1,40}\](?:<[a-z]{1,10}>)?:?\s*|\d{1,9}:\s*)?([A-Za-z_][A-Za-z0-9_]*)=(.*)$"
)
_RANK: Final = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
_HOST: Final = ("PMIX_HOSTNAME", "SLURMD_NODENAME", "HOSTNAME", "HOST")
_LOCAL: Final = ("OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID")
_RANKFILE: Final = re.compile(r"rank\s+(\d{1,9})\s*=\s*(\S+)\s+slots?\s*=\s*\S+\Z", re.IGNORECASE)
_TASKS: Final = re.compile(r"(\d{1,9})(?:\(x(\d{1,9})\))?")

Form = Callable[[str, Path], "list[str] | None"]
"""Host of each rank; None where the text is in another form."""

FORMS: Registry[Form] = Registry("rank-map", "files that say which host a rank ran on")


def rank_hosts(path: Path) -> list[str]:
    """Host of each rank of a job.

    Args:
        path: A file in one of the :data:`FORMS`, plain or gzip.

    Returns:
        Name of the host of rank 0, 1, …

    Raises:
        PlacementError: The file cannot be read or has no known format, or a rank is missing or has
            two hosts; with line and column.
    """
    require_unchanged(path)
    text = _text(path)
    require_text(text, path, PlacementError)
    for entry in _detectable_forms():
        hosts = entry(text, path)
        if hosts is not None:
            return hosts
    raise PlacementError(
        "names no host of any rank",
        file=path,
        place="line 1",
        remedy="give a CSV with the columns rank and host, or the output of: mpirun … env",
    )


def rank_columns_not_used(path: Path) -> list[str]:
    """A note on the columns of a CSV of ranks and hosts that are not used; empty for other files.

    Raises:
        PlacementError: The file cannot be read.
    """
    header = header_of(_text(path)[: 1 << 16], ALIASES) or {}
    if set(header) != {"rank", "host"}:
        return []
    table = parse(_text(path), ALIASES, ("rank", "host"), path=path, error_type=PlacementError)
    return [f"{path.name}: {note}" for note in not_used(table.unused)]


def explicit_hosts(text: str, path: Path) -> list[str] | None:
    """Host of each rank in a CSV or the output of a job; None for lists that launchers read.

    Args:
        text: Content of the file.
        path: The file, for errors.

    Raises:
        PlacementError: As :func:`rank_hosts`.
    """
    for form in (from_csv, from_environment, from_output, from_tagged_lines):
        hosts = form(text, path)
        if hosts is not None:
            return hosts
    return None


def _text(path: Path) -> str:
    data = content(path, PlacementError)
    if b"\0" in data:
        raise PlacementError(
            "is not text: it contains a zero byte",
            file=path,
            remedy="name a CSV of rank and host, a rank file or a host list: "
            "tailback list rank-map",
        )
    return data.decode("utf-8-sig", errors="replace")


def _detectable_forms() -> list[Form]:
    """Formats that can be detected, before the list of hosts, which matches almost anything."""
    names = (
        "rank-csv",
        "environment",
        "launcher-output",
        "tagged-lines",
        "rankfile",
        "jsrun-erf",
        "cray-order",
        "host-list",
    )
    return [FORMS[name] for name in names]


@FORMS.register("rank-csv")
def from_csv(text: str, path: Path) -> list[str] | None:
    """Hosts of a CSV with the columns rank and host."""
    if set(header_of(text[: 1 << 16], ALIASES) or {}) != {"rank", "host"}:
        return None
    table = parse(text, ALIASES, ("rank", "host"), path=path, error_type=PlacementError)
    table.need("rank")
    ranks = table.number("rank", integer=True).to_list()
    hosts = table.need("host").to_list()
    lines = table.rows["line"].to_list()
    host_of: dict[int, str] = {}
    for rank, host, line in zip(ranks, hosts, lines, strict=True):
        if rank in host_of:
            raise table.error_at(
                "rank", line, f"rank {rank} is listed twice", "give each rank one line"
            )
        host_of[rank] = host
    return _hosts_in_order(host_of, path)


def _hosts_in_order(host_of: dict[int, str], path: Path) -> list[str]:
    """The hosts in order of rank.

    Raises:
        PlacementError: There is no rank, or one is missing.
    """
    if not host_of:
        raise PlacementError("names no rank", file=path, remedy="give one line per rank")
    missing = next((rank for rank in range(len(host_of)) if rank not in host_of), None)
    if missing is not None:
        raise PlacementError(
            f"rank {missing} is missing (the highest is {max(host_of)})",
            file=path,
            remedy="ranks count from 0 without gaps; give all of them",
        )
    return [host_of[rank] for rank in range(len(host_of))]


@FORMS.register("environment")
def from_environment(text: str, path: Path) -> list[str] | None:
    """Environment of each rank (mpirun … env), or of one Slurm job."""
    records: dict[str, list[dict[str, str]]] = {}
    first = 0
    for number, line in enumerate(text.splitlines(), 1):
        match = _VARIABLE.match(line)
        if match is None:
            continue
        tag, name, value = match[1] or "", match[2], match[3].strip().strip("\"'")
        if name not in _KNOWN:
            continue
        first = first or number
        mine = records.setdefault(tag, [{}])
        # The next environment begins where a variable is repeated.
        if name in mine[-1]:
            mine.append({})
        mine[-1][name] = value
    every = [record for mine in records.values() for record in mine]
    ranked = [record for record in every if any(name in record for name in _RANK)]
    if len(ranked) > 1 or any(_first_value(record, _RANK) == "0" for record in ranked):
        complete = [record for record in ranked if any(name in record for name in _HOST)]
        if complete:
            return _by_rank(complete, path)
    job = next((record for record in every if _nodelist(record)), None)
    if job is not None:
        return _by_job(job, path)
    job = next((record for record in every if any(name in record for name in _LSF)), None)
    if job is not None:
        return _by_lsf_job(job, path)
    if ranked:
        raise PlacementError(
            "names ranks but no hosts",
            file=path,
            place=f"line {first}",
            remedy="run: mpirun … sh -c 'echo HOSTNAME=$(hostname); env', or give a CSV with rank "
            "and host",
        )
    return None


_JOB: Final = (
    "SLURM_STEP_NODELIST",
    "SLURM_JOB_NODELIST",
    "SLURM_NODELIST",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE",
    "SLURM_NTASKS",
    "SLURM_DISTRIBUTION",
)
_LSF: Final = ("LSB_HOSTS", "LSB_MCPU_HOSTS")
_KNOWN: Final = frozenset((*_RANK, *_HOST, *_LOCAL, *_JOB, *_LSF, "LSB_DJOB_NUMPROC"))


def _first_value(record: dict[str, str], names: tuple[str, ...]) -> str:
    return next((record[name] for name in names if record.get(name)), "")


def _nodelist(record: dict[str, str]) -> str:
    return _first_value(record, _JOB[:3])


def _by_rank(records: list[dict[str, str]], path: Path) -> list[str]:
    """The hosts in the environments of the ranks."""
    host_of: dict[int, str] = {}
    local: dict[tuple[str, str], int] = {}
    for record in records:
        text, host = _first_value(record, _RANK), _first_value(record, _HOST)
        if not text.isdecimal() or int(text) >= MAX_RANKS:
            raise PlacementError(
                f"{text[:40]!r} is not a rank", file=path, remedy="the output is cut or interleaved"
            )
        rank = int(text)
        if host_of.setdefault(rank, host) != host:
            raise PlacementError(
                f"rank {rank} is on {host_of[rank][:60]!r} and on {host[:60]!r}",
                file=path,
                remedy="the outputs of ranks are interleaved; run mpirun with --tag-output",
            )
        place = _first_value(record, _LOCAL)
        if place and local.setdefault((host, place), rank) != rank:
            raise PlacementError(
                f"ranks {local[host, place]} and {rank} are both number {place[:20]} of host "
                f"{host[:60]!r}: it is the name of the host that launched them",
                file=path,
                remedy="run: mpirun … sh -c 'echo PMIX_HOSTNAME=$(hostname); env'",
            )
    return _hosts_in_order(host_of, path)


def _by_job(job: dict[str, str], path: Path) -> list[str]:
    """The hosts of a Slurm job, filled according to its distribution."""
    try:
        hosts = expand_hosts(_nodelist(job))
    except PlacementError as error:
        raise error.located(path) from None
    tasks = _first_value(job, _JOB[3:5])
    each: list[int] = []
    for part in tasks.split(","):
        match = _TASKS.fullmatch(part.strip())
        if match is None or int(match[1]) * int(match[2] or 1) > MAX_RANKS:
            raise PlacementError(
                f"SLURM_TASKS_PER_NODE = {tasks[:60]!r} cannot be read",
                file=path,
                remedy="it is like 2(x3),1; is it in the output?",
            )
        each += [int(match[1])] * min(int(match[2] or 1), len(hosts) + 1)
    if len(each) != len(hosts):
        raise PlacementError(
            f"SLURM_TASKS_PER_NODE = {tasks[:60]!r} does not match the list of {len(hosts)} hosts",
            file=path,
            remedy="give the environment of one job step",
        )
    distribution = (
        job.get("SLURM_DISTRIBUTION", "block").lower().split(":")[0].split(",")[0] or "block"
    )
    if distribution == "block":
        out = [host for host, count in zip(hosts, each, strict=True) for _ in range(count)]
    elif distribution == "cyclic":
        rounds = range(max(each))
        out = [h for turn in rounds for h, n in zip(hosts, each, strict=True) if turn < n]
    else:
        raise PlacementError(
            f"SLURM_DISTRIBUTION = {distribution[:40]!r} does not determine the hosts of ranks",
            file=path,
            remedy="give a CSV with rank and host, or: srun sh -c 'env' of every rank",
        )
    number = job.get("SLURM_NTASKS", "")
    if number.isdecimal() and int(number) != len(out):
        raise PlacementError(
            f"SLURM_NTASKS = {number[:20]}, but {len(out)} tasks on the nodes",
            file=path,
            remedy="give the environment of one job step",
        )
    return out


def _by_lsf_job(job: dict[str, str], path: Path) -> list[str]:
    """The hosts of an LSF job, in the order of its slots."""
    # LSF leaves LSB_HOSTS out of large jobs.
    hosts = job.get("LSB_HOSTS", "").split()
    if not hosts:
        words = job.get("LSB_MCPU_HOSTS", "").split()
        counts = words[1::2]
        if len(words) % 2 or not all(len(n) < 9 and n.isdecimal() for n in counts):
            raise PlacementError(
                f"LSB_MCPU_HOSTS = {' '.join(words)[:60]!r} cannot be read",
                file=path,
                remedy="it is like: hostA 2 hostB 2; is it in the output?",
            )
        if sum(map(int, counts)) > MAX_RANKS:
            raise PlacementError(
                "names more than 16 million ranks", file=path, remedy="is the output damaged?"
            )
        hosts = [h for h, n in zip(words[0::2], counts, strict=True) for _ in range(int(n))]
    number = job.get("LSB_DJOB_NUMPROC", "")
    if number.isdecimal() and int(number) != len(hosts):
        raise PlacementError(
            f"LSB_DJOB_NUMPROC = {number[:20]}, but {len(hosts)} slots on the hosts",
            file=path,
            remedy="give the environment of one job",
        )
    return _hosts_in_order(dict(enumerate(hosts)), path)


_MAP_HOST: Final = re.compile(r"Data for node:\s*(?:Name:\s*)?(\S+)")
_MAP_RANK: Final = re.compile(r"\bProcess rank:\s*(\d{1,9})\b")
_BINDING: Final = re.compile(
    r"\[([^\]:\s]+):\d+\]\s+(?:MCW\s+)?rank\s+(\d{1,9})\s+(?:is )?(?:not )?bound\b", re.IGNORECASE
)


@FORMS.register("launcher-output")
def from_output(text: str, path: Path) -> list[str] | None:
    """Output of Open MPI's mpirun with --display-map or --report-bindings."""
    host_of: dict[int, str] = {}
    host = ""
    # Other output of the job may be between these lines.
    for number, line in enumerate(text.splitlines(), 1):
        if (match := _MAP_HOST.search(line)) is not None:
            host = match[1]
        elif host and (match := _MAP_RANK.search(line)) is not None:
            _add_rank(host_of, int(match[1]), host, path, number)
        elif (match := _BINDING.search(line)) is not None:
            _add_rank(host_of, int(match[2]), match[1], path, number)
    return _hosts_in_order(host_of, path) if host_of else None


_TAGGED: Final = re.compile(
    # 3: host (srun -l); [1,3]<stdout>:host (Open MPI); [3] host (Hydra)
    r"(?:(\d{1,9}):[ \t]+|\[(?:[^\],\s]+,)?(\d{1,9})\](?:<stdout>)?:?[ \t]*)"
    r"([A-Za-z0-9][\w.-]*)\Z",
    re.ASCII,
)


@FORMS.register("tagged-lines")
def from_tagged_lines(text: str, path: Path) -> list[str] | None:
    """Output of hostname, tagged with the rank: srun -l, mpirun --tag-output, mpiexec -l."""
    host_of: dict[int, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        match = _TAGGED.match(line.strip())
        if match is None:
            return None
        _add_rank(host_of, int(match[1] or match[2]), match[3], path, number)
    return _hosts_in_order(host_of, path) if host_of else None


def _add_rank(host_of: dict[int, str], rank: int, host: str, path: Path, line: int) -> None:
    """Add the host of a rank, which may be repeated.

    Raises:
        PlacementError: It has another one already.
    """
    if host_of.setdefault(rank, host) != host:
        raise PlacementError(
            f"rank {rank} is on {host_of[rank][:60]!r} and on {host[:60]!r}",
            file=path,
            place=f"line {line}",
            remedy="give the output of one run",
        )


_ERF_RANKS: Final = re.compile(r"rank\s*:\s*([\d,\s-]{1,200}?)\s*:\s*\{([^}]*)", re.IGNORECASE)
_ERF_HOST: Final = re.compile(r"\bhost\s*:\s*(\d{1,9})\s*(?:;|\Z)", re.IGNORECASE)


def erf_hosts(text: str, path: Path) -> list[int] | None:
    """Number of each rank's host in the allocation, from 1, of an ERF of jsrun; None for others.

    Raises:
        PlacementError: A line cannot be read, or a rank is missing or has two hosts.
    """
    host_of: dict[int, str] = {}
    for number, line in _lines(text):
        if not re.match(r"rank\s*:", line, re.IGNORECASE):
            # Options such as cpu_index_using come before the ranks.
            if not host_of and re.match(r"[a-z_]+\s*:\s*\w+\Z", line, re.IGNORECASE):
                continue
            if not host_of:
                return None
        ranks = _ERF_RANKS.match(line)
        host = _ERF_HOST.search(ranks[2]) if ranks is not None else None
        if ranks is None or host is None or int(host[1]) < 1:
            raise PlacementError(
                f"{line[:80]!r} cannot be read",
                file=path,
                place=f"line {number}",
                remedy="write rank: 0: { host: 1; cpu: {0-3} }, hosts from 1",
            )
        for part in ranks[1].replace(" ", "").split(","):
            first, dash, last = part.partition("-")
            if not first.isdecimal() or (dash and not last.isdecimal()):
                raise PlacementError(
                    f"{part[:40]!r} is no range of ranks",
                    file=path,
                    place=f"line {number}",
                    remedy="write it like 0-3",
                )
            if int(last or first) >= MAX_RANKS:
                raise PlacementError(
                    f"rank {int(last or first)} is too large",
                    file=path,
                    place=f"line {number}",
                    remedy="check the ranks",
                )
            for rank in range(int(first), int(last or first) + 1):
                _add_rank(host_of, rank, host[1], path, number)
    return [int(host) for host in _hosts_in_order(host_of, path)] if host_of else None


@FORMS.register("jsrun-erf")
def from_erf(text: str, path: Path) -> list[str] | None:
    """Explicit resource file of jsrun (ERF), which numbers the hosts of the job."""
    if erf_hosts(text, path) is None:
        return None
    raise PlacementError(
        "numbers the hosts of the job and does not name them",
        file=path,
        remedy=f"name them in their order, like {option('hosts', 'hostA:2,hostB:2')}",
    )


_ORDER: Final = re.compile(r"\d{1,9}(-\d{1,9})?(\s*,\s*\d{1,9}(-\d{1,9})?)*\s*,?\Z", re.ASCII)


def is_cray_order(line: str) -> bool:
    """Whether a line lists ranks like ``0,4,8-11``."""
    return _ORDER.match(line) is not None


def cray_ranks(path: Path, lines: list[tuple[int, str]], most: int) -> list[int]:
    """Ranks in the order in which they fill the nodes; at least one more if above ``most``.

    Raises:
        PlacementError: A line cannot be read, or a rank is missing or listed twice.
    """
    order: list[int] = []
    for line, text in lines:
        if not is_cray_order(text):
            raise PlacementError(
                f"{text[:80]!r} is not a list of ranks",
                file=path,
                place=f"line {line}",
                remedy="write ranks like 0,4,8-11",
            )
        for part in text.replace(" ", "").strip(",").split(","):
            first, _, last = part.partition("-")
            order.extend(range(int(first), min(int(last or first), int(first) + most) + 1))
            if len(order) > most:
                return order
    if sorted(order) != list(range(len(order))):
        raise PlacementError(
            "does not name every rank once", file=path, remedy="name ranks 0 to R - 1 once each"
        )
    return order


def cray_nodes(path: Path, text: str, ranks: int) -> list[tuple[str, int]]:
    """The node of each place in a Cray order, with its line; none if no comment names the nodes.

    Raises:
        PlacementError: The ranks are not the same number on each node.
    """
    lines = enumerate(text.split("\n"), 1)
    if not any(line.strip() == NODES for _, line in lines):
        return []
    comment = itertools.takewhile(lambda numbered: numbered[1].startswith("#"), lines)
    nodes = [(name, line) for line, names in comment for name in names[1:].split()]
    if nodes and ranks % len(nodes):
        raise PlacementError(
            f"spreads {ranks} ranks over {len(nodes)} nodes, which is not even",
            file=path,
            place=f"line {nodes[0][1]}",
            remedy="use the file that was made for this job, or correct the comment with the nodes",
        )
    return [node for node in nodes for _ in range(ranks // len(nodes))]


@FORMS.register("cray-order")
def from_cray_order(text: str, path: Path) -> list[str] | None:
    """MPICH_RANK_ORDER of Cray with a comment that names the nodes, as ``tailback place`` has."""
    lines = _lines(text)
    # A host may be called "12": then a line without a comma is a host.
    if not lines or "," not in lines[0][1] or not is_cray_order(lines[0][1]):
        return None
    ranks = cray_ranks(path, lines, MAX_RANKS)
    nodes = cray_nodes(path, text, len(ranks))
    if not nodes:
        raise PlacementError(
            "orders the ranks and does not name their hosts",
            file=path,
            place=f"line {lines[0][0]}",
            remedy=f"name them in their order, like {option('hosts', 'hostA:2,hostB:2')}",
        )
    return _hosts_in_order({rank: name for rank, (name, _) in zip(ranks, nodes, strict=True)}, path)


@FORMS.register("rankfile")
def from_rankfile(text: str, path: Path) -> list[str] | None:
    """Rank file of Open MPI: rank 0=host slot=0."""
    lines = _lines(text)
    if not lines or not lines[0][1].lower().startswith("rank "):
        return None
    host_of: dict[int, str] = {}
    for number, line in lines:
        match = _RANKFILE.match(line)
        if match is None or int(match[1]) in host_of:
            what = f"{line[:80]!r} cannot be read" if match is None else f"rank {match[1]} is twice"
            raise PlacementError(
                what, file=path, place=f"line {number}", remedy="write rank 0=host slot=0"
            )
        host_of[int(match[1])] = match[2]
    return _hosts_in_order(host_of, path)


@FORMS.register("host-list")
def from_host_list(text: str, path: Path) -> list[str] | None:
    """One host per line and rank (PBS_NODEFILE), or host:n, or host slots=n."""
    lines = _lines(text)
    if not lines:
        return None
    out: list[str] = []
    for entry in host_list(path, lines).lines:
        out += [entry.host] * (1 if entry.count is None else entry.count)
        if len(out) > MAX_RANKS:
            raise PlacementError(
                "names more than 16 million ranks",
                file=path,
                place=f"line {entry.line}",
                remedy="correct the number of slots",
            )
    return out or None


def _lines(text: str) -> list[tuple[int, str]]:
    """Lines with their numbers, without comments and blanks."""
    stripped = ((i, line.split("#", 1)[0].strip()) for i, line in enumerate(text.split("\n"), 1))
    return [(i, line) for i, line in stripped if line]
