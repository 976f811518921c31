"""Ports or links of NVIDIA UFM, as its REST interface returns them in JSON.

The ports have all that a fabric needs, the links no speeds::

    curl -k -u USER https://UFM/ufmRest/resources/ports > ports.json

A port names itself and its peer by GUID and number (``name``, ``peer``: ``0c42a103001b8256_1``) and
has ``active_width`` and ``active_speed``; a link has both ends (``source_guid``, ``source_port``,
``destination_guid`` …). Fields: *NVIDIA UFM Enterprise REST API Guide*, Ports REST API and Links
REST API, versions 6.11 to 6.22.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from tailback.errors import FabricError
from tailback.fabric.ibnetdiscover import Discovery, Kind, PortEnd, clip
from tailback.io.delimited import KEYS_NAMED, not_used, unused_keys

_START = re.compile(r"\A\s*[\[{]")
_PORT = re.compile(r"\"(?:peer|peer_guid|peer_node_guid)\"\s*:")
_OF_PORTS = re.compile(r"\"active_(?:speed|width)\"\s*:")
_OF_LINKS = re.compile(r"\"(?:source|destination)_guid\"\s*:")
_LISTS = ("data", "ports", "links")
_KEYS = frozenset(
    {
        "guid",
        "number",
        "logical_state",
        "system_name",
        "name",
        "node_description",
        "dname",
        "active_width",
        "active_speed",
        "peer",
        "peer_guid",
        "peer_node_guid",
        "peer_node_description",
        "peer_port_dname",
        "source_guid",
        "source_port",
        "source_port_dname",
        "source_port_node_description",
        "destination_guid",
        "destination_port",
        "destination_port_dname",
        "destination_port_node_description",
    }
)
"""Keys that are used, or repeat others."""
_NAME = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})_([0-9]{1,4})")
_GUID = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})")
_MAKE = "save it again: curl -k -u USER https://UFM/ufmRest/resources/ports > ports.json"


class UfmResources:
    """JSON of NVIDIA UFM's /ufmRest/resources/ports, or /links, which have no speeds."""

    def recognises(self, text: str) -> bool:
        """Whether the text is JSON with the fields of UFM's ports or links."""
        start = text[: 1 << 16]
        if _START.match(start) is None or '"lldp"' in start:
            return False
        ports = _OF_PORTS.search(start) is not None and _PORT.search(start) is not None
        return ports or len(set(_OF_LINKS.findall(start))) == 2

    def parse(self, text: str) -> Discovery:
        """Parse the text; raises FabricError with the element of the list that cannot be read."""
        discovery = Discovery(
            remedy_without_rates="UFM's links have a width and no speed: save the ports instead: "
            "curl -k -u USER https://UFM/ufmRest/resources/ports > ports.json"
        )
        unknown = set[str]()
        elements = _elements(text)
        for number, element in enumerate(elements, start=1):
            if not isinstance(element, dict):
                raise _element_error(number, f"{clip(str(element), 40)} is not an object")
            if "source_guid" in element or "destination_guid" in element:
                _add_link(element, number, discovery, unknown)
            else:
                _add_port(element, number, discovery, unknown)
        if not discovery.ends:
            raise FabricError("no port has a peer", place="element 1", remedy=_MAKE)
        _guess_kinds(discovery, unknown)
        discovery.notes += not_used(unused_keys(elements, _KEYS), "keys", KEYS_NAMED)
        return discovery


def _elements(text: str) -> list[Any]:
    """The list of ports or links; raises FabricError."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise FabricError(
            f"this is not JSON: {error.msg}", place=f"line {error.lineno}", remedy=_MAKE
        ) from None
    except (RecursionError, ValueError):
        raise FabricError(
            "this JSON is nested too deeply, or has a number of too many digits",
            place="line 1",
            remedy=_MAKE,
        ) from None
    if isinstance(document, dict):
        document = next(
            (document[key] for key in _LISTS if isinstance(document.get(key), list)), None
        )
    if not isinstance(document, list):
        raise FabricError("there is no list of ports or links", place="line 1", remedy=_MAKE)
    return document


def _element_error(number: int, message: str) -> FabricError:
    return FabricError(message, place=f"element {number}", remedy=_MAKE)


def _word(element: dict[str, Any], key: str) -> str:
    """The text or number at a key; empty without one, as for UFM's ``N/A``."""
    value = element.get(key)
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return ""
    return "" if value == "N/A" else str(value).strip()


def _end(guid: str, port: str, number: int, what: str) -> tuple[str, int]:
    """Key and port of one end; raises FabricError."""
    match = _GUID.fullmatch(guid)
    if match is None:
        raise _element_error(number, f"{what} {clip(guid, 40)} is not a GUID")
    if re.fullmatch(r"[0-9]{1,4}", port, re.ASCII) is None or not 1 <= int(port) <= 254:
        raise _element_error(
            number, f"port {clip(port, 40)} of {what} {clip(guid, 40)} is not 1 to 254"
        )
    return f"0x{int(match[1], 16):016x}", int(port)


def _named(value: str, number: int, what: str) -> tuple[str, int]:
    match = _NAME.fullmatch(value)
    if match is None:
        raise _element_error(
            number, f"{what} {clip(value, 40)} is not a GUID and a port, joined by _"
        )
    return _end(match[1], match[2], number, what)


def _add_device(
    key: str, described: str, label: str, discovery: Discovery, unknown: set[str]
) -> None:
    """Add a device by the description of one of its ports and the port's label.

    UFM describes a port of a switch as ``SLG03-10:19``, of a director as ``orca1:L05/U1/19``, and
    of an adapter as ``luna-0395 mlx5_10``; it labels ports ``19`` and ``HCA-2/1``.
    """
    name, colon, port = described.rpartition(":")
    adapter = re.match(r"HCA", label, re.IGNORECASE) is not None
    switch = not adapter and (colon != "" or label.isdecimal())
    if not switch or not colon:
        name = described
    elif "/" in port:
        name = f"{name}/{port.rsplit('/', 1)[0]}"
    if key not in discovery.devices and not (adapter or switch):
        unknown.add(key)
    if adapter or switch:
        unknown.discard(key)
        kind = Kind.SWITCH if switch else Kind.ADAPTER
        discovery.device(key, kind, name, key).kind = kind
    else:
        discovery.device(key, Kind.ADAPTER, name, key)


def _add_link(
    element: dict[str, Any], number: int, discovery: Discovery, unknown: set[str]
) -> None:
    ends = []
    for side in ("source", "destination"):
        end = _end(
            _word(element, f"{side}_guid"),
            _word(element, f"{side}_port"),
            number,
            f"{side}_guid",
        )
        _add_device(
            end[0],
            _word(element, f"{side}_port_node_description"),
            _word(element, f"{side}_port_dname"),
            discovery,
            unknown,
        )
        ends.append(end)
    (key, port), (peer, peer_port) = ends
    discovery.ends.append(PortEnd(key, port, peer, peer_port, None, number))
    discovery.ends.append(PortEnd(peer, peer_port, key, port, None, number))


def _add_port(
    element: dict[str, Any], number: int, discovery: Discovery, unknown: set[str]
) -> None:
    key, port = _named(_word(element, "name"), number, "name")
    _add_device(
        key, _word(element, "node_description"), _word(element, "dname"), discovery, unknown
    )
    if _word(element, "peer"):
        peer, peer_port = _named(_word(element, "peer"), number, "peer")
    elif guid := _word(element, "peer_node_guid") or _word(element, "peer_guid"):
        label = re.search(r"([0-9]+)\Z", _word(element, "peer_port_dname"), re.ASCII)
        peer, peer_port = _end(guid, label[1] if label else "", number, "peer_guid")
    else:
        return
    _add_device(
        peer,
        _word(element, "peer_node_description"),
        _word(element, "peer_port_dname"),
        discovery,
        unknown,
    )
    width = _word(element, "active_width").removeprefix("IB_").lower()
    speed = _word(element, "active_speed").upper()
    words = (width, speed) if width and speed else None
    discovery.add_end((key, port), (peer, peer_port), words, number)


def _guess_kinds(discovery: Discovery, unknown: set[str]) -> None:
    """Devices that UFM does not describe are switches if they have several cables."""
    ports = {
        side for end in discovery.ends for side in ((end.key, end.port), (end.peer, end.peer_port))
    }
    count = Counter(key for key, _ in ports)
    for key in unknown:
        discovery.devices[key].kind = Kind.SWITCH if count[key] > 1 else Kind.ADAPTER
    if unknown:
        discovery.notes.append(
            f"devices without a description, taken for switches if they have several cables: "
            f"{len(unknown)}"
        )
