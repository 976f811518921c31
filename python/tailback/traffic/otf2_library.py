"""The functions of the OTF2 library that write an archive, with the types of OTF2 3.x."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import c_char_p, c_double, c_int, c_int64, c_uint8, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from tailback.errors import TailbackError

UNDEFINED = 0xFFFFFFFF
WRITE, POSIX, NO_COMPRESSION, FLUSH = 0, 1, 1, 1
CPU_THREAD, PROCESS = 1, 1
COMM_LOCATIONS, COMM_GROUP, COMM_SELF = 4, 5, 6
USER, COMPILER, MPI = 1, 2, 4
FUNCTION, BARRIER, POINT_TO_POINT, COLLECTIVE, ONE_SIDED = 1, 15, 28, 26, 29
UINT64_TYPE, STRING_TYPE = 4, 11

SIMULATED = "simulated run"
"""In the creator of an exported archive."""
POINTS = f"{SIMULATED} without times of calls"
"""The same of an archive whose calls are points in time."""

EVENTS = (
    "Enter",
    "Leave",
    "CallingContextEnter",
    "CallingContextLeave",
    "MeasurementOnOff",
    "MpiSend",
    "MpiRecv",
    "MpiIsend",
    "MpiIrecv",
    "MpiIsendComplete",
    "MpiIrecvRequest",
    "MpiRequestCancelled",
    "MpiCollectiveBegin",
    "MpiCollectiveEnd",
    "NonBlockingCollectiveRequest",
    "NonBlockingCollectiveComplete",
    "RmaPut",
    "RmaGet",
    "RmaAtomic",
    "RmaCollectiveBegin",
    "RmaCollectiveEnd",
    "RmaSync",
)
"""Writers of events in the order of ``struct tb_otf2`` in c/convert.c."""

_PRE = ctypes.CFUNCTYPE(c_uint8, c_void_p, c_uint8, c_uint64, c_void_p, ctypes.c_bool)
_POST = ctypes.CFUNCTYPE(c_uint64, c_void_p, c_uint8, c_uint64)

_ARCHIVE = {
    "SetCreator": (c_char_p,),
    "SetDescription": (c_char_p,),
    "SetFlushCallbacks": (c_void_p, c_void_p),
    "SetSerialCollectiveCallbacks": (),
    "OpenEvtFiles": (),
    "CloseEvtFiles": (),
    "OpenDefFiles": (),
    "CloseDefFiles": (),
    "CloseEvtWriter": (c_void_p,),
    "CloseDefWriter": (c_void_p,),
    "CloseGlobalDefWriter": (c_void_p,),
    "Close": (),
}
_WRITERS = {"GetEvtWriter": (c_uint64,), "GetDefWriter": (c_uint64,), "GetGlobalDefWriter": ()}
_DEFINITIONS: dict[str, tuple[Any, ...]] = {
    "ClockProperties": (c_uint64, c_uint64, c_uint64, c_uint64),
    "String": (c_uint32, c_char_p),
    "Attribute": (c_uint32, c_uint32, c_uint32, c_uint8),
    "SystemTreeNode": (c_uint32, c_uint32, c_uint32, c_uint32),
    "LocationGroup": (c_uint32, c_uint32, c_uint8, c_uint32, c_uint32),
    "LocationGroupProperty": (c_uint32, c_uint32, c_uint8, c_uint64),
    "Location": (c_uint64, c_uint32, c_uint8, c_uint64, c_uint32),
    "Region": (
        c_uint32,
        c_uint32,
        c_uint32,
        c_uint32,
        c_uint8,
        c_uint8,
        c_uint32,
        c_uint32,
        c_uint32,
        c_uint32,
    ),
    "SourceCodeLocation": (c_uint32, c_uint32, c_uint32),
    "CallingContext": (c_uint32, c_uint32, c_uint32, c_uint32),
    "Group": (c_uint32, c_uint32, c_uint8, c_uint8, c_uint32, c_uint32, c_void_p),
    "Comm": (c_uint32, c_uint32, c_uint32, c_uint32, c_uint32),
    "InterComm": (c_uint32, c_uint32, c_uint32, c_uint32, c_uint32, c_uint32),
    "RmaWin": (c_uint32, c_uint32, c_uint32, c_uint32),
}

_MESSAGE = (c_uint32, c_uint32, c_uint32, c_uint64)
"""Partner, communicator, tag and bytes."""
_REQUEST = (c_uint64,)
_EVENTS: dict[str, tuple[Any, ...]] = {
    "Enter": (c_uint32,),
    "Leave": (c_uint32,),
    "MpiSend": _MESSAGE,
    "MpiRecv": _MESSAGE,
    "MpiIsend": (*_MESSAGE, *_REQUEST),
    "MpiIsendComplete": _REQUEST,
    "MpiIrecvRequest": _REQUEST,
    "MpiIrecv": (*_MESSAGE, *_REQUEST),
}


class Otf2Library:
    """The loaded library; every call that fails raises TailbackError.

    Args:
        path: The shared library.
    """

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._functions: dict[str, Callable[..., Any]] = {}
        self._describe = self._library.OTF2_Error_GetDescription
        self._describe.restype, self._describe.argtypes = c_char_p, (c_int,)
        self._open = self._library.OTF2_Archive_Open
        self._open.restype = c_void_p
        self._open.argtypes = (c_char_p, c_char_p, c_uint8, c_uint64, c_uint64, c_uint8, c_uint8)
        # The library keeps pointers to them.
        self._callbacks = (c_void_p * 2)()
        self._keep = (_PRE(lambda *_: FLUSH), _POST(lambda *_: 0))
        for at, function in enumerate(self._keep):
            self._callbacks[at] = ctypes.cast(function, c_void_p).value

    def open(self, folder: Path, name: str) -> int:
        """Open an archive to write; its handle."""
        handle = self._open(
            str(folder).encode(), name.encode(), WRITE, 1 << 20, 4 << 20, POSIX, NO_COMPRESSION
        )
        if not handle:
            raise TailbackError(
                "the trace cannot be written",
                file=folder,
                remedy="check the folder and the free space on its disk",
            )
        self.archive("SetFlushCallbacks", handle, ctypes.addressof(self._callbacks), None)
        self.archive("SetSerialCollectiveCallbacks", handle)
        return int(handle)

    def archive(self, name: str, handle: int, *arguments: Any) -> None:
        """Call ``OTF2_Archive_NAME`` of an archive."""
        function = self._function(f"OTF2_Archive_{name}", (c_void_p, *_ARCHIVE[name]), c_int)
        self.check(function(handle, *arguments), name)

    def writer(self, name: str, handle: int, *arguments: Any) -> int:
        """Call ``OTF2_Archive_NAME``, which gives a writer."""
        function = self._function(f"OTF2_Archive_{name}", (c_void_p, *_WRITERS[name]), c_void_p)
        writer = function(handle, *arguments)
        if not writer:
            raise TailbackError(
                f"the OTF2 library refuses {name}",
                remedy="check the free space on its disk",
            )
        return int(writer)

    def define(self, name: str, writer: int, *arguments: Any) -> None:
        """Write a global definition."""
        full = f"OTF2_GlobalDefWriter_Write{name}"
        function = self._function(full, (c_void_p, *_DEFINITIONS[name]), c_int)
        self.check(function(writer, *arguments), name)

    def clock_offset(self, writer: int, time: int, offset: int, deviation: float) -> None:
        """Write a clock offset into the definitions of a location."""
        types = (c_void_p, c_uint64, c_int64, c_double)
        function = self._function("OTF2_DefWriter_WriteClockOffset", types, c_int)
        self.check(function(writer, time, offset, deviation), "ClockOffset")

    def events(self) -> Any:
        """Addresses of the writers of events, as the converter takes them."""
        addresses = [
            ctypes.cast(getattr(self._library, f"OTF2_EvtWriter_{name}"), c_void_p).value
            for name in EVENTS
        ]
        return (c_void_p * len(EVENTS))(*addresses)

    def event(self, name: str, writer: int, time: int, *arguments: int) -> None:
        """Write an event without attributes."""
        types = (c_void_p, c_void_p, c_uint64, *_EVENTS[name])
        function = self._function(f"OTF2_EvtWriter_{name}", types, c_int)
        self.check(function(writer, None, time, *arguments), name)

    def new_attributes(self) -> int:
        """An empty list of attributes of an event, which every event that takes it empties."""
        return int(self._function("OTF2_AttributeList_New", (), c_void_p)())

    def delete_attributes(self, attributes: int) -> None:
        """Free a list of attributes."""
        self._function("OTF2_AttributeList_Delete", (c_void_p,), c_int)(attributes)

    def address(self, name: str) -> int | None:
        """Address of a function."""
        return ctypes.cast(getattr(self._library, name), c_void_p).value

    def check(self, code: int, what: str) -> None:
        """Raise TailbackError for a code that is not success."""
        if code:
            reason = (self._describe(code) or b"").decode(errors="replace")
            raise TailbackError(
                f"the OTF2 library fails to write {what}: {reason}",
                remedy="check the free space on its disk",
            )

    def _function(self, name: str, types: tuple[Any, ...], result: Any) -> Callable[..., Any]:
        if name not in self._functions:
            function: Any = getattr(self._library, name)
            function.argtypes, function.restype = types, result
            self._functions[name] = function
        return self._functions[name]


class StringNumbers:
    """Numbers of the strings of an archive, each written once."""

    def __init__(
        self, otf2: Otf2Library, writer: int, first: Mapping[bytes, int] | None = None
    ) -> None:
        self._otf2, self._writer = otf2, writer
        self._numbers: dict[str, int] = {}
        for text in first or ():
            self(text.decode())

    def __call__(self, text: str) -> int:
        """The number of a string, which is written if it is new."""
        if text not in self._numbers:
            self._numbers[text] = len(self._numbers)
            data = text.encode("utf-8", "replace").replace(b"\0", b"")
            self._otf2.define("String", self._writer, self._numbers[text], data)
        return self._numbers[text]
