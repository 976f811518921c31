"""The hosts of a job: numbers, names with ranges, or the scattered allocation of Taffet §4.4."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

from tailback.errors import PlacementError, TailbackError, nearest, option
from tailback.fabric.model import Fabric
from tailback.names.hosts import HostNames, spelling_notes, two_spellings
from tailback.placement.compute_hosts import ComputeHosts, compute_hosts

_NUMBERS = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?\Z", re.ASCII)
_BRACKET = re.compile(r"([^\[\]]*)\[([^\[\]]*)\]([^\[\]]*)\Z")
_SLOTS = re.compile(r"\d{1,9}\Z", re.ASCII)
MAX_SLOTS = 65536
"""Maximum slots of one host, as for ``ranks_per_host``."""


class UnknownHostError(PlacementError):
    """A host that the fabric does not have.

    Attributes:
        host: Its name.
    """

    def __init__(self, host: str, *, place: str, remedy: str) -> None:
        super().__init__(f"there is no host {host!r}", place=place, remedy=remedy)
        self.host = host


_PARITY = "parity-of-square:"
_REMEDY = "write hosts like all, 0-127,200, node[001-016]:4 or parity-of-square:even"


def hosts_from_spec(spec: str, fabric: Fabric) -> list[int]:
    """Host numbers a specification names, in the order it names them.

    Args:
        spec: ``"all"``, the compute hosts (:func:`~tailback.placement.compute_hosts`); numbers
            and ranges ``"0-127,200"``; names ``"login1,node[001-016,020]"``; mixtures of these; or
            ``"parity-of-square:even"`` / ``":odd"``: host i belongs to ``even`` when (i + 1)² has
            an even number of 1 bits (thesis §4.4). Slots per host (:func:`slots_from_spec`) are
            ignored.
        fabric: The fabric.

    Raises:
        PlacementError: A host does not exist or is named twice, or the text cannot be read.
    """
    return slots_from_spec(spec, fabric, 1)[0]


def slots_from_spec(spec: str, fabric: Fabric, ranks_per_host: int) -> tuple[list[int], list[int]]:
    """Hosts as :func:`hosts_from_spec` gives them, and the slots of each.

    Args:
        spec: The same; ``":n"`` after hosts, as in ``"0-7:4,node[016-020]:2"``, gives their slots.
        fabric: The fabric.
        ranks_per_host: Slots of hosts for which it gives none.

    Raises:
        PlacementError: As there, or a number of slots is not 1 to 65536.
    """
    spec = spec.strip()
    if spec == "all":
        hosts = list(compute_hosts(fabric).hosts)
        return hosts, [ranks_per_host] * len(hosts)
    if spec.startswith(_PARITY):
        which = spec[len(_PARITY) :]
        if which not in ("even", "odd"):
            raise _error(spec, f"{which!r} is neither even nor odd")
        odd = which == "odd"
        hosts = [i for i in range(fabric.n_hosts) if ((i + 1) ** 2).bit_count() % 2 == odd]
        return hosts, [ranks_per_host] * len(hosts)
    number = {name: i for i, name in reversed(list(enumerate(fabric.host_name)))}
    names = HostNames(fabric.host_name)
    hosts, slots = [], []
    spelling: dict[int, str] = {}
    for item in _items(spec):
        named, each = item, ranks_per_host
        # A host may be called "a:2"; then it is that host.
        if item not in number and ":" in item:
            named, each = _slots_of(item, spec)
        for host, name in _expand(named, spec, names, number, fabric):
            if spelling.setdefault(host, name) != name:
                ambiguous = two_spellings(spelling[host], name, fabric.host_name[host])
                raise _error(spec, ambiguous.message, ambiguous.remedy or _REMEDY)
            hosts.append(host)
            slots.append(each)
    seen: set[int] = set()
    for host in hosts:
        if host in seen:
            raise _error(spec, f"host {host} ({fabric.host_name[host]!r}) is named twice")
        seen.add(host)
    return hosts, slots


def other_spellings(spec: str, fabric: Fabric) -> list[str]:
    """A note on hosts that a specification names with another domain or case than the fabric."""
    number = set(fabric.host_name)
    stated = [] if spec.strip().startswith(_PARITY) else _items(spec.strip())
    items = [item if item in number else item.partition(":")[0].strip() for item in stated]
    names = [name for item in items if item != "all" for name in _names(item, spec, fabric)]
    named = [name for name in names if not _NUMBERS.match(name)]
    return spelling_notes(HostNames(fabric.host_name).joined(named), "the list of hosts")


def _slots_of(item: str, spec: str) -> tuple[str, int]:
    """``("node[0-3]", 4)`` of ``"node[0-3]:4"``."""
    named, _, text = item.rpartition(":")
    if not _SLOTS.match(text) or not 1 <= int(text) <= MAX_SLOTS:
        raise _error(
            spec,
            f"{text!r} is not a number of slots",
            f"write 1 to {MAX_SLOTS} after the colon, like node[001-016]:4",
        )
    return named.strip(), int(text)


def _error(spec: str, message: str, remedy: str = _REMEDY) -> PlacementError:
    return PlacementError(message, place=_place(spec), remedy=remedy)


def _place(spec: str) -> str:
    return f"hosts = {spec[:80]!r}"


def _items(spec: str) -> list[str]:
    """Split at commas that are not within brackets."""
    items, depth, start = [], 0, 0
    for i, char in enumerate(spec + ","):
        if char == "," and depth == 0:
            items.append(spec[start:i].strip())
            start = i + 1
        depth += (char == "[") - (char == "]")
    if depth != 0 or not all(items):
        raise _error(spec, "unmatched bracket" if depth else "a host is missing between commas")
    return items


def _range(text: str, spec: str, limit: int) -> tuple[int, int, int]:
    """First, last and digits of ``"001-016"``."""
    match = _NUMBERS.match(text)
    if not match:
        raise _error(spec, f"{text!r} is not a number or a range")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise _error(spec, f"the range {text!r} runs backwards")
    if last - first >= limit:
        raise _error(spec, f"the range {text!r} has more than the {limit} hosts of the fabric")
    return first, last, len(match[1]) if match[1].startswith("0") else 1


def left_out(spec: str, fabric: Fabric) -> ComputeHosts | None:
    """Hosts that ``all`` in a specification selects and leaves out; None if it selects all."""
    items = _items(spec.strip())
    if any(item.partition(":")[0].strip() == "all" for item in items):
        taken = compute_hosts(fabric)
        return taken if taken.left_out else None
    return None


def _suggest_hosts(item: str, name: str, hosts: Sequence[str]) -> str:
    """Suggestion for a host that the fabric does not have.

    Presets and computed topologies name their hosts by number. A host name of another cluster may
    share letters and digits with them, but is not a misspelling.
    """
    letters, digits = name.rstrip("0123456789"), len(name) - len(name.rstrip("0123456789"))
    stems = {host.rstrip("0123456789") for host in hosts}
    example_names = f"hosts of this fabric are called {hosts[0]!r} to {hosts[-1]!r}"
    if get_close_matches(letters, stems, n=1, cutoff=0.7):
        return f"{nearest(name, hosts)} {example_names}"
    if not digits or len(hosts) < 2:
        close = get_close_matches(name, hosts, n=1, cutoff=0.8)
        return f"did you mean {close[0]!r}?" if close else example_names
    bracket = _BRACKET.match(item)
    numbers = bracket[2] if bracket else name[len(letters) :]
    plain = ",".join(
        "-".join(str(int(end)) for end in part.split("-")) for part in numbers.split(",")
    )
    example = f"; give them by number, from 0, like {option('hosts', plain)}"
    if len(stems) == 1:
        width = len(hosts[0]) - len(hosts[0].rstrip("0123456789"))
        padded = ",".join(
            "-".join(f"{int(end):0{width}d}" for end in part.split("-"))
            for part in numbers.split(",")
        )
        example += f" or {next(iter(stems))}[{padded}]"
    return example_names + example


def _expand(
    item: str, spec: str, names: HostNames, number: dict[str, int], fabric: Fabric
) -> list[tuple[int, str]]:
    """Number of each host that an item names, and how the item spells it."""
    fabric_hosts = fabric.host_name
    if item == "all" and item not in number:
        return [(host, fabric_hosts[host]) for host in compute_hosts(fabric).hosts]
    if _NUMBERS.match(item) and item not in number:
        first, last, _ = _range(item, spec, fabric.n_hosts)
        if last >= fabric.n_hosts:
            raise _error(
                spec,
                f"host {last} is not one of {fabric.n_hosts} hosts, 0 to {fabric.n_hosts - 1}",
            )
        return [(host, fabric_hosts[host]) for host in range(first, last + 1)]
    out = []
    for name in [item] if item in number else _names(item, spec, fabric):
        try:
            same = names.find(name)
        except TailbackError as error:
            raise _error(spec, error.message, error.remedy or _REMEDY) from None
        if same is None:
            remedy = _suggest_hosts(item, name, fabric_hosts)
            raise UnknownHostError(name, place=_place(spec), remedy=remedy)
        out.append((number[same], name))
    return out


def _names(item: str, spec: str, fabric: Fabric) -> list[str]:
    """The names in an item like ``node[001-016]``."""
    bracket = _BRACKET.match(item)
    if not bracket:
        return [item]
    names = []
    for part in bracket[2].split(","):
        first, last, digits = _range(part.strip(), spec, fabric.n_hosts)
        names += [f"{bracket[1]}{n:0{digits}d}{bracket[3]}" for n in range(first, last + 1)]
    return names
