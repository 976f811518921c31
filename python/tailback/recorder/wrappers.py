"""Writes the C of the wrappers of :mod:`tailback.recorder.calls`, for C and for Fortran programs.

The wrapper of a Fortran call calls the library's own Fortran entry point. Both wrappers fill the
same C variables (``dest``, ``comm``, ``status`` …) and record them by the same lines.
"""

from __future__ import annotations

from collections.abc import Collection

from tailback.recorder.calls import SPECIAL, Argument, MpiCall, calls

_F2C = {
    "MPI_Comm": "PMPI_Comm_f2c",
    "MPI_Datatype": "PMPI_Type_f2c",
    "MPI_Request": "PMPI_Request_f2c",
    "MPI_Message": "PMPI_Message_f2c",
    "MPI_Win": "PMPI_Win_f2c",
}

_RECORD = {
    "send": "tb_send(thread, comm, dest, tag, count, datatype);",
    "recv": "tb_receive(thread, comm, status);",
    "sendrecv": "tb_send(thread, comm, dest, tag, count, datatype);\n"
    "    tb_receive(thread, comm, status);",
    "isend": "tb_post_send(thread, *request, comm, dest, tag, count, datatype);",
    "irecv": "tb_post_receive(thread, *request, comm, source);",
    "send_init": "tb_init_send(*request, comm, dest, tag, count, datatype);",
    "recv_init": "tb_init_receive(*request, comm, source);",
    "start": "tb_begin_request(thread, *request);",
    "startall": "for (int i = 0; i < count; i++) tb_begin_request(thread, requests[i]);",
    "wait": "tb_complete(thread, saved[0], status);",
    "waitall": "for (int i = 0; i < count; i++) tb_complete(thread, saved[i], &statuses[i]);",
    "waitany": "if (*index != MPI_UNDEFINED) tb_complete(thread, saved[*index], status);",
    "waitsome": "if (*outcount != MPI_UNDEFINED)\n"
    "      for (int i = 0; i < *outcount; i++)\n"
    "        tb_complete(thread, saved[indices[i]], &statuses[i]);",
    "test": "if (*flag) tb_complete(thread, saved[0], status);",
    "testall": "if (*flag)\n"
    "      for (int i = 0; i < count; i++)\n"
    "        tb_complete(thread, saved[i], &statuses[i]);",
    "testany": "if (*flag && *index != MPI_UNDEFINED) tb_complete(thread, saved[*index], status);",
    "request_free": "tb_forget_request(saved[0]);",
    "mprobe": "tb_matched(*message, comm);",
    "improbe": "if (*flag) tb_matched(*message, comm);",
    "mrecv": "tb_receive_matched(thread, matched, status);",
    "imrecv": "tb_post_matched(thread, *request, matched);",
    "coll": "tb_collect(thread, &collective);",
    "neighbour": "tb_neighbours(thread, &collective);",
    "ineighbour": "tb_post_neighbours(thread, *request, &collective);",
    "neighbour_init": "tb_init_neighbours(thread, *request, &collective);",
    "icoll": "tb_post_collective(thread, *request, &collective);",
    "coll_init": "tb_init_collective(*request, &collective);",
    "psend_init": "tb_init_partitioned(*request, comm, dest, tag, (long long)partitions * count, "
    "datatype, TB_SENT);",
    "precv_init": "tb_init_partitioned(*request, comm, source, tag, "
    "(long long)partitions * count, datatype, TB_IRECEIVE);",
    "partition": "",
    "isendrecv": "struct tb_pair pair = {dest, tag, count, datatype, source, recvtag, recvcount, "
    "recvtype};\n    tb_post_pair(thread, *request, comm, &pair);",
    "isendrecv_replace": "struct tb_pair pair = {dest, tag, count, datatype, source, recvtag, "
    "count, datatype};\n    tb_post_pair(thread, *request, comm, &pair);",
    "comm": "tb_new_comm(*newcomm, {of});",
    "comm_free": "",
    "win": "tb_new_window(*win, comm);",
    "win_free": "",
    "rma": "tb_rma(thread, win, target, TB_{op}, count, datatype);",
    "rma1": "tb_rma(thread, win, target, TB_ATOMIC, 1, datatype);",
    "sync": "tb_sync(thread, win, {target}, {fence});",
    "time": "",
}
"""What is recorded after a call of each kind that succeeded."""

_WAITS = ("wait", "waitall", "waitany", "waitsome", "test", "testall", "testany", "request_free")
_NEIGHBOURHOOD = ("neighbour", "ineighbour", "neighbour_init")
_COLLECTIVE = ("coll", "icoll", "coll_init", *_NEIGHBOURHOOD)
_BEFORE = {"comm_free": "tb_forget_comm(*comm);", "win_free": "tb_forget_window(*win);"}

_HEAD = """/* Written by tailback.recorder.wrappers. */
#define _GNU_SOURCE
#include "recorder.h"

#include <dlfcn.h>

_Static_assert(sizeof(MPI_Fint) == sizeof(int), "INTEGER of Fortran is int of C");

#define TB_FEW 64

/* MPICH has no PMPI entry points of mpi_f08: then the library's own, which calls C. Calls of C from
 * inside a wrapper are not recorded. */
#define TB_NEXT(name, types)                                                                     \\
  static void (*next) types;                                                                     \\
  if (!next) next = p##name ? p##name : (void (*) types)dlsym(RTLD_NEXT, #name)

/* What programs of mpi_f08 give MPICH for a status that they do not want; mpi.h may have another
 * type for it. */
extern MPI_Fint tb_no_status __asm__("MPIR_F08_MPI_STATUS_IGNORE_OBJ") __attribute__((weak));
extern MPI_Fint tb_no_statuses __asm__("MPIR_F08_MPI_STATUSES_IGNORE_OBJ") __attribute__((weak));

static inline int tb_ignored(const MPI_Fint *status) {
  return status == MPI_F_STATUS_IGNORE || status == MPI_F_STATUSES_IGNORE ||
         (&tb_no_status && status == &tb_no_status) ||
         (&tb_no_statuses && status == &tb_no_statuses);
}
"""


def source(available: Collection[str] | None = None) -> str:
    """The C source of the wrappers.

    Args:
        available: Names of the calls that the MPI library has; all calls when None.
    """
    parts = [_HEAD, _SPECIAL]
    for region, call in enumerate(calls(), len(SPECIAL)):
        if available is not None and call.name not in available:
            continue
        parts.append(_c_wrapper(call, region))
        if not call.large:
            # Large counts of Fortran have other entry points in every library.
            names = (call.fortran, call.fortran[:-1] + "_f08_")
            parts += [_fortran(call, region, name) for name in names]
    return "\n".join(parts)


def _c_wrapper(call: MpiCall, region: int) -> str:
    arguments = ", ".join(argument.name for argument in call.arguments)
    lines = [
        f"int {call.name}({', '.join(argument.declared for argument in call.arguments)}) {{",
        "  struct tb_thread *thread = tb_enter();",
        f"  if (!thread) return P{call.name}({arguments});",
    ]
    after: list[str] = []
    if call.kind in _WAITS:
        size, of = ("count", "requests") if call.has("requests") else ("1", "request")
        lines += [
            f"  MPI_Request few[TB_FEW], *saved = tb_array(few, {size}, sizeof *few);",
            f"  if ({size} > 0) memcpy(saved, {of}, sizeof *few * (size_t){size});",
        ]
        after.append("  if (saved != few) free(saved);")
    if call.kind in ("mrecv", "imrecv"):
        lines.append("  MPI_Message matched = *message;")
    if call.has("status"):
        lines += ["  MPI_Status own;", "  if (status == MPI_STATUS_IGNORE) status = &own;"]
    if call.has("statuses"):
        lines += [
            "  MPI_Status some[TB_FEW], *own = NULL;",
            "  if (statuses == MPI_STATUSES_IGNORE)",
            "    statuses = own = tb_array(some, count, sizeof *some);",
        ]
        after.append("  if (own && own != some) free(own);")
    if call.kind in _BEFORE:
        lines.append("  " + _BEFORE[call.kind])
    lines += [
        "  uint64_t enter = tb_now();",
        f"  int result = P{call.name}({arguments});",
        "  uint64_t leave = tb_now();",
    ]
    return "\n".join([*lines, *_recorded(call, region), *after, "  return result;", "}", ""])


def _recorded(call: MpiCall, region: int) -> list[str]:
    site = "__builtin_return_address(0)"
    lines = [f"  tb_call(thread, {region}, {site}, enter, leave);"]
    body = _RECORD[call.kind].replace("{op}", call.op)
    body = body.replace("{target}", "target" if call.has("target") else "-1")
    body = body.replace("{fence}", str(int(call.name == "MPI_Win_fence")))
    body = body.replace("{of}", call.arguments[0].name)
    if body:
        lines.append("  if (result == MPI_SUCCESS) {")
        if call.kind in _COLLECTIVE:
            lines.append("    " + _collective(call))
        lines += ["    " + body, "  }"]
    return [*lines, "  tb_exit(thread);"]


def _collective(call: MpiCall) -> str:
    fields = ["comm", f"TB_{call.op}", "root" if call.has("root") else "(int)UINT32_MAX"]
    counts_alike = call.has("count")
    sends = "count" if counts_alike else "sendcount" if call.has("sendcount") else "0"
    receives = "recvcount" if call.has("recvcount") else "0"
    typed = call.has("datatype")
    send_type = "datatype" if typed else "sendtype" if call.has("sendtype") else None
    receive_type = "recvtype" if call.has("recvtype") else None
    fields += [
        sends,
        receives,
        send_type or "MPI_DATATYPE_NULL",
        receive_type or "MPI_DATATYPE_NULL",
    ]
    vectors = [
        name if call.has(name) else "NULL"
        for name in ("sendcounts", "recvcounts", "sendtypes", "recvtypes")
    ]
    fields.append("{" + ", ".join([*vectors, str(int(call.large))]) + "}")
    fields.append("tb_is_in_place(sendbuf)" if call.has("sendbuf") else "0")
    return f"struct tb_collective collective = {{{', '.join(fields)}}};"


# Fortran ------------------------------------------------------------------------------------------


def _fortran(call: MpiCall, region: int, name: str) -> str:
    """The Fortran wrapper: handles become C's before or after, the call itself stays Fortran's."""
    declared = [_fortran_type(argument) + f" *f_{argument.name}" for argument in call.arguments]
    arguments = [f"f_{argument.name}" for argument in call.arguments]
    lines = [
        f"extern void p{name}({', '.join(declared)}, MPI_Fint *) __attribute__((weak));",
        f"void {name}({', '.join(declared)}, MPI_Fint *f_error) {{",
        f"  TB_NEXT({name}, ({', '.join(declared)}, MPI_Fint *));",
        "  struct tb_thread *thread = tb_enter();",
        "  MPI_Fint result = 0;",
        f"  if (!thread) {{ next({', '.join(arguments)}, f_error); return; }}",
    ]
    before, after, last = _converted(call)
    if call.kind in _BEFORE:
        before.append("  " + _BEFORE[call.kind].replace("*", ""))
    lines += before
    lines += [
        "  uint64_t enter = tb_now();",
        f"  next({', '.join(arguments)}, &result);",
        "  uint64_t leave = tb_now();",
        "  if (f_error) *f_error = result;",
    ]
    recorded = _recorded(call, region)
    return "\n".join([*lines, *after, *recorded, *last, "}", ""])


def _fortran_type(argument: Argument) -> str:
    if argument.type in ("const void", "void"):
        return argument.type
    if argument.type in ("MPI_Aint", "MPI_Count"):
        return argument.type
    return "MPI_Fint" if not argument.type.startswith("const ") else "const MPI_Fint"


_Lines = tuple[list[str], list[str], list[str]]
"""Lines before the call, after it, and after what is recorded."""


def _converted(call: MpiCall) -> _Lines:
    """How the C variables get their values from Fortran's arguments."""
    used = _RECORD[call.kind].replace("{of}", call.arguments[0].name)
    used += _BEFORE.get(call.kind, "")
    if call.kind in _COLLECTIVE:
        used += _collective(call)
    lines: _Lines = ([], [], [])
    for argument in call.arguments:
        converted = _special(call, argument, used)
        if converted is None and _uses(used, argument.name):
            converted = _plain(call, argument)
        for to, new in zip(lines, converted or (), strict=False):
            to.extend(new)
    return lines


def _special(call: MpiCall, argument: Argument, used: str) -> _Lines | None:
    """Arguments whose values of Fortran mean something else to C; None for any other."""
    name = argument.name
    if name == "status":
        before = [
            "  MPI_Fint own[sizeof(MPI_Status) / sizeof(MPI_Fint) + 1];",
            "  if (tb_ignored(f_status)) f_status = own;",
        ]
        after = [
            "  MPI_Status c_status, *status = &c_status;",
            "  if (result == MPI_SUCCESS) PMPI_Status_f2c(f_status, status);",
        ]
        return before, after if "status" in used else [], []
    if name == "statuses":
        return _statuses("outcount" if call.has("outcount") else "count")
    if name in ("request", "requests") and call.kind in _WAITS:
        n = "*f_count" if name == "requests" else "1"
        return (
            [
                f"  MPI_Request few[TB_FEW], *saved = tb_array(few, {n}, sizeof *few);",
                f"  for (int i = 0; i < {n}; i++) saved[i] = PMPI_Request_f2c(f_{name}[i]);",
            ],
            [],
            ["  if (saved != few) free(saved);"],
        )
    if name == "requests":
        return (
            [],
            [
                "  MPI_Request few[TB_FEW], *requests = tb_array(few, *f_count, sizeof *few);",
                "  for (int i = 0; i < *f_count; i++)",
                "    requests[i] = PMPI_Request_f2c(f_requests[i]);",
            ],
            ["  if (requests != few) free(requests);"],
        )
    if name == "message" and call.kind in ("mrecv", "imrecv"):
        return ["  MPI_Message matched = PMPI_Message_f2c(*f_message);"], [], []
    if name == "indices":
        return (
            [],
            [
                "  int found[TB_FEW], *indices = tb_array(found, *f_count, sizeof *found);",
                "  for (int i = 0; i < *f_outcount; i++) indices[i] = f_indices[i] - 1;",
            ],
            ["  if (indices != found) free(indices);"],
        )
    if name == "index" and "*index" in used:
        return (
            [],
            [
                "  int c_index = *f_index == MPI_UNDEFINED ? *f_index : *f_index - 1;",
                "  int *index = &c_index;",
            ],
            [],
        )
    if name in ("sendtypes", "recvtypes") and _uses(used, name):
        return _types(call, name)
    return None


def _types(call: MpiCall, name: str) -> _Lines:
    """A datatype for each rank of the communicator, or for each neighbour."""
    made = f"tb_types(f_{name}, PMPI_Comm_f2c(*f_comm))"
    if call.kind in _NEIGHBOURHOOD:
        sends = int(name == "sendtypes")
        made = f"tb_neighbour_types(f_{name}, PMPI_Comm_f2c(*f_comm), {sends})"
    return [f"  MPI_Datatype *{name} = {made};"], [], [f"  free({name});"]


def _statuses(n: str) -> _Lines:
    before = [
        "  const size_t words = sizeof(MPI_Status) / sizeof(MPI_Fint);",
        "  MPI_Fint *own = NULL;",
        "  if (tb_ignored(f_statuses))",
        "    f_statuses = own = tb_array(NULL, *f_count, sizeof(MPI_Status));",
    ]
    after = [
        "  MPI_Status some[TB_FEW], *statuses = tb_array(some, *f_count, sizeof *some);",
        f"  for (int i = 0; result == MPI_SUCCESS && i < *f_{n}; i++)",
        "    PMPI_Status_f2c(f_statuses + (size_t)i * words, &statuses[i]);",
    ]
    return before, after, ["  if (statuses != some) free(statuses);", "  free(own);"]


def _plain(call: MpiCall, argument: Argument) -> _Lines:
    """Handles, numbers and arrays of numbers."""
    name, kind = argument.name, argument.type.removeprefix("const ")
    if kind in _F2C:
        value = f"{_F2C[kind]}(*f_{name})"
        if not argument.pointer or call.kind in _BEFORE:
            return [f"  {kind} {name} = {value};"], [], []
        return [], [f"  {kind} c_{name} = {value}, *{name} = &c_{name};"], []
    if argument.array or (argument.pointer and kind == "int"):
        return [], [f"  const int *{name} = f_{name};"], []
    if kind in ("int", "MPI_Count"):
        return [f"  {kind} {name} = *f_{name};"], [], []
    return [f"  const void *{name} = f_{name};"] if name == "sendbuf" else [], [], []


def _uses(text: str, name: str) -> bool:
    words = "".join(letter if letter.isalnum() or letter == "_" else " " for letter in text)
    return name in words.split()


_SPECIAL = """
static void *tb_array(void *few, int n, size_t bytes) {
  if (few && n <= TB_FEW) return few;
  void *room = malloc(bytes * (size_t)(n > 0 ? n : 1));
  if (!room) abort();
  return room;
}

static MPI_Datatype *tb_types(const MPI_Fint *types, MPI_Comm comm) {
  int size, inter;
  PMPI_Comm_test_inter(comm, &inter);
  if (inter) PMPI_Comm_remote_size(comm, &size);
  else PMPI_Comm_size(comm, &size);
  MPI_Datatype *out = tb_array(NULL, size, sizeof *out);
  for (int i = 0; i < size; i++) out[i] = PMPI_Type_f2c(types[i]);
  return out;
}

#define TB_SITE __builtin_return_address(0)

/* The PMPI entry point, or where a library has none its own. */
#define TB_REAL(name, types) (p##name ? p##name : (void (*) types)dlsym(RTLD_NEXT, #name))

int MPI_Init(int *argc, char ***argv) {
  uint64_t enter = tb_now();
  int result = PMPI_Init(argc, argv);
  if (result == MPI_SUCCESS) tb_start(enter, tb_now(), 0, TB_SITE);
  return result;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) {
  uint64_t enter = tb_now();
  int result = PMPI_Init_thread(argc, argv, required, provided);
  if (result == MPI_SUCCESS) tb_start(enter, tb_now(), 1, TB_SITE);
  return result;
}

int MPI_Finalize(void) {
  tb_finish(tb_now(), 2, TB_SITE);
  return PMPI_Finalize();
}

int MPI_Abort(MPI_Comm comm, int code) {
  tb_give_up();
  return PMPI_Abort(comm, code);
}

#define TB_FORTRAN(suffix)                                                                       \\
  extern void pmpi_init##suffix(MPI_Fint *) __attribute__((weak));                               \\
  void mpi_init##suffix(MPI_Fint *f_error) {                                                     \\
    uint64_t enter = tb_now();                                                                   \\
    MPI_Fint result = 0;                                                                         \\
    TB_REAL(mpi_init##suffix, (MPI_Fint *))(&result);                                            \\
    if (f_error) *f_error = result;                                                              \\
    if (result == MPI_SUCCESS) tb_start(enter, tb_now(), 0, TB_SITE);                            \\
  }                                                                                              \\
  extern void pmpi_init_thread##suffix(MPI_Fint *, MPI_Fint *, MPI_Fint *) __attribute__((weak)); \\
  void mpi_init_thread##suffix(MPI_Fint *required, MPI_Fint *provided, MPI_Fint *f_error) {      \\
    uint64_t enter = tb_now();                                                                   \\
    MPI_Fint result = 0;                                                                         \\
    TB_REAL(mpi_init_thread##suffix, (MPI_Fint *, MPI_Fint *, MPI_Fint *))                       \\
    (required, provided, &result);                                                               \\
    if (f_error) *f_error = result;                                                              \\
    if (result == MPI_SUCCESS) tb_start(enter, tb_now(), 1, TB_SITE);                            \\
  }                                                                                              \\
  extern void pmpi_abort##suffix(MPI_Fint *, MPI_Fint *, MPI_Fint *) __attribute__((weak));       \\
  void mpi_abort##suffix(MPI_Fint *comm, MPI_Fint *code, MPI_Fint *f_error) {                    \\
    tb_give_up();                                                                                \\
    TB_REAL(mpi_abort##suffix, (MPI_Fint *, MPI_Fint *, MPI_Fint *))(comm, code, f_error);       \\
  }                                                                                              \\
  extern void pmpi_finalize##suffix(MPI_Fint *) __attribute__((weak));                           \\
  void mpi_finalize##suffix(MPI_Fint *f_error) {                                                 \\
    MPI_Fint result = 0;                                                                         \\
    tb_finish(tb_now(), 2, TB_SITE);                                                             \\
    TB_REAL(mpi_finalize##suffix, (MPI_Fint *))(&result);                                        \\
    if (f_error) *f_error = result;                                                              \\
  }

TB_FORTRAN(_)
TB_FORTRAN(_f08_)
"""
